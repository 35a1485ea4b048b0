"""What an evaluation is made of: tasks, their items, and grades. No model and no torch here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Verdict = Literal["passed", "wrong", "no_answer", "no_code", "syntax", "timeout", "memory", "killed"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
Message = dict[str, str]  # "role" and "content"


@dataclass(frozen=True)
class Grade:
    """What became of a response. Its truth value says whether it is correct."""

    verdict: Verdict
    extracted: str | None = None  # the answer, or the program, as it was found in the response

    @property
    def correct(self) -> bool:
        return self.verdict == "passed"

    def __bool__(self) -> bool:
        return self.correct


@dataclass(frozen=True)
class Item:
    """One problem, as the model is asked. The id names it for ever: task, version, split and place."""

    id: str  # "words-1/test/17"
    prompt: str | list[Message]  # what `Model.encode` takes, worked examples included
    gold: Any  # what `Task.grade` compares a response with; JSON


@dataclass(frozen=True)
class Task:
    """Problems, how they are asked, and how responses are graded: one a module, under the name TASK."""

    name: str
    version: int
    citation: str
    items: Callable[..., list[Item]]  # (split="test", *, count=None, shots=None, data=None) -> items in their order
    grade: Callable[..., Grade]  # (response, gold) -> Grade; the response is text, cut at its first end token
    length: int  # tokens of a response
    shots: int = 0  # worked examples before the question, unless told otherwise
    until: tuple[str, ...] = ()  # a response ends before the first of these
    filters: tuple[str, ...] = ()  # what `grade` takes as `filter`, its default first; every one of them is reported
    chat: bool = True  # the prompt goes through the model's chat template
    runs_code: bool = False  # grading executes what the model wrote, in the sandbox
