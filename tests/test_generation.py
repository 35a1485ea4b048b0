"""`generate`: from prompts to answers in Python, the same whatever the batch, refused early, and counted rightly."""

import pytest
import torch

from redraft.decoding import Reading
from redraft.generation import MOST, Plan, generate
from redraft.samplers import D3IM
from running import QUESTION, QUESTIONS
from tiny import WORDS, of_words, often_ending


@pytest.fixture(scope="module")
def model():
    return often_ending(dtype=torch.float64)


@pytest.mark.parametrize(
    ("sampler", "temperature"), [("unmask", 0.8), ("d3im", 0.8), ("d3im", 0.0), ("d3im(t2m=False)", 0.8)]
)
def test_answers_are_the_same_in_any_batch(model, sampler, temperature):
    def answers(size):
        reading = Reading(temperature=temperature)
        found = generate(model, QUESTIONS, sampler, length=24, steps=6, seed=3, reading=reading, batch_size=size)
        return [(one.index, one.prompt, one.text, one.ids, one.first_eos, one.calls, one.processed) for one in found]

    together = answers(16)
    assert [one[0] for one in together] == [0, 1, 2, 3, 4]
    assert answers(1) == answers(2) == together


def test_prompts_in_every_form(model):
    turns = [{"role": "user", "content": "Hi"}]
    forms = ("Hi", ["Hi"], ("Hi",), turns, [turns], [turns, "no"])
    ids = [generate(model, prompts, length=8, steps=4)[0].ids for prompts in forms]
    assert all(each == ids[0] for each in ids)
    assert generate(model, "Hi", length=8, steps=4, chat=False)[0].ids != ids[0]


def test_a_sampler_is_a_name_or_an_object(model):
    named, made = (generate(model, QUESTIONS, s, length=24, steps=6) for s in ("d3im(t2t=False)", D3IM(t2t=False)))
    assert [one.ids for one in named] == [one.ids for one in made]


def test_first_eos_ends_the_text(model):
    ends = 0
    for answer in generate(model, QUESTIONS, "d3im", length=24, steps=12):
        head, tail = answer.ids[: answer.first_eos], answer.ids[answer.first_eos :]
        assert not set(model.eos_ids) & set(head)
        assert not tail or tail[0] in model.eos_ids
        assert answer.text == model.decode(head)
        ends += bool(tail)
    assert ends
    reading = Reading(eos="logit_all")
    assert generate(model, QUESTION, "unmask", length=24, steps=12, reading=reading)[0].first_eos == 24


def test_costs_are_counted_without_padding(model):
    found = generate(model, QUESTIONS, "d3im", length=24, steps=12)
    assert [one.calls for one in found] == [12] * 5
    assert [one.processed for one in found] == [12 * (len(model.encode(one)) + 24) for one in QUESTIONS]
    (guided,) = generate(model, QUESTION, "d3im", length=24, steps=12, reading=Reading(guidance=1.0))
    assert guided.calls == 24
    assert guided.processed == 24 * (len(model.encode(QUESTION)) + 24)
    (bare,) = generate(model, QUESTION, "d3im", length=24, steps=12, chat=False)
    assert bare.processed == 12 * (len(QUESTION) + 24)  # a token a byte
    (blocks,) = generate(model, QUESTION, "d3im", length=24, block=6, steps_per_block=2)
    assert blocks.calls == 8


def test_more_steps_than_tokens_is_noted_where_it_is_allowed(model):
    with pytest.warns(UserWarning, match="14 steps for 12 tokens: the schedule keeps fewer than one new token a step"):
        generate(model, QUESTION, "d3im", length=24, block=12, steps=28)
    generate(model, QUESTION, "d3im", length=24, block=12, steps=24)  # a warning would be an error
    with pytest.raises(ValueError, match="at most 24 steps"):
        generate(model, QUESTION, "unmask", length=24, steps=25)


def test_options_that_a_sampler_settles_itself_are_noted():
    (note,) = Plan.of("tolerator", length=8, steps=4, reading=Reading(temperature=0.9)).notes
    assert note.startswith("temperature changes nothing here: tolerator has a way of its own")
    (note,) = Plan.of("pc", length=8, steps=4, reading=Reading(rank="margin")).notes
    assert note.startswith("rank changes nothing here")
    assert Plan.of("pc", length=8, steps=4, reading=Reading(temperature=0.9)).notes == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"length": 0, "steps": 1}, "length is at least 1"),
        ({"length": MOST + 1, "steps": 1}, "length is at most 1,000,000"),
        ({"length": 8, "steps": MOST + 1}, "steps is at most 1,000,000"),
        ({"length": 8, "steps": 0}, "steps is at least 1"),
        ({"length": 8}, "give the number of steps once"),
        ({"length": 8, "steps": 1, "steps_per_block": 1}, "give the number of steps once"),
        ({"length": 8, "steps": 1, "block": 3}, "not a whole number of blocks"),
        ({"length": 8, "steps": 3, "block": 4}, "cannot be divided equally"),
        ({"length": 8, "steps": 1, "sampler": "d3mi"}, "did you mean"),
    ],
)
def test_plans_refuse_before_anything_is_loaded(arguments, words):
    with pytest.raises(ValueError, match=words):
        Plan.of(**arguments)


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        ([], {}, "there is no prompt"),
        ("", {}, "the prompt is empty"),
        ([QUESTION, "\t"], {}, "prompt 2 is empty"),
        ([[{"role": "user", "content": ""}]], {}, "the prompt is empty"),
        ("1 " * 250, {"chat": False}, "the prompt has 500 tokens, and 24 more .* reads at most 512"),
        (QUESTION, {"batch_size": 0}, "batch_size is at least 1"),
        (QUESTION, {"batch_size": -2}, "batch_size is at least 1"),
    ],
)
def test_prompts_that_cannot_be_answered(model, prompts, options, words):
    with pytest.raises(ValueError, match=words):
        generate(model, prompts, length=24, steps=6, **options)


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ("1 + x", f"the prompt has words that of-words does not know: 'x'; it knows {len(WORDS)}, such as 0 1 2"),
        (["1 + 2 = ?", "a b c d e f g 1"], r"prompt 2 has words .*'a', 'b', 'c', 'd', 'e', ...; it knows"),
    ],
)
def test_words_that_the_model_has_no_token_for_are_named(prompts, words):
    with pytest.raises(ValueError, match=words):
        generate(of_words(), prompts, length=24, steps=6)


def test_plans_take_the_policy_of_their_sampler_and_the_ends_of_the_model(model):
    assert Plan.of("d3im", length=8, steps=2).reading == Reading(eos="confidence")
    seen = []

    def spying(tokens, **context):
        seen.append(tokens)
        return model(tokens, **context)

    plan = Plan.of("unmask", length=24, steps=12)
    from redraft.generation import batches

    (batch,) = batches(model, [QUESTION], length=24)
    spying.eos_ids = model.eos_ids
    *_, last = plan.walk(spying, batch.canvas)
    assert last.result.response[0].tolist() == generate(model, QUESTION, "unmask", length=24, steps=12)[0].ids
    assert len(seen) == 12
