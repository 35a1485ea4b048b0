"""What one micro-batch is, what is made of it, and where chance comes from: (seed, global example index) alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from redraft.decoding.noise import counter_uniform, derive, stream_number
from redraft.shapes import Bool, Float, Int


class Batch(NamedTuple):
    """Rows padded on the right, so that a position keeps its number, and with it its noise, whatever is beside it."""

    tokens: Int[Tensor, "b n"]
    eligible: Bool[Tensor, "b n"]  # may be masked: False on prompts and padding
    attend: Bool[Tensor, "b n"] | None  # False on padding; None where nothing is padded
    indices: Int[Tensor, " b"]  # of the examples, in the whole shuffled stream

    def to(self, device: torch.device | str) -> Batch:
        return self._map(lambda part: part.to(device))

    def rows(self, which: slice | Tensor) -> Batch:
        return self._map(lambda part: part[which])

    def seeds(self, seed: int) -> Int[Tensor, " b"]:
        """One seed a row, from the run's seed and the row's global example index."""
        return torch.tensor([derive(seed, int(index)) for index in self.indices.tolist()], device=self.tokens.device)

    def _map(self, change) -> Batch:
        attend = None if self.attend is None else change(self.attend)
        return Batch(change(self.tokens), change(self.eligible), attend, change(self.indices))


class Draft(NamedTuple):
    """What the model is trained on, and which of it is what. Committed and masked positions never overlap."""

    tokens: Int[Tensor, "b n"]
    committed: Bool[Tensor, "b n"]  # the model's own guesses, visible
    masked: Bool[Tensor, "b n"]
    wrong: Bool[Tensor, "b n"]  # committed, and not the truth
    conditioned: Bool[Tensor, " b"]  # rows that may have commits


def row_uniform(seeds: Int[Tensor, " b"], stream: str) -> Float[Tensor, " b"]:
    """One uniform a row, in float64 on the CPU: rates and shares must be the same on every device."""
    return counter_uniform(seeds.cpu(), (stream_number(f"train.{stream}"),), (1,))[:, 0].double()


def position_uniform(seeds: Int[Tensor, " b"], stream: str, length: int) -> Float[Tensor, "b n"]:
    """One uniform a position; a longer row begins with what a shorter one draws."""
    return counter_uniform(seeds, (stream_number(f"train.{stream}"),), (length,))
