"""XDLM: noise that is partly masks and partly random tokens, and its loss (methods 5.6).

After the repository MzeroMiko/LLaDA-XDLM, `llada_cpt.py`. With N tokens, a = alpha (the share of a row that is kept),
b = 1 - a, k = k1, input z, target x, and p = softmax of the logits without the mask:

    f(y) = a N p_y    + b (k + N (1-k) [y = mask]),     rho = k / (a N + b k) where z = x, else 1 / b
    F(y) = a N [y=x]  + b (k + N (1-k) [y = mask])
    D    = -mean_v ln(a N p_v + b k) + (N-1)/N ln(b k) + 1/N ln(a N + b k)
    loss = rho { N ([z=x] - p_z) / f(z) - (ln F(z) - ln f(z)) / a + (ln F(x) - ln f(x)) + (k b / a) D }

Differs from the reference: the terms are joined before they are computed. Written as above, float32 takes differences
of nearly equal logarithms and divides them by a small a; joined, each is of the form log1p or y - log1p(y), and
vanishes exactly where p is right.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from redraft.shapes import Float, Int
from redraft.train.ask import ask, flat, mask_of, vocabulary_of
from redraft.train.batch import Batch, Draft, position_uniform, row_uniform
from redraft.train.corrupt import SMALLEST_T
from redraft.train.metrics import Metrics, measure
from redraft.train.recipes import XDLM


class Noised(NamedTuple):
    tokens: Int[Tensor, "b n"]
    alpha: Float[Tensor, " b"]  # the chance of a token to be kept; float64, on the CPU


def noise_rows(batch: Batch, k1: float, seeds: Int[Tensor, " b"], *, mask_id: int, vocabulary: int) -> Noised:
    """Each eligible token kept, replaced by any token of the vocabulary, or masked, by one draw r: below alpha, below
    alpha + k1 (1 - alpha), or above."""
    device, length = batch.tokens.device, batch.tokens.shape[1]
    alpha = 1 - ((1 - SMALLEST_T) * row_uniform(seeds, "rate") + SMALLEST_T)
    keep = alpha.float().to(device)[:, None]
    seeds = seeds.to(device)
    r = position_uniform(seeds, "mask", length)
    other = (position_uniform(seeds, "replace", length) * vocabulary).long().clamp_max(vocabulary - 1)
    tokens = torch.where(r < keep + k1 * (1 - keep), other, mask_id)
    return Noised(torch.where(batch.eligible & (r >= keep), tokens, batch.tokens), alpha)


def xdlm_loss(
    model: Any,
    batch: Batch,
    recipe: XDLM,
    *,
    step: int,
    seeds: Int[Tensor, " b"],
    temperature: float | int | None = None,
    count: float | int | None = None,
    steps: int | None = None,
    mask_id: int | None = None,
    lockstep: bool = False,
    chunk: int | None = None,
) -> tuple[Tensor, Metrics]:
    """Mean over all eligible tokens, kept ones too, or their sum divided by `count`; arguments as `scope_loss`'s."""
    mask_id = mask_of(model) if mask_id is None else mask_id
    noised = noise_rows(batch, recipe.k1, seeds, mask_id=mask_id, vocabulary=vocabulary_of(model))
    index = flat(batch.eligible)
    rows = index // batch.tokens.shape[1]
    # Both from float64: float32's 1 - alpha would be right to 4 digits only where hardly anything is noise.
    alpha, beta = (part.float().to(index.device)[rows] for part in (noised.alpha, 1 - noised.alpha))
    inputs, targets = noised.tokens.flatten()[index], batch.tokens.flatten()[index]
    read = partial(token_losses, k1=recipe.k1, mask_id=mask_id)
    (losses,) = ask(model, noised.tokens, batch.attend, index, read, (inputs, targets, alpha, beta), chunk)
    total = losses.sum()
    metrics = measure(
        losses,
        total=total,
        count=len(index),
        wrong=(inputs != targets) & (inputs != mask_id),
        right=inputs == targets,
        masked=inputs == mask_id,
        rows=len(batch.tokens),
    )
    return total / (len(index) if count is None else count), metrics


def token_losses(
    logits: Float[Tensor, "c v"],
    inputs: Int[Tensor, " c"],
    targets: Int[Tensor, " c"],
    alpha: Float[Tensor, " c"],
    beta: Float[Tensor, " c"],
    *,
    k1: float,
    mask_id: int,
) -> tuple[Float[Tensor, " c"]]:
    """The loss of each token, joined: with s = a N / (b k), y = a N (1 - p_x) / f(x) and w = s p_z,

    masked    1/b          {                       log1p(y) + (k b / a) D }
    kept      k/(a N + b k) { (y - log1p(y)) / a  + log1p(y) + (k b / a) D }
    replaced  1/b          { (log1p(w) - w/(1+w)) / a + log1p(y) + (k b / a) D }
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    banned = torch.arange(wide.shape[-1], device=wide.device) == mask_id
    log_p = wide.masked_fill(banned, torch.finfo(wide.dtype).min).log_softmax(-1)
    n, a, b = wide.shape[-1], alpha.to(wide.dtype), beta.to(wide.dtype)
    ratio = a * n / (b * k1)
    p_x = log_p.gather(-1, targets[:, None])[:, 0].exp()
    off = -torch.expm1(log_p.gather(-1, targets[:, None])[:, 0])  # 1 - p_x, to its last digit
    y = a * n * off / (a * n * p_x + b * k1)
    w = ratio * log_p.gather(-1, inputs[:, None])[:, 0].exp()
    spread = (torch.log1p(ratio) - torch.log1p(ratio[:, None] * log_p.exp()).sum(-1)) / n  # D
    shared = torch.log1p(y) + k1 * b / a * spread
    masked, kept = inputs == mask_id, inputs == targets
    own = torch.where(kept, y - torch.log1p(y), torch.log1p(w) - w / (1 + w)) / a
    scale = torch.where(kept & ~masked, k1 / (a * n + b * k1), 1 / b)
    return (scale * (shared + torch.where(masked, 0, own)),)


def xdlm_draft(model: Any, batch: Batch, recipe: XDLM, *, mask_id: int, seeds: Int[Tensor, " b"]) -> Draft:
    """For a preview: what was replaced counts as committed, though nobody guessed it."""
    tokens, _ = noise_rows(batch, recipe.k1, seeds, mask_id=mask_id, vocabulary=vocabulary_of(model))
    masked, wrong = tokens == mask_id, (tokens != batch.tokens) & (tokens != mask_id)
    return Draft(tokens, wrong, masked, wrong, torch.zeros_like(wrong[:, 0]))
