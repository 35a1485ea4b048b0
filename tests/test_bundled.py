"""The model that ships with us: it opens, it is what its fingerprint says, it adds up, and batches change nothing."""

import pytest

from redraft import generate, load
from redraft.decoding import SAMPLERS, Reading
from redraft.evals import sums

VARIANTS = sorted({*SAMPLERS, "d3im(t2t=False)", "d3im(t2m=False)", "d3im(t2t=False, t2m=False)"})


@pytest.fixture(scope="module")
def bundled():
    return load("bundled", device="cpu", fingerprint=True)


@pytest.fixture(scope="module")
def exact():
    return load("bundled", device="cpu", dtype="float64")


def ragged(count: int) -> list[str]:
    """Questions of 2 to 5 terms."""
    questions = [sums.problem(1, index, test=True).question for index in range(count)]
    return [" ".join(question.split()[2 * (index % 4) :]) for index, question in enumerate(questions)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sampler", VARIANTS)
def test_a_row_alone_is_the_row_in_a_ragged_batch(exact, sampler, temperature):
    def decode(size: int) -> list[list[int]]:
        reading = Reading(temperature=temperature)
        found = generate(exact, ragged(6), sampler, length=24, block=12, steps=8, reading=reading, batch_size=size)
        return [answer.ids for answer in found]

    assert decode(1) == decode(6) == decode(4)


def test_it_adds_up(bundled):
    problems = [sums.problem(2, index, test=True) for index in range(100)]
    answers = generate(bundled, [one.question for one in problems], "unmask", length=24, steps=12, batch_size=100)
    assert sum(sums.grade(answer.text, one) for answer, one in zip(answers, problems, strict=True)) >= 95


def test_an_unknown_word_is_not_quietly_dropped(bundled):
    unknown = bundled.tokenizer.convert_tokens_to_ids("<|unknown|>")
    assert unknown in bundled.encode("7 plus 5 = ?")
