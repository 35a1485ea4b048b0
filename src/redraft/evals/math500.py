"""MATH-500: competition problems with answers in LaTeX, without worked examples (Lightman et al., arXiv 2305.20050).

Asked in LLaDA's words (ML-GSAI/LLaDA, by way of OpenCompass): think step by step, answer in \\boxed{}. Graded by value
(answers.py). The gold answer is the dataset's own field: eight solutions do not hold exactly one box.
"""

from __future__ import annotations

import re
from pathlib import Path

from redraft.evals.answers import boxed, equal
from redraft.evals.benchmarks import MATH500, first, rows
from redraft.evals.extract import text_of
from redraft.evals.task import Grade, Item, Task

VERSION = 1
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."

TAGGED = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.S | re.I)
FINAL = re.compile(r"answer\s*+(?:is\b|:)[\s:]*+(?:(?:therefore|thus|then|simply)\b[\s,:]*+)?(?=\S)", re.I)
OVER = re.compile(r"\.(?:\s|$)|,? (?:since|because|as|which|where) ")  # "the answer is 5, since 2 + 3 = 5."
DISPLAYED = re.compile(
    r"(?<!\\)\$\$?((?:[^$\\]|\\.)+)\$\$?"
    r"|\\\(((?:(?!(?<!\\)\\[()]).)+)\\\)"  # nothing is opened twice: the search stays linear
    r"|\\\[((?:(?!(?<!\\)\\[\[\]]).)+)\\\]",
    re.S,
)
NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?")


def grade(response: str, gold: str) -> Grade:
    """Compare the last box of a response, or what else it calls its answer, with the right one."""
    found = answer(text_of(response))
    if found is None:
        return Grade("no_answer")
    return Grade("passed" if equal(found, gold) else "wrong", found)


def answer(text: str) -> str | None:
    """The last box, else the last <answer>, else what follows "the answer is", else the last formula or number."""
    if "\\boxed" in text or "\\fbox" in text:
        return boxed(text)
    if tagged := TAGGED.findall(text):
        return boxed(tagged[-1]) or _meant(tagged[-1])
    if final := list(FINAL.finditer(text)):
        rest = text[final[-1].end() :]
        if shown := DISPLAYED.match(rest):  # on lines of its own, as \[ is
            return _meant("".join(shown.groups("")))
        line = OVER.split(rest.partition("\n")[0])[0]
        return _displayed(line) or _meant(line)
    if found := _displayed(text):
        return found
    numbers = NUMBER.findall(text)
    return numbers[-1] if numbers else None


def _displayed(text: str) -> str | None:
    found = DISPLAYED.findall(text)
    return _meant("".join(found[-1])) if found else None


def _meant(text: str) -> str | None:
    """None for nothing and for a placeholder."""
    text = text.strip().strip("*").strip()
    return text if text.strip(". …_?") else None


def items(
    split: str = "test", *, count: int | None = None, shots: int | None = None, data: str | Path | None = None
) -> list[Item]:
    if shots:
        raise ValueError("math500 is asked without worked examples: leave out shots")
    found = first(rows(MATH500, split, data), count)
    return [
        Item(f"math500-{VERSION}/{split}/{place}", f"{row['problem']}\n{INSTRUCTION}", row["answer"])
        for place, row in enumerate(found)
    ]


TASK = Task(
    name="math500",
    version=VERSION,
    citation="Hendrycks et al., Measuring Mathematical Problem Solving With the MATH Dataset, arXiv 2103.03874;"
    " the 500 of Lightman et al., Let's Verify Step by Step, arXiv 2305.20050",
    items=items,
    grade=grade,
    length=512,
)
