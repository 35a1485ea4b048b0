"""Sums to practise on, `sums`: training data only, which no score is ever taken on.

A small model learns to write a solution long before it can work it out, for a story has few sums among its words. Here
they stand close together, as the tasks write them and as large as theirs: some all in the question, some each on the
result of the one before.
"""

from __future__ import annotations

import random

from redraft.evals.generated import Problem

VERSION = 1
MOST = 999  # no number of the tasks' sums is larger
ASKED = ("Work out {}.", "Calculate {}.", "Find {}.", "What is {}?")
STEPS = {"+": "add {}", "-": "take away {}", "*": "multiply by {}", "/": "divide by {}"}


def problem(split: str, index: int) -> Problem:
    rng = random.Random(f"sums {VERSION} {split} {index}")
    return _chain(rng) if rng.random() < 0.5 else _separate(rng)


def _separate(rng: random.Random) -> Problem:
    sums = [_sum(rng) for _ in range(rng.randint(4, 11))]
    asked = [f"{left} {sign} {right}" for left, sign, right, _ in sums]
    return _told(rng.choice(ASKED).format(f"{', '.join(asked[:-1])} and {asked[-1]}"), sums)


def _chain(rng: random.Random) -> Problem:
    sums = [_sum(rng)]
    for _ in range(rng.randint(3, 9)):
        sums.append(_sum(rng, sums[-1][-1]))
    steps = [STEPS[sign].format(right) for _, sign, right, _ in sums]
    return _told(f"Start with {sums[0][0]}, {', '.join(steps)}.", sums)


def _told(question: str, sums: list[tuple[int, str, int, int]]) -> Problem:
    worked = " ".join(f"{left} {sign} {right} = {result}." for left, sign, right, result in sums)
    return Problem(question, worked, sums[-1][-1], (), ())


def _sum(rng: random.Random, left: int | None = None) -> tuple[int, str, int, int]:
    """Whole numbers, none below zero nor above `MOST`; `left` is given, or as large as comes up."""
    given = left
    while True:
        sign = rng.choice("++--*/" if given is None or given > 1 else "+")
        if given is None:
            left = _number(rng, MOST)
        assert left is not None
        if sign == "+":
            right = _number(rng, MOST)
            result = left + right
        elif sign == "-":
            right = _number(rng, left)
            result = left - right
        elif sign == "*":
            right = rng.randint(2, 12) if rng.random() < 0.9 else _number(rng, 50)
            result = left * right
        else:
            right = rng.randint(2, 12)
            if given is None:
                left = right * _number(rng, MOST // right)
            result, over = divmod(left, right)
            if over:
                continue
        if result <= MOST:
            return left, sign, right, result


def _number(rng: random.Random, most: int) -> int:
    """Of one, two or three digits, two as often as the others together."""
    return rng.randint(1, max(1, min(most, 10 ** rng.choice((1, 2, 2, 3)) - 1)))
