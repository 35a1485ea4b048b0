"""GSM8K: grade-school word problems, 8 worked examples, one number as the answer (Cobbe et al., arXiv 2110.14168).

Asked as lm-evaluation-harness's `gsm8k_cot` asks, with the eight examples of Wei et al. (arXiv 2201.11903). Graded in
three ways: `numeric`, ours, compares numbers; `strict` and `flexible` are that task's filters, bit for bit: a regular
expression, then equality of strings, which is why "12.0" is wrong there and why `strict` reads "The answer is 18" as 1
if the text ends right behind it.

`gsm8k-answer-first` turns the examples round: the answer, then how it came about (arXiv 2606.01026, order test; its
wording is not published, this one is ours).
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from redraft.evals.answers import boxed, equal
from redraft.evals.benchmarks import GSM8K, first, rows
from redraft.evals.extract import text_of
from redraft.evals.task import Grade, Item, Task

Filter = Literal["numeric", "strict", "flexible"]
FILTERS: tuple[Filter, ...] = ("numeric", "strict", "flexible")
VERSION = 1
SHOTS = 8
UNTIL = ("Q:", "</s>", "<|im_end|>")

# lm-evaluation-harness 0.4.13, tasks/gsm8k/gsm8k-cot.yaml
STRICT = re.compile(r"The answer is (\-?[0-9\.\,]+).")
FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")

NUMBER = re.compile(
    r"(?<![\w.)\]])(?<!\d:)[-+]?\$?-?(?:(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)(?:\.\d++)?+|\.\d++)(?:[eE][-+]?\d++)?+"
    r"(?:/\d++)?+(?!:\d)"  # the time of day is no number
)
STATED = re.compile(r"####|\\boxed|(?:answer|result)\b[^.\n]{0,40}?\b(?:is|are|equals)\b|answer\s*[:=]", re.I)
LINE = re.compile(r"\n|\.(?:\s|$)")
DENIED = re.compile(r"\bnot\b[^.;\n]*?\bbut\b|,\s*not\b[^.;\n]*", re.I)  # "not 18 but 19", "19, not 18"
THOUSANDS = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")  # spaces that do not break
REMARK = re.compile(r"\([^()=\n]*+=[^()\n]*+\)")  # "12 (3 * 4 = 12)": how it comes about, behind the answer
NEXT_QUESTION = re.compile(r"\n[ \t]*(?:Q|Question|Problem)[ \t]*:")
EXACT = Decimal("1e-6")


def grade(response: str, gold: object, filter: Filter = "numeric") -> Grade:
    """Compare with the dataset's answer text, or with the number itself."""
    if filter not in FILTERS:
        raise ValueError(f"there is no filter {filter!r}: there are {', '.join(FILTERS)}")
    target = str(gold).split("####")[-1].strip()
    if filter != "numeric":
        return _as_harness(response, target, filter)
    found = stated(NEXT_QUESTION.split(text_of(response), maxsplit=1)[0], last=True)
    return _numeric(found, target)


def grade_answer_first(response: str, gold: object, filter: Filter = "numeric") -> Grade:
    """As `grade`, but the first statement of the answer counts, which is all that `strict` ever reads."""
    if filter != "numeric":
        return grade(response, gold, filter)
    return _numeric(stated(text_of(response), last=False), str(gold).split("####")[-1].strip())


# --- the harness's filters ---


def _as_harness(response: str, target: str, filter: Filter) -> Grade:
    found: list[Any] = (STRICT if filter == "strict" else FLEXIBLE).findall(response)
    if not found:
        return Grade("no_answer")
    chosen = found[0] if filter == "strict" else next(filled for filled in found[-1] if filled)
    extracted = chosen.strip()
    return Grade("passed" if _bare(extracted) == _bare(target) else "wrong", extracted)


def _bare(text: str) -> str:
    """Without what the harness ignores: `,`, `\\$`, `(?s).*#### ` and `\\.$`, its expressions in linear time."""
    text = text.replace(",", "").replace("$", "").rpartition("#### ")[2]
    line_end = "\n" if text.endswith("\n") else ""
    return (text.removesuffix(line_end).removesuffix(".") + line_end).lower()


# --- numbers ---


def _numeric(found: str | None, target: str) -> Grade:
    if found is None:
        return Grade("no_answer")
    value, wanted = number(found), number(target)
    if wanted is None:
        raise ValueError(f"{target[:100]!r} is no number to compare an answer with")
    right = equal(found, target) if value is None else abs(value - wanted) < EXACT
    return Grade("passed" if right else "wrong", found)


def stated(text: str, *, last: bool) -> str | None:
    """The number that a text states as its answer; if it states none, its last one."""
    places = list(STATED.finditer(text))
    bounds = [*(place.start() for place in places), len(text)]  # a statement ends where the next begins
    statements = [(place[0], text[place.end() : end]) for place, end in zip(places, bounds[1:], strict=True)]
    for words, behind in reversed(statements) if last else statements:
        if found := _stated(words, behind):
            return found
    numbers = NUMBER.findall(_spelt(text))
    return numbers[-1] if numbers else None


def _stated(words: str, behind: str) -> str | None:
    if words.startswith("\\"):
        return boxed(words + behind.split("\n")[0])
    sentence = LINE.split(behind.lstrip(), maxsplit=1)[0]
    sentence = DENIED.sub("", sentence)
    plain = REMARK.sub("", sentence)
    parts = (plain.rpartition("=")[2], plain, sentence.rpartition("=")[2], sentence)
    return next((found[0] for part in parts if (found := NUMBER.findall(_spelt(part)))), None)


def _spelt(text: str) -> str:
    """Typographic minus signs, LaTeX's ways of writing thousands and bold face, made plain; 3*4 stays a product."""
    text = THOUSANDS.sub(",", text.replace("−", "-").replace("{,}", ","))
    return re.sub(r"\\[!,]|[{}]|(?<!\d)\*|\*++(?!\d)|\\(?=[$%])", "", text)


def number(text: str) -> Decimal | None:
    """None where there is no number, or one beyond all bounds."""
    above, _, below = re.sub(r"[$,\s]", "", text).partition("/")
    try:
        value = Decimal(above) / Decimal(below or 1)
    except ArithmeticError:
        return None
    return value if value.is_finite() else None


# --- how it is asked ---


class Example(NamedTuple):
    question: str
    answer: str


def examples(beside: str | Path | None = None) -> list[Example]:
    """The eight worked examples: from `fewshot_exemplars.json` beside the data, or from an installed lm-eval."""
    if beside is not None:
        folder = Path(beside) if Path(beside).is_dir() else Path(beside).parent
        if (file := folder / "fewshot_exemplars.json").is_file():
            return [Example(one["question"], one["target"]) for one in json.loads(file.read_text())["gsm8k_cot_8shot"]]
    harness = find_spec("lm_eval")
    if harness and harness.origin:
        import yaml

        task = yaml.load((Path(harness.origin).parent / "tasks/gsm8k/gsm8k-cot.yaml").read_text(), yaml.SafeLoader)
        return [Example(one["question"], one["target"]) for one in task["fewshot_config"]["samples"]]
    raise ValueError(
        "the eight worked examples of gsm8k_cot are not here: pip install lm-eval, which holds them, put"
        " fewshot_exemplars.json beside the file that --data names, or ask without examples (--shots 0)"
    )


def prompt(question: str, worked: list[Example]) -> str:
    return "".join(f"Q: {one.question}\nA: {one.answer}\n\n" for one in worked) + f"Q: {question}\nA:"


def turned(worked: Example) -> Example:
    """The answer's sentence first."""
    reasoning, sentence = re.fullmatch(r"(?s)(.*?)\s*(The answer is [^\n]*\.)\s*", worked.answer).groups()  # pyright: ignore
    return Example(worked.question, f"{sentence} {reasoning}")


def _items(name: str, *, answer_first: bool):
    def items(
        split: str = "test", *, count: int | None = None, shots: int | None = None, data: str | Path | None = None
    ) -> list[Item]:
        shots = SHOTS if shots is None else shots
        if not 0 <= shots <= SHOTS:
            raise ValueError(f"there are {SHOTS} worked examples, so shots is 0 to {SHOTS}, not {shots}")
        worked = examples(data)[:shots] if shots else []
        worked = list(map(turned, worked)) if answer_first else worked
        found = first(rows(GSM8K, split, data), count)
        return [
            Item(
                f"{name}-{VERSION}/{split}/{place}",
                prompt(row["question"], worked),
                row["answer"].split("####")[-1].strip(),
            )
            for place, row in enumerate(found)
        ]

    return items


CITATION = "Cobbe et al., Training Verifiers to Solve Math Word Problems, arXiv 2110.14168"
TASK = Task(
    name="gsm8k",
    version=VERSION,
    citation=CITATION,
    items=_items("gsm8k", answer_first=False),
    grade=grade,
    length=256,
    shots=SHOTS,
    until=UNTIL,
    filters=FILTERS,
    chat=False,
)
ANSWER_FIRST = Task(
    name="gsm8k-answer-first",
    version=VERSION,
    citation=CITATION,
    items=_items("gsm8k-answer-first", answer_first=True),
    grade=grade_answer_first,
    length=256,
    shots=SHOTS,
    until=UNTIL,
    filters=("numeric", "strict"),
    chat=False,
)
