"""docs/own-trainer.md: its code blocks run as they stand."""

import os
import re
from pathlib import Path

import pytest
import torch

from redraft.models.standin import random_llada
from test_corrupt import full

PAGE = Path(__file__).parent.parent / "docs" / "own-trainer.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
TOKENS = torch.randint(0, 256, (8, 24), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    return random_llada()


def run(block, **given):
    exec(compile(block, str(PAGE), "exec"), given)
    return given


def changed(model):
    fresh = dict(random_llada().network.named_parameters())
    return {name for name, value in model.network.named_parameters() if not torch.equal(value, fresh[name])}


def test_there_are_two_blocks():
    assert len(BLOCKS) == 2
    assert "scope_loss(" in BLOCKS[0]
    assert "compute_loss" in BLOCKS[1]


def test_the_plain_loop(model, capsys):
    run(BLOCKS[0], model=model, batches=[full(TOKENS[:4]), full(TOKENS[4:], first=4)])
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert changed(model) == {name for name, _ in model.network.named_parameters()}


def test_the_trainer(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        assert name not in os.environ
    dataset = [{"tokens": row.tolist(), "eligible": [True] * 24, "indices": i} for i, row in enumerate(TOKENS)]
    steps = []
    scope = run(
        BLOCKS[1].replace(").train()\n", ")\n").replace("ScopeTrainer(model", "trainer = ScopeTrainer(model"),
        model=model,
        dataset=dataset,
    )
    trainer = scope["trainer"]
    inner = trainer.compute_loss
    trainer.compute_loss = lambda network, inputs, **options: (
        steps.append(len(inputs["tokens"])) or inner(network, inputs, **options)
    )
    trainer.train()
    assert steps == [2, 2, 2, 2]  # two optimiser steps of two micro-batches
    assert trainer.state.global_step == 2
    assert "model.transformer.wte.weight" in changed(model)
    assert len(changed(model)) > 10
