"""Evaluations: whole records, the same whatever the batch, the interruption or the share of another process."""

import threading
from dataclasses import replace
from itertools import chain

import pytest
import torch

from evaluating import QUESTIONS, TOY
from redraft.decoding import Reading, Trajectory
from redraft.evals.run import Evaluation, cut, evaluate, hash_of
from redraft.evals.task import Grade
from redraft.generation import Plan, batches, generate
from redraft.models.standin import random_llada

PLAN = Plan.of("d3im", length=16, steps=8, reading=Reading(temperature=0.9))


def flat(lists):
    return list(chain(*lists))


@pytest.fixture(scope="module")
def model():
    return random_llada(dtype=torch.float64)


@pytest.fixture(scope="module")
def records(model):
    return evaluate(model, TOY, TOY.items(), PLAN, seed=3)


def test_records_say_what_was_asked_and_answered(model, records):
    answers = generate(model, QUESTIONS, PLAN.sampler, length=16, steps=8, seed=3, reading=PLAN.reading)
    assert [record.index for record in records] == list(range(8))
    assert [record.id for record in records] == [item.id for item in TOY.items()]
    for record, answer, item in zip(records, answers, TOY.items(), strict=True):
        assert (record.response, record.ids, record.first_eos) == (answer.text, answer.ids, answer.first_eos)
        assert (record.calls, record.processed) == (answer.calls, answer.processed) == (8, answer.processed)
        assert record.prompt_tokens == len(model.encode(item.prompt))
        assert record.prompt_hash == hash_of(item.prompt)
        assert record.processed == 8 * (record.prompt_tokens + 16)


def test_changes_are_those_of_the_decoding(model, records):
    (batch,) = batches(model, QUESTIONS, length=16, seed=3)
    trajectory = Trajectory.of(PLAN.walk(model, batch.canvas))
    for row, record in enumerate(records):
        expected = {"reveal": record.reveals, "overwrite": record.overwrites, "demotion": record.demotions}
        assert trajectory.counts(row) == expected
        assert len(trajectory.oscillations(row)) == record.oscillations
    assert sum(record.overwrites for record in records) > 0


@pytest.mark.parametrize("batch_size", [1, 3])
def test_records_are_the_same_in_any_batch(model, records, batch_size):
    assert evaluate(model, TOY, TOY.items(), PLAN, seed=3, batch_size=batch_size) == records


def test_batches_are_of_like_length_the_longest_first(model):
    whole = Evaluation(model, TOY, TOY.items(), PLAN, batch_size=3)
    assert [len(batch) for batch in whole.batches] == [3, 3, 2]
    lengths = [[len(whole.encoded[index]) for index in batch] for batch in whole.batches]
    assert flat(lengths) == sorted(flat(lengths), reverse=True)
    assert sorted(flat(whole.batches)) == list(range(8))


def test_an_interruption_leaves_the_batches_as_they_were(model, records):
    whole = Evaluation(model, TOY, TOY.items(), PLAN, seed=3, batch_size=3)
    first, second, third = whole.batches
    assert whole.left(done={*first, second[0]}) == [second, third]
    assert whole.left(done={*first, *third}) == [second]
    found = [record for batch in whole.run(whole.left(done=first)) for record in batch.records]
    assert sorted(found, key=lambda record: record.index) == [record for record in records if record.index not in first]


def test_processes_share_the_batches(model):
    whole = Evaluation(model, TOY, TOY.items(), PLAN, batch_size=1)
    shares = [whole.left(done={0, 5}, rank=rank, world=3) for rank in range(3)]
    assert [len(share) for share in shares] == [2, 2, 2]
    assert sorted(flat(flat(shares))) == [1, 2, 3, 4, 6, 7]


def test_every_filter_is_kept_and_one_decides(model, records):
    other = evaluate(model, TOY, TOY.items(), PLAN, seed=3, filter="odd")
    for even, odd in zip(records, other, strict=True):
        assert even.filters == odd.filters == {"even": even.correct, "odd": odd.correct}
        assert even.correct != odd.correct
    with pytest.raises(ValueError, match="no filter 'any': it has even, odd"):
        evaluate(model, TOY, TOY.items(), PLAN, filter="any")
    plain = replace(TOY, filters=(), grade=lambda response, gold: Grade("no_answer"))
    assert {(record.verdict, *record.filters) for record in evaluate(model, plain, TOY.items(), PLAN)} == {
        ("no_answer",)
    }


def test_responses_end_before_the_first_stop_string(model, records):
    assert cut("one Q: two END Q:", ("END", "Q:")) == "one "
    assert cut("one", ("END",)) == "one"
    stops = replace(TOY, until=(records[0].response[2], "never there"))
    found = evaluate(model, stops, TOY.items(), PLAN, seed=3)[0]
    assert found.response == records[0].response[:2]
    assert (found.extracted, found.ids) == ("2", records[0].ids)


def test_code_is_graded_in_parallel(model):
    meeting = threading.Barrier(4, timeout=20)

    def meet(response, gold):
        meeting.wait()
        return Grade("passed")

    task = replace(TOY, filters=(), grade=meet, runs_code=True)
    assert len(evaluate(model, task, TOY.items(), PLAN, workers=4)) == 8


def test_a_batch_is_handed_out_while_the_next_is_decoded(model):
    graded, steps, found = threading.Event(), [], []

    def grade(response, gold):
        graded.set()
        return Grade("passed")

    def interrupt(step):
        steps.append(step)
        if len(steps) == 9:
            assert graded.wait(20)
        if len(steps) == 16:
            raise KeyboardInterrupt

    whole = Evaluation(model, replace(TOY, filters=(), grade=grade), TOY.items(), PLAN, batch_size=1)
    with pytest.raises(KeyboardInterrupt):
        found.extend(whole.run(watch=interrupt))  # extend keeps what came before the interruption
    assert [record.index for batch in found for record in batch.records] == whole.batches[0]
    assert found[0].seconds > 0


def test_a_grader_that_breaks_is_heard(model):
    def broken(response, gold):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(model, replace(TOY, filters=(), grade=broken), TOY.items(), PLAN)
