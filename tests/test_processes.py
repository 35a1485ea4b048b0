"""Training on two real processes: copies of the model, and its parameters cut over both (fully_shard)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import together
from redraft.models.standin import random_llada
from running import environment
from training import TEXTS, adapter, equal, gap, losses, make, trained

pytestmark = pytest.mark.long

BIN = Path(sys.executable).parent
CONFIGS = Path(__file__).parents[1] / "configs" / "accelerate"
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Every case of `together`, run by the two processes of one torchrun."""
    folder = tmp_path_factory.mktemp("together")
    script = Path(together.__file__)
    done = subprocess.run(
        [BIN / "torchrun", "--nproc_per_node", "2", script, folder],
        env={**environment(), **OFFLINE}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("case", together.CASES)
def test_two_processes_learn_what_one_does(two, case):
    folder = two / str(list(together.CASES).index(case))
    said = json.loads((folder / "said.json").read_text())
    assert said["world"] == 2, "a launcher that quietly starts one process proves nothing"
    assert said["own"] == pytest.approx(0.5 if "sharded" in case else 1.0, abs=0.02)
    one = make(dtype=torch.float64, **together.alone(case))
    list(one)
    assert [record["loss"] for record in said["records"]] == pytest.approx(losses(one), rel=1e-6)
    for key in ("committed", "masked", "supervised", "self_conditioned", "tokens", "temperature"):
        assert [record[key] for record in said["records"]] == [record[key] for record in one.log.records], key
    assert gap(load_file(folder / "trained.safetensors"), trained(one)) < 1e-11
    assert (Path(said["result"]) / ("model.safetensors" if "every" in case else "adapter_config.json")).is_file()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("launched")
    random_llada().save_pretrained(folder / "model")
    (folder / "data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in TEXTS))
    return folder


def command(place, out, *options):
    given = ("--model", place / "model", "--data", f"hf:json:{place / 'data.jsonl'}", "--out", place / out)
    brief = ("--device", "cpu", "--length", "64", "--steps", "30", "--rank", "4", "--save-every", "1", "--lr", "0.01")
    return [str(part) for part in (BIN / "redraft", "train", *given, *brief, *options)]


def launched(launcher, arguments):
    return subprocess.run(
        [BIN / launcher[0], *launcher[1:], *arguments],
        env={**environment(), **OFFLINE}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def test_a_launched_run_killed_and_started_again_ends_as_a_whole_one(place):
    """By Accelerate's launcher with our DDP config, and by torchrun; the second one and its children are killed."""
    config = ("accelerate", "launch", "--config_file", CONFIGS / "ddp.yaml", "--num_processes", "2")
    whole = launched(config, command(place, "whole", "--accumulate", "2"))
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert json.loads((place / "whole" / "protocol.json").read_text())["processes"] == 2
    assert "model on 2 processes, cpu" in whole.stderr

    torchrun = ("torchrun", "--nproc_per_node", "2")
    arguments = [BIN / torchrun[0], *torchrun[1:], *command(place, "killed", "--accumulate", "2")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(arguments, env={**environment(), **OFFLINE}, **quiet)
    log = place / "killed" / "log.jsonl"
    while process.poll() is None and not (log.exists() and log.read_text().count("\n") >= 3):
        time.sleep(0.02)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(workers) == 2
    for one in (process.pid, *map(int, workers)):
        os.kill(one, signal.SIGKILL)
    process.wait()
    assert not (place / "killed" / "protocol.json").exists(), "it was over before it was killed"
    again = launched(torchrun, command(place, "killed", "--accumulate", "2"))
    assert again.returncode == 0, again.stderr[-3000:]
    assert "going on after step" in again.stderr
    assert equal(adapter(place / "killed"), adapter(place / "whole"))


def test_fsdp_that_would_do_nothing_is_refused(place):
    config = ("accelerate", "launch", "--config_file", CONFIGS / "fsdp.yaml", "--num_processes", "2")
    done = launched(config, command(place, "inert"))
    assert done.returncode != 0
    assert "Accelerate's FSDP does nothing on a CPU" in done.stderr
    assert not (place / "inert").exists()
