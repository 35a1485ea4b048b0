"""Answers of mathematics: what is equal, what is not, and that nothing a model may write hangs the one who asks."""

import random
import re
import time
from pathlib import Path

import pytest

from published import needs_data, rows
from redraft.evals.answers import boxed, equal
from redraft.evals.formulas import LONGEST

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
PAIR = re.compile(r"(.*) (==|!=) (.*)")
PAIRS = (Path(__file__).parent / "golden" / "answers.txt").read_text(encoding="utf-8")
SECTIONS = {
    title: [PAIR.fullmatch(line).groups() for line in lines if line]
    for title, *lines in (section.split("\n") for section in PAIRS.split("\n## ")[1:])
}


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_equal_and_what_differs(section):
    for said, sign, gold in SECTIONS[section]:
        assert [equal(said, gold), equal(gold, said)] == [sign == "=="] * 2, f"{said} {sign} {gold}"


def test_there_are_many_pairs_of_both_kinds():
    signs = [sign for pairs in SECTIONS.values() for _, sign, _ in pairs]
    assert min(signs.count("=="), signs.count("!=")) > 400


# --- the right answers of MATH-500 ---


@needs_data
def test_every_right_answer_equals_itself_however_it_is_dressed():
    for row in rows("math500"):
        gold = row["answer"]
        for said in (gold, f"${gold}$.", rf"\boxed{{{gold}}}", gold.replace(r"\frac", r"\dfrac")):
            assert equal(said, gold), said


def spoilt(answer: str) -> set[str]:
    """Answers that look like this one and are not: other digits, signs, ends, brackets, one thing more or less."""
    found = {f"{answer} + 1", f"{answer}, 17.5", f"({answer}, {answer})"}
    for digits in re.finditer(r"\d+", answer):
        before, number, after = answer[: digits.start()], int(digits[0]), answer[digits.end() :]
        found |= {f"{before}{other}{after}" for other in (number + 1, number + 10, f"{digits[0]}1")}
    for sign in re.finditer(r"[-+]", answer):
        found.add(answer[: sign.start()] + {"-": "+", "+": "-"}[sign[0]] + answer[sign.end() :])
    if "," in answer and answer[0] in "([":
        items = answer[1:-1].split(",")
        found |= {
            f"{answer[0]}{','.join(reversed(items))}{answer[-1]}",
            f"{answer[0]}{','.join(items[:-1])}{answer[-1]}",
        }
    for bracket, other in ("([", "[(", ")]", "])"):
        if answer.startswith(bracket) and "," in answer:
            found.add(other + answer[1:])
        if answer.endswith(bracket) and "," in answer:
            found.add(answer[:-1] + other)
    if fraction := re.fullmatch(r"\\frac\{(\d+)\}\{(\d+)\}", answer):
        found |= {rf"\frac{{{fraction[2]}}}{{{fraction[1]}}}", f"{fraction[1]}{fraction[2]}"}
    return found - {answer}


@needs_data
def test_no_spoilt_answer_passes():
    tried, passed = 0, set()
    for row in rows("math500"):
        for said in spoilt(row["answer"]):
            tried += 1
            if equal(said, row["answer"]):
                passed.add((said, row["answer"]))
    assert tried > 3500
    assert passed == set()


# --- hostile answers ---

TOWER = r"10^{10^{10}}"
HOSTILE = {
    "tower": TOWER,
    "tower of nines": "9" + "^9" * 300,
    "root of a tower": rf"\sqrt{{{TOWER}}}",
    "sine of a tower": rf"\sin({TOWER})",
    "logarithm of a tower": rf"\ln({TOWER})",
    "floor of a tower": rf"\lfloor {TOWER} \rfloor",
    "exponentials": r"e^{e^{e^{e^e}}}",
    "huge factorial": "99999999999!",
    "factorials of factorials": "9!!!!!!!!",
    "huge binomial": r"\binom{10^9}{5 \cdot 10^8}",
    "a high power of a sum": "(1+x)^{1000000000}",
    "exponent of a float": "1e99999999",
    "digits": "9" * LONGEST,
    "brackets": "(" * LONGEST,
    "fractions": r"\frac{1}{" * 100,
    "roots": r"\sqrt{" * 150,
    "signs": "-" * (LONGEST - 1) + "1",
    "choices": r"1 \pm " * 140 + "1",
    "bars": "|" * 301,
    "a long list": "1," * 499 + "1",
    "a long sum": "1+" * 499 + "1",
    "a wide matrix": r"\begin{pmatrix}" + "1&" * 400 + r"1\end{pmatrix}",
    "dots": "0." + "3" * 900 + "...",
    "dollars": "$" * (LONGEST - 1),
    "a lone surrogate": "\ud800",
    "nothing": r"\frac{}{}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_hangs_and_nothing_raises(name):
    said = HOSTILE[name]
    started = time.perf_counter()
    for gold in ("5", "x", r"\frac{1}{2}", "(1,2)", r"\text{Evelyn}", "1e99", rf"{TOWER}+1"):
        assert not equal(said, gold)
        assert not equal(gold, said)
    assert equal(said, said)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("piece", ["9", "(", "{", r"\boxed{", r"\frac{1}{", "$", "$1", r"\(", "1,", "x^", "- "])
def test_a_hundred_thousand_characters_take_no_time(piece):
    text = piece * (100_000 // len(piece))
    started = time.perf_counter()
    assert not equal(text, "5")
    assert boxed(text) is None
    assert time.perf_counter() - started < 1


TOKENS = re.findall(
    r"\S+",
    r"1 2 0 9 x y \frac { } ( ) [ ] , \sqrt ^ _ + - \pm ! | \text{cm} \% \degree = < > \le \cup \infty \pi e i / * \sin"
    r" \log \begin{pmatrix} \end{pmatrix} & \\ : \in \{ \} $ . \binom \overline \ldots five th and \left \right"
    r" \mathbb{R} \emptyset \gcd 10^{9}",
)


def test_of_random_texts_each_equals_itself_and_either_order_says_the_same():
    rng = random.Random(0)
    for _ in range(2000):
        one, other = ("".join(rng.choices(TOKENS, k=rng.randint(1, 12))) for _ in range(2))
        assert equal(one, one), one
        assert equal(one, other) == equal(other, one), (one, other)


def test_poles_equal_nothing():
    """An infinity is within any distance of everything."""
    for pole in (r"\ln 0", r"\log 0", r"\tan 90^\circ", r"\cot 0", r"\frac{1}{0}", "0^{-1}"):
        assert not any(equal(pole, gold) for gold in ("0", "1", "x", r"\infty", r"\ln(1-1)"))


# --- boxes ---


@pytest.mark.parametrize(
    ("text", "held"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} or \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {5}", "5"),
        (r"\boxed 5", "5"),
        (r"\boxed 5. And", "5"),
        (r"$\boxed 1.5$ is", "1.5"),
        (r"\fbox{7}", "7"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{1} and then \boxed{2", "1"),
        (r"\boxed{}", None),
        (r"\boxed{...}", None),
        (r"\boxed{\ldots}", None),
        ("no box", None),
        ("boxed{5}", None),
    ],
)
def test_the_last_box_of_a_text(text, held):
    assert boxed(text) == held
