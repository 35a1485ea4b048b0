"""HumanEval: finish a Python function from its signature and docstring (Chen et al., arXiv 2107.03374); pass@1.

Asked as lm-evaluation-harness's `humaneval` asks: the prompt is the beginning of the file. A response may go on from
there, write the function again, or put it into a fence with words round it. Helpers that a prompt defines and a test
uses (HumanEval 32, 38, 50) are taken from the prompt itself, so that no program can redefine what measures it; the
function asked for is not, for the test of HumanEval 33 calls it by its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redraft.evals import extract, sandbox
from redraft.evals.benchmarks import HUMANEVAL, Row, first, rows
from redraft.evals.task import Grade, Item, Task

VERSION = 1
UNTIL = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")  # lm-evaluation-harness 0.4.13, tasks/humaneval/humaneval.yaml


def grade(response: str, problem: Row, **limits: Any) -> Grade:
    """Run what a response makes of a problem, a row of the dataset, against its tests. `limits`: as `sandbox.run`."""
    code = completion(extract.text_of(response), problem["entry_point"])
    if code is None:
        return Grade("no_code")
    outcome = sandbox.run(
        problem["prompt"] + code,
        tests=f"{problem['prompt']}    pass\n\ndel {problem['entry_point']}\n\n{problem['test']}",
        entry_point=problem["entry_point"],
        **limits,
    )
    return Grade(outcome.verdict, code)


def completion(text: str, name: str) -> str | None:
    """What is to stand behind the prompt: a body, or the whole function once more."""
    first_line = next((line for line in text.split("\n") if line.strip()), "")
    begun = first_line[:1].isspace() and not extract.FENCE.match(first_line)
    if begun or not (extract.FENCE.search(text) or extract.defines(text, name)):
        return _body(text)
    code = extract.program(text, name)
    if code is None or code.lstrip("\n")[:1].isspace():
        return code
    return f"\n\n{code}"


def _body(text: str) -> str | None:
    """A continuation, up to where the function is over, or prose begins."""
    end = min((place for stop in (*UNTIL, "\n```") if (place := text.find(stop)) >= 0), default=len(text))
    body = extract.before_prose(text[:end]).rstrip()
    indented = any(line[:1].isspace() and line.strip() for line in body.split("\n"))
    return body if indented or extract.CODE.match(body.lstrip()) else None


def items(
    split: str = "test", *, count: int | None = None, shots: int | None = None, data: str | Path | None = None
) -> list[Item]:
    if shots:
        raise ValueError("humaneval is asked without worked examples: leave out shots")
    found = first(rows(HUMANEVAL, split, data), count)
    return [
        Item(f"humaneval-{VERSION}/{split}/{place}", row["prompt"], {name: row[name] for name in HUMANEVAL.fields})
        for place, row in enumerate(found)
    ]


TASK = Task(
    name="humaneval",
    version=VERSION,
    citation="Chen et al., Evaluating Large Language Models Trained on Code, arXiv 2107.03374",
    items=items,
    grade=grade,
    length=256,
    until=(),
    chat=False,
    runs_code=True,
)
