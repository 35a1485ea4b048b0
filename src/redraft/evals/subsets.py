"""Which items of a task: all, the first N, or N drawn by a seed. A subset's name says all there is to know of it.

    first-200   drawn-200   drawn-200-seed-7

A drawn subset holds the items whose hashed ids are the smallest, so that drawn-50 lies within drawn-200 and nothing
depends on the order of the file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from redraft.evals.task import Item, Task

ALL = "all"
NAME = re.compile(r"(first)-([1-9]\d{0,6})|(drawn)-([1-9]\d{0,6})(?:-seed-(\d{1,9}))?")


def check_subset(name: str) -> None:
    if name != ALL and not NAME.fullmatch(name):
        raise ValueError(f"there is no subset {name!r}: write first-200, drawn-200 or drawn-200-seed-7")


def items_of(
    task: Task, subset: str = ALL, *, split: str = "test", shots: int | None = None, data: str | Path | None = None
) -> list[Item]:
    check_subset(subset)
    found = NAME.fullmatch(subset)
    if found is None:
        return task.items(split, shots=shots, data=data)
    first, count = bool(found[1]), int(found[2] or found[4])
    items = task.items(split, count=count if first else None, shots=shots, data=data)
    if len(items) < count:
        raise ValueError(f"{subset}: the {split} split of {task.name!r} has only {len(items)} items")
    return items if first else drawn(items, count, int(found[5] or 0))


def drawn(items: list[Item], count: int, seed: int) -> list[Item]:
    def lot(item: Item) -> bytes:
        return hashlib.sha256(f"{seed} {item.id}".encode()).digest()

    chosen = {item.id for item in sorted(items, key=lot)[:count]}
    return [item for item in items if item.id in chosen]
