"""The tasks by name. Each is a module with its `TASK`, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from redraft.decoding.notation import suggest
from redraft.evals.task import Task

HOMES = {
    "words": ("words", "TASK"),
    "algebra": ("algebra", "TASK"),
    "code": ("code", "TASK"),
    "gsm8k": ("gsm8k", "TASK"),
    "gsm8k-answer-first": ("gsm8k", "ANSWER_FIRST"),
    "math500": ("math500", "TASK"),
    "humaneval": ("humaneval", "TASK"),
    "mbpp": ("mbpp", "TASK"),
}


def find(name: str) -> Task:
    if name not in HOMES:
        raise ValueError(f"there is no task {name!r}{suggest(name, HOMES)}; there are: {', '.join(HOMES)}")
    module, attribute = HOMES[name]
    return getattr(import_module(f"redraft.evals.{module}"), attribute)
