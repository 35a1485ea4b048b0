"""SCOPE's loss, pure: the truth at the model's own committed guesses and at what is still masked.

Yu et al. 2026, Revise, Don't Freeze (arXiv 2606.01026), Algorithm 2 and its appendix on training; methods 3. And the
plain masked losses, which are its other branch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from redraft.shapes import Bool, Float, Int
from redraft.train.ask import ask, flat, mask_of, token_cross_entropy
from redraft.train.batch import Batch, Draft, row_uniform
from redraft.train.corrupt import SMALLEST_T, hide, mask_rows, self_commit
from redraft.train.metrics import Metrics, measure
from redraft.train.rates import parse_rate
from redraft.train.recipes import MDM, Recipe, Scope


def scope_loss(
    model: Any,
    batch: Batch,
    recipe: Scope,
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
    """The loss of one micro-batch, to be backpropagated, and what is worth logging. Nothing else is changed.

    `model`: a `Model`, its network, or that network wrapped (PEFT, DDP, FSDP, DeepSpeed, compiled). `seeds`: one a row,
    `batch.seeds(seed)`. `step` of `steps`, from 0, matters to curricula only. `temperature` overrides the recipe's.
    The loss is the mean over this batch's supervised tokens (methods S4), or, given `count`, their sum divided by it:
    with the `supervised` count of a whole optimiser step, any split into micro-batches and processes has one gradient.
    `lockstep` makes the same number of forward calls whatever the coins say, which sharded training needs.
    `chunk`: positions whose logits exist at a time.
    """
    mask_id = mask_of(model) if mask_id is None else mask_id
    draft = make_draft(
        model,
        batch,
        recipe,
        mask_id=mask_id,
        step=step,
        steps=steps,
        seeds=seeds,
        temperature=temperature,
        lockstep=lockstep,
        chunk=chunk,
    )
    where = draft.committed | draft.masked if recipe.focus else batch.eligible
    return _supervise(model, batch, draft, where, None, count, chunk)


def make_draft(
    model: Any,
    batch: Batch,
    recipe: Scope,
    *,
    mask_id: int,
    step: int,
    seeds: Int[Tensor, " b"],
    steps: int | None = None,
    temperature: float | int | None = None,
    lockstep: bool = False,
    chunk: int | None = None,
) -> Draft:
    """What `scope_loss` trains on. The coin is each row's own, so that every layout of the rows tosses alike; at one
    row a micro-batch, the paper's setting, it is the paper's coin. Rows without commits cost no extra pass."""
    hidden = hide(batch, recipe.rates, seeds, step=step, steps=steps, exact=recipe.exact)
    draft = all_masked(batch, hidden, mask_id)
    heads = row_uniform(seeds, "coin") < recipe.self_condition
    rows = heads.nonzero().squeeze(-1)
    idle = len(rows) == 0
    if idle and (recipe.self_condition == 0 or not lockstep):
        return draft
    rows = (torch.zeros(1, dtype=torch.int64) if idle else rows).to(batch.tokens.device)
    some, seeds = batch.rows(rows), seeds.to(batch.tokens.device)[rows]
    committed = self_commit(
        model,
        some.tokens,
        hidden[rows],
        mask_id,
        recipe=recipe,
        seeds=seeds,
        step=step,
        steps=steps,
        temperature=temperature,
        attend=some.attend,
        lockstep=lockstep,
        chunk=chunk,
    )
    if idle:  # the pass was made for the sake of other processes
        return draft
    return Draft(*(whole.index_copy(0, rows, part) for whole, part in zip(draft, committed, strict=True)))


def mdm_loss(
    model: Any,
    batch: Batch,
    recipe: MDM,
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
    """Cross-entropy at the masks: their mean, or LLaDA's sum of CE / (t x length) over rows (its GUIDELINES.md; a row's
    length is what may be masked, so a padded end of text counts where the data says that it is learnt)."""
    mask_id = mask_of(model) if mask_id is None else mask_id
    hidden, weights = mdm_masks(batch, recipe, seeds, step=step, steps=steps)
    if weights is not None and count is None:
        count = len(batch.tokens)
    return _supervise(model, batch, all_masked(batch, hidden, mask_id), hidden, weights, count, chunk)


def mdm_masks(
    batch: Batch, recipe: MDM, seeds: Int[Tensor, " b"], *, step: int, steps: int | None
) -> tuple[Bool[Tensor, "b n"], Float[Tensor, " b"] | None]:
    """What is masked, and each row's weight."""
    if recipe.weight == "none":
        return hide(batch, recipe.rates, seeds, step=step, steps=steps, clamp=recipe.clamp), None
    drawn = parse_rate(recipe.rates).at(row_uniform(seeds, "rate"), step=step, steps=steps)
    t = (1 - SMALLEST_T) * drawn + SMALLEST_T
    hidden = mask_rows(
        batch, t, seeds, at_least_one=False
    )  # a mask that t did not ask for would bias the sum of CE / t
    return hidden, 1 / (t.float().to(hidden.device) * batch.eligible.sum(-1))


def supervised(
    batch: Batch, recipe: Recipe, seeds: Int[Tensor, " b"], *, step: int = 0, steps: int | None = None
) -> int:
    """What the summed loss of this batch is to be divided by, known before any forward pass."""
    return recipe.count(batch, seeds, step=step, steps=steps)


def all_masked(batch: Batch, hidden: Bool[Tensor, "b n"], mask_id: int) -> Draft:
    nowhere = torch.zeros_like(hidden)
    return Draft(batch.tokens.masked_fill(hidden, mask_id), nowhere, hidden, nowhere, nowhere.any(-1))


def _supervise(
    model: Any,
    batch: Batch,
    draft: Draft,
    where: Bool[Tensor, "b n"],
    weights: Tensor | None,
    count: float | int | None,
    chunk: int | None,
) -> tuple[Tensor, Metrics]:
    """The one forward pass with gradients: cross-entropy of the truth at `where`, weighted by row."""
    index = flat(where)
    (losses,) = ask(
        model, draft.tokens, batch.attend, index, token_cross_entropy, (batch.tokens.flatten()[index],), chunk
    )
    total = losses.sum() if weights is None else (losses * weights[index // where.shape[1]]).sum()
    count = max(len(index), 1) if count is None else count
    wrong, committed, masked = (part.flatten()[index] for part in (draft.wrong, draft.committed, draft.masked))
    metrics = measure(
        losses,
        total=total,
        count=len(batch.tokens) if weights is not None else len(index),
        wrong=wrong,
        right=committed & ~wrong,
        masked=masked,
        rows=len(batch.tokens),
        conditioned=draft.conditioned.sum(),
    )
    return total / count, metrics
