"""MBPP: a sentence and three asserts, to a Python function (Austin et al., arXiv 2108.07732); pass@1, ids 11 to 510.

Asked as lm-evaluation-harness's `mbpp` asks: three worked examples, task_ids 2, 3 and 4. Unlike there the set-up code
of task 367 is run, so that every gold solution passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redraft.evals import extract, sandbox
from redraft.evals.benchmarks import MBPP, Row, first, rows
from redraft.evals.task import Grade, Item, Task

VERSION = 1
SHOTS = 3
EXAMPLES = (2, 3, 4)  # task_ids, in this order; lm-evaluation-harness 0.4.13, tasks/mbpp/utils.py
UNTIL = ("[DONE]",)


def grade(response: str, problem: Row, **limits: Any) -> Grade:
    """Run what a response makes of a problem, a row of the dataset, against its tests. `limits`: as `sandbox.run`."""
    code = program(extract.text_of(response))
    if code is None:
        return Grade("no_code")
    tests = "\n".join([problem.get("test_setup_code") or "", *problem["test_list"]]).replace("\r\n", "\n")
    return Grade(sandbox.run(code, tests=tests, **limits).verdict, code)


def program(text: str) -> str | None:
    """Between [BEGIN] and [DONE], as far as they are there, and out of its fence."""
    text = text.split("[DONE]")[0].rpartition("[BEGIN]")[2]
    code = extract.program(text)
    return code if code and code.strip() else None


def question(row: Row) -> str:
    asserts = "\n".join(row["test_list"][:3])
    return (
        f"You are an expert Python programmer, and here is your task: {row['text']} Your code should pass these tests:"
        f"\n\n{asserts}\n[BEGIN]\n"
    )


def items(
    split: str = "test", *, count: int | None = None, shots: int | None = None, data: str | Path | None = None
) -> list[Item]:
    shots = SHOTS if shots is None else shots
    if not 0 <= shots <= SHOTS:
        raise ValueError(f"there are {SHOTS} worked examples, so shots is 0 to {SHOTS}, not {shots}")
    by_id = {row["task_id"]: row for row in rows(MBPP, "prompt", data)} if shots else {}
    worked = "".join(f"{question(by_id[place])}{by_id[place]['code']}\n[DONE]\n\n" for place in EXAMPLES[:shots])
    found = first(rows(MBPP, split, data), count)
    return [
        Item(
            f"mbpp-{VERSION}/{split}/{row['task_id']}",
            worked + question(row),
            {name: row[name] for name in MBPP.fields},
        )
        for row in found
    ]


TASK = Task(
    name="mbpp",
    version=VERSION,
    citation="Austin et al., Program Synthesis with Large Language Models, arXiv 2108.07732",
    items=items,
    grade=grade,
    length=256,
    shots=SHOTS,
    until=UNTIL,
    chat=False,
    runs_code=True,
)
