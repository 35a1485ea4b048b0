"""Standard unmasking, LLaDA's "low-confidence remasking": reveal the surest masks, freeze them for good.

Nie et al., Large Language Diffusion Models (arXiv 2502.09992), Algorithm 5; `generate.py` of ML-GSAI/LLaDA.
Differs from the reference: EOS policy, ties (lowest position) and precision are the reading's, and the mask token is
not a candidate unless `forbid_mask=False`; even then no mask outlives a block's last step (tests/test_reference.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Sampler, Schedule, register, top
from redraft.shapes import Bool


@register
@dataclass(frozen=True, repr=False)
class Unmask(Sampler):
    """Reveal the most confident masks at each step; what is visible never changes."""

    schedule: Schedule = "front"  # LLaDA gives the remainder of tokens / steps to the first steps

    channels = frozenset({"m2t"})
    citation = "Nie et al. 2025, Large Language Diffusion Models, arXiv 2502.09992, Algorithm 5"
    provenance = "repository: ML-GSAI/LLaDA generate.py; tokens equal to it at every step"

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        revealed = top(pred.confidence, clock.increment(block, self.schedule), among=block.masked)
        return block.write(torch.where(revealed, pred.tokens, block.tokens))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)
