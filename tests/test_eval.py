"""`redraft eval` and `redraft compare`, the commands: refusals before any work, kills, launchers, and what is shown."""

import json
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import typer

from redraft.cli import app
from redraft.evals import presets
from redraft.evals.presets import PRESETS, Preset
from redraft.models.standin import random_llada
from running import environment, run, start

TASK = ("eval", "--task", "words")
SMALL = ("--count", "6", "--length", "16", "--steps", "4", "--batch-size", "2")
SLOW = ("--count", "16", "--length", "64", "--steps", "32", "--batch-size", "2", "--sampler", "unmask")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_llada().save_pretrained(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture(scope="module")
def first(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a" / "first"
    done = run(*TASK, *SMALL, "--model", model, "--out", folder)
    assert done.code == 0, done.err
    return folder, done


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_a_run_is_announced_shown_and_saved(first, model):
    folder, done = first
    assert re.search(r"words: 6 items; 3 batches here, at most 24 calls of the model, about \d+ s", done.err)
    assert f"saved in {folder}" in done.err
    summary = json.loads((folder / "summary.json").read_text())
    assert re.search(rf"words +{summary['accuracy']:.1%} right \(.* to .*\): {summary['correct']} of 6 items", done.out)
    assert "4.0 calls" in done.out
    for name, example in summary["examples"].items():
        assert re.search(rf"verdict {name} +\d, as {example}", done.out)
    items = lines(folder / "items.jsonl")
    assert [item["id"] for item in items] == [f"words-1/test/{place}" for place in range(6)]
    assert sum(item["correct"] for item in items) == summary["correct"]
    card = json.loads((folder / "card.json").read_text())
    assert card["subject"]["model"] == str(model)
    assert (card["subject"]["sampler"], card["subject"]["steps"]) == ("d3im", 4)
    assert (card["protocol"]["subset"], card["protocol"]["length"], card["protocol"]["eos"]) == (
        "first-6", 16, "confidence",
    )  # fmt: skip


def test_the_summary_as_json(model, tmp_path):
    done = run(*TASK, *SMALL, "--model", model, "--out", tmp_path / "x", "--json")
    assert json.loads(done.out) == json.loads((tmp_path / "x" / "summary.json").read_text())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--task", "word"), "no task 'word' (did you mean 'words'?); there are: words, algebra"),
        (("--count", "3", "--subset", "drawn-3"), "--count 200 is --subset first-200"),
        (("--subset", "some"), "there is no subset 'some'"),
        (("--preset", "llada", "--length", "64", "--eos", "none"), "leave out --length and --eos, or the preset"),
        (("--preset", "papre"), "no preset 'papre' (did you mean 'paper'?)"),
        (("--preset", "paper"), "the preset 'paper' has no settings for 'words'"),
        (("--sampler", "d4im"), "no sampler 'd4im'"),
        (("--precision", "float16"), "--precision is one of"),
        (("--data", "x.jsonl"), "leave out the data file"),
        (("--split", "tset"), "there is no split 'tset'"),
        (("--out", __file__), "is a file: give --out the name of a folder"),
    ],
)
def test_what_can_be_refused_is_refused_before_a_model_is_loaded(wrong, said, tmp_path):
    done = run(*TASK, "--model", tmp_path / "no model here", "--out", tmp_path / "x", *wrong)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "x").exists()


def test_a_finished_run_is_left_alone_unless_it_is_to_be_replaced(first, model):
    folder, _ = first
    before = (folder / "items.jsonl").read_bytes()
    done = run(*TASK, *SMALL, "--model", "not even looked for", "--out", folder)
    assert done.code == 2
    assert "holds a finished run: give another --out, or --overwrite" in done.err
    done = run(*TASK, *SMALL, "--model", model, "--out", folder, "--overwrite")
    assert done.code == 0
    assert (folder / "items.jsonl").read_bytes() == before


def test_an_interrupted_run_says_how_it_goes_on(first, model, tmp_path, monkeypatch):
    from redraft.commands.eval import Live

    original = Live.batch

    def interrupted(self, graded):
        original(self, graded)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Live, "batch", interrupted)
        done = run(*TASK, *SMALL, "--model", model, "--out", tmp_path / "x")
    assert done.code == 130
    assert f"2 of 6 items are in {tmp_path / 'x'}; the same command goes on from there" in done.err
    done = run(*TASK, *SMALL, "--model", model, "--out", tmp_path / "x")
    assert "words: 6 items, 2 of them done already; 2 batches here, at most 16 calls" in done.err
    assert (tmp_path / "x" / "items.jsonl").read_bytes() == (first[0] / "items.jsonl").read_bytes()


def test_progress_is_a_line_with_an_estimate_and_the_share_so_far(model, tmp_path):
    done = run(*TASK, *SMALL, "--model", model, "--out", tmp_path / "x", reports=0.0)
    assert re.search(r"words(, \d+\.\d% of \d+ right)?: \d+ of 12, about \d+ s left", done.err)


def test_programs_are_run_only_where_something_holds_them(model, tmp_path, monkeypatch):
    from redraft.evals import sandbox

    weak = sandbox.Tier(("seccomp",), ("read files",))
    monkeypatch.setattr(sandbox, "tier", lambda: weak)
    monkeypatch.setenv(sandbox.ALLOW_WEAK, "")  # put back afterwards, whatever is set meanwhile
    asked = ("eval", "--task", "code", *SMALL, "--count", "1", "--model", model, "--out", tmp_path / "x")
    done = run(*asked)
    assert done.code == 2
    assert "holds programs only weakly (weak: seccomp" in done.err
    assert "--allow-weak-sandbox" in done.err
    assert run(*asked, "--allow-weak-sandbox").code == 0
    assert json.loads((tmp_path / "x" / "card.json").read_text())["protocol"]["sandbox"] == str(weak)


# --- presets ---


def test_a_preset_sets_the_protocol_and_leaves_steps_free(model, tmp_path, monkeypatch):
    monkeypatch.setitem(presets.PRESETS["llada"], "words", Preset(True, 32, 16, 8, "llada_confidence"))
    for steps, extra in ((16, ()), (8, ("--steps", "8"))):
        folder = tmp_path / str(steps)
        done = run(*TASK, "--count", "1", "--preset", "llada", "--model", model, "--out", folder, *extra)
        assert done.code == 0, done.err
        card = json.loads((folder / "card.json").read_text())
        assert card["subject"]["steps"] == steps
        found = [card["protocol"][name] for name in ("length", "block", "eos")]
        assert found == [32, 8, "llada_confidence"]
        assert card["protocol"]["template"].startswith("chat ")


def test_presets_are_what_was_published():
    """The paper's inference settings; LLaDA's EVAL.md."""
    for name, one in PRESETS["paper"].items():
        assert (one.length, one.steps, one.block, one.eos) == (
            512 if name == "math500" else 256,
            64,
            None,
            "confidence",
        )
    rows = {
        name: [
            (one.length, one.block, one.eos)
            for task in ("gsm8k", "math500", "humaneval", "mbpp")
            if (one := tasks.get(task))
        ]
        for name, tasks in PRESETS.items()
    }
    assert rows["llada"] == [
        (512, None, "llada_confidence"), (512, None, "llada_confidence"), (512, None, "llada_logits"),
        (256, None, "llada_confidence"),
    ]  # fmt: skip
    assert rows["llada-blocks"] == [(256, 8, "none"), (512, 64, "none")]
    assert all(
        one.chat and one.steps == one.length for name in ("llada", "llada-blocks") for one in PRESETS[name].values()
    )


PAGE = (Path(__file__).parents[1] / "docs" / "evaluating.md").read_text()


def test_the_page_on_evaluating_lists_the_presets():
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([\w, ]+) \| (\w+) \| (\d+) \| (\w+) \| (\d+).* \| `(\w+)` \|$", PAGE, flags=re.M
    )
    listed = {
        (name, task): Preset(template == "chat", int(length), int(steps), None if block == "whole" else int(block), eos)
        for name, tasks, template, length, block, steps, eos in rows
        for task in tasks.split(", ")
    }
    written = {(name, task): one for name, tasks in PRESETS.items() for task, one in tasks.items()}
    assert listed == {key: one for key, one in written.items() if key[1] != "gsm8k-answer-first"}


def test_the_code_of_the_page_runs(monkeypatch, capsys):
    monkeypatch.setattr("redraft.load", lambda name: random_llada())
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    for code in blocks:
        exec(compile(code, "evaluating.md", "exec"), {})
    assert len(blocks) == 2
    assert re.match(r"\d+ ", capsys.readouterr().out)


def test_the_commands_of_the_page_are_commands():
    """Read as the command line reads them, and not run: their models are large."""
    shown = "".join(re.findall(r"```sh\n(.*?)```", PAGE, flags=re.S)).replace("\\\n", " ")
    lines = [shlex.split(line.partition("redraft ")[2]) for line in shown.splitlines() if "redraft " in line]
    commands = typer.main.get_command(app).commands
    assert {name for name, *_ in lines} >= {"eval", "compare", "sweep", "lm-eval"}
    for name, *given in lines:
        if "..." not in given:
            commands[name].make_context(name, given)


# --- compare ---


@pytest.fixture(scope="module")
def second(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "second"
    assert run(*TASK, *SMALL, "--model", model, "--out", folder, "--sampler", "unmask").code == 0
    return folder


def judged(folder: Path, to: Path, correct: str) -> Path:
    """A copy of a run in which other items are right."""
    to.mkdir()
    (to / "card.json").write_bytes((folder / "card.json").read_bytes())
    items = [
        {**item, "correct": right == "1"} for item, right in zip(lines(folder / "items.jsonl"), correct, strict=True)
    ]
    (to / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return to


def test_two_runs_are_set_against_each_other(first, second, tmp_path):
    a, b = judged(first[0], tmp_path / "a", "110000"), judged(second, tmp_path / "b", "101110")
    done = run("compare", a, b)
    assert done.code == 0, done.err
    assert re.search(r"sampler +│ d3im +│ unmask", done.out)
    assert "difference +33.3% on 6 items" in done.out
    assert "p = 0.62 (exact McNemar)" in done.out
    assert "6 items do not show a difference" in done.err
    found = json.loads(run("compare", a, b, "--json").out)
    assert (found["both"], found["only_a"], found["only_b"], found["neither"]) == (1, 1, 3, 1)
    assert found["mcnemar_p"] == 0.625
    assert found["difference_interval"][0] < 0 < found["difference_interval"][1]
    assert found["subject"] == {"sampler": ["d3im", "unmask"]}


def test_runs_of_other_protocols_are_compared_only_by_force(first, model, tmp_path):
    other = tmp_path / "other"
    assert run(*TASK, *SMALL, "--model", model, "--out", other, "--eos", "none", "--count", "4").code == 0
    done = run("compare", first[0], other)
    assert done.code == 2
    assert "different protocols" in done.err
    for said in ("subset ('first-6' and 'first-4')", "items (6 and 4)", "eos ('confidence' and 'none')", "--force"):
        assert said in done.err
    done = run("compare", first[0], other, "--force")
    assert done.code == 0
    assert "on 4 items" in done.out
    assert "note: the protocols differ (subset, items, prompts, golds, eos)" in done.err
    assert "note: 2 items are in one of the runs only" in done.err
    assert "note: both runs have the same subject" in done.err


# --- kills and launchers ---


@pytest.fixture(scope="module")
def uninterrupted(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "slow"
    assert run(*TASK, *SLOW, "--model", model, "--out", folder).code == 0
    return (folder / "items.jsonl").read_bytes()


@pytest.mark.long
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(model, tmp_path, uninterrupted):
    part, kills = tmp_path / "items.jsonl.part", 0
    for _ in range(2):
        process = start(*TASK, *SLOW, "--model", model, "--out", tmp_path, stdout=-3, stderr=-3)
        had = written(part)
        while process.poll() is None and written(part) <= had + 2:
            threading.Event().wait(0.005)
        process.kill()
        kills += process.wait() == -9
        if (tmp_path / "items.jsonl").exists():
            break
    assert kills == 2
    assert 0 < written(part) < 17
    assert run(*TASK, *SLOW, "--model", model, "--out", tmp_path).code == 0
    assert (tmp_path / "items.jsonl").read_bytes() == uninterrupted


def written(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.long
@pytest.mark.parametrize(
    "launcher",
    [
        ("torchrun", "--nproc_per_node", "2", "--standalone", "--no_python"),
        ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0", "--no_python"),
    ],
    ids=["torchrun", "accelerate"],
)  # fmt: skip
def test_two_processes_write_the_same_file(launcher, model, tmp_path, uninterrupted):
    tools = Path(sys.executable).parent
    command = [str(tools / launcher[0]), *launcher[1:], str(tools / "redraft"), *TASK, *SLOW]
    done = subprocess.run(
        [*command, "--model", str(model), "--device", "cpu", "--out", str(tmp_path)], env=environment(),
        text=True, capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {batch["process"] for batch in lines(tmp_path / "batches.jsonl")} == {0, 1}
    assert (tmp_path / "items.jsonl").read_bytes() == uninterrupted
    assert done.stderr.count("16 items; 4 batches here") == 1
