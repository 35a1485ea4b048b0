"""`algebra`: equations, fractions and expressions with steps and a boxed answer, the small mirror of MATH-500.

Problems are made here, from (split, index) alone; version 1 is frozen. Answers are compared as MATH-500's are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from math import gcd, lcm

from redraft.evals.generated import Problem, asked, draws, split_of, until
from redraft.evals.task import Grade, Task

NAME, VERSION = "algebra", 1
PHRASINGS = 4  # of a question
ENDINGS = ("", " Show the steps.", " Give the exact value.", " Box the answer.")


class Sheet:
    """A problem being written: its numbers are drawn, its steps are collected."""

    def __init__(self, rng: random.Random, kind: str, phrasing: int, sign: int) -> None:
        self.rng, self.kind, self.phrasing, self.sign = rng, kind, phrasing, sign
        self.signed = 0  # numbers so far that may be negative
        self.steps: list[str] = []
        self.letter = rng.choice("xyznatk")
        self.style = rng.randrange(3)
        self.ending = ENDINGS[phrasing // PHRASINGS]

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def nonzero(self, low: int, high: int) -> int:
        """With the skeleton's sign: its two bits in turn, each for every second of these numbers."""
        value, bit = self.number(low, high), self.signed % 2
        self.signed += 1
        return -value if self.sign >> bit & 1 else value

    def step(self, reason: str, line: str) -> None:
        """A line of the solution, with its reason in most styles."""
        self.steps.append((f"{line}.", f"{reason}: {line}.", f"{line} ({reason.lower()}).")[self.style])

    def asked(self, *phrasings: str) -> str:
        assert len(phrasings) == PHRASINGS, "two phrasings that are one would be in two splits"
        return phrasings[self.phrasing % PHRASINGS]

    def problem(self, question: str, answer: str) -> Problem:
        end = self.rng.choice(("\\boxed{{{}}}", "The answer is \\boxed{{{}}}.", "So \\boxed{{{}}}.")).format(answer)
        numbers = (self.kind, *map(int, re.findall(r"\d+", question)))  # as they are read: 2 * 6 and 3 * 4 are both 12
        skeleton = skeleton_of(self.kind, self.phrasing, self.sign)
        return Problem(question + self.ending, " ".join([*self.steps, end]), answer, skeleton, numbers)


# --- how things are written ---


def fraction(value: Fraction | int) -> str:
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    return f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def ratio(top: int, bottom: int) -> str:
    return f"\\frac{{{top}}}{{{bottom}}}"


def term(factor: int, letter: str) -> str:
    return {1: letter, -1: f"-{letter}"}.get(factor, f"{factor}{letter}")


def plus(value: int) -> str:
    return f"+ {value}" if value >= 0 else f"- {-value}"


def plus_term(factor: int, letter: str) -> str:
    return f"{'+' if factor >= 0 else '-'} {term(abs(factor), letter)}"


def polynomial(a: int, b: int, c: int, x: str) -> str:
    """a x^2 + b x + c, without what is zero."""
    parts = [(a, f"{x}^2"), (b, x), (c, "")]
    told = ""
    for factor, power in parts:
        if factor:
            size = term(abs(factor), power) if power else str(abs(factor))
            told += f"{' ' if told else ''}{'-' if factor < 0 else '+' if told else ''}{' ' if told else ''}{size}"
    return told or "0"


# --- the kinds of problems ---


def linear(s: Sheet) -> Problem:
    x, a, b, r = s.letter, s.number(2, 12), s.nonzero(1, 30), s.nonzero(1, 15)
    c = a * r + b
    left = f"{term(a, x)} {plus(b)}"
    s.step(f"Subtract {b}" if b > 0 else f"Add {-b}", f"{term(a, x)} = {c - b}")
    s.step(f"Divide by {a}", f"{x} = {r}")
    question = s.asked("Solve {} = {}.", "Find {x} if {} = {}.", "What is {x} when {} = {}?", "Let {} = {}. Find {x}.")
    return s.problem(question.format(left, c, x=x), str(r))


def linear_fraction(s: Sheet) -> Problem:
    x, a, b, c = s.letter, s.number(2, 9), s.nonzero(1, 20), s.number(1, 30)
    value = Fraction(c - b, a)
    s.step(f"Subtract {b}" if b > 0 else f"Add {-b}", f"{term(a, x)} = {c - b}")
    s.step(f"Divide by {a}", f"{x} = {ratio(c - b, a) if c >= b else '-' + ratio(b - c, a)}")
    if Fraction(c - b, a).denominator != a:
        s.step("Simplify", f"{x} = {fraction(value)}")
    question = s.asked(
        "Solve {} = {} as a fraction.",
        "Find {x} as a fraction if {} = {}.",
        "Give {x} in lowest terms: {} = {}.",
        "What fraction is {x} when {} = {}?",
    )
    return s.problem(question.format(f"{term(a, x)} {plus(b)}", c, x=x), fraction(value))


def both_sides(s: Sheet) -> Problem:
    x, a, c, b, r = s.letter, s.number(3, 12), s.number(1, 9), s.nonzero(1, 20), s.nonzero(1, 12)
    if a == c:
        a += 1
    d = (a - c) * r + b
    s.step(f"Subtract {term(c, x)}", f"{term(a - c, x)} {plus(b)} = {d}")
    s.step(f"Subtract {b}" if b > 0 else f"Add {-b}", f"{term(a - c, x)} = {d - b}")
    s.step(f"Divide by {a - c}", f"{x} = {r}")
    sides = f"{term(a, x)} {plus(b)} = {polynomial(0, c, d, x)}"
    return s.problem(
        s.asked("Solve {}.", "Find {x} if {}.", "What is {x} when {}?", "Let {}. Find {x}.").format(sides, x=x), str(r)
    )


def bracket(s: Sheet) -> Problem:
    x, a, b, r = s.letter, s.number(2, 9), s.nonzero(1, 12), s.nonzero(1, 12)
    c = a * (r + b)
    s.step(f"Divide by {a}", f"{x} {plus(b)} = {r + b}")
    s.step(f"Subtract {b}" if b > 0 else f"Add {-b}", f"{x} = {r}")
    question = s.asked("Solve {} = {}.", "Find {x} if {} = {}.", "What is {x} when {} = {}?", "Let {} = {}. Find {x}.")
    return s.problem(question.format(f"{a}({x} {plus(b)})", c, x=x), str(r))


def add_fractions(s: Sheet) -> Problem:
    q, t = s.number(2, 9), s.number(2, 9)
    p, r = s.number(1, 2 * q), s.number(1, 2 * t)
    minus = s.sign & 1
    common = lcm(q, t)
    left, right = p * common // q, r * common // t
    sign, top = ("-", left - right) if minus else ("+", left + right)
    value = Fraction(top, common)
    s.step(
        f"The common denominator is {common}",
        f"{ratio(left, common)} {sign} {ratio(right, common)} = {fraction_raw(top, common)}",
    )
    if fraction(value) != fraction_raw(top, common):
        s.step("Simplify", fraction(value))
    what = f"{ratio(p, q)} {sign} {ratio(r, t)}"
    return s.problem(
        s.asked("Compute {}.", "What is {}?", "Simplify {}.", "Find {} in lowest terms.").format(what), fraction(value)
    )


def fraction_raw(top: int, bottom: int) -> str:
    return f"{'-' if top < 0 else ''}{ratio(abs(top), bottom)}"


def multiply_fractions(s: Sheet) -> Problem:
    p, q, r, t = s.number(1, 12), s.number(2, 9), s.number(1, 9), s.number(2, 12)
    divide = s.sign & 1
    what = f"{ratio(p, q)} {'/' if divide else '*'} {ratio(r, t)}"
    if divide:
        s.step("Turn the second one over", f"{ratio(p, q)} * {ratio(t, r)}")
        r, t = t, r
    s.step("Multiply", ratio(p * r, q * t))
    value = Fraction(p * r, q * t)
    if gcd(p * r, q * t) > 1:
        s.step(f"Divide by {gcd(p * r, q * t)}", fraction(value))
    return s.problem(
        s.asked("Compute {}.", "What is {}?", "Simplify {}.", "Find {} in lowest terms.").format(what), fraction(value)
    )


def evaluate(s: Sheet) -> Problem:
    x, a, b, c, v = s.letter, s.number(1, 6), s.nonzero(1, 9), s.nonzero(1, 20), s.number(2, 9)
    square = a * v * v
    s.step("The square", f"{v}^2 = {v * v}")
    if a > 1:
        s.step(f"Times {a}", f"{a} * {v * v} = {square}")
    s.step("The middle", f"{b} * {v} = {b * v}")
    s.step("Add", f"{square} {plus(b * v)} {plus(c)} = {square + b * v + c}")
    question = s.asked(
        "Evaluate {} at {x} = {v}.", "What is {} for {x} = {v}?", "Let {x} = {v}. Find {}.", "If {x} = {v}, what is {}?"
    )
    return s.problem(question.format(polynomial(a, b, c, x), x=x, v=v), str(square + b * v + c))


def expand(s: Sheet) -> Problem:
    x, a, b = s.letter, s.nonzero(1, 12), s.nonzero(1, 12)
    s.step("The sum", f"{a} {plus(b)} = {a + b}")
    s.step("The product", f"{a} * {b if b > 0 else f'({b})'} = {a * b}")
    what = f"({x} {plus(a)})({x} {plus(b)})"
    return s.problem(
        s.asked("Expand {}.", "Multiply out {}.", "Write {} as a polynomial.", "Expand and simplify {}.").format(what),
        polynomial(1, a + b, a * b, x),
    )


def collect(s: Sheet) -> Problem:
    x, a, b, c, d = s.letter, s.number(2, 12), s.nonzero(1, 20), s.nonzero(1, 9), s.nonzero(1, 20)
    s.step(f"The {x} terms", f"{term(a, x)} {plus_term(c, x)} = {polynomial(0, a + c, 0, x)}")
    s.step("The numbers", f"{b} {plus(d)} = {b + d}")
    what = f"{term(a, x)} {plus(b)} {plus_term(c, x)} {plus(d)}"
    return s.problem(
        s.asked(
            "Simplify {}.", "Collect like terms: {}.", "Write {} as simply as possible.", "Combine the terms of {}."
        ).format(what),
        polynomial(0, a + c, b + d, x),
    )


def order(s: Sheet) -> Problem:
    a, b, c, d = s.number(2, 30), s.number(2, 9), s.number(2, 12), s.number(1, 30)
    if s.sign & 1:
        inner = c + d
        s.step("The bracket first", f"{c} + {d} = {inner}")
        s.step("Multiply", f"{b} * {inner} = {b * inner}")
        what, value = f"{a} + {b} * ({c} + {d})", a + b * inner
        s.step("Add", f"{a} + {b * inner} = {value}")
    else:
        s.step("Multiply first", f"{b} * {c} = {b * c}")
        s.step("Add", f"{a} + {b * c} = {a + b * c}")
        what, value = f"{a} + {b} * {c} - {d}", a + b * c - d
        s.step("Subtract", f"{a + b * c} - {d} = {value}")
    return s.problem(
        s.asked("Compute {}.", "What is {}?", "Evaluate {}.", "Find the value of {}.").format(what), str(value)
    )


def quadratic(s: Sheet) -> Problem:
    x, p, q = s.letter, s.number(1, 12), s.number(1, 12)
    q += p == q and s.sign != 1  # two roots
    low, high = sorted((-p if s.sign else p, -q if s.sign == 2 else q))
    s.step("Factor", f"({x} {plus(-low)})({x} {plus(-high)}) = 0")
    s.step("The roots", f"{x} = {low} or {x} = {high}")
    larger = s.phrasing % 2  # as the phrasings alternate
    question = s.asked(
        "Find the smaller root of {} = 0.",
        "Find the larger root of {} = 0.",
        "What is the smaller solution of {} = 0?",
        "What is the larger solution of {} = 0?",
    )
    return s.problem(question.format(polynomial(1, -(low + high), low * high, x)), str(high if larger else low))


def system(s: Sheet) -> Problem:
    a, b = s.number(2, 50), s.nonzero(1, 50)
    total, difference = a + b, a - b
    s.step("Add the equations", f"2x = {2 * a}")
    s.step("Divide by 2", f"x = {a}")
    answer = a
    if s.phrasing % 2:
        s.step("So", f"y = {total} {plus(-a)} = {b}")
        answer = b
    question = s.asked(
        "If x + y = {} and x - y = {}, find x.",
        "If x + y = {} and x - y = {}, find y.",
        "Solve x + y = {}, x - y = {} for x.",
        "Solve x + y = {}, x - y = {} for y.",
    )
    return s.problem(question.format(total, difference), str(answer))


def percent(s: Sheet) -> Problem:
    p, n = s.number(1, 39) * 5, s.number(2, 99) * 10
    value = Fraction(p * n, 100)
    s.step("Multiply", f"{p} * {n} = {p * n}")
    s.step("Divide by 100", f"{p * n} / 100 = {fraction(value)}")
    return s.problem(
        s.asked("What is {}% of {}?", "Find {}% of {}.", "Compute {}% of {}.", "How much is {}% of {}?").format(p, n),
        fraction(value),
    )


def divisor(s: Sheet) -> Problem:
    g, a, b = s.number(2, 15), s.number(2, 10), s.number(2, 10)
    b += a == b  # two numbers
    m, n = g * a, g * b
    common = gcd(m, n)
    s.step("Divide both", f"{m} = {common} * {m // common}, {n} = {common} * {n // common}")
    if s.sign & 1:
        s.step("Multiply", f"{m} * {n // common} = {lcm(m, n)}")
        question = s.asked(
            "What is the least common multiple of {} and {}?",
            "Find lcm({}, {}).",
            "Find the smallest number that both {} and {} divide.",
            "Find the smallest common multiple of {} and {}.",
        )
        return s.problem(question.format(m, n), str(lcm(m, n)))
    question = s.asked(
        "What is the greatest common divisor of {} and {}?",
        "Find gcd({}, {}).",
        "Find the largest number that divides {} and {}.",
        "Find the largest common divisor of {} and {}.",
    )
    return s.problem(question.format(m, n), str(common))


def power(s: Sheet) -> Problem:
    a, n, b = s.number(2, 9), s.number(2, 3), s.nonzero(1, 99)
    value, chain = a**n, " * ".join([str(a)] * n)
    s.step("The power", f"{a}^{n} = {chain} = {value}")
    s.step("Add" if b > 0 else "Subtract", f"{value} {plus(b)} = {value + b}")
    return s.problem(
        s.asked("Compute {}.", "What is {}?", "Evaluate {}.", "Find the value of {}.").format(f"{a}^{n} {plus(b)}"),
        str(value + b),
    )


def remainder(s: Sheet) -> Problem:
    d, q, r = s.number(3, 12), s.number(2, 30), s.number(0, 11)
    n = d * q + r % d
    s.step("Divide", f"{d} * {q} = {d * q}")
    s.step("Subtract", f"{n} - {d * q} = {n - d * q}")
    question = s.asked(
        "What is the remainder of {} divided by {}?",
        "Find the remainder when {} is divided by {}.",
        "Divide {} by {}. What is left?",
        "How much is left over when {} is divided by {}?",
    )
    return s.problem(question.format(n, d), str(r % d))


def proportion(s: Sheet) -> Problem:
    x, a, b, k = s.letter, s.number(1, 12), s.number(2, 12), s.number(2, 9)
    s.step(f"{b * k} is {k} times {b}", f"{x} = {k} * {a} = {k * a}")
    question = s.asked("Solve {} = {}.", "Find {x} if {} = {}.", "What is {x} when {} = {}?", "Let {} = {}. Find {x}.")
    return s.problem(question.format(ratio(a, b), f"\\frac{{{x}}}{{{b * k}}}", x=x), str(k * a))


def sequence(s: Sheet) -> Problem:
    a, d, n = s.number(1, 30), s.nonzero(2, 12), s.number(5, 15)
    value = a + (n - 1) * d
    s.step("The step", f"{a + d} {plus(-a)} = {d}")
    s.step("Multiply", f"{n - 1} * {d if d > 0 else f'({d})'} = {(n - 1) * d}")
    s.step("Add", f"{a} {plus((n - 1) * d)} = {value}")
    shown = f"{a}, {a + d}, {a + 2 * d}"
    question = s.asked(
        "What is term {n} of {}, ...?",
        "The sequence {}, ... goes on like this. Find term {n}.",
        "Find term number {n} of the sequence {}, ...",
        "A sequence begins {}, ... What is its term {n}?",
    )
    return s.problem(question.format(shown, n=n), str(value))


# Each with the number of its sign patterns.
KINDS: dict[str, tuple[Callable[[Sheet], Problem], int]] = {
    kind.__name__: (kind, signs)
    for kind, signs in (
        (linear, 4), (linear_fraction, 2), (both_sides, 4), (bracket, 4), (add_fractions, 2), (multiply_fractions, 2),
        (evaluate, 4), (expand, 4), (collect, 4), (order, 2), (quadratic, 3), (system, 2), (percent, 1), (divisor, 2),
        (power, 2), (remainder, 1), (proportion, 1), (sequence, 2),
    )
}  # fmt: skip


def skeleton_of(kind: str, phrasing: int, sign: int) -> tuple[str, int, int, int]:
    """In this order every kind falls into every split."""
    return kind, sign, phrasing % PHRASINGS, phrasing // PHRASINGS


def drawn_skeleton(rng: random.Random, split: str) -> tuple[str, int, int]:
    """A kind, as often as any other in every split; a phrasing and signs for it."""
    kind = rng.choice(list(KINDS))
    signs = KINDS[kind][1]
    return until(
        lambda: (kind, rng.randrange(PHRASINGS * len(ENDINGS)), rng.randrange(signs)),
        lambda drawn: skeleton_of(*drawn),
        split,
    )


def problem(split: str, index: int) -> Problem:
    """Problem `index` of a split: a function of these two and the version."""
    rng = draws(NAME, VERSION, split, index)
    while True:
        kind, phrasing, sign = drawn_skeleton(rng, split)
        for _ in range(40):
            written = KINDS[kind][0](Sheet(rng, kind, phrasing, sign))
            if split_of(written.numbers) == split:
                return written


def grade(response: str, gold: str) -> Grade:
    """The last boxed answer, compared by value."""
    from redraft.evals.answers import boxed, equal  # training processes only make problems

    found = boxed(response)
    if found is None:
        return Grade("no_answer")
    return Grade("passed" if equal(found, gold) else "wrong", found)


TASK = Task(
    name=NAME,
    version=VERSION,
    citation="Redraft's own; the small mirror of MATH-500 (Lightman et al. 2023, arXiv 2305.20050)",
    items=asked(problem, NAME, VERSION),
    grade=grade,
    length=128,
)
