"""Soft masks: standard unmasking in which a mask that stays becomes partly what the model last saw in its place.

Hersche et al., Soft-Masked Diffusion Language Models (arXiv 2510.17206); `dream_sm.patch` of
IBM/soft-masked-diffusion-language-models. From a block's second step on, a mask's embedding is (1 - w) E[mask] + w
times the mean of its k most probable tokens' embeddings, weighted by their probability; w = scale sigmoid(steep (sum
p ln p - centre)) of its last prediction. Nothing visible is revised.
Differs from the reference: that is a Dream model trained on such masks, whose three scalars were learned with it; here
they are the example of its README, the rest is standard unmasking, and masks right of the window are plain ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import (
    Block,
    Clock,
    Denoise,
    Number,
    Prediction,
    Sampler,
    Schedule,
    Stage,
    equal_blocks,
    register,
    top,
)
from redraft.shapes import Bool, Float, Int


@register
@dataclass(frozen=True, repr=False)
class Soft(Sampler):
    """Reveal the most confident masks; show the model, in place of the others, a mixture of mask and last guesses."""

    scale: Number = 0.25  # the largest share of guesses; 0 is standard unmasking
    steep: Number = 5.0
    centre: Number = -1.0  # the negative entropy at which the share is half of `scale`
    k: int = 3  # guesses in the mixture
    schedule: Schedule = "front"

    channels = frozenset({"m2t"})
    experimental = True
    citation = "Hersche et al. 2025, Soft-Masked Diffusion Language Models, arXiv 2510.17206"
    provenance = "repository: IBM/soft-masked-diffusion-language-models @ 091695d; inferred: all else but the mixture"

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if not 0 <= self.scale <= 1 or self.k < 1:
            raise ValueError(f"scale is from 0 to 1 and k at least 1, not {self.scale} and {self.k}")
        return equal_blocks(self, length, steps, block)

    def begin(self, block: Block) -> Block:
        ids = block.tokens.unsqueeze(-1).repeat(1, 1, self.k)
        return block.remember((ids, torch.zeros(ids.shape, device=ids.device)))  # guesses and their shares: none yet

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        ids, shares = block.memory
        shares = torch.where(block.masked.unsqueeze(-1), shares, 0)
        mixture = torch.cat([block.tokens.unsqueeze(-1), ids], dim=-1)
        pred = denoise(block.tokens, soft=(mixture, torch.cat([1 - shares.sum(-1, keepdim=True), shares], dim=-1)))
        revealed = top(pred.confidence, clock.increment(block, self.schedule), among=block.masked)
        return block.write(torch.where(revealed, pred.tokens, block.tokens), memory=self.guesses(pred))

    def guesses(self, pred: Prediction) -> tuple[Int[Tensor, "b w k"], Float[Tensor, "b w k"]]:
        """The k most probable tokens, the first of equals first, and their shares in the next input."""
        assert pred.logits is not None
        best, rest = [], pred.logits
        for _ in range(self.k):
            best.append(rest.argmax(-1, keepdim=True))
            rest = rest.scatter(-1, best[-1], -torch.inf)
        ids, log_p = torch.cat(best, dim=-1), pred.logits.log_softmax(-1)
        certainty = (log_p.exp() * log_p).nan_to_num(0).sum(-1, keepdim=True)  # negative entropy; 0 log 0 is 0
        share = self.scale * torch.sigmoid(self.steep * (certainty - self.centre))
        return ids, (share * pred.logits.gather(-1, ids).softmax(-1)).float()

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)
