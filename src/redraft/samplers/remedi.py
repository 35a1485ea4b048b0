"""RemeDi's rule of inference: block by block, the K(t) best-scored tokens stay, old or new, and the rest is masked.

Huang et al., Don't Settle Too Early (arXiv 2509.23653); `generate_block_diffusion` of maple-research-lab/RemeDi
`inference.py`. A visible token never changes its value. As in that code the score is the token's logit: the policy
stream that RemeDi trains to score tokens is not read there, and a plain model has none.
Differs from the reference: its key-value cache, by which prompt and finished blocks never see later text, is a mask
of attention here, so that there are no calls for filling the cache (one for the prompt and one a block).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from redraft.decoding import Block, Clock, Denoise, Prediction, Sampler, Schedule, Stage, equal_blocks, register, top


@register
@dataclass(frozen=True, repr=False)
class RemeDi(Sampler):
    """Keep the K(t) best-scored tokens of the block, old and new, and mask the rest; no token is overwritten."""

    score: Literal["logit", "probability"] = "logit"  # probability: the reading's ranking
    context: Literal["blocks", "canvas"] = "blocks"  # what is seen: the text up to its own block, or everything
    schedule: Schedule = "late"
    block: int = 32  # where no --block is given and the response is longer

    channels = frozenset({"m2t", "t2m"})
    citation = "Huang et al. 2025, Don't Settle Too Early, arXiv 2509.23653 (RemeDi)"
    provenance = "repository: maple-research-lab/RemeDi @ 2e1b19d, tokens equal to it at every step; options are ours"

    @property
    def own_rank(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.score == "logit"

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        return equal_blocks(self, length, steps, min(length, self.block) if block is None else block)

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens) if self.context == "canvas" else blockwise(denoise, block)
        tokens = torch.where(block.visible, block.tokens, pred.tokens)
        score = pred.score(tokens)
        if self.score == "logit":
            assert pred.logits is not None
            logit = pred.logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
            lowest = torch.finfo(score.dtype).min
            score = torch.where(score > lowest, logit.clamp_min(lowest), score)  # not what may not be kept
        kept = top(score, clock.quota(block, self.schedule), among=block.active)
        return block.write(torch.where(kept | clock.final, tokens, block.mask_id))


def blockwise(denoise: Denoise, block: Block) -> Prediction:
    """What the window is where the prompt and every block see nothing to their right."""
    window, canvas = denoise.columns, denoise.canvas.place(block, denoise.columns.start)
    columns = torch.arange(window.stop, device=block.tokens.device)
    number = (columns - canvas.start).div(block.tokens.shape[1], rounding_mode="floor").clamp_min(-1)  # prompt: -1
    attend = (number <= number[:, None]).expand(len(block.tokens), -1, -1)  # (query, key)
    if canvas.attend is not None:  # padding may see anything, so that it always sees something
        exists = canvas.attend[:, : window.stop]
        attend = (attend | ~exists[:, :, None]) & exists[:, None]
    positions = None if canvas.positions is None else canvas.positions[:, : window.stop]
    text, given = canvas.tokens[:, : window.stop], canvas.given[:, : window.stop]
    return denoise.read(denoise.look(text, attend=attend, positions=positions, columns=window, given=given))
