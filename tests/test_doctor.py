"""`redraft doctor`: all well here, and each kind of trouble is seen, named, and exit code 1."""

import importlib
import json
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import pytest

from running import run

doctor = importlib.import_module("redraft.commands.doctor")


def findings(*options, code):
    done = run("doctor", "--json", *options)
    assert done.code == code, done
    found = json.loads(done.out)
    trouble = [one["subject"] for one in found if not one["fine"]]
    assert done.err == (f"trouble with: {', '.join(trouble)}\n" if trouble else "")
    return {one["subject"]: one for one in found}


def trouble(*options):
    return {name: one["said"] for name, one in findings(*options, code=1).items() if not one["fine"]}


def test_all_is_well_here():
    found = findings(code=0)
    libraries = {"python", "torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers", "numpy"}
    working = {"cpu", "float32", "bfloat16", "float64", "determinism", "batches", "bundled", "sandbox"}
    assert libraries | working <= found.keys()
    assert found["torch"]["said"] == metadata.version("torch")
    assert "mask 2, end [0, 6], pad 1, vocabulary 1536, context 2048, dtype bfloat16" in found["bundled"]["said"]


def test_findings_for_people():
    done = run("doctor")
    assert (done.code, done.err) == (0, "")
    assert "ok   determinism" in done.out
    assert "bad" not in done.out


def pretend(monkeypatch, **versions):
    """Say that other versions are installed (None: not at all), and leave out the check that takes longest."""
    monkeypatch.setattr(doctor, "determinism", lambda: iter(()))

    def version(name):
        found = versions.get(name, ...)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name) if found is ... else found

    fake = SimpleNamespace(
        version=version, requires=metadata.requires, PackageNotFoundError=metadata.PackageNotFoundError
    )
    monkeypatch.setattr(doctor, "metadata", fake)


@pytest.mark.parametrize(
    ("name", "version", "subject", "words"),
    [
        ("torch", "2.10.0", "torch", "2.10.0 is outside of <2.14,>=2.11"),
        ("torch", "2.14.0+cu130", "torch", "2.14.0+cu130 is outside"),
        ("numpy", "1.26.4", "numpy", "1.26.4 is outside of >=2.0"),
        ("peft", None, "peft", "is not installed: pip install"),
        ("transformers", "5.12.1", "known bad", "re-initialises weights"),
    ],
)
def test_versions_that_are_wrong(monkeypatch, name, version, subject, words):
    pretend(monkeypatch, **{name: version})
    assert words in trouble()[subject]


@pytest.mark.parametrize("version", ["2.11.0+cu126", "2.13.1"])
def test_versions_that_are_right(monkeypatch, version):
    pretend(monkeypatch, torch=version)
    assert findings(code=0)["torch"]["said"] == version


def meddle(monkeypatch, change):
    """Decode from a changed canvas, as if the arithmetic were not to be trusted."""
    import redraft.decoding

    walk, counted = redraft.decoding.walk, iter(range(100))

    def meddled(model, canvas, *arguments, **options):
        seeds = change(canvas.seeds, next(counted))
        return walk(model, replace(canvas, seeds=seeds), *arguments, **options)

    monkeypatch.setattr(redraft.decoding, "walk", meddled)


def test_noise_is_noticed(monkeypatch):
    meddle(monkeypatch, lambda seeds, call: seeds + call)
    assert "other tokens the second time" in trouble()["determinism"]


def test_rows_that_depend_on_their_batch_are_noticed(monkeypatch):
    meddle(monkeypatch, lambda seeds, call: seeds + len(seeds))
    assert set(found := trouble()) == {"batches"}
    assert "a row alone gives other tokens than in a batch" in found["batches"]


def test_arithmetic_that_is_wrong_is_noticed(monkeypatch):
    import torch

    equal = torch.equal
    monkeypatch.setattr(torch, "equal", lambda one, other: equal(one, other) and one.shape != (64, 64))
    assert trouble()["bfloat16"] == "wrong products on cpu"


def test_checks_that_break_are_findings(monkeypatch):
    def broken():
        raise RuntimeError("no driver")
        yield

    monkeypatch.setattr(doctor, "devices", broken)
    assert trouble() == {"devices": "RuntimeError: no driver"}


def test_a_model_that_cannot_be_opened_is_a_finding():
    found = trouble("--model", "[nope]")
    assert "neither a folder here" in found["[nope]"]
    assert "[nope]" in run("doctor", "--model", "[nope]").out
