"""What the generated tasks share: random draws that depend on (task, version, split, index) alone, and disjoint splits.

A problem has a skeleton (which templates, in which order) and numbers. Each is hashed into one of ten bins, of which
one is kept for testing and one for validation. A test problem has both its skeleton and its numbers from the test bin,
so neither has ever been trained on.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from redraft.evals.task import Item, Message

Split = Literal["train", "validation", "test"]
BINS = 10  # one for testing, one for validation, the others for training
T = TypeVar("T")


class Problem(NamedTuple):
    question: str
    solution: str
    gold: Any  # what the grader wants, JSON
    skeleton: tuple[Any, ...]
    numbers: tuple[Any, ...]


def split_of(part: tuple[Any, ...]) -> Split:
    """The split that a skeleton or a tuple of numbers belongs to, for ever."""
    place = zlib.crc32(repr(part).encode()) % BINS
    return "test" if place == 0 else "validation" if place == 1 else "train"


def draws(task: str, version: int, split: str, index: int) -> random.Random:
    if split not in get_args(Split):
        raise ValueError(f"there is no split {split!r} of {task!r}: there are {', '.join(get_args(Split))}")
    return random.Random(f"{task} {version} {split} {index}")


def until(draw: Callable[[], T], part: Callable[[T], tuple[Any, ...]], split: str) -> T:
    """Draws until what was drawn belongs to the split."""
    while True:
        drawn = draw()
        if split_of(part(drawn)) == split:
            return drawn


def asked(problems: Callable[[str, int], Problem], name: str, version: int) -> Callable[..., list[Item]]:
    """A task's `items`: problems of a split in their order, each after `shots` worked examples of its own."""

    def items(
        split: str = "test", *, count: int | None = None, shots: int | None = None, data: Any = None
    ) -> list[Item]:
        if data is not None:
            raise ValueError(f"{name} makes its own problems: leave out the data file")
        return [item(split, index, shots or 0) for index in range(SIZE if count is None else count)]

    def item(split: str, index: int, shots: int) -> Item:
        problem = problems(split, index)
        return Item(f"{name}-{version}/{split}/{index}", conversation(problem, examples(index, shots)), problem.gold)

    def examples(index: int, shots: int) -> list[Problem]:
        return [problems("train", EXAMPLES + index * MOST_SHOTS + place) for place in range(shots)]

    return items


SIZE = 1000  # items of a split, unless more are asked for
EXAMPLES = 10_000_000  # where the worked examples begin
MOST_SHOTS = 16


def conversation(problem: Problem, examples: list[Problem]) -> list[Message]:
    turns = [
        turn for example in examples for turn in (said("user", example.question), said("assistant", example.solution))
    ]
    return [*turns, said("user", problem.question)]


def said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
