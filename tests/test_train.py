"""`redraft train`: what it writes, what it shows before, and what it refuses."""

import json
import os
import re
import socket

import pytest
import torch
from safetensors.torch import load_file

from redraft.commands import train as command
from redraft.models.standin import random_llada
from running import run

QUICK = ("--steps", "3", "--length", "48", "--accumulate", "2", "--rank", "4", "--warmup", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model and data to learn from, in which commands are run."""
    folder = tmp_path_factory.mktemp("train")
    random_llada().save_pretrained(folder / "model")
    texts = [{"text": f"document {n}: a river runs past the mill and on to the sea"} for n in range(60)]
    pairs = [{"prompt": f"say {n} [/b]", "response": f"it is {n}"} for n in range(20)]
    for name, records in (("texts", texts), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


@pytest.fixture(autouse=True)
def inside(place, monkeypatch):
    monkeypatch.chdir(place)


def train(*arguments):
    return run("train", "--model", "model", *arguments)


def refused(*arguments):
    done = run("train", *arguments)
    assert done.code == 2, done
    assert done.out == ""
    assert "Traceback" not in done.err
    sentence = done.err.splitlines()[-1]  # what a run was about to do may stand before it
    assert sentence.startswith("redraft: ")
    return sentence


# --- a run ---


@pytest.fixture(scope="module")
def first(place):
    """A run, its command and what it said."""
    before = os.getcwd()
    os.chdir(place)
    arguments = ("--data", "texts.jsonl", "--out", "first", *QUICK)
    done = train(*arguments)
    os.chdir(before)
    assert done.code == 0, done.err
    return arguments, done


def test_a_run_leaves_an_adapter_a_log_curves_a_card_and_a_protocol(first, place):
    _, done = first
    assert done.out == "first/adapter\n"
    assert "q_proj: 2 modules" in done.err
    assert "1,536 of 39,072 parameters are trained" in done.err
    found = {path.name for path in (place / "first").iterdir()}
    assert found == {"adapter", "checkpoints", "log.jsonl", "curves.png", "README.md", "protocol.json"}
    protocol = json.loads((place / "first" / "protocol.json").read_text())
    assert protocol["run"]["recipe"] == "scope"
    assert protocol["run"]["rows"] == 2
    assert len((place / "first" / "log.jsonl").read_text().splitlines()) == 3


def test_the_adapter_is_used_by_generate(first):
    said = {}
    for extra in ((), ("--adapter", "first/adapter")):
        done = run("generate", "--model", "model", "hello", "--length", "8", "--steps", "4", "--json", *extra)
        assert done.code == 0, done.err
        said[extra] = done.out
    assert len(said) == 2


def test_a_finished_run_is_shown_not_repeated_and_other_settings_are_refused(first):
    arguments, _ = first
    again = train(*arguments)
    assert (again.code, again.out) == (0, "first/adapter\n")
    assert "finished" in again.err
    assert "training" not in again.err
    assert "lr was 0.00015, now 0.1" in refused("--model", "model", *arguments, "--lr", "0.1")
    assert "data was 'texts.jsonl', now 'pairs.jsonl'" in refused(
        "--model", "model", "--data", "pairs.jsonl", *arguments[2:]
    )


def test_overwrite_starts_anew_and_removes_nothing_else(first, place):
    arguments, _ = first
    before = load_file(place / "first" / "adapter" / "adapter_model.safetensors")
    (place / "first" / "notes.txt").write_text("mine")
    done = train(*arguments, "--overwrite", "--seed", "3")
    assert done.code == 0, done.err
    after = load_file(place / "first" / "adapter" / "adapter_model.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert (place / "first" / "notes.txt").read_text() == "mine"
    (place / "first" / "notes.txt").unlink()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--recipe", "scope(error_rate=0.3, rounds=2, share='uniform(0.1,0.8)')"), "rounds=2"),
        (("--recipe", "mdm(weight=inv_t, rates='uniform(0,1)')"), "mdm"),
        (("--recipe", "xdlm(k1=0.2)"), "xdlm"),
        (("--adapter-preset", "qkvo", "--gradient-checkpointing"), "attn_out: 2 modules"),
        (("--targets", "blocks.1.ff_proj, up_proj"), "blocks.1.ff_proj: model.transformer.blocks.1.ff_proj"),
        (("--full", "--dtype", "float64", "--data", "hf:json:texts.jsonl"), "37,536 of 37,536"),
        (("--data", "pairs.jsonl", "--pad-loss", "16", "--shuffle", "1"), "3 steps of 2 examples"),
    ],
)
def test_options_are_heard(tmp_path, options, words):
    done = train("--data", "texts.jsonl", "--out", tmp_path / "run", *QUICK, *options)
    assert done.code == 0, done.err
    assert words in done.err


def test_a_tracker_hears_every_step(tmp_path, monkeypatch):
    """Through Accelerate, as --report-to names it; by default nothing is reported."""
    from accelerate import Accelerator

    heard = []
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    monkeypatch.setattr(Accelerator, "init_trackers", lambda self, name, config: heard.append(config))
    monkeypatch.setattr(Accelerator, "log", lambda self, values, step: heard.append({**values, "step": step}))
    monkeypatch.setattr("accelerate.accelerator.filter_trackers", lambda *given: [])
    plain = ("--data", "texts.jsonl", *QUICK)
    assert train(*plain, "--out", tmp_path / "a").code == 0
    assert heard == []
    assert train(*plain, "--out", tmp_path / "b", "--report-to", "tensorboard").code == 0
    assert heard[0]["recipe"] == "scope"
    assert [one["step"] for one in heard[1:]] == [1, 2, 3]
    assert all("grad_norm" in one for one in heard[1:])


# --- looking before ---


@pytest.fixture
def offline(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_a_plan_of_the_papers_recipe_needs_neither_data_nor_weights_nor_network(offline):
    done = run("train", "--model", "GSAI-ML/LLaDA-8B-Instruct", "--plan")
    assert done.code == 0, done.err
    assert "8,015,581,184 parameters, bfloat16" in done.out
    assert "50,331,648 parameters of an adapter" in done.out
    assert "q_proj: 32 modules" in done.out
    assert "500 of 4 examples of 1024 tokens" in done.out
    assert "2,048,000" in done.out
    assert re.search(r"peak memory +2\d\.\d GiB", done.out)
    assert "a guess" in done.out


def test_a_measured_plan_says_where(offline):
    done = train("--plan", "--measure", "--length", "32", "--device", "cpu", "--accumulate", "1", "--steps", "10")
    assert done.code == 0, done.err
    assert re.search(r"time +\d+ s \(measured on this cpu: [\d.e-]+ s a micro-batch\)", done.out)


@pytest.mark.parametrize("recipe", ["scope(self_condition=1)", "mdm", "xdlm"])
def test_a_preview_shows_a_batch_and_writes_nothing(place, recipe):
    before = sorted(place.rglob("*"))
    done = train("--data", "pairs.jsonl", "--preview", "--length", "64", "--recipe", recipe, "--device", "cpu")
    assert done.code == 0, done.err
    assert len(re.findall(r"^example \d+:", done.out, flags=re.MULTILINE)) == 4
    assert "[/b]" in done.out or "·" in done.out
    assert sorted(place.rglob("*")) == before


# --- what is refused, before anything is loaded or written ---

GIVEN = ("--model", "model", "--data", "texts.jsonl", "--out", "new")
REFUSED = {
    "no data": (("--model", "model", "--out", "new"), "nothing to learn from: give --data"),
    "no folder": (("--model", "model", "--data", "texts.jsonl"), "a run needs a folder: give --out"),
    "no such model": (("--model", "modle", *GIVEN[2:]), "modle"),
    "no such data": ((*GIVEN, "--data", "txts.jsonl"), "no file or folder 'txts.jsonl'"),
    "no such recipe": ((*GIVEN, "--recipe", "scoop"), "did you mean 'scope'"),
    "no such option of a recipe": ((*GIVEN, "--recipe", "scope(temprature=2)"), "did you mean 'temperature'"),
    "a share above one": ((*GIVEN, "--recipe", "scope(share=1.5)"), "1.5"),
    "rates that are none": ((*GIVEN, "--recipe", "scope(rates='beta(2)')"), "beta"),
    "no such module": ((*GIVEN, *QUICK, "--targets", "q_porj"), "did you mean 'q_proj'"),
    "no such preset": ((*GIVEN, *QUICK, "--adapter-preset", "papers"), "did you mean 'paper'"),
    "targets of nothing": ((*GIVEN, "--targets", " ,"), "names no module"),
    "both": ((*GIVEN, "--full", "--targets", "q_proj"), "leave out --targets"),
    "targets twice": ((*GIVEN, "--targets", "q_proj", "--adapter-preset", "all"), "give one of them"),
    "rank": ((*GIVEN, "--rank", "0"), "rank"),
    "steps": ((*GIVEN, "--steps", "0"), "steps is a whole number of at least 1"),
    "lr": ((*GIVEN, "--lr", "nan"), "lr is a number above 0"),
    "a text as a number": ((*GIVEN, "--lr", "fast"), "--lr"),
    "batch": ((*GIVEN, "--batch", "-1"), "batch is a whole number"),
    "too long": ((*GIVEN, "--length", "4000"), "made for 512 tokens: --length 4000 is too long"),
    "pad loss": ((*GIVEN, "--pad-loss", "maybe"), "--pad-loss is true, false or a number"),
    "columns": ((*GIVEN, *QUICK, "--text-column", "body"), "body"),
    "two kinds of columns": ((*GIVEN, "--text-column", "a", "--prompt-column", "b"), "not both"),
    "a tracker": ((*GIVEN, "--report-to", "excel"), "--report-to is one of"),
    "sharding alone": ((*GIVEN, *QUICK, "--shard"), "sharding needs several processes"),
    "sharding and compiling": ((*GIVEN, "--shard", "--compile"), "leave out either"),
    "measuring nothing": ((*GIVEN, "--measure"), "--measure goes with --plan"),
    "a plan of nothing": (("--model", "some/body", "--plan"), "a plan downloads nothing"),
    "a file as folder": ((*GIVEN[:-1], "texts.jsonl"), "texts.jsonl is a file"),
    "a folder of other things": ((*GIVEN[:-1], "mine"), "mine holds other things (a.txt, b.txt, c.txt, ...) and no"),
    "no text in it": ((*GIVEN, *QUICK, "--data", "empty.jsonl"), "empty.jsonl"),
    "half a line": ((*GIVEN, *QUICK, "--data", "broken.jsonl"), "line 2"),
    "a dtype": ((*GIVEN, "--dtype", "int8"), "dtype must be"),
    "a device": ((*GIVEN, "--device", "toaster"), "toaster"),
    "a plan for a device": (("--model", "model", "--plan", "--device", "toaster"), "--device is cpu, cuda or mps"),
    "too little text": ((*GIVEN, "--length", "500", "--data", "short.jsonl"), "one example is 500"),
}


@pytest.fixture(scope="module", autouse=True)
def bad_data(place):
    (place / "empty.jsonl").write_text("")
    (place / "broken.jsonl").write_text('{"text": "fine"}\n{"text": "hal')
    (place / "short.jsonl").write_text('{"text": "short"}\n')
    (place / "mine").mkdir()
    for name in "abcd":
        (place / "mine" / f"{name}.txt").write_text("")


@pytest.mark.parametrize("what", REFUSED)
def test_nonsense_is_one_sentence_and_leaves_nothing(place, what):
    arguments, words = REFUSED[what]
    assert words in refused(*arguments)
    assert not (place / "new" / "checkpoints").exists()


def test_a_missing_tracker_says_what_to_install(monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert "pip install wandb" in refused(*GIVEN, "--report-to", "wandb")


def test_compiling_without_a_compiler_says_so(monkeypatch):
    monkeypatch.setattr("redraft.train.compiled.can_compile", lambda device: False)
    assert "--compile needs a C compiler" in refused(*GIVEN, *QUICK, "--compile")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(*GIVEN[:-1], tmp_path / "file" / "run", *QUICK)
    monkeypatch.setattr(command.Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert "cannot make the folder new2: no" in refused(*GIVEN[:-1], "new2", *QUICK)


def test_a_damaged_protocol_is_named(first, place, tmp_path):
    arguments, _ = first
    protocol = place / "first" / "protocol.json"
    content = protocol.read_text()
    protocol.write_text(content[:40])
    assert "protocol.json is damaged: --overwrite" in refused("--model", "model", *arguments)
    protocol.write_text(content)
