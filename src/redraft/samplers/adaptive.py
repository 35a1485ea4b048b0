"""Adaptive D3IM: commit to everything that is sure, because it can be taken back, and stop once nothing changes.

Ours. As D3IM (Yu et al., arXiv 2606.01026, Algorithm 1), but the tokens kept are as many as the schedule wants or as
there are candidates above a bar, whichever is more; and a row is finished once its canvas is full and the model would
change nothing. Threshold decoders commit as boldly but cannot revise; D3IM revises but keeps to its schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Schedule, register, top
from redraft.shapes import Bool


@register
@dataclass(frozen=True, repr=False)
class Adaptive(Sampler):
    """D3IM that keeps every candidate above a bar, beyond what its schedule wants, and ends when nothing changes."""

    th: Number = 0.9
    schedule: Schedule = "floor"  # K(t), the least that is kept

    channels = frozenset({"m2t", "t2t", "t2m"})
    eos = "none"  # adaptive
    citation = "ours, upon Yu et al. 2026, Revise, Don't Freeze, arXiv 2606.01026, Algorithm 1"
    provenance = "ours; defaults chosen on validation items of the bundled tasks"

    def begin(self, block: Block) -> Block:
        return block.remember(torch.zeros_like(block.seeds, dtype=torch.bool))  # rows that are settled

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        free = block.active & ~pred.vetoed
        sure = free & (pred.probability(pred.tokens).exp() > self.th)
        count = torch.maximum(clock.quota(block, self.schedule), sure.sum(-1, keepdim=True))
        kept = top(pred.confidence, count, among=block.active)
        complete = ~(free & ~kept).any(-1, keepdim=True)  # end tokens that may not be kept wait for the others only
        settled = ((pred.tokens == block.tokens) | ~block.active).all(-1)
        kept = kept | complete | settled.unsqueeze(-1)
        return block.write(torch.where(kept, pred.tokens, block.mask_id), memory=settled)

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return block.memory
