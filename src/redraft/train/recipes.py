"""Training recipes: frozen dataclasses in the same one-line notation as samplers, `scope(temperature=2.0)`.

    scope   Yu et al. 2026, Revise, Don't Freeze, arXiv 2606.01026, Algorithm 2; its ablations are its fields
    mdm     the plain masked objective: the paper's matched-budget control, and LLaDA's own (arXiv 2502.09992)
    xdlm    LLaDA-XDLM's mixture of masks and random tokens (repository MzeroMiko/LLaDA-XDLM)

A recipe has no state. What it draws is a function of the rows' seeds; what it steers, the loop holds and passes in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

from torch import Tensor

from redraft.decoding.notation import Registry, check_options, option_types, spell
from redraft.shapes import Int
from redraft.train.batch import Batch, Draft
from redraft.train.metrics import Metrics
from redraft.train.rates import parse_rate


class Recipe:
    """What to hide, what to put there, and the loss. Fields are options, checked when it is made."""

    name: ClassVar[str]  # set by @register

    def __post_init__(self) -> None:
        check_options(type(self), vars(self))
        for option, hint in option_types(type(self)).items():
            if type(value := getattr(self, option)) is int and float in get_args(hint):
                object.__setattr__(self, option, float(value))  # 2 and 2.0 are one recipe

    def __repr__(self) -> str:
        return spell(self)

    def loss(
        self,
        model: Any,
        batch: Batch,
        *,
        step: int,
        seeds: Int[Tensor, " b"],
        steps: int | None = None,
        mask_id: int | None = None,
        temperature: float | int | None = None,
        count: float | int | None = None,
        lockstep: bool = False,
        chunk: int | None = None,
    ) -> tuple[Tensor, Metrics]:
        """The loss of one micro-batch, with gradients, and what is worth logging. See `scope.scope_loss`."""
        return self._function()(
            model,
            batch,
            self,
            step=step,
            seeds=seeds,
            steps=steps,
            mask_id=mask_id,
            temperature=temperature,
            count=count,
            lockstep=lockstep,
            chunk=chunk,
        )

    def draft(
        self,
        model: Any,
        batch: Batch,
        *,
        mask_id: int,
        step: int,
        seeds: Int[Tensor, " b"],
        steps: int | None = None,
        temperature: float | int | None = None,
    ) -> Draft:
        """What `loss` with the same arguments trains on: for a preview."""
        raise NotImplementedError

    def _function(self) -> Callable[..., tuple[Tensor, Metrics]]:
        """The pure function behind `loss`; imported late, so that listing recipes costs nothing."""
        raise NotImplementedError

    def count(self, batch: Batch, seeds: Int[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> int:
        """What this batch's summed loss is divided by: known before any forward pass, so that an optimiser step of
        several micro-batches or processes can use the count of all of them."""
        raise NotImplementedError


RECIPES: Registry[Recipe] = Registry("recipe")
R = TypeVar("R", bound=type[Recipe])


def register(cls: R) -> R:
    RECIPES.register(cls)
    return cls


def parse(text: str) -> Recipe:
    """A recipe from its notation: `parse("scope(temperature=2.0, focus=False)")`."""
    return RECIPES.parse(text)


@register
@dataclass(frozen=True, repr=False)
class Scope(Recipe):
    """Fill part of the holes with one's own sampled predictions, keep the surest as if they were given, and learn the
    truth at those and at the remaining holes."""

    temperature: float | int = 1.5  # tau, of the self-prediction; 0 takes the most probable token
    share: float | int | str = 0.3  # rho, of the hidden positions, to commit: a rate
    commit: Literal["confidence", "random"] = "confidence"  # which: those of the surest positions, or any
    focus: bool = True  # learn at committed and masked positions only; False: at every position that may be masked
    self_condition: float | int = 0.5  # p_sc: the share of rows with commits; the others are plainly masked
    rates: float | int | str = "beta(2,2)"  # of masking, a draw a row, clamped to 0.1 .. 0.9
    error_rate: float | int | None = None  # the loop steers the temperature until this share of the commits is wrong
    rounds: int = 1  # commit the share in so many rounds, each seeing the ones before
    context: Literal["masked", "clean"] = "masked"  # what the self-prediction sees; clean: the sequence itself
    eos: Literal["none", "confidence"] = "none"  # none commits end-of-text like any other, confidence never, as D3IM
    # before its last step; without it an answer padded with end-of-text has hardly another commit
    exact: bool = False  # hide exactly rate x length positions instead of each with that probability (methods S1)

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_rate(self.share)
        parse_rate(self.rates)
        _within("scope", "temperature", self.temperature, 0.0, float("inf"))
        _within("scope", "self_condition", self.self_condition, 0.0, 1.0)
        if self.error_rate is not None:
            _within("scope", "error_rate", self.error_rate, 0.0, 1.0)
        if self.rounds < 1:
            raise ValueError(f"option 'rounds' of 'scope' is at least 1, not {self.rounds}")

    def _function(self) -> Callable[..., tuple[Tensor, Metrics]]:
        from redraft.train.scope import scope_loss

        return scope_loss

    def draft(
        self,
        model: Any,
        batch: Batch,
        *,
        mask_id: int,
        step: int,
        seeds: Int[Tensor, " b"],
        steps: int | None = None,
        temperature: float | int | None = None,
    ) -> Draft:
        from redraft.train.scope import make_draft

        return make_draft(
            model, batch, self, mask_id=mask_id, step=step, seeds=seeds, steps=steps, temperature=temperature
        )

    def count(self, batch: Batch, seeds: Int[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> int:
        from redraft.train.corrupt import hide

        supervised = hide(batch, self.rates, seeds, step=step, steps=steps, exact=self.exact)
        return int((supervised if self.focus else batch.eligible).sum())


@register
@dataclass(frozen=True, repr=False)
class MDM(Recipe):
    """Mask and predict. `weight=inv_t` is LLaDA's bound: t = (1 - 0.001) rate + 0.001, no clamp, each row's sum of
    CE / t over its length; with `rates="uniform(0,1)"` it is LLaDA's own objective."""

    weight: Literal["none", "inv_t"] = "none"
    rates: float | int | str = "beta(2,2)"
    clamp: bool = True  # the rates to 0.1 .. 0.9; False, with uniform(0,1), to learn from scratch. inv_t never clamps

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_rate(self.rates)

    def _function(self) -> Callable[..., tuple[Tensor, Metrics]]:
        from redraft.train.scope import mdm_loss

        return mdm_loss

    def draft(
        self,
        model: Any,
        batch: Batch,
        *,
        mask_id: int,
        step: int,
        seeds: Int[Tensor, " b"],
        steps: int | None = None,
        temperature: float | int | None = None,
    ) -> Draft:
        from redraft.train.scope import all_masked, mdm_masks

        hidden, _ = mdm_masks(batch, self, seeds, step=step, steps=steps)
        return all_masked(batch, hidden, mask_id)

    def count(self, batch: Batch, seeds: Int[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> int:
        from redraft.train.corrupt import hide

        if self.weight == "inv_t":
            return len(batch.tokens)
        return int(hide(batch, self.rates, seeds, step=step, steps=steps, clamp=self.clamp).sum())


@register
@dataclass(frozen=True, repr=False)
class XDLM(Recipe):
    """Masks and uniformly random tokens together; `k1` is the share of the noise that is random tokens."""

    k1: float | int = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.k1 < 1:
            raise ValueError(
                f"option 'k1' of 'xdlm' lies between 0 and 1, both excluded, not {self.k1}; its limit at 0 is "
                "mdm(weight=inv_t, rates='uniform(0,1)')"
            )

    def _function(self) -> Callable[..., tuple[Tensor, Metrics]]:
        from redraft.train.xdlm import xdlm_loss

        return xdlm_loss

    def draft(
        self,
        model: Any,
        batch: Batch,
        *,
        mask_id: int,
        step: int,
        seeds: Int[Tensor, " b"],
        steps: int | None = None,
        temperature: float | int | None = None,
    ) -> Draft:
        from redraft.train.xdlm import xdlm_draft

        return xdlm_draft(model, batch, self, mask_id=mask_id, seeds=seeds)

    def count(self, batch: Batch, seeds: Int[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> int:
        return int(batch.eligible.sum())


def _within(recipe: str, option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        span = f"{low:g} or more" if high == float("inf") else f"between {low:g} and {high:g}"
        raise ValueError(f"option {option!r} of {recipe!r} is {span}, not {value}")
