"""XDLM's own sampler: standard unmasking, and a small budget of visible tokens to be replaced by surer ones.

Liu et al., Balancing Understanding and Generation in Discrete Diffusion Models (arXiv 2602.01362); `generate_xdm` of
MzeroMiko/LLaDA-XDLM `generate.py`, remasking "low_confidence", for models trained further on partly uniform noise:
after step t, e_t = floor(K(t) k1 / (1 - k1)) tokens may have been replaced, K(t) being the count revealed; e_1 = 0, and
what a step does not spend the next one has.
Differs from the reference: by default only the window is revised. The reference's candidates are all visible positions
up to the window's end, so that its budget also goes into finished blocks and the prompt, which it rewrites: that is
`region=canvas`, padding excepted. EOS policy, ties and precision are the reading's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, top
from redraft.shapes import Bool, Int


@register
@dataclass(frozen=True, repr=False)
class XDLM(Sampler):
    """Reveal the most confident masks, and replace a few visible tokens whose rival is at least as probable."""

    k1: Number = 0.1  # share of uniform noise in its training; 0 is standard unmasking
    region: Literal["window", "canvas"] = "window"  # what may be replaced; canvas: finished blocks and the prompt too

    citation = "Liu et al. 2026, Balancing Understanding and Generation, arXiv 2602.01362 (XDLM), generate_xdm"
    provenance = "repository: MzeroMiko/LLaDA-XDLM @ b72336d, tokens equal to it at every step; region=window is ours"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.k1 < 1:
            raise ValueError(f"k1 is at least 0 and less than 1, not {self.k1}")

    @property
    def channels(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"m2t", "t2t"} if self.k1 else {"m2t"})

    @property
    def reach(self) -> Literal["block", "canvas"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "canvas" if self.region == "canvas" and self.k1 else "block"

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        return [stage._replace(window=self.reach) for stage in equal_blocks(self, length, steps, block)]

    def begin(self, block: Block) -> Block:
        return block.remember(torch.zeros_like(block.seeds[:, None]))  # replacements that were allowed and not made

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        more, shown = clock.increment(block, "front"), clock.quota(block, "front")
        revealed = top(pred.confidence, more, among=block.masked)
        if not self.k1:
            return block.write(torch.where(revealed, pred.tokens, block.tokens))
        as_probable = pred.probability(pred.tokens) >= pred.probability(block.tokens)
        rivals = block.visible & (pred.tokens != block.tokens) & as_probable
        budget = block.memory + self._allowed(shown, clock.step) - self._allowed(shown - more, clock.step - 1)
        replaced = top(pred.confidence, budget, among=rivals)
        left = budget - replaced.sum(-1, keepdim=True)
        return block.write(torch.where(revealed | replaced, pred.tokens, block.tokens), memory=left)

    def _allowed(self, shown: Int[Tensor, "b 1"], step: Int[Tensor, "b 1"]) -> Int[Tensor, "b 1"]:
        """e_t, in the float32 of the reference."""
        return torch.where(step > 1, (shown.float() * self.k1 / (1 - self.k1)).long(), 0)

    def done(self, block: Block) -> Bool[Tensor, " b"] | None:
        return None if self.k1 else ~block.masked.any(-1)
