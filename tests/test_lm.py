"""The model of lm-evaluation-harness: what a task asks is honoured, and answers are those of our own runner."""

import json
import sys
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from redraft.commands.lm_eval import arguments
from redraft.decoding import Reading, derive
from redraft.evals.likelihood import log_likelihood
from redraft.evals.lm import MARK, Redraft
from redraft.generation import generate
from redraft.models.standin import random_llada
from running import run
from test_score import Together, together

CONTEXTS = ["ab", "a longer question", "c", "what is it"]


@pytest.fixture(scope="module")
def model():
    return random_llada(dtype=torch.float64)


@pytest.fixture(scope="module")
def lm(model):
    return Redraft(model, length=16, steps=8)


def generation(*contexts, task="toy", first=0, **asked):
    return [
        Instance("generate_until", {}, (context, asked), 0, (task, first + at, 1))
        for at, context in enumerate(contexts)
    ]


def choice(context, continuation):
    return Instance("loglikelihood", {}, (context, continuation), 0, ("toy", 0, 1))


def test_it_is_registered_and_made_of_arguments_as_the_harness_has_them(model, tmp_path):
    folder = random_llada().save_pretrained(tmp_path / "random")
    args = f"pretrained={folder},sampler=d3im(t2t=False;t2m=False),length=16,steps=8,eos=none"
    made = get_model("redraft").create_from_arg_string(
        args, {"batch_size": "2", "max_batch_size": None, "device": "cpu"}
    )
    assert isinstance(made, Redraft)
    assert (made.rank, made.world_size, made.batch_size) == (0, 1, 2)
    plan, _ = made.plan({})
    assert (repr(plan.sampler), plan.length, plan.steps) == ("d3im(t2t=False, t2m=False)", 16, 8)
    assert plan.reading.eos == "none"
    assert made.plan({"eos": "sampler"})[0].reading.eos == "confidence"
    info = json.loads(json.dumps(made.get_model_info()))["redraft"]
    assert info["model"] == str(folder)
    assert len(info["fingerprint"]) == 16


def test_answers_are_those_of_generate_in_the_order_asked(lm, model):
    reading = Reading(temperature=0.8)
    answers = generate(model, CONTEXTS, "d3im", length=16, steps=8, seed=0, reading=reading, chat=False)
    found = lm.generate_until(generation(*CONTEXTS, do_sample=True, temperature=0.8))
    assert found == [answer.text for answer in answers]
    again = lm.generate_until(generation(*CONTEXTS[2:], first=2, do_sample=True, temperature=0.8))
    assert again == found[2:], "a document's noise comes from its place in its task, whatever else is asked"


def test_a_repeated_request_gets_noise_of_its_own(lm):
    asked = generation("ab", do_sample=True, temperature=0.8)
    first, second, third = lm.generate_until(asked * 3)
    assert len({first, second, third}) == 3
    assert lm.generate_until(asked) == [first]


@pytest.mark.parametrize("until", [None, [], "x", ["never there", "x"]])
def test_stop_strings(lm, until):
    (whole,) = lm.generate_until(generation("ab"))
    stop = whole[3]
    given = {} if until is None else {"until": stop if until == "x" else [one.replace("x", stop) for one in until]}
    (found,) = lm.generate_until(generation("ab", **given))
    assert found == (whole[: whole.find(stop)] if until else whole)


@pytest.mark.parametrize(
    ("made", "asked", "expected"),
    [
        ({"length": 256, "steps": 64}, {"max_gen_toks": 1024}, (256, 64)),
        ({"length": 256, "steps": 64}, {"max_gen_toks": 32}, (32, 8)),
        ({}, {"max_gen_toks": 32}, (32, 8)),
        ({}, {"max_new_tokens": 30}, (30, 8)),
        ({}, {}, (256, 64)),
        ({"block": 8}, {"max_gen_toks": 24}, (24, 6)),
        ({"length": 256, "steps": 64}, {"steps": 128}, (256, 128)),
        ({"length": 256}, {"gen_length": 64, "max_gen_toks": 512}, (64, 16)),
    ],
)
def test_length_and_steps(model, made, asked, expected):
    plan, _ = Redraft(model, **made).plan(asked)
    assert (plan.length, plan.steps) == expected


def test_temperature_is_the_models_unless_the_task_samples(model):
    def temperature(asked):
        return Redraft(model, temperature=0.5).plan(asked)[0].reading.temperature

    assert temperature({"do_sample": False, "temperature": 0.0}) == 0.5
    assert temperature({"temperature": 0.0, "do_sample": True}) == 0.5
    assert temperature({"do_sample": True, "temperature": 0.9}) == 0.9
    assert temperature({"do_sample": False, "temperature": 0.9}) == 0.5


def test_what_means_nothing_is_refused(model):
    with pytest.raises(ValueError, match=r"generation arguments stepz, top_k mean nothing here: .*until, max_gen_toks"):
        Redraft(model).plan({"stepz": 3, "top_k": 5})
    with pytest.raises(ValueError, match="no sampler 'd4im'"):
        Redraft("never loaded", sampler="d4im")
    with pytest.raises(ValueError, match="reads at most 512"):
        Redraft(model, length=256).generate_until(generation("x" * 300))


# --- conversations ---

TALK = [{"role": "user", "content": "one <|eot_id|> two"}, {"role": "assistant", "content": "yes"}]
ASKED = [*TALK, {"role": "user", "content": "and now? <|mdm_mask|>"}]


def test_a_conversation_is_encoded_as_the_model_encodes_it(lm, model):
    rendered = lm.apply_chat_template(ASKED)
    assert lm.encode(rendered) == model.encode(ASKED)
    assert rendered.replace(MARK, "").count("<|startoftext|>") == 1
    assert model.mask_id not in lm.encode(rendered)


def test_outside_of_conversations_no_token_is_special(lm, model):
    assert lm.encode("a <|eot_id|>") == model.encode("a <|eot_id|>", chat=False)
    assert not set(model.eos_ids) & set(lm.encode("a <|eot_id|>"))


def test_a_turn_begun_for_the_model_stays_open(lm, model):
    begun = {"role": "assistant", "content": "\n```python\n"}
    rendered = lm.apply_chat_template([TALK[0], begun], add_generation_prompt=False)
    assert rendered.endswith("<|start_header_id|>assistant<|end_header_id|>\n\n```python")
    assert model.eos_ids[1] not in lm.encode(rendered)[-20:]
    closed = lm.apply_chat_template(TALK[:2])
    assert lm.encode(closed).count(model.eos_ids[1]) == 2


def test_without_a_template_there_are_no_conversations(model):
    plain = deepcopy(model.tokenizer)
    plain.chat_template = None
    lm = Redraft(replace(model, tokenizer=plain, family="Dream"))  # whose template needs marks that are not here
    with pytest.raises(ValueError, match="has no chat template: leave out --apply_chat_template"):
        lm.apply_chat_template(TALK)


# --- likelihoods ---


def test_likelihoods_are_of_the_continuation_after_the_context(model):
    lm = Redraft(model, draws=16)
    (found,) = lm.loglikelihood([choice("a question:", " yes")])
    again = [lm.loglikelihood([choice("a question: ", "yes")])[0], lm.loglikelihood([choice("x", "y")] * 2)[1]]
    assert found == again[0], "spaces at the end of the context go to the continuation"
    assert found[1] is False
    one = lm.loglikelihood([choice("x", "y")])[0][0]
    assert (
        one == again[1][0] == pytest.approx(log_likelihood(model, model.encode("x", chat=False), [121 - 33]), abs=1e-6)
    )


def test_choices_are_compared_under_the_same_noise(model, monkeypatch):
    seeds = []
    monkeypatch.setattr("redraft.evals.lm.log_likelihood", lambda *_, seed, **__: seeds.append(seed) or 0.0)
    lm = Redraft(model)
    lm.loglikelihood([choice("a", " b"), choice("a", " cd"), choice("b", " b")])
    assert seeds[0] == seeds[1] != seeds[2]


def test_greedy_is_what_revealing_one_by_one_gives(model):
    lm = Redraft(model, draws=1, greedy=True)
    reading = Reading(eos="none")
    (answer,) = generate(model, "ab", "unmask", length=3, steps=3, reading=reading, chat=False)
    before = model.encode("ab", chat=False)
    assert lm.is_greedy(before, answer.ids)
    assert not lm.is_greedy(before, [*answer.ids[:2], answer.ids[2] + 1])
    assert lm.loglikelihood([choice("ab", " never this")])[0][1] is False


def test_a_rolling_likelihood_is_that_of_pieces(model):
    lm = Redraft(model, draws=4)
    (found,) = lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("x" * 600,), 0, ("toy", 0, 1))])
    ids = model.encode("x" * 600, chat=False)
    parts = [lm.likelihood([], piece, derive(0, at)) for at, piece in enumerate((ids[:512], ids[512:]))]
    assert found == pytest.approx(sum(parts))


def test_what_has_no_tokens_is_refused(model):
    with pytest.raises(ValueError, match="the continuation '' has no tokens"):
        Redraft(model).loglikelihood([choice("a", "")])


# --- several processes, and the command ---


def test_processes_share_the_requests_and_have_all_answers(lm, model):
    alone = lm.generate_until(generation(*CONTEXTS))

    def work(group: Together):
        mine = Redraft(model, length=16, steps=8, batch_size=1)
        mine.group = group
        return mine.generate_until(generation(*CONTEXTS))

    assert together(2, work) == [alone, alone]


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--tasks", "x"], ["--tasks", "x", "--model", "redraft"]),
        (["run", "--tasks", "x"], ["run", "--tasks", "x", "--model", "redraft"]),
        (["--model=hf", "--tasks", "x"], ["--model=hf", "--tasks", "x"]),
        (["-M", "hf"], ["-M", "hf"]),
        (["ls", "tasks"], ["ls", "tasks"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_arguments_go_to_the_harness(given, passed, monkeypatch):
    assert arguments(given) == passed
    seen = []
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: seen.extend(sys.argv))
    assert run("lm-eval", *given).code == 0
    assert seen == ["lm-eval", *passed]
