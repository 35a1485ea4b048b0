"""How a run is trained; what is learned, the recipe says. Defaults: the paper's where it gives any (methods.md S11)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from redraft.models.adapters import Lora

# What may change between a run and its continuation: it changes how fast, not what, is computed.
FREE = ("batch", "accumulate", "save_every", "keep", "gradient_checkpointing", "compile", "shard")


@dataclass(frozen=True)
class Settings:
    steps: int = 500  # of the optimiser
    batch: int = 1  # rows of one process's forward pass
    accumulate: int = 4  # forward passes of one optimiser step
    length: int = 1024
    lr: float | int = 1.5e-4
    warmup: int = 50  # steps in which lr rises to its value; constant afterwards
    betas: tuple[float | int, float | int] = (0.9, 0.999)
    weight_decay: float | int = 0.0
    clip: float | int = 1.0  # of the gradient's norm
    seed: int = 0
    save_every: int = 50
    keep: int = 2
    gradient_checkpointing: bool = False
    compile: bool = False  # the network's blocks, by torch.compile: faster and smaller on a GPU, after a minute's work
    lora: Lora | None = field(default_factory=Lora)  # None: every parameter is trained
    shard: bool = False  # the parameters over all processes (torch's fully_shard); False: a copy on each

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "length", "save_every", "keep"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
        if not isinstance(self.warmup, int) or self.warmup < 0:
            raise ValueError(f"warmup is a whole number of steps, not {self.warmup!r}")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} is a number above 0, not {value!r}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay is 0 or more, not {self.weight_decay!r}")
        if self.compile and self.shard:
            raise ValueError("compiled layers cannot be sharded: leave out either compile or shard")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are two numbers in [0, 1), not {self.betas!r}")

    def rate(self, step: int) -> float:
        """The learning rate of optimiser step `step`, counted from 0."""
        return self.lr * min(1.0, (step + 1) / self.warmup) if self.warmup else self.lr

    def rows(self, world: int) -> int:
        """Examples of one optimiser step."""
        return self.batch * self.accumulate * world

    def record(self, world: int) -> dict[str, Any]:
        """What decides the result, as JSON: a continuation must have the same."""
        said = {name: value for name, value in asdict(self).items() if name not in FREE}
        said["betas"] = list(self.betas)
        if self.lora is not None:
            targets = self.lora.targets
            said["lora"]["targets"] = targets if isinstance(targets, str) else list(targets)
        return {**said, "rows": self.rows(world)}
