"""What the records of a run say together: accuracy and its interval, verdicts, cost, speed, where texts end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from redraft.evals.intervals import wilson
from redraft.evals.run import Record
from redraft.evals.task import VERDICTS


def summarize(records: Sequence[Record], batches: Sequence[dict[str, Any]], *, length: int) -> dict[str, Any]:
    """`batches`: how long those took that were timed. Shares are of all items.

    Tokens a second: new tokens, which are those before a response's first end token, over the seconds spent decoding,
    added up over processes; so that of one device, however many there were. Prompts and grading are not in it.
    An end is early before half of the length (the paper's 128 of 256); truncated is a response without one.
    """
    n = len(records)
    seconds = sum(batch["seconds"] for batch in batches)
    timed = sum(batch["new_tokens"] for batch in batches)
    verdicts = Counter(record.verdict for record in records)

    def mean(values: Sequence[int]) -> float:
        return round(sum(values) / n, 3)

    return {
        "items": n,
        **_accuracy([record.correct for record in records]),
        "filters": {
            name: _accuracy([record.filters[name] for record in records]) for name in records[0].filters
        },
        "verdicts": {name: verdicts[name] for name in VERDICTS if verdicts[name]},
        "examples": {record.verdict: record.id for record in reversed(records)},  # the first of each
        "calls_per_item": mean([record.calls for record in records]),
        "processed_per_item": mean([record.processed for record in records]),
        "new_tokens": sum(record.first_eos for record in records),
        "seconds": round(seconds, 3),
        "tokens_per_second": round(timed / seconds, 3) if seconds else None,
        "ends": {
            "mean_first": mean([record.first_eos for record in records]),
            "early": mean([record.first_eos < length // 2 for record in records]),
            "truncated": mean([record.first_eos == length for record in records]),
        },
        "changes": {
            name: mean([getattr(record, name) for record in records])
            for name in ("reveals", "overwrites", "demotions", "oscillations")
        },
    }  # fmt: skip


def _accuracy(correct: Sequence[bool]) -> dict[str, Any]:
    interval = wilson(sum(correct), len(correct))
    return {
        "correct": sum(correct),
        "accuracy": round(sum(correct) / len(correct), 6),
        "interval": [round(end, 6) for end in interval],
    }
