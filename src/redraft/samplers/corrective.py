"""Corrective decoding: fill every mask, mask again whatever the same forward pass does not support, and so on.

Zhang et al., Corrective Diffusion Language Models (arXiv 2512.15596); `llada_sample.py` of zhangshuibai/CDLM, its
`self_conf-remask` algorithms. A token's confidence is its probability in the pass that filled the masks, so that a
fresh one is judged by a pass that did not see it. The last pass fills and masks nothing again.
Differs from the reference: there a given code is revised, here a response is written, in blocks if asked; at
temperature 0 a pass that changes nothing is the last, for the others would repeat it; `linear` ranks by the reading's
measure; ties go to the lowest position; vetoed end tokens are masked again until nothing else changes, or is masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, register, top
from redraft.shapes import Bool, Float, Int

TO_DEVIATION = 1.4826  # of a normal distribution: its standard deviation in median absolute deviations


@register
@dataclass(frozen=True, repr=False)
class Corrective(Sampler):
    """Fill all masks at every step and mask the doubtful tokens again: below a bar, the worst, or the outliers."""

    rule: Literal["threshold", "linear", "mad"] = "threshold"
    th: Number = 0.9  # threshold: mask again what is not surer
    k: Number = 2.5  # mad: mask again what lies more than k deviations below the median

    channels = frozenset({"m2t", "t2m"})
    eos = "none"
    citation = "Zhang et al. 2025, Corrective Diffusion Language Models, arXiv 2512.15596, llada_sample.py"
    provenance = "repository: zhangshuibai/CDLM @ 12fe555, tokens equal to it; blocks are ours"

    @property
    def own_rank(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rule != "linear"

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        tokens = torch.where(block.masked, pred.tokens, block.tokens)
        if self.rule == "linear":
            kept = top(pred.score(tokens), clock.quota(block, "ceil"), among=block.active)
        else:
            p = pred.probability(tokens).exp()
            low = block.active & (p <= self.th if self.rule == "threshold" else outliers(p, block.active, self.k))
            waiting = block.masked & pred.vetoed & low.any(-1, keepdim=True)
            kept = torch.where(changes(block, tokens, ~(low | waiting)), ~(low | waiting), ~low)
            if denoise.reading.temperature == 0:
                kept = kept | ~changes(block, tokens, kept)
        return block.write(torch.where(kept | clock.final, tokens, block.mask_id))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)


def changes(block: Block, tokens: Int[Tensor, "b w"], kept: Bool[Tensor, "b w"]) -> Bool[Tensor, "b 1"]:
    """Whether anything is other than before where only `kept` is not masked."""
    return (torch.where(kept, tokens, block.mask_id) != block.tokens).any(-1, keepdim=True)


def outliers(p: Float[Tensor, "b w"], among: Bool[Tensor, "b w"], k: Number) -> Bool[Tensor, "b w"]:
    """What lies more than k robust standard deviations below the median."""
    below = median(p, among) - p
    return below > k * TO_DEVIATION * median(below.abs(), among).clamp_min(1e-10)


def median(values: Float[Tensor, "b w"], among: Bool[Tensor, "b w"]) -> Float[Tensor, "b 1"]:
    """torch's: of the two in the middle, the lower."""
    middle = (among.sum(-1, keepdim=True) - 1).clamp_min(0) // 2
    return torch.where(among, values, torch.inf).sort(dim=-1).values.gather(-1, middle)
