"""A denoiser asked again about the very canvas it has just seen answers from memory.

A schedule goes on when nothing is left to change: an answer of 40 tokens on a canvas of 128 is settled after a third of
its steps, and the others ask for the same logits again. Rows are compared with the call before. Those that are the same
are not computed; the others are, together, so in float32 and bfloat16 their last bits may differ from those of the
whole batch, as they do between any two batches. Calls and tokens are counted as if every row had been computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from redraft.shapes import Bool, Float, Int


class Reuse:
    """Wraps any `Denoiser`. It keeps the logits of one call."""

    def __init__(self, denoiser: Any) -> None:
        self.denoiser = denoiser
        self.asked: tuple[Tensor, ...] = ()
        self.context: tuple[Any, ...] = ()
        self.logits: Tensor | None = None
        self.rows = self.computed = 0  # asked for, and not answered from memory

    def __call__(
        self,
        tokens: Int[Tensor, "b n"],
        *,
        attend: Tensor | None = None,
        positions: Int[Tensor, "r n"] | None = None,
        columns: slice | Int[Tensor, "w"] = slice(None),
        **other: Any,
    ) -> Float[Tensor, "b w v"]:
        if other or not isinstance(columns, slice):  # mixtures of tokens, scattered columns: too rare to be kept
            return self.denoiser(tokens, attend=attend, positions=positions, columns=columns, **other)
        given = {"tokens": tokens, "attend": attend, "positions": positions}
        asked = tuple(one for one in given.values() if one is not None)
        context = (columns, *(None if one is None else one.shape for one in given.values()))
        same = self._same(asked, context, len(tokens))
        fresh = (~same).nonzero().squeeze(-1)
        self.rows, self.computed = self.rows + len(tokens), self.computed + len(fresh)
        if self.logits is None or len(fresh) == len(tokens):
            logits = self.denoiser(tokens, attend=attend, positions=positions, columns=columns)
        else:
            logits = self.logits
            if len(fresh):
                some = {
                    name: one if one is None or len(one) != len(tokens) else one[fresh.to(one.device)]
                    for name, one in given.items()
                }
                new = self.denoiser(some.pop("tokens"), **some, columns=columns)
                logits = logits.index_copy(0, fresh.to(logits.device), new)
        self.asked, self.context, self.logits = tuple(one.clone() for one in asked), context, logits
        return logits

    def _same(self, asked: tuple[Tensor, ...], context: tuple[Any, ...], count: int) -> Bool[Tensor, " b"]:
        """Which rows are those of the call before."""
        if context != self.context:
            return torch.zeros(count, dtype=torch.bool)
        same = torch.ones(count, dtype=torch.bool)
        for now, before in zip(asked, self.asked, strict=True):
            same &= (now == before).flatten(1).all(-1).cpu()  # positions of one row are those of all
        return same
