"""Factor decoding: reveal the n surest masks as long as the n-th is sure enough for a group of n.

Wu et al., Fast-dLLM (arXiv 2505.22618), Theorem 1 and Algorithm 1: n tokens may be revealed together where
(n + 1) (1 - p_n) <= f, p_n being the lowest of their probabilities; `get_transfer_index_dynamic` of NVlabs/Fast-dLLM.
As in that code, one token is always revealed, and where only the last mask of a block fails its bound it passes.
Differs from the reference: rows of a batch go on by themselves, ties go to the lowest position, and there is no
approximate cache. As there, `steps` sets nothing: a block ends when it is full.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, candidates, equal_blocks, register, top
from redraft.shapes import Bool


@register
@dataclass(frozen=True, repr=False)
class Factor(Sampler):
    """Reveal the n surest masks while (n + 1) (1 - p_n) is at most `factor`; what is visible never changes."""

    factor: Number = 1.0

    channels = frozenset({"m2t"})
    own_rank = True
    eos = "none"
    citation = "Wu et al. 2025, Fast-dLLM, arXiv 2505.22618, Theorem 1 and Algorithm 1"
    provenance = (
        "repository: NVlabs/Fast-dLLM, get_transfer_index_dynamic, without its caches; "
        "tokens equal to its copy in NEUIR/PC-Sampler @ 8b106b0"
    )

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        return length

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        equal_blocks(self, length, steps, None)  # refuses what means nothing
        return equal_blocks(self, length, length, block)

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        free = candidates(pred, block)
        log_p = pred.probability(pred.tokens).clamp_min(torch.finfo(torch.float32).min)
        p = torch.where(free, log_p.exp(), -torch.inf).sort(dim=-1, descending=True).values
        n = torch.arange(1, p.shape[-1] + 1, device=p.device)
        fits = p >= 1 - self.factor / (n + 1)
        count = (fits | (n == 1)).long().cumprod(-1).sum(-1, keepdim=True)
        count = count + (count + 1 == free.sum(-1, keepdim=True))
        revealed = top(log_p, count, among=free)
        return block.write(torch.where(revealed, pred.tokens, block.tokens))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)
