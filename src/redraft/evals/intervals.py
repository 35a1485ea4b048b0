"""How far a share measured on n items can be trusted, and the difference of two shares measured on the same items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Z95 = 1.959964  # two-sided 95 %
Z80 = 0.841621  # one-sided 80 %: the power that studies are planned for
DRAWS = 10_000  # of a bootstrap


def wilson(correct: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval for a proportion: honest at 0 and 1, where the usual one collapses."""
    if n == 0:
        return 0.0, 1.0
    share = correct / n
    middle = share + z * z / (2 * n)
    spread = z * ((share * (1 - share) + z * z / (4 * n)) / n) ** 0.5
    scale = 1 + z * z / n
    low, high = (middle - spread) / scale, (middle + spread) / scale
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # rounding may leave the share itself outside


class Pairs(NamedTuple):
    """Two runs on the same items: how many both got right, only one did, neither did."""

    both: int
    only_a: int
    only_b: int
    neither: int

    @classmethod
    def of(cls, a: Sequence[bool], b: Sequence[bool]) -> Pairs:
        pairs = list(zip(a, b, strict=True))
        return cls(*(pairs.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))))

    @property
    def n(self) -> int:
        return sum(self)

    @property
    def difference(self) -> float:
        """The accuracy of b less that of a."""
        return (self.only_b - self.only_a) / self.n if self.n else 0.0


def mcnemar(pairs: Pairs) -> float:
    """The exact two-sided p of McNemar's test: were the two equally good, how often they would differ as much."""
    discordant, fewer = pairs.only_a + pairs.only_b, min(pairs.only_a, pairs.only_b)
    tail = sum(math.comb(discordant, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**discordant)


def bootstrap(pairs: Pairs, *, seed: int = 0, draws: int = DRAWS) -> tuple[float, float]:
    """A 95 % interval of the difference b - a: items are drawn anew, pairs stay together.

    Resampling n pairs of four kinds is one multinomial draw, so the order of items plays no part.
    """
    if pairs.n == 0:
        return -1.0, 1.0
    counts = np.random.default_rng(seed).multinomial(pairs.n, np.array(pairs) / pairs.n, size=draws)
    differences = (counts[:, 2] - counts[:, 1]) / pairs.n
    low, high = np.quantile(differences, (0.025, 0.975))
    return float(low), float(high)


def needed(pairs: Pairs) -> int | None:
    """About how many items it would take to show a difference of this size (95 %, in 4 of 5 studies), if as large a
    share of them is answered differently (Connor 1987, Biometrics 43). None where no number would do."""
    if pairs.only_a == pairs.only_b:
        return None
    share, difference = (pairs.only_a + pairs.only_b) / pairs.n, abs(pairs.difference)
    root = Z95 * share**0.5 + Z80 * max(0.0, share - difference**2) ** 0.5
    return math.ceil((root / difference) ** 2)


def caution(pairs: Pairs) -> str | None:
    """What must be said beside a difference that these items cannot show."""
    p = mcnemar(pairs)
    if p < 0.05:
        return None
    said = f"{pairs.n:,} items do not show a difference: the first is right alone on {pairs.only_a:,} of them, "
    said += f"the second on {pairs.only_b:,} (p = {p:.2g})"
    enough = needed(pairs)
    return said if enough is None else f"{said}; to show {abs(pairs.difference):.1%} takes about {enough:,} items"
