"""Whether two formulas have the same value: both are evaluated at the same few points, and nothing is rearranged.

Rational formulas are evaluated in the integers modulo a prime: exactly, in microseconds, however large the numbers. All
others are evaluated at complex points to fifty digits. Two different formulas agree at these points by chance alone,
with odds far below any error of a computer; and no work here grows with the size of a number, so nothing can hang.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from redraft.evals.formulas import Node

PRIME = 2**127 - 1
POINTS = 2  # places at which rational formulas are compared
SAMPLES = 4  # places at which the others are
DIGITS = 50  # of which so many must agree:
AGREED = 30
LARGEST = 10**4  # bits of an exact power, exponents and arguments: beyond, a number is not worked out
LARGEST_EXACT = 10**5  # bits of what is computed with
LARGEST_FACTORIAL = 2000
COMBINED = frozenset(("add", "multiply", "divide", "power", "negate", "call"))


class Unknown(ValueError):
    """This formula has no value that we can compute."""


def same(one: Node, other: Node) -> bool:
    """Whether two formulas without brackets or relations are the same function of their variables."""
    try:
        return all(_modular(one, point) == _modular(other, point) for point in range(POINTS))
    except Unknown:
        pass
    try:
        return all(_close(_at(one, sample), _at(other, sample)) for sample in range(SAMPLES))
    except Unknown:
        return False


def proportional(one: Node, other: Node, sign: int | None = None) -> bool:
    """Whether one is a constant times the other, as two ways of writing an equation are; `sign` asks for its sign."""
    try:
        ratios = [_quotient(_complex(one, sample), _complex(other, sample)) for sample in range(SAMPLES)]
    except Unknown:
        return False
    first = ratios[0]
    if abs(first) < 10.0**-AGREED or not all(_close(first, ratio) for ratio in ratios):
        return False
    return sign is None or (abs(first.imag) < 10.0**-AGREED and first.real * sign > 0)


# --- modulo a prime ---


def _modular(tree: Node, point: int) -> int:
    kind = tree[0]
    if kind == "number":
        return tree[1].numerator * _inverse(tree[1].denominator) % PRIME
    if kind == "variable":
        return _residue(tree[1], point)
    if kind == "add":
        return (_modular(tree[1], point) + _modular(tree[2], point)) % PRIME
    if kind == "multiply":
        return _modular(tree[1], point) * _modular(tree[2], point) % PRIME
    if kind == "negate":
        return -_modular(tree[1], point) % PRIME
    if kind == "divide":
        return _modular(tree[1], point) * _inverse(_modular(tree[2], point)) % PRIME
    if kind == "degrees":
        return _modular(tree[1], point)
    if kind == "power":
        exponent = _exact(tree[2])
        if exponent.denominator == 1:
            base = _modular(tree[1], point)
            return pow(_inverse(base) if exponent < 0 else base, abs(exponent.numerator), PRIME)
    elif kind == "call" and tree[1] in ("factorial", "binomial", "gcd", "lcm", "floor", "ceil", "min", "max"):
        return _modular(("number", _exact(tree)), point)
    raise Unknown(kind)


def _inverse(number: int) -> int:
    number %= PRIME
    if number == 1:
        return 1
    if number == 0:
        raise Unknown("a division by zero")
    return pow(number, -1, PRIME)


@cache
def _residue(name: str, point: int) -> int:
    """Where a variable stands at a point: anywhere, and always there."""
    return _drawn(name, point) % PRIME


def _drawn(name: str, point: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{point} {name}".encode()).digest(), "big")


def _exact(tree: Node) -> Fraction:
    """A rational constant of moderate size."""
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "negate":
        return -_exact(tree[1])
    if kind not in COMBINED:  # a variable, or a collection amid a formula
        raise Unknown(kind)
    parts = [_moderate(_exact(part)) for part in tree[1:] if isinstance(part, tuple)]
    if kind == "add":
        return parts[0] + parts[1]
    if kind == "multiply":
        return parts[0] * parts[1]
    if kind == "divide" and parts[1]:
        return parts[0] / parts[1]
    if kind == "power" and parts[1].denominator == 1 and (parts[0] or parts[1] >= 0):
        size = max(parts[0].numerator.bit_length(), parts[0].denominator.bit_length())
        if size * abs(parts[1].numerator) <= LARGEST:
            return Fraction(parts[0] ** parts[1].numerator)
    if kind == "call" and tree[1] in ("floor", "ceil"):
        return Fraction(getattr(math, tree[1])(parts[0]))
    if kind == "call" and tree[1] in ("min", "max"):
        return (min if tree[1] == "min" else max)(parts)
    if (
        kind == "call"
        and tree[1] in COUNTS
        and all(part.denominator == 1 and 0 <= part <= LARGEST_FACTORIAL for part in parts)
    ):
        return Fraction(COUNTS[tree[1]](*map(int, parts)))
    raise Unknown(kind)


def _moderate(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > LARGEST_EXACT:
        raise Unknown("a number too large")
    return value


COUNTS: dict[str, Callable[..., int]] = {
    "factorial": math.factorial,
    "binomial": math.comb,
    "gcd": math.gcd,
    "lcm": math.lcm,
}


# --- to fifty digits ---


@cache
def _numbers() -> Any:
    """An arithmetic of our own precision, apart from any that others have set."""
    from mpmath import MPContext

    numbers = MPContext()
    numbers.dps = DIGITS
    return numbers


@lru_cache(1000)
def _at(tree: Node, sample: int) -> Any:
    """Remembered, for each item of a list is compared with many."""
    return _complex(tree, sample)


def _complex(tree: Node, sample: int) -> Any:
    mp, kind = _numbers(), tree[0]
    if kind == "number":
        return mp.mpf(tree[1].numerator) / tree[1].denominator
    if kind == "variable":
        return _place(tree[1], sample)
    if kind == "constant":
        return {"pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1)}[tree[1]]
    if kind == "degrees":
        return _complex(tree[1], sample)
    if kind == "call":
        return _call(tree, sample)
    if kind not in COMBINED:
        raise Unknown(kind)
    parts = [_complex(part, sample) for part in tree[1:] if isinstance(part, tuple)]
    if kind == "add":
        return parts[0] + parts[1]
    if kind == "negate":
        return -parts[0]
    if kind == "multiply":
        return parts[0] * parts[1]
    if kind == "divide":
        return _quotient(*parts)
    if kind == "power":
        return _power(*parts)
    raise Unknown(kind)


@cache
def _place(name: str, sample: int) -> Any:
    """Real, of either sign, neither small nor large."""
    mp, drawn = _numbers(), _drawn(name, sample)
    size = mp.mpf(drawn) / 2**256 * 2 + mp.mpf(1) / 5
    return -size if drawn & 1 else size


def _quotient(one: Any, other: Any) -> Any:
    if abs(other) < 10.0**-AGREED:
        raise Unknown("a division by zero")
    return one / other


def _power(base: Any, exponent: Any) -> Any:
    mp = _numbers()
    if base == 0:
        if mp.re(exponent) > 0:
            return mp.mpf(0)
        raise Unknown("a power of zero")
    if abs(exponent) * (1 + abs(mp.log(base))) > LARGEST:
        raise Unknown("a number too large")
    if mp.im(base) == 0 and mp.re(base) < 0 and mp.im(exponent) == 0:
        third = 3 * exponent
        if third == int(third) and exponent != int(exponent):
            return mp.cbrt(-base) ** int(third) * (
                -1 if int(third) % 2 else 1
            )  # the real cube root, as schools have it
    return base**exponent


def _call(tree: Node, sample: int) -> Any:
    mp, name = _numbers(), tree[1]
    if name in COUNTS or name in ("floor", "ceil"):
        exact = _exact(tree)
        return mp.mpf(exact.numerator) / exact.denominator
    values = [_complex(_radians(part) if name in TRIGONOMETRIC else part, sample) for part in tree[2:]]
    if len(values) != 1 or name not in ANALYTIC:
        raise Unknown(name)
    value = values[0]
    if abs(value) > LARGEST:
        raise Unknown("an argument too large")
    try:
        found = getattr(mp, ANALYTIC[name])(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise Unknown(name) from None
    if not mp.isfinite(found) or (name in TRIGONOMETRIC and abs(found) > 10.0**AGREED):
        raise Unknown("a pole")  # ln 0, or tan of 90 degrees as near as fifty digits come
    return found


TRIGONOMETRIC = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
ANALYTIC = {
    **{name: name for name in (*TRIGONOMETRIC, "sinh", "cosh", "tanh", "exp", "ln")},
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "abs": "fabs",
    "log": "log10",
}


def _radians(tree: Node) -> Node:
    """An argument in degrees, turned into what the functions take."""
    if tree[0] == "degrees":
        return ("divide", ("multiply", tree[1], ("constant", "pi")), ("number", Fraction(180)))
    return (tree[0], *(_radians(part) if isinstance(part, tuple) and part else part for part in tree[1:]))


def _close(one: Any, other: Any) -> bool:
    return abs(one - other) <= max(abs(one), abs(other), 10.0**-5) * 10.0**-AGREED
