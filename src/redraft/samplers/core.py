"""CoRe: now and then, mask the least decided tokens together, and mask again those that lose most by it.

Zhai et al., CoRe: Context-Robust Remasking (arXiv 2602.04096). No code is public. What is known of it: 128 ordinary and
8 auxiliary passes; candidates are visible tokens of small margin, masked together for one auxiliary pass; a token's
instability is the support it loses, p(token) before less p(token) then; the most unstable are revised.
Ours: an auxiliary pass in the middle of every 16 steps; 16 candidates, of which the 4 most unstable are masked again,
if they lost support at all and K(t) tokens can stay visible: the step reveals as many masks more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Prediction, Sampler, Stage, equal_blocks, register, top
from redraft.shapes import Bool, Float, Int


@register
@dataclass(frozen=True, repr=False)
class CoRe(Sampler):
    """Reveal on schedule; now and then mask again the tokens that do not hold when their like is masked with them."""

    every: int = 16  # steps from one auxiliary pass to the next; 0: never
    candidates: int = 16
    revised: int = 4  # of the candidates, at most

    experimental = True
    citation = "Zhai et al. 2026, CoRe: Context-Robust Remasking for Diffusion Language Models, arXiv 2602.04096"
    provenance = "paper, by its abstract and summaries; inferred: when, how many candidates, how many revised, and how"

    @property
    def channels(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"m2t", "t2m"} if self.every else {"m2t"})

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        lengths = [stage.steps for stage in self.stages(length, steps, block)]
        auxiliary = [self._due(tick, steps) for steps in lengths for tick in range(1, steps + 1)] if self.every else []
        return sum(lengths) + sum(auxiliary)

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if self.every < 0 or self.candidates < 1 or self.revised < 1:
            raise ValueError("every is 0 or more, candidates and revised are 1 or more")
        return equal_blocks(self, length, steps, block)

    def _due(self, step, steps):
        """Whether an auxiliary pass is made. At the last step none is: what it masked could not be revealed anew."""
        return (step % self.every == self.every // 2) & (step < steps)

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred, tokens, quota = denoise(block.tokens), block.tokens, clock.quota(block, "front")
        due = block.visible & self._due(clock.step, clock.steps) if self.every else torch.zeros_like(block.visible)
        probed = top(-margin(pred, tokens), self.candidates, among=due)
        if probed.any():
            support = pred.probability(tokens).exp()
            hole = block.active.sum(-1, keepdim=True) - quota  # more cannot be masked where K(t) are to be visible
            lost = support - denoise(torch.where(probed, block.mask_id, tokens)).probability(tokens).exp()
            tokens = torch.where(
                top(lost, hole.clamp_max(self.revised), among=probed & (lost > 0)), block.mask_id, tokens
            )
        kept = (block.active & (tokens != block.mask_id)).sum(-1, keepdim=True)
        revealed = top(pred.confidence, quota - kept, among=block.masked)
        return block.write(torch.where(revealed, pred.tokens, tokens))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)


def margin(pred: Prediction, tokens: Int[Tensor, "b w"]) -> Float[Tensor, "b w"]:
    """How much more probable each token is than its best rival."""
    assert pred.logits is not None
    rivals = pred.logits.scatter(-1, tokens.unsqueeze(-1), -torch.inf).argmax(-1)
    return pred.probability(tokens).exp() - pred.probability(rivals).exp()
