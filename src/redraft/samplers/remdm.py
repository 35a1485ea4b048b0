"""ReMDM: while masks are revealed, each visible token is masked again with a small probability sigma.

Wang et al. (arXiv 2503.00307); `_ddpm_caching_update` of kuleshov-group/remdm. With alpha_t and alpha_s the visible
shares before and after a step, sigma is min(eta, (1 - alpha_s) / alpha_t) for cap, eta min(1, (1 - alpha_s) / alpha_t)
for rescale; so for conf, its eta the softmax of minus the probability with which each token was revealed; for loop, eta
while time is in (t_off, t_on] and alpha stands still. `style=ancestral` is that update. None was published for models
like LLaDA: `style=confidence` is ours. Sigma says what is masked, confidence what is revealed, and K(t) stay visible.
Differs from the reference: alpha ends at 1 (there 1 - 1e-5, then a call for "noise removal"); a step after one without
change costs a call; alpha does not overshoot alpha_on; the last step completes the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, top, uniform

ETA = {"cap": 0.008, "rescale": 0.015, "conf": 1.0, "loop": 0.02}  # scripts/, 1024 steps; conf: the softmax as it is


@register
@dataclass(frozen=True, repr=False)
class ReMDM(Sampler):
    """Reveal on schedule, while every visible token may be masked again with a small probability."""

    kind: Literal["cap", "rescale", "conf", "loop"] = "cap"
    style: Literal["confidence", "ancestral"] = "confidence"
    eta: Number | None = None  # None: as published, 0.008 (cap), 0.015 (rescale), 0.02 (loop)
    top_p: Number = 0.9  # ancestral, whose draws are at temperature 1
    t_on: Number = 0.55  # loop: it begins here; time runs from 1 to 0
    t_off: Number = 0.05
    alpha_on: Number = 0.9  # loop: the visible share meanwhile

    citation = "Wang et al. 2025, Remasking Discrete Diffusion Models, arXiv 2503.00307"
    provenance = "repository: kuleshov-group/remdm @ f830d65 (ancestral); inferred: style=confidence, the port to LLaDA"

    @property
    def rate(self) -> Number:
        return ETA[self.kind] if self.eta is None else self.eta

    @property
    def channels(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"m2t", "t2m"} if self.rate else {"m2t"})

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        proper = 0 <= self.rate <= 1 and 0 < self.t_off < self.t_on < 1 and 0 < self.alpha_on < 1
        if not proper or (self.kind == "conf" and self.eta is not None):
            raise ValueError("0 <= eta <= 1 (kind=conf has none), 0 < t_off < t_on < 1 and 0 < alpha_on < 1 must hold")
        draws = {"temperature": 1.0, "top_p": self.top_p, "nucleus": "within"} if self.style == "ancestral" else {}
        return [stage._replace(reading=draws) for stage in equal_blocks(self, length, steps, block)]

    def begin(self, block: Block) -> Block:
        return block.remember(torch.zeros(block.tokens.shape, device=block.tokens.device))  # probability when revealed

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        (before, after, sigma), lottery = self.pace(block, clock), uniform(block, clock, "remask")
        remasked = block.visible & (lottery < sigma)
        if self.style == "ancestral":
            chance = (after - (1 - sigma) * before) / (1 - before) * (pred.confidence > -torch.inf)
            revealed = block.masked & (lottery < chance)
        else:
            count = block.active.sum(-1, keepdim=True)
            quota = (after * count + 1e-3).long() if self.kind == "loop" else clock.quota(block)
            remasked = top(-lottery / sigma, count - quota, among=remasked)  # if too many, some of them at random
            kept = (block.visible & ~remasked).sum(-1, keepdim=True)
            revealed = top(pred.confidence, quota - kept, among=block.masked)
        tokens = torch.where(revealed, pred.tokens, torch.where(remasked, block.mask_id, block.tokens))
        p = pred.probability(pred.tokens).exp().float()
        return block.write(tokens, memory=torch.where(revealed, p, block.memory))

    def pace(self, block: Block, clock: Clock) -> tuple[Tensor, Tensor, Tensor]:
        """alpha_t, alpha_s and sigma: the visible shares before and after this step, and the chance to be remasked."""
        before, after = (clock.step - 1) / clock.steps, clock.step / clock.steps
        if self.kind != "loop":
            room = torch.where(before > 0, (1 - after) / before, 1.0).clamp_max(1)
            doubt = torch.where(block.visible, -block.memory, -torch.inf).softmax(-1).nan_to_num(0)  # NaN: none visible
            sigmas = {"cap": room.clamp_max(self.rate), "rescale": self.rate * room, "conf": doubt * room}
            return before, after, sigmas[self.kind]
        early, late = 1 - before > self.t_on + 1e-6, 1 - before < self.t_off + 1e-6  # before and after the loop
        done = torch.cat([before, after], dim=-1)
        later = torch.where(late, 1 - (1 - done) * (1 - self.alpha_on) / self.t_off, self.alpha_on)
        shares = torch.where(early, (done * self.alpha_on / (1 - self.t_on)).clamp_max(self.alpha_on), later)
        before, after = shares[:, :1], torch.where(clock.final, 1.0, shares[:, 1:])
        return before, after, self.rate * ~(early | late | clock.final)
