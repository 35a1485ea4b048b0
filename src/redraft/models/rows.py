"""Logits for a few positions at a time: what training asks of a network, so that [positions, vocabulary] never exists.

One sequence of 2,048 tokens has a gigabyte of LLaDA-8B's logits in float32, and a loss makes several tensors of that
size. Here head and loss run over chunks of the wanted positions inside the network's own forward pass, where adapters,
DDP and sharding see them; with gradients, each chunk is computed again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from redraft.shapes import Float, Int

_ELEMENTS = 2**25  # of one chunk of logits: 128 MiB in float32, 265 positions of LLaDA-8B


@dataclass(frozen=True, eq=False)
class Rows:
    """Which positions are wanted and what is to be made of their logits.

    `read(logits [c v], *given [c ...])` returns a tuple of tensors [c ...]; it sees the wanted positions in order, `c`
    of them at a time, and must treat each by itself. A class, for wrappers would take a tuple apart and cast it.
    """

    index: Int[Tensor, " r"]  # row * length + column
    read: Callable[..., tuple[Tensor, ...]]
    given: tuple[Tensor, ...] = ()
    chunk: int | None = None  # positions at a time; by default as many as make 128 MiB

    def through(self, head: Callable[[Tensor], Tensor], hidden: Float[Tensor, "r d"], width: int) -> tuple[Tensor, ...]:
        """`read` of the logits that `head`, `width` wide, makes of the wanted positions' `hidden`."""

        def some(hidden: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            return self.read(head(hidden), *given)

        size = max(1, _ELEMENTS // width) if self.chunk is None else self.chunk
        chunks = list(zip(*(part.split(size) for part in (hidden, *self.given)), strict=True))
        again = torch.is_grad_enabled() and len(chunks) > 1
        results: list[Any] = [
            # Nothing in `read` may draw from torch's global generator, so its state need not be kept.
            checkpoint(some, *chunk, use_reentrant=False, preserve_rng_state=False) if again else some(*chunk)
            for chunk in chunks
        ]
        return tuple(torch.cat(parts) for parts in zip(*results, strict=True))
