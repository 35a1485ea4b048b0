"""WINO, wide in and narrow out: accept boldly, and verify what stands with a shadow copy in the same forward pass.

Hong et al., Wide-In, Narrow-Out (arXiv 2507.18578); `decoding_wino` of Feng-Hong/WINO-DLLM `LLaDA/decoding.py`. The
shadow is the window again, all masks, at the window's positions: it sees everything but the token it is to verify, and
nobody sees it. Steps are as many as it takes, at most one a token: `steps` bounds nothing, compare by calls.
Differs from the reference: the shadow stands beside its window, not behind the canvas (the same to the model);
thresholds are compared in float32, there in float64; the mask token is no candidate; end tokens that the EOS policy
vetoes wait for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, sure, top
from redraft.decoding.reading import Prediction
from redraft.shapes import Bool

FIRST = 30  # tokens "accepted" before a block's first step; this and the 0.7, 5 and 20 below are its code's


@register
@dataclass(frozen=True, repr=False)
class WINO(Sampler):
    """Accept every mask above a low bar; mask again what a shadow copy of the block finds below a high one."""

    verify: bool = True  # False: accept only, without a shadow (the paper's draft-only row)
    th: Number = 0.6  # GSM8K's; MATH-500 and HumanEval 0.7, MBPP 0.8
    th_back: Number = 0.9
    block: int = 128  # where no --block is given and the response is longer

    eos = "none"  # adaptive
    citation = "Hong et al. 2025, Wide-In, Narrow-Out, arXiv 2507.18578"
    provenance = "repository: Feng-Hong/WINO-DLLM @ 9549a1d, tokens equal to it at every step"

    @property
    def channels(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"m2t", "t2m"} if self.verify else {"m2t"})

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        return length

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        equal_blocks(self, length, steps, None)  # refuses what means nothing
        return equal_blocks(self, length, length, min(length, self.block) if block is None else block)

    def begin(self, block: Block) -> Block:
        return block.remember(torch.full_like(block.seeds[:, None], FIRST))  # accepted by the step before

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred, support = shadowed(denoise, block) if self.verify else (denoise(block.tokens), None)
        most = (block.masked.sum(-1, keepdim=True) * 7 // 10).clamp(5, 20)
        score = torch.where(pred.vetoed, pred.probability(pred.tokens), pred.confidence)
        accepted = top(score, most, among=sure(pred, block, self.th))
        count = accepted.sum(-1, keepdim=True)
        tokens = torch.where(accepted, pred.tokens, block.tokens)
        if support is not None:  # fewer than the step before accepted, so that each block ends
            doubted = block.visible & (support < self.th_back) & (count > 1)
            tokens = torch.where(top(-support, block.memory - 1, among=doubted), block.mask_id, tokens)
        return block.write(tokens, memory=count)

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)


def shadowed(denoise: Denoise, block: Block) -> tuple[Prediction, Tensor]:
    """The window's prediction, and each token's probability where it is hidden: one forward pass over both."""
    window, width, device = denoise.columns, block.tokens.shape[1], block.tokens.device
    canvas = denoise.canvas.place(block, window.start)
    shadow = slice(window.stop, window.stop + width)
    columns = torch.arange(canvas.tokens.shape[1], device=device)
    order = torch.cat([columns[: window.stop], columns[window], columns[window.stop :]])
    tokens, given = canvas.tokens[:, order], canvas.given[:, order]
    tokens[:, shadow], given[:, shadow] = block.mask_id, False
    positions = columns.expand_as(canvas.tokens) if canvas.positions is None else canvas.positions
    exists = torch.ones_like(given) if canvas.attend is None else canvas.attend[:, order]
    attend = exists[:, None].repeat(1, len(order), 1)  # (query, key)
    attend[:, :, shadow] = False
    attend[:, shadow, shadow] = True
    attend[:, shadow, window] = ~torch.eye(width, dtype=torch.bool, device=device)
    both = slice(window.start, shadow.stop)
    logits = denoise.look(tokens, attend=attend, positions=positions[:, order], columns=both, given=given)
    support = denoise.read(logits[:, width:], aside=True).probability(block.tokens).exp()
    return denoise.read(logits[:, :width]), support
