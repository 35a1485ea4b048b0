"""`redraft pretrain`: its loss falls, it goes on where it stopped, and minutes become steps."""

import json

import numpy as np
import pytest
import torch

from redraft.models import load
from redraft.train import pool, pretrain
from redraft.train.pretrain import Pretrain, Pretraining
from redraft.train.shape import untrained
from redraft.train.vocabulary import learn
from running import run as redraft

TEXT = ["We count one, two, three and four. Then we count again, and nothing changes. "] * 40


def shelves(model):
    """Prompts that say which token to repeat, and prose."""
    rng = np.random.default_rng(0)
    said = rng.integers(50, 60, 400)
    told = np.concatenate([np.repeat(said[:, None], 16, 1), np.repeat(said[:, None], 16, 1)], 1).astype(np.int16)
    return [pool.Shelf(told, np.full(400, 16, np.int16)), pool.prose(iter(TEXT), model.tokenizer, width=32)]


@pytest.fixture(scope="module")
def tokenizer():
    return learn(TEXT, size=300)


def make(tokenizer, out=None, **options):
    model = untrained("tiny", tokenizer)
    settings = Pretraining(**{"steps": 40, "tokens": 512, "accumulate": 1, "warmup": 5, "log_every": 5, **options})
    return Pretrain(model, shelves(model), settings, identity={}, out=out)


def weights(run):
    return torch.cat([one.detach().flatten() for one in run.network.parameters()])


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_the_loss_falls(tokenizer, optimizer):
    records = list(make(tokenizer, optimizer=optimizer))
    assert records[-1]["loss"] < 0.7 * records[0]["loss"]
    assert [record["step"] for record in records] == list(range(5, 45, 5))


def test_a_run_that_stopped_goes_on_as_if_it_had_not(tokenizer, tmp_path):
    whole = make(tokenizer)
    list(whole)
    stopped = make(tokenizer, out=tmp_path, stop_after=0.0)
    list(stopped)
    assert stopped.step == 5
    again = make(tokenizer, out=tmp_path, stop_after=None)
    assert again.step == 5
    list(again)
    assert torch.equal(weights(again), weights(whole))
    steps = [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(5, 45, 5))


def test_another_run_is_not_gone_on_with(tokenizer, tmp_path):
    list(make(tokenizer, out=tmp_path, stop_after=0.0))
    with pytest.raises(ValueError, match="lr"):
        make(tokenizer, out=tmp_path, lr=1e-4)


def test_minutes_become_steps_and_so_many_steps_are_the_same_run(tokenizer, monkeypatch):
    monkeypatch.setattr(pretrain, "MEASURED", (2, 4))
    timed = make(tokenizer, steps=None, minutes=0.02)
    assert timed.rate() < timed.settings.lr  # still rising, by the step alone
    list(timed)
    assert timed.steps == timed.step > 4
    counted = make(tokenizer, steps=timed.steps)
    list(counted)
    assert torch.equal(weights(counted), weights(timed))


def test_a_model_of_generated_tasks_is_trained_saved_and_gone_on_from(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    told = ["--shape", "tiny", "--tokens", "1024", "--device", "cpu", "--processes", "1", "--examples", "200"]
    done = redraft("pretrain", "--out", first, "--steps", "6", *told)
    assert done.code == 0, done.err
    assert "generated tasks alone" in done.out
    protocol = json.loads((first / "protocol.json").read_text())
    assert (protocol["steps"], protocol["tasks"], protocol["seed"]) == (6, ["words", "algebra", "code"], 0)
    model = load(first / "model")
    assert model.context == 2048
    more = ["--init", first / "model", "--first", "200", "--steps", "4"]
    done = redraft("pretrain", "--out", second, *more, *told)
    assert done.code == 0, done.err
    assert load(second / "model").tokenizer.get_vocab() == model.tokenizer.get_vocab()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--steps", "5", "--minutes", "1"], "give one of them"),
        (["--minutes", "1", "--warmup", "10"], "at least 400 steps"),
        (["--text", "nowhere.txt"], "no file or folder nowhere.txt"),
        (["--tasks", "wrods"], "wrods"),
        (["--shape", "huge"], "bundled, tiny"),
    ],
)
def test_nonsense_is_one_sentence(tmp_path, options, words):
    done = redraft("pretrain", "--out", tmp_path / "run", "--examples", "100", *options)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()
