"""T2M, token to mask: LLaDA2.1's loop, in which a suspect token is masked again instead of overwritten.

Yao, Remask, Don't Replace (arXiv 2604.18738); `remask/modeling_remask.py` of synsis/remasked_DLM. Suspect is a token
of low probability (low_prob), one that a sure rival contradicts (t2t_remask), or one that lost probability since the
last pass (logit_diff). Of the suspects the worst are masked, a quarter of the block's visible tokens at most, each
position `max_per_pos` times. A full block is passed over until nothing is suspect, `max_post` times at most; `steps`
sets nothing.
Differs from the reference: that runs on LLaDA2.1, here a plain model sees the whole canvas, blocks count from the
response's start, and end tokens end nothing; counts last for the block, and there until it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, sure, top
from redraft.shapes import Bool

BARS = {"low_prob": 0.5, "t2t_remask": 0.9, "logit_diff": 0.3}  # published for each detector


@register
@dataclass(frozen=True, repr=False)
class T2M(Sampler):
    """Reveal every mask above a bar and mask suspect tokens again, until a block rests."""

    detector: Literal["low_prob", "t2t_remask", "logit_diff"] = "low_prob"
    bar: Number | None = None  # the detector's; None is the published one
    th: Number = 0.95
    max_per_pos: int = 3
    ratio: Number = 0.25  # of the visible tokens, masked again in one pass at most
    max_post: int = 16  # passes over a full block, at most
    block: int = 32  # where no --block is given and the response is longer

    channels = frozenset({"m2t", "t2m"})
    eos = "none"
    experimental = True
    citation = "Yao 2026, Remask, Don't Replace (T2M), arXiv 2604.18738"
    provenance = (
        "repository: synsis/remasked_DLM @ 1fe25ab, tokens equal to it on one network; "
        "inferred: the port to plain masked models (attention, blocks, no stop at end tokens)"
    )

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        return sum(stage.steps for stage in self.stages(length, steps, block))

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if self.max_per_pos < 0 or self.max_post < 0 or not 0 < self.ratio <= 1:
            raise ValueError("max_per_pos and max_post are 0 or more, and ratio is more than 0 and at most 1")
        equal_blocks(self, length, steps, None)  # refuses what means nothing
        plan = equal_blocks(self, length, length, min(length, self.block) if block is None else block)
        return [stage._replace(steps=stage.steps * (1 + self.max_per_pos) + self.max_post) for stage in plan]

    def begin(self, block: Block) -> Block:
        before = torch.full(block.tokens.shape, -1.0, device=block.tokens.device)  # nothing to have fallen from
        passes = (~block.masked.any(-1)).long()  # over the full block, this one included
        return block.remember({"before": before, "masked": torch.zeros_like(block.tokens), "passes": passes})

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred, memory = denoise(block.tokens), block.memory
        old, new = (pred.probability(ids).exp().float() for ids in (block.tokens, pred.tokens))
        bar = BARS[self.detector] if self.bar is None else self.bar
        if self.detector == "low_prob":
            suspect, badness = old < bar, -old
        elif self.detector == "t2t_remask":
            suspect, badness = (new > bar) & (pred.tokens != block.tokens), new
        else:
            badness = memory["before"] - old
            suspect = badness > bar
        most = torch.tensor([max(1, int(n * self.ratio)) for n in range(block.tokens.shape[1] + 1)], device=old.device)
        among = suspect & block.visible & (memory["masked"] < self.max_per_pos)
        again = top(badness, most[block.visible.sum(-1, keepdim=True)], among=among)
        revealed = sure(pred, block, self.th)
        tokens = torch.where(revealed, pred.tokens, torch.where(again, block.mask_id, block.tokens))
        after = block.write(tokens)
        before = torch.where(block.visible.any(-1, keepdim=True), pred.probability(tokens).exp().float(), -1.0)
        passes = memory["passes"] + ~after.masked.any(-1)
        passes = torch.where((revealed | again).any(-1), passes, self.max_post + 1)
        return after.remember({"before": before, "masked": memory["masked"] + again, "passes": passes})

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return block.memory["passes"] > self.max_post
