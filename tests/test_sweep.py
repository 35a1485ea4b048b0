"""`redraft sweep`: every combination once, whatever is killed, added or taken away; refusals before any work."""

import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import redraft.evals.sweep
from redraft.commands import sweep as command
from redraft.decoding import Reading
from redraft.evals.sweep import Combination, alone, combine, default_steps, file_name, paced
from redraft.generation import Plan
from redraft.models.adapters import Lora, adapt
from redraft.models.standin import random_llada
from redraft.samplers import parse
from running import environment, run, start
from test_page import data_of

ITEMS = ("--length", "8", "--count", "3", "--batch-size", "2")
SMALL = ("sweep", "--task", "words", "--steps", "2,4", *ITEMS)
MADE = ["figure.html", "figure.png", "results.jsonl", "runs", "sweep.json", "table.md"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_llada().save_pretrained(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "adapter"
    adapt(random_llada().network, Lora(rank=2))[0].save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def swept(model, tmp_path_factory):
    """The sweep that others are extended from, and what was said."""
    folder = tmp_path_factory.mktemp("sweeps") / "a" / "first"
    done = run(*SMALL, "--samplers", "unmask;threshold", "--model", model, "--out", folder)
    assert done.code == 0, done.err
    return folder, done


@pytest.fixture
def copied(swept, tmp_path):
    return shutil.copytree(swept[0], tmp_path / "copied")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def runs(folder: Path) -> dict[str, bytes]:
    """The items of every finished run."""
    found = folder.rglob("items.jsonl")
    return {path.parent.relative_to(folder).as_posix(): path.read_bytes() for path in found}


# --- one sweep ---


def test_everything_is_written_and_shown(swept):
    folder, done = swept
    assert sorted(path.name for path in folder.iterdir()) == MADE
    assert list(folder.rglob("*.part")) == []
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    rows = lines(folder / "results.jsonl")
    assert [(row["sampler"], row["steps"], row["paced"]) for row in rows] == [
        ("unmask", 2, True), ("unmask", 4, True), ("threshold", 8, False),
    ]  # fmt: skip
    assert {row["run"] for row in rows} == {*runs(folder)}
    assert re.search(r"3 runs; 6 batches here, at most \d+ calls of the model, about \d+ s", done.err)
    assert re.search(r"2 of 3: words, none, unmask, 4 steps: \d+\.\d% right \(.*\), 4\.0 calls an item", done.err)
    assert "threshold is meant for the EOS policy none; every row here has confidence" in done.err
    assert f"saved in {folder}: results.jsonl, table.md, figure.html, figure.png, and every run" in done.err
    for row in rows:
        assert re.search(rf" {row['sampler']} .* {row['calls']:.1f} ", done.out)


def test_a_run_is_what_eval_makes_of_it(swept, model, tmp_path):
    folder, _ = swept
    asked = ("eval", "--task", "words", "--sampler", "unmask", "--steps", "4", "--model", model, *ITEMS)
    assert run(*asked, "--out", tmp_path / "x").code == 0
    for name in ("items.jsonl", "card.json"):
        assert (folder / "runs/words/none/unmask/4" / name).read_bytes() == (tmp_path / "x" / name).read_bytes()


def test_rows_say_what_summaries_do(swept):
    folder, _ = swept
    for row in lines(folder / "results.jsonl"):
        summary = json.loads((folder / row["run"] / "summary.json").read_text())
        for name, other in [("calls", "calls_per_item"), ("processed", "processed_per_item")]:
            assert row[name] == summary[other]
        for name in ("items", "correct", "accuracy", "interval"):
            assert row[name] == summary[name]
        for name in ("overwrites", "demotions"):
            assert row[name] == summary["changes"][name]


def test_table_page_and_json_have_the_same_rows(swept, model):
    folder, _ = swept
    rows = lines(folder / "results.jsonl")
    table = (folder / "table.md").read_text()
    assert [f"`{row['sampler']}`" for row in rows] == re.findall(r"^\| none \| (`.*?`) ", table, flags=re.M)
    shown = data_of((folder / "figure.html").read_text())["rows"]
    assert [{name: row[name] for name in rows[0]} for row in shown] == rows
    again = run(*SMALL, "--samplers", "unmask;threshold", "--model", model, "--out", folder, "--json")
    assert [json.loads(line) for line in again.out.split("\n")[:-1]] == rows


def test_without_matplotlib_there_is_no_picture_and_a_note(copied, model, monkeypatch):
    (copied / "figure.png").unlink()
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = run(*SMALL, "--samplers", "unmask;threshold", "--model", model, "--out", copied)
    assert done.code == 0, done.err
    assert "no figure.png without matplotlib: pip install 'redraft[plots]'" in done.err
    assert not (copied / "figure.png").exists()


# --- going on ---


@pytest.fixture
def loaded(monkeypatch):
    """The adapters that models are loaded with."""
    found, original = [], redraft.evals.sweep.load
    monkeypatch.setattr(
        redraft.evals.sweep, "load", lambda *a, **named: found.append(named["adapter"]) or original(*a, **named)
    )
    return found


def test_what_is_finished_is_shown_again_without_a_model(swept, model, loaded):
    folder, first = swept
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = run(*SMALL, "--samplers", "unmask;threshold", "--model", model, "--out", folder)
    assert done.code == 0, done.err
    assert done.out == first.out
    assert loaded == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_asked_for_more_it_runs_only_what_is_new(copied, swept, model, adapter, loaded):
    more = ("--samplers", "unmask;threshold;d3im(t2t=False)", "--steps", "2,4,8", "--adapter", f"none,{adapter}")
    before = runs(copied)
    times = {name: (copied / name / "items.jsonl").stat().st_mtime_ns for name in before}
    done = run(*SMALL[:3], *more, *ITEMS, "--model", model, "--out", copied)
    assert done.code == 0, done.err
    assert "14 runs, 3 of them finished already; 22 batches here" in done.err
    assert loaded == [None, str(adapter)], "one after the other, once each"
    rows = lines(copied / "results.jsonl")
    assert len(rows) == 14
    assert len(re.findall(r"^\d+ of 14: ", done.err, flags=re.M)) == 11
    assert {name: (copied / name / "items.jsonl").stat().st_mtime_ns for name in before} == times
    assert {row["baseline"] for row in rows if row["steps"] == 2} == {"runs/words/none/unmask/2"}
    # an adapter as it begins changes nothing, and so no answer
    assert {row["difference"] for row in rows if row["sampler"] == "unmask" and row["adapter"] != "none"} == {0}


def test_less_may_be_asked_for_and_nothing_is_lost(copied, model):
    before = runs(copied)
    assert run(*SMALL, "--samplers", "threshold", "--model", model, "--out", copied).code == 0
    assert [row["sampler"] for row in lines(copied / "results.jsonl")] == ["threshold"]
    assert runs(copied) == before


def test_an_interrupted_sweep_says_how_it_goes_on(swept, model, tmp_path, monkeypatch):
    from redraft.evals.records import RunFolder

    original, written = RunFolder.add, []

    def interrupted(self, graded):
        original(self, graded)
        written.append(graded)
        if len(written) == 3:  # the first batch of the second run
            raise KeyboardInterrupt

    asked = (*SMALL, "--samplers", "unmask;threshold", "--model", model, "--out", tmp_path / "x")
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "add", interrupted)
        done = run(*asked)
    assert done.code == 130
    assert f"1 of 3 runs are finished in {tmp_path / 'x'}; the same command goes on from there" in done.err
    assert not (tmp_path / "x" / "results.jsonl").exists()
    done = run(*asked)
    assert "3 runs, 1 of them finished already; 3 batches here" in done.err
    assert runs(tmp_path / "x") == runs(swept[0])
    assert (tmp_path / "x" / "results.jsonl").read_bytes() == (swept[0] / "results.jsonl").read_bytes()


def test_out_of_memory_says_what_to_try(model, tmp_path, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(redraft.evals.sweep, "score", full)
    done = run(*SMALL, "--model", model, "--out", tmp_path / "x")
    assert done.code == 2
    assert "out of memory: try a --batch-size below 2" in done.err
    assert "0 of 4 runs are finished" in done.err


# --- what may not be mixed ---


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (("--seed", "1"), "seed (0 and 1)"),
        (("--count", "2"), "subset ('first-3' and 'first-2')"),
        (("--eos", "none"), "eos (None and 'none')"),
        (("--length", "16"), "length (8 and 16)"),
        (("--temperature", "0.5"), "temperature (0.0 and 0.5)"),
    ],
)
def test_other_settings_are_refused_by_name(swept, model, other, named):
    folder, _ = swept
    done = run(*SMALL, "--model", model, "--out", folder, *other)
    assert done.code == 2
    assert f"holds a sweep with other settings: {named}" in done.err
    assert "may be added; for the rest give another --out, or --overwrite" in done.err


def test_overwrite_starts_anew(copied, model):
    done = run(*SMALL, "--samplers", "d3im", "--seed", "1", "--model", model, "--out", copied, "--overwrite")
    assert done.code == 0, done.err
    assert {*runs(copied)} == {"runs/words/none/d3im/2", "runs/words/none/d3im/4"}
    assert json.loads((copied / "sweep.json").read_text())["seed"] == 1


def test_runs_of_other_weights_are_refused(copied, model, tmp_path):
    other = shutil.copytree(model, tmp_path / "model")
    weights = load_file(other / "model.safetensors")
    weights = {name: tensor + 0.01 for name, tensor in weights.items()}
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    (other / "fingerprint.json").unlink()  # with it the model would not be loaded
    settings = json.loads((copied / "sweep.json").read_text())
    (copied / "sweep.json").write_text(json.dumps({**settings, "model": str(other)}))
    for card in copied.rglob("card.json"):  # as if the model had been trained on in its folder
        card.write_text(card.read_text().replace(str(model), str(other)))
    before = runs(copied)
    done = run(*SMALL, "--samplers", "unmask;d3im", "--model", other, "--out", copied)
    assert done.code == 2
    assert "was run otherwise: fingerprint (" in done.err
    assert runs(copied) == before


def test_runs_of_another_machine_are_noticed_before_anything_is_run(copied, model, adapter):
    """Also where their own adapter has nothing to do, and so is not loaded."""
    for path in copied.rglob("card.json"):
        card = json.loads(path.read_text())
        path.write_text(json.dumps({**card, "protocol": {**card["protocol"], "device": "another"}}))
    before = runs(copied)
    asked = ("--samplers", "unmask;threshold", "--adapter", f"none,{adapter}")
    done = run(*SMALL, *asked, "--model", model, "--out", copied)
    assert done.code == 2
    assert "was run otherwise: device ('another', now 'cpu" in done.err
    assert runs(copied) == before


SAMPLER = """
from dataclasses import dataclass
from redraft.decoding import Sampler, register, top
import torch

@register
@dataclass(frozen=True, repr=False)
class Swept(Sampler):
    channels = frozenset({"m2t"})

    def step(self, denoise, block, clock):
        pred = denoise(block.tokens)
        kept = top(pred.confidence, clock.increment(block), among=block.masked)
        return block.write(torch.where(kept, pred.tokens, block.tokens))
"""


def test_a_sampler_from_a_file_is_swept_and_named_with_its_hash(copied, model, tmp_path):
    file = tmp_path / "swept.py"
    file.write_text(SAMPLER)
    asked = (*SMALL, "--samplers", f"unmask;{file}:swept", "--model", model, "--out", copied)
    done = run(*asked)
    assert done.code == 0, done.err
    rows = [row for row in lines(copied / "results.jsonl") if row["sampler"] == "swept"]
    assert [row["steps"] for row in rows] == [2, 4]
    assert all(re.fullmatch(r"swept\.py sha256:[0-9a-f]{16}", row["sampler_file"]) for row in rows)
    assert f"`swept` is from {rows[0]['sampler_file']}" in (copied / "table.md").read_text()
    file.write_text(SAMPLER + "\n# changed\n")
    done = run(*asked)
    assert done.code == 2
    assert "was run otherwise: sampler_file ('swept.py sha256:" in done.err


def test_a_folder_in_which_another_process_is_at_work_is_refused(copied, model):
    asked = (*SMALL, "--samplers", "unmask", "--model", model, "--out", copied)
    with alone(copied):
        done = run(*asked)
    assert done.code == 2
    assert f"another process is at work in {copied}: wait for it, or give another --out" in done.err
    assert run(*asked).code == 0


# --- refusals ---


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--task", "words,word"), "no task 'word' (did you mean 'words'?)"),
        (("--task", "words,,algebra"), "one of its parts is empty"),
        (("--samplers", "unmask;d4im"), "no sampler 'd4im' (did you mean 'd3im'?)"),
        (("--samplers", "d3im(t2t=False"), "a bracket is not closed"),
        (("--samplers", "none.py:mine"), "there is no file none.py"),
        (("--steps", "2,x"), "--steps are whole numbers of at least 1, separated by commas, not 'x'"),
        (("--steps", "0"), "--steps are whole numbers of at least 1"),
        (("--steps", "100", "--samplers", "unmask"), "the sampler unmask fits nothing in this sweep: 100 steps"),
        (("--steps", "2,100", "--samplers", "unmask"), "the number of steps 100 fits nothing in this sweep"),
        (("--baseline", "d3im(t2t=False)"), "--baseline d3im(t2t=False) is not in this sweep; there are: unmask, d3im"),
        (("--baseline-adapter", "scope"), "--baseline-adapter scope is not in this sweep; there are: none"),
        (("--baseline-steps", "3"), "--baseline-steps 3 is not in this sweep; there are: 2, 4"),
        (("--adapter", "none,no/such adapter"), "'no/such adapter' is neither a folder here"),
        (("--adapter", "none,bundled"), "holds no adapter_config.json"),
        (("--count", "3", "--subset", "drawn-3"), "--count 200 is --subset first-200"),
        (("--task", "words,gsm8k", "--data", "x.jsonl"), "--data is one task's file, and there are 2 tasks"),
        (("--preset", "llada", "--eos", "none"), "leave out --length and --eos, or the preset"),
        (("--precision", "float16"), "--precision is one of"),
        (("--eos", "never"), "never"),
        (("--length", "0"), "length is at least 1, not 0"),
        (("--device", "tpu"), "tpu"),
        (("--out", __file__), "is a file: give --out the name of a folder"),
        ((), "'no model here' is neither a folder here"),
    ],
)  # fmt: skip
def test_what_can_be_refused_is_refused_before_a_model_is_loaded(wrong, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*SMALL, "--model", "no model here", "--out", "x", *wrong)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("redraft: ") == 1
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "runs").mkdir()
    done = run(*SMALL, "--model", "no model here", "--out", tmp_path)
    assert done.code == 2
    assert "has a folder runs that is no sweep's" in done.err
    (tmp_path / "sweep.json").write_text("{")
    done = run(*SMALL, "--model", "no model here", "--out", tmp_path)
    assert "sweep.json is damaged: give another --out, or --overwrite" in done.err


def test_help_says_what_a_sweep_is():
    said = " ".join(run("sweep", "--help").out.split())
    for part in ("all under one protocol", "the same command goes on", "it runs only what is new", "figure.html"):
        assert part in said


# --- which combinations ---


def plan(task, rule, steps):
    return Plan.of(rule, length=16, steps=steps, block=4 if task == "blocks" else None, reading=Reading())


def combined(tasks, samplers, *steps, adapters=("none",)):
    return combine(tasks, adapters, [parse(one) for one in samplers], lambda task: steps, plan)


def test_every_combination_is_there_once_and_in_order():
    found, left_out = combined(["a", "b"], ["unmask", "d3im"], 4, 8, adapters=("none", "x"))
    assert left_out == []
    assert [(one.task, one.adapter, one.sampler.name, one.steps) for one in found] == [
        (task, adapter, sampler, steps)
        for task in "ab" for adapter in ("none", "x") for sampler in ("unmask", "d3im") for steps in (4, 8)
    ]  # fmt: skip
    assert len({one.folder for one in found}) == len(found)


def test_what_cannot_be_run_is_left_out_with_the_reason():
    found, left_out = combined(["a", "b"], ["unmask", "d3im"], 8, 32)
    assert [(one.sampler.name, one.steps) for one in found] == 2 * [("unmask", 8), ("d3im", 8), ("d3im", 32)]
    assert left_out == [
        "a, b: unmask at 32 steps is left out: 32 steps are more than the 16 tokens to be revealed, and unmask reveals "
        "each token once: at most 16 steps would fit"
    ]


def test_a_sampler_at_its_own_pace_is_run_once():
    found, left_out = combined(["a"], ["threshold", "threshold(th=0.5)", "d3im"], 2, 4, 8)
    assert [(one.sampler.name, one.steps, one.paced) for one in found] == [
        ("threshold", 16, False), ("threshold", 16, False), ("d3im", 2, True), ("d3im", 4, True), ("d3im", 8, True),
    ]  # fmt: skip
    assert [one.series for one in found] == ["threshold", "threshold", "d3im", "d3im", "d3im"]
    assert left_out == []


@pytest.mark.parametrize(("samplers", "steps"), [(["unmask"], [100]), (["d3im"], [6, 8])])
def test_what_fits_nothing_is_refused(samplers, steps):
    with pytest.raises(ValueError, match="fits nothing in this sweep"):
        combined(["blocks"], samplers, *steps)


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [("unmask", True), ("d3im", True), ("adaptive", True), ("remdm", True), ("threshold", False), ("wino", False)],
)
def test_whether_steps_play_a_part(sampler, expected):
    assert paced(Plan.of(sampler, length=16, steps=4)) is expected


@pytest.mark.parametrize(
    ("length", "block", "steps"),
    [
        (256, None, [16, 32, 64, 128, 256]),
        (16, None, [1, 2, 4, 8, 16]),
        (64, 16, [4, 8, 16, 32, 64]),  # at least a step for each block
        (10, None, [1, 2, 3, 5, 10]),
        (8, 1, [8]),
    ],
)
def test_steps_by_default(length, block, steps):
    assert default_steps(length, block) == steps


def test_folders_tell_names_apart():
    names = ["unmask", "d3im(t2t=False)", "d3im(t2t= False)", "a/b", "a-b", "../..", "", "x" * 200, "ü", "ö"]
    made = [file_name(name) for name in names]
    assert made[0] == "unmask"
    assert len({*made}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,66}", name) for name in made)


def test_a_combination_says_what_it_is():
    def said(steps, paced):
        return str(Combination("words", "none", Plan.of("d3im", length=16, steps=steps), paced))

    assert said(1, True) == "words, none, d3im, 1 step"
    assert said(4, True) == "words, none, d3im, 4 steps"
    assert said(16, False) == "words, none, d3im, its own pace"


# --- kills and launchers ---

SLOW = ("sweep", "--task", "words,algebra", "--samplers", "unmask;d3im", "--steps", "12,24",
        "--length", "24", "--count", "4", "--batch-size", "2", "--device", "cpu")  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "slow"
    assert run(*SLOW, "--model", model, "--out", folder).code == 0
    return folder


def written(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("items*.jsonl*"))


@pytest.mark.long
def test_a_sweep_killed_and_started_again_ends_as_a_whole_one(model, tmp_path, uninterrupted):
    process = start(*SLOW, "--model", model, "--out", tmp_path, stdout=-3, stderr=-3)
    while process.poll() is None and written(tmp_path) <= 8:  # in the second run
        threading.Event().wait(0.005)
    process.kill()
    assert process.wait() == -9, "it was over before it was killed"
    assert not (tmp_path / "results.jsonl").exists()
    assert run(*SLOW, "--model", model, "--out", tmp_path).code == 0
    assert runs(tmp_path) == runs(uninterrupted)
    assert (tmp_path / "results.jsonl").read_bytes() == (uninterrupted / "results.jsonl").read_bytes()


@pytest.mark.long
def test_two_processes_share_a_sweep(model, tmp_path, uninterrupted):
    tools = Path(sys.executable).parent
    launcher = [tools / "torchrun", "--nproc_per_node", "2", "--standalone", "--no_python", tools / "redraft"]
    done = subprocess.run(
        [*map(str, launcher), *SLOW, "--model", str(model), "--out", str(tmp_path)], env=environment(),
        text=True, capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert runs(tmp_path) == runs(uninterrupted)
    assert (tmp_path / "results.jsonl").read_bytes() == (uninterrupted / "results.jsonl").read_bytes()
    ranks = {line["process"] for path in tmp_path.rglob("batches.jsonl") for line in lines(path)}
    assert ranks == {0, 1}
    assert done.stderr.count("8 runs; 8 batches here") == 1, "of 16, and said once"


@pytest.mark.long
def test_all_generated_tasks_in_one_sweep(model, tmp_path):
    asked = ("sweep", "--task", "words,algebra,code", "--steps", "4", "--length", "16", "--count", "2")
    done = run(*asked, "--model", model, "--out", tmp_path / "x", "--allow-weak-sandbox")
    assert done.code == 0, done.err
    assert {row["task"] for row in lines(tmp_path / "x" / "results.jsonl")} == {"words", "algebra", "code"}
    assert [line[0][0] for line in data_of((tmp_path / "x" / "figure.html").read_text())["panels"]] == ["words"]
