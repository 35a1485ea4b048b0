"""MATH-500: where a response's answer stands, and its grade."""

import time

import pytest

from published import DATA, needs_data, rows
from redraft.evals.math500 import INSTRUCTION, answer, grade
from redraft.evals.tasks import find

MATRIX = r"\begin{pmatrix}1\\2\end{pmatrix}"


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (r"so \boxed{5}, or rather \boxed{6}.", "6"),
        (r"$\boxed 5$ it is", "5"),
        (r"\boxed{" + "\n5\n}", "5"),
        (rf"$\boxed{{{MATRIX}}}$", MATRIX),
        (r"\boxed{6}, and the answer is 5", "6"),
        (r"<answer>\boxed{5}</answer>", "5"),
        ("<answer> 5 </answer>", "5"),
        ("<answer>5", "5"),
        (r"The answer is $\frac{1}{2}$.", r"\frac{1}{2}"),
        ("The answer is (1, 2).", "(1, 2)"),
        ("The answer is 1.5.", "1.5"),
        ("The answer is: **5**", "5"),
        ("**Answer:** 5", "5"),
        ("The answer is Evelyn.", "Evelyn"),
        ("The answer is therefore 5.", "5"),
        ("The answer is 5, since 2 + 3 = 5.", "5"),
        ("The answer is 3. No: the answer is 5.", "5"),
        ("The answer is\n\\[\n\\frac{3}{4}\n\\]", r"\frac{3}{4}"),
        ("Final Answer: The final answer is $5$. I hope it is correct.", "5"),
        (r"thus \(x = 5\) and that is all", "x = 5"),
        (r"thus $$5$$", "5"),
        ("there are 3 of 10,080 ways", "10,080"),
        (r"\boxed{5", None),
        (r"\boxed{}", None),
        (r"\boxed{...}", None),
        ("<answer></answer>", None),
        ("no answer in here", None),
        ("", None),
    ],
)
def test_where_the_answer_stands(response, said):
    assert answer(response) == said


def test_a_grade_says_what_was_found():
    assert grade(r"It is \boxed{\frac{1}{2}}.", "0.5")
    wrong = grade(r"It is \boxed{\frac{1}{3}}.", "0.5")
    assert (wrong.correct, wrong.verdict, wrong.extracted) == (False, "wrong", r"\frac{1}{3}")
    assert (grade("I do not know.", "0.5").verdict, grade("", "0.5").verdict) == ("no_answer", "no_answer")


def test_what_follows_the_end_does_not_count():
    assert grade(r"\boxed{5}<|eot_id|>\boxed{6}", "5")
    assert grade(r"\boxed{5}<|endoftext|><|endoftext|>", "5")
    assert grade(r"<|start_header_id|>\boxed{5}", "5")


@pytest.mark.parametrize(
    "piece", [r"\boxed{", r"\boxed 5 ", "answer is ", "answer\t", "<answer>", "$", "$1", r"\(", r"\[", "{", "1,"]
)
def test_a_hundred_thousand_characters_take_no_time(piece):
    text = piece * (100_000 // len(piece))
    started = time.perf_counter()
    assert not grade(text, "7")
    assert time.perf_counter() - started < 2


@needs_data
def test_every_solution_and_every_right_answer_passes():
    """Eight solutions do not hold exactly one box."""
    for row in rows("math500"):
        gold = row["answer"]
        assert grade(row["solution"], gold)
        for response in (rf"So \boxed{{{gold}}}.", f"The answer is ${gold}$.", f"<answer>{gold}</answer>"):
            assert grade(response, gold), response


@needs_data
def test_it_is_asked_in_one_turn_without_examples():
    items = find("math500").items(data=DATA)
    assert len(items) == 500
    assert items[0].prompt == f"{rows('math500')[0]['problem']}\n{INSTRUCTION}"
    assert items[0].gold == rows("math500")[0]["answer"]
    with pytest.raises(ValueError, match="without worked examples"):
        find("math500").items(shots=1, data=DATA)
