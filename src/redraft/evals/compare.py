"""Two runs set against each other, item by item; what may not be compared is not, unless forced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redraft.evals.intervals import Pairs, bootstrap, caution, mcnemar, wilson
from redraft.evals.protocol import Card, differing
from redraft.evals.run import Record

Run = tuple[Card, Sequence[Record]]


@dataclass(frozen=True)
class Comparison:
    pairs: Pairs
    interval: tuple[float, float]  # of the difference b - a
    p: float
    subject: dict[str, tuple[Any, Any]]  # what was varied
    protocol: dict[str, tuple[Any, Any]]  # what should not have been; empty unless forced
    unpaired: int  # items that only one of the runs has

    @property
    def accuracies(self) -> tuple[float, float]:
        both, n = self.pairs.both, self.pairs.n
        return (both + self.pairs.only_a) / n, (both + self.pairs.only_b) / n

    @property
    def intervals(self) -> tuple[tuple[float, float], tuple[float, float]]:
        both, n = self.pairs.both, self.pairs.n
        return wilson(both + self.pairs.only_a, n), wilson(both + self.pairs.only_b, n)

    @property
    def cautions(self) -> list[str]:
        found = [caution(self.pairs)]
        if self.protocol:
            found.append(f"the protocols differ ({', '.join(self.protocol)}): so may the scores, whatever the subject")
        if self.unpaired:
            found.append(f"{self.unpaired:,} items are in one of the runs only and were left out")
        if not self.subject:
            found.append("both runs have the same subject: model, adapter, sampler and steps")
        return [said for said in found if said is not None]


def compare(a: Run, b: Run, *, force: bool = False, seed: int = 0) -> Comparison:
    """b against a. Refused where their protocols differ, with the names of the fields, unless forced."""
    between = differing(a[0]["protocol"], b[0]["protocol"])
    if between and not force:
        said = "; ".join(f"{name} ({one!r} and {other!r})" for name, (one, other) in between.items())
        raise ValueError(
            f"the runs have different protocols, so their scores cannot be compared: {said}. "
            "Repeat one with the other's settings, or --force"
        )
    mine, theirs = ({record.id: record.correct for record in run[1]} for run in (a, b))
    shared = [name for name in mine if name in theirs]
    if not shared:
        raise ValueError("the runs share no item: there is nothing to compare")
    pairs = Pairs.of([mine[name] for name in shared], [theirs[name] for name in shared])
    return Comparison(
        pairs,
        bootstrap(pairs, seed=seed),
        mcnemar(pairs),
        differing(a[0]["subject"], b[0]["subject"]),
        between,
        len(mine) + len(theirs) - 2 * len(shared),
    )
