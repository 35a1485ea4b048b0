"""Dream's sampler: time runs from 1 to 0.001, and of the masks at t the share 1 - s/t is revealed on the way to s.

Ye et al., Dream 7B (arXiv 2508.15487); `generation_utils.py` of HKUNLP/Dream. Because time ends at 0.001 and counts are
truncated, 256 tokens in 256 steps reveal none at the first step and two at the last.
Differs from the reference: `alg` is "entropy" as in Dream's examples and evaluation (its config class has "origin");
confidence is taken at temperature 1, where Dream takes that of the tempered distribution; each row counts its own
masks, where Dream takes their mean; ties go to the lowest position; a block has a time of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, register, top, uniform
from redraft.shapes import Bool, Float

RANKS = {"origin": "probability", "maskgit_plus": "probability", "topk_margin": "margin", "entropy": "entropy"}
PLAIN = {  # the reading's logarithmic measures as Dream's own
    "maskgit_plus": torch.exp,
    "topk_margin": lambda score: -torch.expm1(-score),
    "entropy": lambda score: score,
}


@register
@dataclass(frozen=True, repr=False)
class Dream(Sampler):
    """Reveal the share of masks that Dream's time schedule wants, by entropy, margin, probability or at random."""

    alg: Literal["origin", "maskgit_plus", "topk_margin", "entropy"] = "entropy"
    alg_temp: Number = 0.0  # above 0 draws positions from softmax(confidence / alg_temp)
    eps: Number = 0.001  # where time ends
    top_p: Number = 1.0  # its examples: 0.95

    channels = frozenset({"m2t"})
    own_rank = True
    citation = "Ye et al. 2025, Dream 7B, arXiv 2508.15487, generation_utils.py"
    provenance = "repository: HKUNLP/Dream (as in NVlabs/Fast-dLLM @ 24cc59e), tokens equal to it at temperature 0"

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if not (0 < self.eps < 1 and self.alg_temp >= 0 and 0 < self.top_p <= 1):
            raise ValueError("0 < eps < 1, alg_temp >= 0 and 0 < top_p <= 1 must hold")
        reading = {"rank": RANKS[self.alg], "top_p": self.top_p}
        return [stage._replace(reading=reading) for stage in super().stages(length, steps, block)]

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        t, s = self._time(clock.step - 1, clock), self._time(clock.step, clock)
        share = torch.where(clock.final, 1, 1 - s / t)
        if self.alg == "origin":
            revealed = block.masked & (uniform(block, clock, "reveal") < share) & ~pred.vetoed
        else:
            score = pred.confidence
            if self.alg_temp > 0:  # the k largest of score + Gumbel noise are a draw of k without replacement
                unit = uniform(block, clock, "order").to(score.dtype)
                plain = PLAIN[self.alg](score) / self.alg_temp - torch.log(-torch.log(unit))
                score = torch.where(pred.vetoed, score, plain)
            revealed = top(score, (block.masked.sum(-1, keepdim=True) * share).long(), among=block.masked)
        return block.write(torch.where(revealed, pred.tokens, block.tokens))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)

    def _time(self, tick: Tensor, clock: Clock) -> Float[Tensor, "b 1"]:
        """torch.linspace(1, eps, steps + 1)[tick] to the bit: float32, from the nearer end, in one multiply-add."""
        one = torch.ones_like(tick, dtype=torch.float32)
        eps = one * self.eps
        wide = torch.float64 if tick.device.type != "mps" else torch.float32  # where a sum is rounded only once
        pace = ((eps - one) / clock.steps).to(wide)
        early = tick < (clock.steps + 1) // 2
        return torch.where(early, one.to(wide) + pace * tick, eps.to(wide) - pace * (clock.steps - tick)).float()
