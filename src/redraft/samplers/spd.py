"""SPD, DMax's soft parallel decoding: fill from the left what is sure, rewrite all of it at every pass, and show the
model each token as sure as it was.

Chen et al., DMax (arXiv 2604.08302); `decode_uniform` of the dInfer in czg1225/DMax. A pass fills the masks before the
first whose probability is below `th`, or the leftmost, and overwrites everything filled with its new argmax. The next
pass sees a filled position as p E[token] + (1 - p) E[mask], scaled to the mean length of its parts. A block rests when
all its positions are surer than `rest`, or nothing changed; `steps` sets nothing.
Differs from the reference: that is a block-causal model trained on such inputs, here a plain one sees the whole canvas;
rows of a batch go on by themselves; where the EOS policy vetoes an edit the old token stays, and a mask waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, candidates, equal_blocks, register
from redraft.shapes import Bool


@register
@dataclass(frozen=True, repr=False)
class SPD(Sampler):
    """Fill a run of sure masks from the left and rewrite what is filled, until a block rests; inputs are soft."""

    th: Number = 0.0  # chat, which fills a block at once; mathematics 0.5, code 0.65
    rest: Number = 0.9
    block: int = 32  # where no --block is given and the response is longer

    channels = frozenset({"m2t", "t2t"})
    own_rank = True
    eos = "none"
    experimental = True
    citation = "Chen et al. 2026, DMax, arXiv 2604.08302: soft parallel decoding"
    provenance = "repository: czg1225/DMax @ 82bc29e; the port to plain masked models is inferred (attention, no stop)"

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        return length

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        equal_blocks(self, length, steps, None)  # refuses what means nothing
        return equal_blocks(self, length, length, min(length, self.block) if block is None else block)

    def begin(self, block: Block) -> Block:
        certain = torch.ones(block.tokens.shape, device=block.tokens.device)
        return block.remember((certain, torch.zeros_like(block.seeds, dtype=torch.bool)))  # of each token; rows at rest

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        certainty, _ = block.memory
        ids = torch.stack([block.tokens, torch.full_like(block.tokens, block.mask_id)], dim=-1)
        pred = denoise(block.tokens, soft=(ids, torch.stack([certainty, 1 - certainty], dim=-1), True))
        p = pred.probability(pred.tokens).exp().float()
        doubtful = block.masked & ((p < self.th) | pred.vetoed)
        run = block.masked & (doubtful.cumsum(-1) == 0)
        free = candidates(pred, block)
        filled = torch.where(run.any(-1, keepdim=True), run, free & (free.cumsum(-1) == 1))
        written = filled | (block.visible & ~pred.vetoed)
        after = block.write(torch.where(written, pred.tokens, block.tokens))
        sure = (p >= self.rest) | ~block.active
        rests = (sure.all(-1) | (after.tokens == block.tokens).all(-1)) & ~after.masked.any(-1)
        return after.remember((torch.where(written & block.active, p, certainty), rests))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return block.memory[1]
