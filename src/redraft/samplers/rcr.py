"""RCR, running confidence remasking: fill every mask, then mask again whatever was filled with the least confidence.

He et al., MDPO: Overcoming the Training-Inference Divide of Masked Diffusion Language Models (arXiv 2508.13148);
`diffusion_generate` with `rcr=True` of autonomousvision/mdpo `src/mdlm_generation_utils.py`. A token's confidence is
that of the moment it was filled: early tokens compete with later ones, on the record they once set. Its `conf_alg` is
the reading's ranking here, and its confidence comes after the nucleus filter, hence inflated.
Differs from the reference: only the window's tokens compete by default. The reference never forgets a confidence, so
that a token of a finished block can be masked again (and is filled anew within the block that is being written): that
is `region=response`. K(i) is an exact ceil, where its float arithmetic is sometimes one more (n = S = 24): that is
`schedule=linear`, its own name for it. Confidence is that of temperature 1; what it never filled has confidence 1
there, so that even the prompt could be masked on a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, top
from redraft.shapes import Int


@register
@dataclass(frozen=True, repr=False)
class RCR(Sampler):
    """Fill every mask, then mask again the tokens that were filled with the least confidence."""

    top_p: Number = 0.95  # the command-line default of test_llada.py
    region: Literal["window", "response"] = "window"  # what may be masked again; response: finished blocks too
    schedule: Literal["floor", "front", "ceil", "late", "linear"] = "ceil"

    channels = frozenset({"m2t", "t2m"})
    citation = "He et al. 2025, MDPO, arXiv 2508.13148, Running Confidence Remasking"
    provenance = "repository: autonomousvision/mdpo @ e6ae439, tokens equal to it at every step; region=window is ours"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is more than 0 and at most 1, not {self.top_p}")

    @property
    def reach(self) -> Literal["block", "response"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "response" if self.region == "response" else "block"

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        plan = equal_blocks(self, length, steps, block)
        return [stage._replace(window=self.reach, reading={"top_p": self.top_p}) for stage in plan]

    def begin(self, block: Block) -> Block:
        record = torch.full(block.tokens.shape, torch.inf, device=block.tokens.device)  # never filled: never masked
        if block.memory is not None and block.own:  # the finished blocks'
            record = torch.cat([block.memory, record[:, block.own :]], dim=-1)
        return block.remember(record)

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        filled = block.masked & (pred.confidence > -torch.inf)  # all masks, but for end tokens that must wait
        record = torch.where(filled, pred.confidence.float(), block.memory)
        before = block.active[:, : block.own].sum(-1, keepdim=True)
        kept = top(record, before + self._quota(block, clock), among=filled | block.visible)
        tokens = torch.where(filled, pred.tokens, block.tokens)
        return block.write(torch.where(kept, tokens, block.mask_id), memory=record)

    def _quota(self, block: Block, clock: Clock) -> Int[Tensor, "b 1"]:
        if self.schedule != "linear":
            return clock.quota(block, self.schedule)
        count = block.active[:, block.own :].sum(-1, keepdim=True).cpu().double()  # its rounding is float64's
        share = (1 - clock.step.cpu().double() / clock.steps.cpu()).clamp_min(1e-6)
        return (count - (count * share).floor()).long().to(block.tokens.device)
