"""Running sums: right answers, disjoint sets, a grader that cannot be talked round."""

import pytest

from redraft.evals import sums
from redraft.evals.sums import END, LENGTH, TERMS, WORDS, Problem, grade, is_test, problem, worked


def terms(of: Problem) -> list[int]:
    return [int(word) for word in of.question.split() if word.isdigit()]


@pytest.mark.parametrize("test", [False, True])
def test_problems_are_right_and_fit(test):
    for index in range(300):
        one = problem(0, index, test=test)
        numbers = terms(one)
        assert len(numbers) == TERMS
        assert one.answer == sum(numbers)
        for line in one.solution.split(" ; "):
            left, right = line.split(" = ")
            assert sum(map(int, left.split(" + "))) == int(right)
        assert one.solution.split()[-1] == str(one.answer)
        assert len(one.solution.split()) + 1 == LENGTH, "the answer and its end fill the response"
        assert {*one.question.split(), *one.solution.split(), END} <= set(WORDS)
        assert grade(one.solution, one)


def test_training_and_test_problems_share_nothing():
    """Across seeds too: it is the terms that decide."""
    training = {problem(seed, index).question for seed in range(3) for index in range(1500)}
    tests = {problem(seed, index, test=True).question for seed in range(3) for index in range(1500)}
    assert len(training) > 3000
    assert len(tests) > 2500
    assert not training & tests


def test_one_chain_in_seven_is_for_testing():
    chains = [[a, b, c, 5, d] for a in range(1, 10) for b in range(1, 10) for c in range(1, 10) for d in range(1, 10)]
    assert sum(map(is_test, chains)) / len(chains) == pytest.approx(1 / 7, abs=0.01)


def test_streams_are_repeatable_and_differ():
    assert [problem(1, index) for index in range(20)] == [problem(1, index) for index in range(20)]
    assert [problem(1, index) for index in range(20)] != [problem(2, index) for index in range(20)]
    assert problem(1, 0) != problem(1, 1)
    assert problem(0, 0).question == "6 + 3 + 3 + 3 + 1 = ?", "the stream changed: raise sums.VERSION"


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("26", True),
        ("= 26 ;", True),
        ("3 + 4 = 8 ; 24 + 2 = 26", True),  # the way there is not judged
        ("26 ; 27", False),
        ("2 6", False),
        ("226", False),
        ("-26", False),
        ("26.0", False),
        ("", False),
        ("?", False),
        ("²", False),  # a digit to Python's isdigit, and no number
    ],
)
def test_the_last_number_counts(response, right):
    assert grade(response, worked([7, 5, 9, 3, 2])) is right


def test_words_are_numbered_once():
    assert len(set(WORDS)) == len(WORDS) == 54
    assert str(9 * TERMS) in WORDS
    assert sums.MASK in WORDS
