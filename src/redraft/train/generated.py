"""The generated tasks as training data: an endless stream of conversations, `tasks:words,algebra,code`.

Conversation n is a function of n and the tasks: which task (in turn), how many worked examples, which training
problems. A task named twice comes up twice as often; `sums` are practice, and no task. Nothing of a validation or test
split is ever in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import import_module

from redraft.evals.generated import Problem, conversation, said
from redraft.evals.task import Message
from redraft.train.sources import Place, Record

TASKS = ("words", "algebra", "code")
HOMES = {**{name: f"redraft.evals.{name}" for name in TASKS}, "sums": "redraft.train.sums"}
WITH_EXAMPLES = 0.1  # of the conversations have worked examples before the question
MOST_EXAMPLES = 4


class Generated:
    """A reader (see `sources`) without an end. `first` skips conversations that another run has had."""

    def __init__(self, tasks: tuple[str, ...], first: int = 0) -> None:
        unknown = [name for name in tasks if name not in HOMES]
        if unknown or not tasks:
            raise ValueError(
                f"the tasks that can be trained on are {', '.join(HOMES)}, not {', '.join(unknown) or 'none'}"
            )
        self.tasks, self.first = tasks, first
        self._modules = [import_module(HOMES[name]) for name in tasks]
        versions = {name: module.VERSION for name, module in zip(tasks, self._modules, strict=True)}
        self.identity: Place = {"kind": "tasks", "tasks": list(tasks), "versions": versions, "first": first}

    def read(self, place: Place | None) -> Iterator[Record]:
        number = place["conversations"] if place else 0
        while True:
            number += 1
            messages = self.messages(self.first + number - 1)
            yield Record(f"conversation {number}", {"messages": messages}, {"conversations": number})

    def messages(self, number: int) -> list[Message]:
        """A question, perhaps after examples, and its worked solution."""
        module = self._modules[number % len(self.tasks)]
        draws = random.Random(f"conversation {number}")
        examples = draws.randint(1, MOST_EXAMPLES) if draws.random() < WITH_EXAMPLES else 0
        problems: list[Problem] = [
            module.problem("train", number * (MOST_EXAMPLES + 1) + k) for k in range(examples + 1)
        ]
        return [*conversation(problems[0], problems[1:]), said("assistant", problems[0].solution)]


def parse(spec: str) -> Generated:
    """`tasks:words,algebra,code`, or `tasks:words@5000000` to begin at a later conversation."""
    names, _, first = spec.removeprefix("tasks:").partition("@")
    if first and not first.isdigit():
        raise ValueError(f"{spec}: after @ comes the number of the first conversation, not {first!r}")
    return Generated(tuple(name for name in names.split(",") if name), int(first or 0))
