"""PC-Sampler: standard unmasking whose order goes from left to right and puts off what is common in any text.

Huang et al., PC-Sampler (arXiv 2508.13021); `generate_with_pc_sampler` of NEUIR/PC-Sampler `src/generate.py`. A mask's
score is min(p (-ln f), alpha) exp(-decay j): p the probability of its candidate, f the candidate's frequency in a
corpus, j its place in the block. `redraft frequencies` counts a corpus; tokens it lacks count as seen once.
Differs from the reference: scores are compared as logarithms, for exp(-0.25 j) is 0 in float32 from j = 416 on; without
a table there is no calibration, p alone is weighted by place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, top
from redraft.shapes import Bool, Float


@register
@dataclass(frozen=True, repr=False)
class PC(Sampler):
    """Reveal masks by probability, weighed against how common the token is and how far to the right it stands."""

    frequencies: str | None = None  # the file that `redraft frequencies` wrote, or PC-Sampler's own; None: none
    decay: Number = 0.25  # its lambda: 0 for Sudoku, 0.5 or 1 for Countdown, else 0.25
    alpha: Number = 10  # no token is worth more

    channels = frozenset({"m2t"})
    own_rank = True
    citation = "Huang et al. 2025, PC-Sampler, arXiv 2508.13021"
    provenance = "repository: NEUIR/PC-Sampler @ 8b106b0, tokens equal to it at every step"

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if self.decay < 0 or self.alpha <= 0:
            raise ValueError(f"decay is 0 or more and alpha more than 0, not {self.decay} and {self.alpha}")
        if self.frequencies is not None:
            surprise(self.frequencies, 1)  # refuses what cannot be read
        return equal_blocks(self, length, steps, block)

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        score = pred.probability(pred.tokens)
        if self.frequencies is not None:
            assert pred.logits is not None
            worth = surprise(self.frequencies, pred.logits.shape[-1]).to(score)[pred.tokens]
            score = (score.exp() * worth).clamp_max(self.alpha).log()
        score = score - self.decay * torch.arange(score.shape[-1], device=score.device)
        score = torch.where(pred.vetoed, pred.confidence, score.clamp_min(torch.finfo(score.dtype).min))
        revealed = top(score, clock.increment(block, "front"), among=block.masked)
        return block.write(torch.where(revealed, pred.tokens, block.tokens))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)


@cache
def surprise(path: str, vocabulary: int) -> Float[Tensor, " v"]:
    """-ln of each token's frequency; its code adds 1e-9 to the frequency."""
    try:
        table = json.loads(Path(path).read_text())
        total, counts = int(table["num_token"]), {int(token): int(n) for token, n in table["p_baseline_dict"].items()}
        if total < 1:
            raise ValueError("it counts no token")
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}: `redraft frequencies` makes a table of a corpus") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"{path} is not a table that `redraft frequencies` wrote: {problem}") from None
    frequency = torch.full((vocabulary,), 1 / total)
    for token, count in counts.items():
        if token < vocabulary:
            frequency[token] = count / total
    return -(frequency + 1e-9).log()
