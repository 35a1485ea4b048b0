"""Time: which step this is, and how many tokens a schedule wants visible after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from redraft.shapes import Bool, Int

if TYPE_CHECKING:
    from redraft.decoding.canvas import Block

Schedule = Literal["floor", "front", "ceil", "late"]

# Cumulative visible tokens after step t of S, for n tokens. All agree when S divides n.
SCHEDULES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "floor": lambda n, t, S: n * t // S,  # D3IM: K(t) = floor(n t / S)
    "front": lambda n, t, S: t * (n // S) + torch.minimum(t, n % S),  # LLaDA: the remainder goes to the first steps
    "ceil": lambda n, t, S: -(-n * t // S),  # MDPO / RCR
    "late": lambda n, t, S: t * (n // S) + (t - S + n % S).clamp_min(0),  # RemeDi: the remainder goes to the last steps
}
assert set(SCHEDULES) == set(get_args(Schedule))


@dataclass(frozen=True)
class Clock:
    """Step `step` of `steps` (1-based), as [b, 1] tensors: one compiled step serves every t, and rows may differ."""

    step: Int[Tensor, "b 1"]
    steps: Int[Tensor, "b 1"]
    stage: int

    @classmethod
    def at(cls, step: int, steps: int, stage: int, rows: int, device: torch.device) -> Clock:
        ones = torch.ones(rows, 1, dtype=torch.int64, device=device)
        return cls(ones * step, ones * steps, stage)

    @property
    def final(self) -> Bool[Tensor, "b 1"]:
        return self.step >= self.steps

    def quota(self, block: Block, schedule: Schedule = "floor") -> Int[Tensor, "b 1"]:
        """How many of the block's own active positions are visible after this step."""
        return SCHEDULES[schedule](block.active[:, block.own :].sum(-1, keepdim=True), self.step, self.steps)

    def increment(self, block: Block, schedule: Schedule = "floor") -> Int[Tensor, "b 1"]:
        """How many more that is than after the step before."""
        count = block.active[:, block.own :].sum(-1, keepdim=True)
        cumulative = SCHEDULES[schedule]
        return cumulative(count, self.step, self.steps) - cumulative(count, self.step - 1, self.steps)

    def rows(self, index: Int[Tensor, " r"]) -> Clock:
        return Clock(self.step[index], self.steps[index], self.stage)
