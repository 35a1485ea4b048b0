"""Samplers from files outside the package: read as any other, named with their content, held to what ours are."""

import json
import re

import pytest

from fakes import Chaos, decode
from redraft.decoding import SAMPLERS, Trajectory, outside
from redraft.evals.records import RunFolder
from redraft.models.standin import random_llada
from redraft.samplers import parse
from running import run

GOOD = '''
from __future__ import annotations

from dataclasses import dataclass

import torch

from redraft.decoding import Block, Clock, Denoise, Sampler, register, top


@register
@dataclass(frozen=True, repr=False)
class Mine(Sampler):
    """As unmask."""

    k: int = 2

    channels = frozenset({"m2t"})

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        pred = denoise(block.tokens)
        kept = top(pred.confidence, clock.increment(block), among=block.masked)
        return block.write(torch.where(kept, pred.tokens, block.tokens))
'''


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers goes with it."""
    classes, loaded = dict(SAMPLERS.classes), dict(outside.LOADED)
    yield
    SAMPLERS.classes.clear()
    SAMPLERS.classes.update(classes)
    outside.LOADED.clear()
    outside.LOADED.update(loaded)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A file in the folder that one is in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return path


def read(text):
    return parse(text, files=True)


@pytest.mark.parametrize("notation", ["mine.py:mine(k=3)", "./mine.py:mine(k=3)", " ./mine.py : mine( k = 3 ) "])
def test_a_file_and_a_name_are_a_sampler(mine, notation):
    sampler = read(notation)
    assert (repr(sampler), sampler.k) == ("mine(k=3)", 3)
    assert parse("mine(k=3)") == sampler, "from then on it goes by its name"
    assert re.fullmatch(r"mine\.py sha256:[0-9a-f]{16}", sampler.source)


def test_paths_are_found_wherever_they_lead(mine, tmp_path, monkeypatch):
    folder = tmp_path / "a b: c"
    folder.mkdir()
    (folder / "mine.py").write_text(GOOD)
    assert repr(read(f"{folder}/mine.py:mine")) == "mine"
    monkeypatch.setenv("HOME", str(folder))
    assert repr(read("~/mine.py:mine")) == "mine"


def test_it_decodes_as_ours_do(mine):
    prompts = ((1, 2), (3,))
    assert decode(read("mine.py:mine"), Chaos(), 12, 6, prompts=prompts) == decode(
        "unmask(schedule=floor)", Chaos(), 12, 6, prompts=prompts
    )


def test_our_own_samplers_have_no_source():
    assert {cls.source for cls in SAMPLERS.classes.values()} == {None}


def test_files_are_run_only_where_that_was_asked_for(mine):
    with pytest.raises(ValueError, match="cannot read"):
        parse("mine.py:mine")
    assert "mine" not in SAMPLERS.classes


def test_a_file_is_run_once_for_each_content_it_has(mine):
    mine.write_text(GOOD + "\nfrom pathlib import Path\nwith Path('count').open('a') as file:\n    file.write('x')\n")
    first = read("mine.py:mine")
    assert type(read("./mine.py:mine")) is type(first)
    count = mine.with_name("count")
    assert count.read_text() == "x"
    mine.write_text(mine.read_text().replace("k: int = 2", "k: int = 5"))
    second = read("mine.py:mine")
    assert (first.k, second.k) == (2, 5)
    assert first.source != second.source
    assert count.read_text() == "xx"


def test_what_a_changed_file_no_longer_has_is_gone(mine):
    read("mine.py:mine")
    mine.write_text(GOOD.replace("class Mine", "class Other"))
    assert repr(read("mine.py:other")) == "other"
    assert "mine" not in SAMPLERS.classes


@pytest.mark.parametrize(
    ("notation", "said"),
    [
        ("none.py:mine", "there is no file none.py"),
        ("folder.py:mine", "folder.py is a folder: name a Python file in it"),
        ("mine.py", r"say which, as in mine.py:name or mine.py:name\(option=value\)"),
        ("mine.py:", "say which"),
        ("mine.py:mien", r"mine.py has no sampler 'mien' \(did you mean 'mine'\?\): it has mine"),
        ("mine.py:d3im", "mine.py has no sampler 'd3im'"),
        ("mine.py:mine(j=3)", r"'mine' has no option 'j'; it has k"),
        ("mine.py:mine(k=x)", "'k' of 'mine' is a whole number, not 'x'"),
        ("mine.py:mine(", "cannot read 'mine\\(' as a sampler"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(mine, notation, said):
    mine.with_name("folder.py").mkdir()
    with pytest.raises(ValueError, match=said):
        read(notation)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("class Mine(Sampler):", "class Mine(Sampler:"), r"cannot be read as Python \(line 1\d\)"),
        (("import torch\n", "import torhc\n"), r"cannot be loaded \(line 6\): ModuleNotFoundError: .*torhc"),
        (("import torch\n", "raise SystemExit(3)\n"), r"cannot be loaded \(line 6\): SystemExit: 3"),
        (("class Mine", "class D3IM"), r"cannot be loaded \(line 1\d\): two samplers are called 'd3im': rename one"),
        (("@register\n", ""), "has none; write @register above the class of one"),
        (("(Sampler)", ""), "is not a Sampler: write `class Name"),
        (("frozen=True, repr", "repr"), "is not a frozen dataclass"),
        ((", repr=False", ""), "has a repr of its own"),
        (("k: int = 2", "k: int"), "has no default for k: give every option one"),
        (('    channels = frozenset({"m2t"})\n', ""), "does not say what it may do: write channels ="),
        (("def step", "def stride"), r"has no method step\(self, denoise, block, clock\)"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_and_nothing_of_it_stays(mine, change, said):
    before = dict(SAMPLERS.classes)
    assert change[0] in GOOD
    mine.write_text(GOOD.replace(*change))
    with pytest.raises(ValueError, match=said):
        read("mine.py:mine")
    assert SAMPLERS.classes == before
    mine.write_text(GOOD)
    assert repr(read("mine.py:mine")) == "mine"


def test_bytes_that_are_no_text_are_refused(mine):
    mine.write_bytes(b"x = '\xff'")
    with pytest.raises(ValueError, match="cannot be read as Python"):
        read("mine.py:mine")


# --- the commands ---


def test_generate_and_eval_take_one_and_say_which_file_it_was(mine, tmp_path):
    model = random_llada().save_pretrained(tmp_path / "model")
    short = ("--sampler", "./mine.py:mine(k=3)", "--model", model, "--length", "8", "--steps", "2")
    done = run("generate", "a", *short, "--out", tmp_path / "x.jsonl", "--trajectory", tmp_path / "x.npz")
    assert done.code == 0, done.err
    assert Trajectory.load(tmp_path / "x.npz").about["sampler"] == "mine(k=3)"
    done = run("eval", "--task", "words", *short, "--count", "1", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    card = json.loads((tmp_path / "run" / "card.json").read_text())["subject"]
    assert card["sampler"] == "mine(k=3)"
    assert card["sampler_file"] == read("mine.py:mine").source


def test_a_run_does_not_go_on_with_another_content(mine, tmp_path):
    model = random_llada().save_pretrained(tmp_path / "model")
    short = ("--sampler", "mine.py:mine", "--model", model, "--length", "8", "--steps", "2", "--count", "2")
    asked = ("eval", "--task", "words", *short, "--batch-size", "1", "--out", tmp_path / "run")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunFolder, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(*asked).code == 130
    mine.write_text(GOOD + "# changed")
    done = run(*asked)
    assert done.code == 2
    assert "sampler_file" in done.err
