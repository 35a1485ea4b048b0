"""Rates in one line of text: `0.3`, `uniform(0.1,0.8)`, `linear(0.1,0.8)`, `beta(2,2)`.

A rate is a share between 0 and 1: of positions to mask, or of masked positions to commit. Drawn by inverse CDF from
one uniform a row, so that a row's rate depends on nothing but its seed (and, for `linear`, on the step).
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from redraft.decoding.notation import suggest
from redraft.shapes import Float


@dataclass(frozen=True)
class Fixed:
    value: float

    def at(self, unit: Float[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> Float[Tensor, " b"]:
        return torch.full_like(unit, self.value)


@dataclass(frozen=True)
class Uniform:
    low: float
    high: float

    def at(self, unit: Float[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> Float[Tensor, " b"]:
        return self.low + (self.high - self.low) * unit


@dataclass(frozen=True)
class Linear:
    """A curriculum: `start` at the first optimiser step (step 0), `stop` at the last (step `steps` - 1)."""

    start: float
    stop: float

    def at(self, unit: Float[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> Float[Tensor, " b"]:
        if steps is None:
            raise ValueError(f"linear({self.start:g},{self.stop:g}) is a curriculum: say how many steps there are")
        done = min(step / max(steps - 1, 1), 1.0)
        return torch.full_like(unit, self.start + (self.stop - self.start) * done)


@dataclass(frozen=True)
class Beta:
    """Whole `a` and `b` only: their distribution function is a polynomial, so the inverse is as exact as float64."""

    a: int
    b: int

    def at(self, unit: Float[Tensor, " b"], *, step: int = 0, steps: int | None = None) -> Float[Tensor, " b"]:
        if (self.a, self.b) == (2, 2):  # u = 3 x^2 - 2 x^3, solved by the trisection of an angle
            return 0.5 - torch.sin(torch.asin(1 - 2 * unit) / 3)
        low, high = torch.zeros_like(unit), torch.ones_like(unit)
        for _ in range(54):  # one bit of float64 each
            middle = (low + high) / 2
            below = self.cdf(middle) < unit
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def cdf(self, x: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        """P(at least a of a + b - 1 trials succeed), each with probability x."""
        n = self.a + self.b - 1
        terms = [math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(self.a, n + 1)]
        return torch.stack(terms).sum(0)


Rate = Fixed | Uniform | Linear | Beta
_KINDS: dict[str, type[Uniform] | type[Linear] | type[Beta]] = {"uniform": Uniform, "linear": Linear, "beta": Beta}
_LARGEST = 20  # of beta's two numbers: beyond some 30 the binomials outgrow an int64


@cache
def parse_rate(text: str | float | int) -> Rate:
    """A rate from its notation; what does not exist, or is no share, is refused."""
    written = str(text).strip()
    number = _number(written)
    if number is not None:
        return Fixed(_share(number, written))
    call = re.fullmatch(r"(\w+)\s*\(\s*([^(),]+)\s*,\s*([^(),]+?)\s*\)", written)
    if not call:
        word = re.match(r"\w*", written)
        hint = suggest(word.group() if word else "", _KINDS)
        raise ValueError(
            f"cannot read {written!r} as a rate{hint}: write 0.3, uniform(0.1,0.8), linear(0.1,0.8) or beta(2,2)"
        )
    name, *arguments = call.groups()
    if name not in _KINDS:
        raise ValueError(f"there is no distribution {name!r}{suggest(name, _KINDS)}; there are: {', '.join(_KINDS)}")
    values = [_number(argument) for argument in arguments]
    first, second = values
    if first is None or second is None:
        raise ValueError(f"{written!r} needs two numbers, as {name}({'2,2' if name == 'beta' else '0.1,0.8'})")
    if name == "beta":
        if not all(value == int(value) and 1 <= value <= _LARGEST for value in (first, second)):
            raise ValueError(f"{written!r}: only whole numbers from 1 to {_LARGEST} are built for beta")
        return Beta(int(first), int(second))
    first, second = _share(first, written), _share(second, written)
    if name == "linear":
        return Linear(first, second)
    if first > second:
        raise ValueError(f"{written!r} runs backwards: write uniform({second:g},{first:g})")
    return Uniform(first, second)


def _number(text: str) -> float | None:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _share(value: float, written: str) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{written!r} is not a share: a rate lies between 0 and 1")
    return value
