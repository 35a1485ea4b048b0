"""D3IM: keep the K(t) most confident *current* predictions, mask everything else, whatever was there before.

Yu et al., Revise, Don't Freeze (arXiv 2606.01026), Algorithm 1 and appendix B.1: a visible token may be kept, replaced
(t2t) or masked again (t2m) in one step. No preservation weight: a token stays only while the model still supports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from redraft.decoding import Block, Clock, Denoise, Sampler, Schedule, register, top


@register
@dataclass(frozen=True, repr=False)
class D3IM(Sampler):
    """Keep the K(t) most confident current predictions and mask the rest; visible tokens may be replaced or masked."""

    t2t: bool = True  # may overwrite a visible token
    t2m: bool = True  # may mask a visible token again
    visible_conf: Literal["kept", "max"] = "kept"  # without t2t: rank a visible token by its own support, or by the
    # model's surest prediction there, which keeps a token that the model strongly wants to replace (methods A6)
    schedule: Schedule = "floor"  # K(t) = floor(B t / S)

    citation = "Yu et al. 2026, Revise, Don't Freeze, arXiv 2606.01026, Algorithm 1"
    provenance = "paper; inferred where it is silent: overflow, visible_conf, the no-t2m rule, steps over blocks"

    @property
    def channels(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"m2t"} | ({"t2t"} if self.t2t else set()) | ({"t2m"} if self.t2m else set()))

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        tokens, score = pred.tokens, pred.confidence
        if not self.t2t:  # may not overwrite: a visible token stands for itself
            tokens = torch.where(block.visible, block.tokens, tokens)
            if self.visible_conf == "kept":
                score = torch.where(block.visible, pred.score(tokens), score)
        if not self.t2m:  # may not demote: every visible position survives, with its old token where EOS is vetoed
            tokens = torch.where(block.visible & pred.vetoed, block.tokens, tokens)
            score = score.masked_fill(block.visible, torch.inf)
        kept = top(score, clock.quota(block, self.schedule), among=block.active)
        if not self.t2m:
            kept = kept | block.visible  # an edited canvas may show more than K(t)
        return block.write(torch.where(kept, tokens, block.mask_id))
