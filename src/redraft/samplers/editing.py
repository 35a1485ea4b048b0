"""Threshold decoding with token editing: reveal what is sure, overwrite what a sure rival contradicts, until all rests.

Bie et al., LLaDA2.1 (arXiv 2602.08676), `generate` of its model files: each pass over a block writes every mask of
probability above `th`, or the surest, and overwrites visible tokens whose different argmax is above `th_edit`. A full
block is passed over until nothing changes, `max_post` times at most; `steps` sets nothing.
Differs from the reference: that is a block-causal model trained to edit, here a plain one sees the whole canvas, blocks
count from the response's start, and end tokens end nothing; the probability is that of temperature 1; where the EOS
policy vetoes an edit the old token stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, sure
from redraft.shapes import Bool


@register
@dataclass(frozen=True, repr=False)
class Editing(Sampler):
    """Reveal every mask above one bar and overwrite what is contradicted above another, until a block rests."""

    th: Number = 0.95
    th_edit: Number = 0.9
    max_post: int = 16  # passes over a full block, at most
    block: int = 32  # where no --block is given and the response is longer

    channels = frozenset({"m2t", "t2t"})
    eos = "none"
    experimental = True
    citation = "Bie et al. 2026, LLaDA2.1, arXiv 2602.08676: joint thresholds"
    provenance = (
        "repository: LLaDA2.1's generate (as in synsis/remasked_DLM @ 1fe25ab), tokens equal to it on one network; "
        "inferred: the port to plain masked models (attention, blocks, no stop at end tokens)"
    )

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        return sum(stage.steps for stage in self.stages(length, steps, block))

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if self.max_post < 0:
            raise ValueError(f"max_post is 0 or more, not {self.max_post}")
        equal_blocks(self, length, steps, None)  # refuses what means nothing
        plan = equal_blocks(self, length, length, min(length, self.block) if block is None else block)
        return [stage._replace(steps=stage.steps + self.max_post) for stage in plan]

    def begin(self, block: Block) -> Block:
        return block.remember((~block.masked.any(-1)).long())  # passes over the full block, this one included

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        written = sure(pred, block, self.th)
        rival = (pred.tokens != block.tokens) & (pred.probability(pred.tokens).exp() > self.th_edit) & ~pred.vetoed
        written = written | (block.visible & rival)
        after = block.write(torch.where(written, pred.tokens, block.tokens))
        passes = torch.where(written.any(-1), block.memory + ~after.masked.any(-1), self.max_post + 1)
        return after.remember(passes)

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return block.memory > self.max_post
