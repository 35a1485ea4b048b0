"""Running sums: a chain of additions, worked out step by step.

    7 + 5 + 9 + 3 + 2 = ?        7 + 5 = 12 ; 12 + 9 = 21 ; 21 + 3 = 24 ; 24 + 2 = 26

Every result stands twice and depends on the one before it, so a sampler that writes several tokens at once must guess,
and can be caught guessing: the smallest text on which changing one's mind is worth something.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

VERSION = 1
TERMS = 5
LENGTH = 6 * (TERMS - 1)  # tokens of a worked answer, its end included
END, PAD, MASK = "<|endoftext|>", "<|pad|>", "<|mask|>"
WORDS = (END, PAD, MASK, "<|unknown|>", "+", "=", ";", "?", *map(str, range(9 * TERMS + 1)))


@dataclass(frozen=True)
class Problem:
    question: str
    solution: str
    answer: int


def problem(seed: int, index: int, *, test: bool = False) -> Problem:
    """Problem `index` of a stream. Test problems and training problems never share their terms."""
    rng = random.Random(f"sums {VERSION} {seed} {index} {test}")
    while True:
        terms = [rng.randint(1, 9) for _ in range(TERMS)]
        if is_test(terms) == test:
            return worked(terms)


def is_test(terms: list[int]) -> bool:
    """One chain in seven is kept for testing, decided by the terms themselves: the two sets are disjoint."""
    return sum(term * 10**place for place, term in enumerate(terms)) % 7 == 0


def worked(terms: list[int]) -> Problem:
    lines, total = [], terms[0]
    for term in terms[1:]:
        lines.append(f"{total} + {term} = {total + term}")
        total += term
    return Problem(" + ".join(map(str, terms)) + " = ?", " ; ".join(lines), total)


def grade(response: str, of: Problem) -> bool:
    """Whether the last number of the response is the answer; the way there is not judged."""
    numbers = [word for word in response.split() if word.isascii() and word.isdigit()]
    return bool(numbers) and int(numbers[-1]) == of.answer
