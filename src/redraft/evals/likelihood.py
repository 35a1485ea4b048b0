"""The likelihood of a text given another, under a model that only fills holes: a seeded Monte-Carlo bound.

A random number l of the target's n tokens is hidden, l uniform in 1..n, and -n/l times the cross-entropy of the hidden
ones is averaged over draws (LLaDA, arXiv 2502.09992, section 2.4 and appendix B.5): an estimate of the negative
evidence bound. It ranks the choices of one model; it is not comparable with a left-to-right model's likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from redraft.decoding.noise import counter_uniform, stream_number
from redraft.decoding.reading import log_probability
from redraft.shapes import Bool

if TYPE_CHECKING:
    from redraft.models import Model

DRAWS = 128  # LLaDA's mc_num


@torch.no_grad()
def log_likelihood(
    model: Model,
    context: Sequence[int],
    target: Sequence[int],
    *,
    draws: int = DRAWS,
    seed: int = 0,
    batch_size: int = 16,
) -> float:
    """Of `target` after `context`, whose tokens are never hidden. One token needs one draw, and is exact."""
    assert target, "there is nothing to be likely"
    hidden = patterns(len(target), 1 if len(target) == 1 else draws, seed)
    before, after = torch.tensor(list(context), dtype=torch.int64), torch.tensor(list(target))
    total = 0.0
    for some in hidden.split(batch_size):
        tokens = torch.cat([before.expand(len(some), -1), torch.where(some, model.mask_id, after)], dim=-1)
        logits = model(tokens.to(model.device), columns=slice(len(before), None))
        found = log_probability(logits.float(), after.to(logits.device).expand(len(some), -1)).cpu().double()
        total += float((found.masked_fill(~some, 0).sum(-1) * len(after) / some.sum(-1)).sum())
    return total / len(hidden)


def patterns(n: int, draws: int, seed: int) -> Bool[torch.Tensor, "d n"]:
    """What each draw hides. How many is spread evenly over 1..n from a random start, so that none is left to chance."""
    seeds = torch.tensor([seed])
    number = torch.arange(draws)
    start = counter_uniform(seeds, (stream_number("start"),), (1,)).double()
    count = ((start + number / draws) % 1 * n).floor().long().clamp_max(n - 1).view(-1, 1) + 1
    lots = counter_uniform(seeds.expand(draws), (stream_number("hidden"), number), (n,))
    return lots.argsort(dim=-1, stable=True).argsort(dim=-1) < count
