"""Recipes: their notation, what they refuse, and the steering of the temperature."""

import json

import pytest
import torch

from fakes import MASK
from redraft.decoding import derive
from redraft.train.batch import Batch
from redraft.train.corrupt import self_commit
from redraft.train.recipes import MDM, RECIPES, XDLM, Scope, parse
from redraft.train.steering import HOTTEST, Steering, steer
from test_corrupt import Opinion, full

EVERY_ABLATION = [
    "scope",
    "scope(temperature=0.0)",
    "scope(temperature=2, share=1)",
    "scope(temperature=2.0, share='uniform(0.1,0.8)', commit=random, focus=False, self_condition=1.0)",
    "scope(share='linear(0.1,0.8)')",
    "scope(share='uniform(0.2,0.4)', rates='uniform(0.1,0.9)')",
    "scope(share='0.3')",
    "scope(error_rate=0.3, rounds=4, context=clean)",
    "scope(self_condition=0.0, exact=True)",
    "scope(eos=confidence)",
    "mdm",
    "mdm(weight=inv_t, rates='uniform(0,1)')",
    "mdm(rates=0.15)",
    "mdm(rates='uniform(0,1)', clamp=False)",
    "xdlm",
    "xdlm(k1=0.3)",
]


@pytest.mark.parametrize("text", EVERY_ABLATION)
def test_notation_goes_there_and_back(text):
    recipe = parse(text)
    assert parse(repr(recipe)) == recipe
    assert repr(parse(repr(recipe))) == repr(recipe)


def test_defaults_are_the_papers_and_are_not_spelled():
    assert parse("scope") == Scope(1.5, 0.3, "confidence", True, 0.5, "beta(2,2)", None, 1, "masked", "none", False)
    assert parse("mdm") == MDM("none", "beta(2,2)")
    assert parse("xdlm") == XDLM(0.1)
    assert [repr(parse(name)) for name in RECIPES] == ["mdm", "scope", "xdlm"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scop", "did you mean 'scope'"),
        ("scope(temprature=2)", "did you mean 'temperature'"),
        ("scope(commit=rnd)", "one of confidence, random"),
        ("scope(context=maskd)", "did you mean 'masked'"),
        ("scope(eos=never)", "one of none, confidence"),
        ("scope(share='unifrom(0.1,0.8)')", "did you mean 'uniform'"),
        ("scope(rates='betta(2,2)')", "did you mean 'beta'"),
        ("scope(share=1.2)", "between 0 and 1"),
        ("scope(temperature=-1)", "0 or more"),
        ("scope(self_condition=2)", "between 0 and 1"),
        ("scope(error_rate=1.5)", "between 0 and 1"),
        ("scope(rounds=0)", "at least 1"),
        ("scope(rounds=1.5)", "a whole number"),
        ("scope(focus=1)", "True or False"),
        ("mdm(weight=inv)", "did you mean 'inv_t'"),
        ("mdm(rates='beta')", "write 0.3"),
        ("xdlm(k1=0)", r"mdm\(weight=inv_t"),
        ("xdlm(k1=1.0)", "between 0 and 1"),
        ("xdlm(k=1)", "did you mean 'k1'"),
    ],
)
def test_what_is_no_recipe_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_steering_brings_the_error_rate_to_its_target():
    recipe, batch = Scope(error_rate=0.3), full(torch.arange(8 * 40).reshape(8, 40) % 12)
    denoiser, state, seen = Opinion(batch.tokens, strength=4.0), Steering(0.2), []
    for step in range(60):
        seeds = torch.tensor([derive(7, 8 * step + row) for row in range(8)])
        hidden = torch.ones_like(batch.eligible)
        draft = self_commit(
            denoiser, batch.tokens, hidden, MASK, recipe=recipe, seeds=seeds, temperature=state.temperature
        )
        rate = float(draft.wrong.sum() / draft.committed.sum())
        seen.append(rate)
        state = steer(state, rate, 0.3)
    assert sum(seen[:3]) / 3 < 0.1
    assert sum(seen[30:]) / 30 == pytest.approx(0.3, abs=0.03)
    assert state.error == pytest.approx(0.3, abs=0.05)


def test_steering_is_json_bounded_and_waits_for_commits():
    state = steer(Steering(1.5), 0.2, 0.3)
    assert state.error == 0.2
    assert state.temperature == pytest.approx(1.53)
    assert Steering(*json.loads(json.dumps(state))) == state
    assert steer(state, None, 0.3) == state
    cold = hot = state
    for _ in range(100):
        cold, hot = steer(cold, 1.0, 0.3), steer(hot, 0.0, 0.3)
    assert cold.temperature == 0
    assert hot.temperature == HOTTEST


def test_batches_move_and_split():
    tokens = torch.arange(12).reshape(3, 4)
    batch = Batch(tokens, tokens > 2, tokens > 0, torch.tensor([7, 8, 9]))
    part = batch.rows(slice(1, 3)).to("cpu")
    assert part.tokens.tolist() == tokens[1:].tolist()
    assert part.attend is not None
    assert part.indices.tolist() == [8, 9]
    assert part.seeds(5).tolist() == batch.seeds(5)[1:].tolist() == [derive(5, 8), derive(5, 9)]
    assert full(tokens).rows(torch.tensor([2])).attend is None
