"""What the model is trained to see through: random masks, and its own guesses committed among them.

Yu et al. 2026, Revise, Don't Freeze (arXiv 2606.01026), Algorithm 2, lines 2 to 7. The stress test of `diagnose` uses
the same `self_commit`. Every draw is a function of the row's seed and the position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from redraft.decoding.noise import counter_uniform, stream_number
from redraft.decoding.reading import Reading, is_any, predict
from redraft.decoding.sampler import top
from redraft.shapes import Bool, Float, Int
from redraft.train.ask import ask, ends_of, evaluating, flat
from redraft.train.batch import Batch, Draft, position_uniform, row_uniform
from redraft.train.compiled import uniform_for
from redraft.train.rates import parse_rate
from redraft.train.recipes import Scope

LOWEST, HIGHEST = 0.1, 0.9  # of masking (the paper): a row with hardly a mask, or hardly a word, teaches little
SMALLEST_T = 1e-3  # LLaDA's eps: t = (1 - eps) u + eps


def mask_rates(
    batch: Batch,
    rates: float | int | str,
    seeds: Int[Tensor, " b"],
    *,
    step: int = 0,
    steps: int | None = None,
    clamp: bool = True,
) -> Float[Tensor, " b"]:
    """Each row's rate of masking, clamped to 0.1 .. 0.9 unless told not to be; float64, on the CPU."""
    drawn = parse_rate(rates).at(row_uniform(seeds, "rate"), step=step, steps=steps)
    return drawn.clamp(LOWEST, HIGHEST) if clamp else drawn


def mask_rows(
    batch: Batch,
    rates: Float[Tensor, " b"],
    seeds: Int[Tensor, " b"],
    *,
    exact: bool = False,
    at_least_one: bool = True,
) -> Bool[Tensor, "b n"]:
    """Which eligible positions to hide: each with its row's rate, or `exact`ly that share of them, rounded.

    Without `at_least_one` a row may keep all its tokens, which an expectation over masks needs (`inv_t`).
    """
    if not bool(batch.eligible.any(-1).all()):
        empty = batch.indices[~batch.eligible.any(-1).to(batch.indices.device)].tolist()
        raise ValueError(
            f"examples {empty} have no position that may be masked: a prompt without a response, or one cut off whole"
        )
    unit = position_uniform(seeds.to(batch.tokens.device), "mask", batch.tokens.shape[1])
    rates = rates.to(unit.dtype).to(unit.device)[:, None]
    if exact:
        wanted = (rates * batch.eligible.sum(-1, keepdim=True)).round().long()
        return top(-unit, wanted.clamp_min(int(at_least_one)), among=batch.eligible)
    hidden = batch.eligible & (unit < rates)
    # The smallest of a row's draws is at a uniformly random position, and below the rate if any of them is.
    return hidden | top(-unit, 1, among=batch.eligible) if at_least_one else hidden


def hide(
    batch: Batch,
    rates: float | int | str,
    seeds: Int[Tensor, " b"],
    *,
    step: int = 0,
    steps: int | None = None,
    exact: bool = False,
    clamp: bool = True,
) -> Bool[Tensor, "b n"]:
    """The masks of a batch, rates and all (methods 3.2, step 2)."""
    return mask_rows(batch, mask_rates(batch, rates, seeds, step=step, steps=steps, clamp=clamp), seeds, exact=exact)


def commit_counts(
    recipe: Scope, hidden: Bool[Tensor, "b n"], seeds: Int[Tensor, " b"], step: int, steps: int | None
) -> Int[Tensor, " b"]:
    """K = max(1, floor(share x hidden)), on the CPU; no commits where nothing is hidden."""
    shares = parse_rate(recipe.share).at(row_uniform(seeds, "share"), step=step, steps=steps)
    holes = hidden.sum(-1).cpu()
    counts = (shares * holes + 1e-9).floor().long()  # 0.29 x 100 is 28.999999999999996 in float64
    return torch.minimum(counts.clamp_min(1), holes)


@torch.no_grad()
def self_commit(
    denoiser: Any,
    tokens: Int[Tensor, "b n"],
    hidden: Bool[Tensor, "b n"],
    mask_id: int,
    *,
    recipe: Scope,
    seeds: Int[Tensor, " b"],
    step: int = 0,
    steps: int | None = None,
    temperature: float | int | None = None,
    attend: Bool[Tensor, "b n"] | None = None,
    lockstep: bool = False,
    chunk: int | None = None,
) -> Draft:
    """Sampled guesses at the hidden positions, the surest of them committed, the others masked (lines 5 to 7).

    `denoiser`: a `Model`, a network, or any `Denoiser`. Confidence is the largest probability at temperature 1 of the
    position, not that of the sampled token, which would commit hardly an error (methods S2). It is the reading and the
    `top` of the samplers: training is matched to D3IM by construction. `lockstep` makes all `rounds` forward calls,
    needed or not.
    """
    heat = recipe.temperature if temperature is None else temperature
    seeds = seeds.to(tokens.device)
    wanted = commit_counts(recipe, hidden, seeds, step, steps)[:, None]
    lottery = position_uniform(seeds, "commit", tokens.shape[1]) if recipe.commit == "random" else None
    withheld = () if recipe.eos == "none" else ends_of(denoiser)
    seen = tokens if recipe.context == "clean" else tokens.masked_fill(hidden, mask_id)
    committed = torch.zeros_like(hidden)
    for turn in range(recipe.rounds):
        due = wanted * (turn + 1) // recipe.rounds - wanted * turn // recipe.rounds
        if not (lockstep or bool(due.any())):
            continue
        holes = hidden & ~committed
        with evaluating(denoiser):
            guesses, confidence = _guess(denoiser, seen, holes, mask_id, withheld, seeds, attend, heat, turn, chunk)
        eligible = confidence > -torch.inf
        chosen = top(confidence if lottery is None else lottery, due.to(tokens.device), among=eligible)
        committed = committed | chosen
        seen = torch.where(chosen, guesses, seen)
    masked = hidden & ~committed
    conditioned = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    return Draft(seen.masked_fill(masked, mask_id), committed, masked, committed & (seen != tokens), conditioned)


def _guess(
    denoiser: Any,
    seen: Int[Tensor, "b n"],
    holes: Bool[Tensor, "b n"],
    mask_id: int,
    withheld: tuple[int, ...],
    seeds: Int[Tensor, " b"],
    attend: Bool[Tensor, "b n"] | None,
    temperature: float | int,
    turn: int,
    chunk: int | None,
) -> tuple[Int[Tensor, "b n"], Float[Tensor, "b n"]]:
    """A sampled token and a confidence at every hole; -inf elsewhere, and where the token may not be committed."""
    index = flat(holes)
    rows, columns = index // seen.shape[1], index % seen.shape[1]
    uniform = uniform_for(denoiser)
    read = partial(_sample, mask_id=mask_id, withheld=withheld, temperature=temperature, turn=turn, uniform=uniform)
    tokens, sure = ask(denoiser, seen, attend, index, read, (seeds[rows], columns), chunk)
    guesses = torch.zeros_like(seen).flatten().index_copy(0, index, tokens)
    confidence = sure.new_full((seen.numel(),), -torch.inf).index_copy(0, index, sure)
    return guesses.view_as(seen), confidence.view_as(seen)


def _sample(
    logits: Float[Tensor, "c v"],
    seeds: Int[Tensor, " c"],
    columns: Int[Tensor, " c"],
    *,
    mask_id: int,
    withheld: tuple[int, ...],
    temperature: float | int,
    turn: int,
    uniform: Callable[..., Tensor] = counter_uniform,
) -> tuple[Int[Tensor, " c"], Float[Tensor, " c"]]:
    """One reading of each position, with noise of its own seed and column; end tokens are allowed (methods S13).

    A position that is, or would surest be, one of the `withheld` tokens may not be committed.
    """
    final = torch.ones_like(columns, dtype=torch.bool)[:, None]
    reading = Reading(temperature=temperature, eos="none")
    prediction = predict(
        logits[:, None],
        reading,
        mask_id=mask_id,
        final=final,
        noise=lambda stream, size: uniform(seeds, (stream_number(f"train.{stream}"), turn, columns), size),
    )
    best = prediction.argmax()
    surest = prediction.score(best)  # the position's, whichever token was sampled
    vetoed = is_any(best, withheld) | is_any(prediction.tokens, withheld)
    return prediction.tokens[:, 0], surest.masked_fill(vetoed, -torch.inf)[:, 0]
