"""A run killed with SIGKILL at random moments ends with the adapter of one that was left alone, bit for bit."""

import json
import multiprocessing
import random
import subprocess
import time
from pathlib import Path

import pytest

import survivors
from redraft.models.standin import random_llada
from redraft.train import checkpoint
from running import run, start
from training import PAIRS, TEXTS, adapter, equal

pytestmark = pytest.mark.long

# A state after every step, so that kills fall into the writing of one as often as into learning.
OPTIONS = {"steps": 60, "save_every": 1, "keep": 2}
CASES = {
    "streamed": ("hf:json:{}", TEXTS, {"recipe": "scope(error_rate=0.3)"}),
    "a file of pairs": ("{}", PAIRS, {"recipe": "scope(rounds=2, share='linear(0.1,0.8)')"}),
}


@pytest.fixture(scope="module")
def processes():
    """Forked from a server that has loaded everything, so that a life is learning and not loading."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["survivors"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where the server finds it
        first = context.Process(target=time.sleep, args=(0,))
        first.start()
        first.join()
    return context


def born(processes, out, data, options):
    process = processes.Process(target=survivors.live, args=(out, data, options))
    process.start()
    return process


@pytest.mark.parametrize("case", CASES)
def test_killed_at_random_moments_it_ends_bit_identically(tmp_path, processes, case):
    spec, records, changed = CASES[case]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    data, options = spec.format(path), {**OPTIONS, **changed}
    whole = born(processes, tmp_path / "whole" / "run", data, options)
    whole.join()
    assert whole.exitcode == 0

    moments, out, kills = random.Random(case), tmp_path / "killed" / "run", []
    for _ in range(8):
        process = born(processes, out, data, options)
        if moments.random() < 0.7:  # after a step or some, otherwise perhaps before the first
            wait_for_a_step(process.is_alive, out / "log.jsonl")
        process.join(moments.uniform(0, 0.7))
        if process.exitcode is None:
            process.kill()
            process.join()
            found = checkpoint.saved(out / "checkpoints")
            kills.append(found[0].step if found else 0)
    assert len(set(kills)) >= 3, f"the run was over before it was killed at three of its steps ({kills})"
    process = born(processes, out, data, options)
    process.join()
    assert process.exitcode == 0
    print(f"{case}: killed after steps {kills}")

    assert equal(adapter(out), adapter(tmp_path / "whole" / "run"))
    assert log_of(out) == log_of(tmp_path / "whole" / "run")
    said = Path(tmp_path / "killed" / "said.txt").read_text()
    assert "going on after step" in said
    assert "damaged" not in said
    assert not list((out / "checkpoints").glob(".step-*"))


def wait_for_a_step(alive, log):
    def size():
        return log.stat().st_size if log.exists() else 0

    before = size()
    while alive() and size() <= before:
        time.sleep(0.01)


def log_of(out):
    records = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [one["step"] for one in records] == list(range(1, OPTIONS["steps"] + 1))
    return [(one["loss"], one["temperature"], one["grad_norm"], one["epoch"]) for one in records]


def test_the_command_goes_on_after_a_kill(tmp_path):
    random_llada().save_pretrained(tmp_path / "model")
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in TEXTS))
    given = ("--model", tmp_path / "model", "--data", tmp_path / "data.jsonl", "--device", "cpu")
    brief = ("--length", "64", "--steps", "40", "--rank", "4", "--save-every", "1", "--lr", "0.01")
    plain = ("train", *given, *brief)
    assert run(*plain, "--out", tmp_path / "whole").code == 0
    process = start(*plain, "--out", tmp_path / "run", stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for_a_step(lambda: process.poll() is None, tmp_path / "run" / "log.jsonl")
    process.kill()
    process.wait()
    assert not (tmp_path / "run" / "protocol.json").exists()
    again = run(*plain, "--out", tmp_path / "run")
    assert again.code == 0, again.err
    assert again.out == f"{tmp_path / 'run' / 'adapter'}\n"
    assert equal(adapter(tmp_path / "run"), adapter(tmp_path / "whole"))
