"""The processes of one run, as torchrun or `accelerate launch` started them: who this is, and what the others have.

Only small objects travel, over gloo between CPUs, whatever device the models are on. Note that
`accelerate launch --num_processes 2 --cpu` quietly starts one process; torchrun starts two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")
PATIENCE = timedelta(days=14)  # one process may have the slowest batches, on the slowest machine
REFUSED = 2


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    world: int = 1
    local: int = 0  # the rank on its machine: the number of its GPU

    @property
    def first(self) -> bool:
        return self.rank == 0

    def gather(self, mine: T) -> list[T]:
        """What each process has, everywhere, in the order of ranks. All must ask."""
        if self.world == 1:
            return [mine]
        from torch import distributed

        found: list[T] = [mine] * self.world
        distributed.all_gather_object(found, mine)
        return found

    def agree(self, attempt: Callable[[], T]) -> T:
        """Do something that may be refused; where one process is refused, all stop, and the first says why."""
        result, refusal = None, None
        try:
            result = attempt()
        except ValueError as refused:
            refusal = str(refused)
        refusals = [said for said in self.gather(refusal) if said is not None]
        if refusals and self.first:
            raise ValueError(refusals[0])
        if refusals:
            raise SystemExit(REFUSED)
        return result  # type: ignore[return-value]

    def device(self, asked: str | None) -> str | None:
        """A GPU of its own for each of several processes, unless one is asked for."""
        import torch

        if asked is not None or self.world == 1 or not torch.cuda.is_available():
            return asked
        return f"cuda:{self.local % torch.cuda.device_count()}"


@contextmanager
def processes() -> Iterator[Processes]:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes()
        return
    from torch import distributed

    distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield Processes(distributed.get_rank(), world, int(os.environ.get("LOCAL_RANK", "0")))
    finally:
        distributed.destroy_process_group()
