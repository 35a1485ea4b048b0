"""Threshold decoding: at each step reveal every mask that is sure enough, or the surest one.

Wu et al., Fast-dLLM (arXiv 2505.22618), Algorithm 1; `llada/generate.py` of NVlabs/Fast-dLLM, `threshold=`.
Differs from the reference: rows of a batch go on by themselves, the surest mask is the reading's, ties go to the lowest
position, and there is no approximate cache. As there, `steps` sets nothing: a block ends when it is full.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, sure
from redraft.shapes import Bool


@register
@dataclass(frozen=True, repr=False)
class Threshold(Sampler):
    """Reveal every mask of at least a given probability, and at least one a step; what is visible never changes."""

    th: Number = 0.9

    channels = frozenset({"m2t"})
    eos = "none"
    citation = "Wu et al. 2025, Fast-dLLM, arXiv 2505.22618, Algorithm 1"
    provenance = "repository: NVlabs/Fast-dLLM @ 24cc59e, without its caches; tokens equal to it at every step"

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        return length

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        equal_blocks(self, length, steps, None)  # refuses what means nothing
        return equal_blocks(self, length, length, block)

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        revealed = sure(pred, block, self.th, reached=True)
        return block.write(torch.where(revealed, pred.tokens, block.tokens))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)
