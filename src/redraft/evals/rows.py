"""What the runs of a sweep say side by side: rows with intervals, differences from a baseline, a table in Markdown.

Rows are made of finished runs alone, so they are the same whatever happened on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redraft.decoding import Sampler
from redraft.evals.compare import compare
from redraft.evals.intervals import wilson
from redraft.evals.protocol import Card, differing
from redraft.evals.records import read_run
from redraft.evals.run import Record
from redraft.evals.sweep import Combination, same


@dataclass(frozen=True)
class Baseline:
    """The row that others are set against: a sampler's, with the first or a named adapter, at a row's own steps or at
    given ones."""

    sampler: Sampler
    adapter: str
    steps: int | None = None

    def __str__(self) -> str:
        at = "the same steps" if self.steps is None else f"{self.steps} steps"
        return f"{self.sampler!r}, adapter {self.adapter}, {at}"

    def of(self, one: Combination, among: Iterable[Combination]) -> Combination | None:
        """A row at its own pace has no steps: it is set against the most that the baseline has."""
        wanted = (one.task, self.adapter, self.sampler)
        found = {other.steps: other for other in among if (other.task, other.adapter, other.sampler) == wanted}
        if not found:
            return None
        if not all(other.paced for other in found.values()):
            return next(iter(found.values()))
        if self.steps is None and not one.paced:
            return found[max(found)]
        return found.get(one.steps if self.steps is None else self.steps)


@dataclass(frozen=True)
class Row:
    """A combination's results. Differences are from the baseline, on the same items; None where it has no such row."""

    task: str
    adapter: str
    sampler: str
    steps: int
    paced: bool
    series: str
    run: str  # the folder within the sweep's
    items: int
    correct: int
    accuracy: float
    interval: tuple[float, float]  # Wilson's, 95 %
    baseline: str | None  # its run
    difference: float | None
    difference_interval: tuple[float, float] | None  # paired bootstrap, 95 %
    mcnemar_p: float | None
    gained: int | None  # items that are right here and not in the baseline
    lost: int | None  # and the other way round
    calls: float  # an item
    processed: float  # tokens an item
    overwrites: float  # an answer
    demotions: float
    sampler_file: str | None

    @property
    def against(self) -> str:
        """The difference in words."""
        if self.baseline is None:
            return "no such row"
        if self.baseline == self.run:
            return "baseline"
        assert self.difference is not None
        assert self.difference_interval is not None
        if self.gained == self.lost == 0:  # the bootstrap's interval is then a point, which is no knowledge
            return "+0.0 (no item differs)"
        low, high = self.difference_interval
        return f"{100 * self.difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"

    @property
    def right(self) -> str:
        low, high = self.interval
        return f"{100 * self.accuracy:.1f} ({100 * low:.1f} to {100 * high:.1f})"

    @property
    def pace(self) -> str:
        return str(self.steps) if self.paced else "its own"


def results(out: Path, asked: Sequence[Combination], baseline: Baseline) -> tuple[list[Row], dict[str, Any]]:
    """A row for each combination, all of which are finished, and the protocol of each task."""
    runs = {one: read_run(out / one.folder) for one in asked}
    protocols: dict[str, Any] = {}
    for one, (card, _) in runs.items():
        between = differing(protocols.setdefault(one.task, card["protocol"]), card["protocol"])
        same(out / one.folder, between)
    return [_row(one, runs, baseline.of(one, asked)) for one in asked], protocols


def _row(one: Combination, runs: dict[Combination, tuple[Card, list[Record]]], other: Combination | None) -> Row:
    card, records = runs[one]
    n, correct = len(records), sum(record.correct for record in records)
    found = compare(runs[other], runs[one]) if other is not None and other != one else None

    def mean(name: str) -> float:
        return round(sum(getattr(record, name) for record in records) / n, 3)

    return Row(
        task=one.task,
        adapter=one.adapter,
        sampler=repr(one.sampler),
        steps=one.steps,
        paced=one.paced,
        series=one.series,
        run=one.folder.as_posix(),
        items=n,
        correct=correct,
        accuracy=round(correct / n, 6),
        interval=_rounded(wilson(correct, n)),
        baseline=other.folder.as_posix() if other else None,
        difference=round(found.pairs.difference, 6) if found else None,
        difference_interval=_rounded(found.interval) if found else None,
        mcnemar_p=round(found.p, 6) if found else None,
        gained=found.pairs.only_b if found else None,
        lost=found.pairs.only_a if found else None,
        calls=mean("calls"),
        processed=mean("processed"),
        overwrites=mean("overwrites"),
        demotions=mean("demotions"),
        sampler_file=card["subject"].get("sampler_file"),
    )


def _rounded(interval: tuple[float, float]) -> tuple[float, float]:
    return round(interval[0], 6), round(interval[1], 6)


HEAD = (
    "adapter", "sampler", "steps", "right, %", "difference, points", "calls", "tokens", "overwritten", "masked again",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    return (
        row.adapter, row.sampler, row.pace, row.right, row.against, f"{row.calls:,.1f}", f"{row.processed:,.0f}",
        f"{row.overwrites:,.1f}", f"{row.demotions:,.1f}",
    )  # fmt: skip


def legend(rows: Sequence[Row], baseline: Baseline) -> str:
    """What the columns are, and what not to read into them."""
    compared = sum(row.difference is not None for row in rows)
    chance = (
        f"; of {compared} such intervals about {compared / 20:.0f} would miss 0 by chance" if compared >= 10 else ""
    )
    pace = " (its most, for samplers at their own pace)" if any(not row.paced for row in rows) else ""
    return (
        f"Right: share of items with its Wilson 95 % interval. Difference: from {baseline}{pace}, on the same items, "
        f"with its 95 % interval by paired bootstrap{chance}. Calls: passes of the model for an item. Tokens: what "
        "went through it for an item. Overwritten, masked again: changes of mind in an answer."
    )


def said_of(protocol: dict[str, Any]) -> str:
    """A protocol in a line."""
    block = "" if protocol["block"] is None else f" in blocks of {protocol['block']}"
    facts = [
        f"{protocol['items']:,} items ({protocol['split']}, {protocol['subset']}), {protocol['shots']} shots",
        f"prompts as {'plain text' if protocol['template'] == 'plain' else 'a chat'}",
        f"{protocol['length']} tokens{block}",
        f"EOS policy {protocol['eos']}",
        f"temperature {protocol['temperature']:g}",
        *([f"guidance {protocol['guidance']:g}"] if protocol["guidance"] else []),
        f"seed {protocol['seed']}",
        f"{protocol['dtype']}, batches of {protocol['batch_size']}, {protocol['device']}",
        f"torch {protocol['packages']['torch']}, redraft {protocol['packages']['redraft']}",
    ]
    return "; ".join(facts)


def markdown(rows: Sequence[Row], protocols: dict[str, Any], baseline: Baseline, model: str) -> str:
    lines = [f"# Samplers on {model}", ""]
    for task, protocol in protocols.items():
        lines += [f"## {task}", "", said_of(protocol) + ".", ""]
        lines += ["| " + " | ".join(HEAD) + " |", "|---|---|" + "---:|" * (len(HEAD) - 2)]
        for row in rows:
            if row.task == task:
                adapter, sampler, *numbers = cells(row)
                marked = (adapter, f"`{sampler}`", *numbers)
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in marked) + " |")
        lines.append("")
    lines.append(legend(rows, baseline))
    if files := sorted({f"`{row.sampler}` is from {row.sampler_file}" for row in rows if row.sampler_file}):
        lines += ["", "; ".join(files) + "."]
    return "\n".join(lines) + "\n"


def jsonl(rows: Sequence[Row]) -> str:
    return "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
