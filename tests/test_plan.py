"""What a run is said to take, against what it takes."""

import json
import re
import socket
from pathlib import Path
from subprocess import PIPE

import pytest
import torch

import redraft.models
from redraft.models import Model
from redraft.models.adapters import Lora
from redraft.models.llada.configuration import LLaDAConfig
from redraft.models.llada.modeling import LLaDAForMaskedLM
from redraft.models.standin import COMPACT_IDS, standin_tokenizer
from redraft.train import plan as planning
from redraft.train.plan import Storages, make_plan, predict_memory, shape_of
from redraft.train.recipes import parse
from redraft.train.settings import Settings
from running import start
from training import make

TEXT = [{"text": "a river runs past the mill and on to the sea " * 40} for _ in range(4)]


def config(layers=4, width=128, vocabulary=264):
    ids = {f"{name}_token_id": COMPACT_IDS[text] for name, text in (("mask", "<|mdm_mask|>"), ("eos", "<|endoftext|>"))}
    return LLaDAConfig(
        d_model=width, n_layers=layers, n_heads=4, mlp_hidden_size=3 * width, vocab_size=vocabulary,
        max_sequence_length=1024, pad_token_id=ids["eos_token_id"], **ids,
    )  # fmt: skip


def measured(shape, dtype, recipe, **options):
    """The most bytes of tensors that a real run of a few steps has at a time, counted one by one."""
    network = LLaDAForMaskedLM(shape).to(dtype)
    model = Model.of(network.eval(), standin_tokenizer(COMPACT_IDS), name="measured")
    run = make(model=model, data=TEXT, recipe=recipe, steps=2, accumulate=options.pop("accumulate", 2), **options)
    with Storages() as storages:
        for one in run.network.parameters():
            storages.hold(one)
        list(run)
    return storages.peak, run.settings


CASES = {
    "plain": (config(), torch.float32, "scope", {"length": 256}),
    "bfloat16": (config(), torch.bfloat16, "scope", {"length": 256}),
    "checkpointing": (config(6), torch.float32, "scope", {"length": 256, "gradient_checkpointing": True}),
    "two rows": (config(), torch.float32, "scope", {"length": 128, "batch": 2, "accumulate": 2}),
    # Where logits weigh, a plan counts on the most positions that can be hidden: here they always are.
    "large vocabulary": (
        config(5, vocabulary=20_000),
        torch.float32,
        "scope(rates=0.9, self_condition=1)",
        {"length": 64},
    ),
    "all modules": (config(), torch.float32, "scope(focus=False)", {"length": 128, "lora": Lora("all", rank=16)}),
    "every parameter": (config(), torch.float32, "mdm", {"length": 128, "lora": None}),
    "random tokens": (config(), torch.float32, "xdlm", {"length": 256}),
}


@pytest.mark.parametrize("case", CASES)
def test_memory_is_what_was_said(case):
    shape, dtype, recipe, options = CASES[case]
    real, settings = measured(shape, dtype, recipe, **options)
    said = predict_memory(shape, dtype, parse(recipe), settings).peak
    assert said == pytest.approx(real, rel=0.05)  # 15 % is promised; on a CPU it is exact but for a row's luck


def test_two_shallow_networks_foretell_a_deep_one():
    """Whichever pass is the worst at depth: in the shallow ones it is the guessing, with its wide logits."""
    shape, settings = config(16, 256, vocabulary=10_000), Settings(length=1024, lora=Lora(rank=4))
    few = planning._few(shape, torch.float32, parse("scope"), settings, 3)
    assert few.guessing > few.learning
    whole = planning._few(shape, torch.float32, parse("scope"), settings, 16)
    assert whole.learning > whole.guessing
    said = predict_memory(shape, torch.float32, parse("scope"), settings)
    assert said.activations == pytest.approx(max(whole.learning, whole.guessing), rel=0.01)
    assert said.weights == whole.weights


def test_storages_are_counted_once_and_given_back():
    with Storages() as storages:
        a = torch.zeros(1000)
        assert storages.now == 4000
        b = a.view(10, 100)[3:]  # the same storage
        assert storages.now == 4000
        c = b + 1
        assert storages.now == 4000 + 2800
        del a, b
        assert storages.now == 2800
        del c
    assert (storages.now, storages.peak) == (0, 6800)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a plan asked the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    ("name", "lora", "trainable", "total"),
    [
        ("GSAI-ML/LLaDA-8B-Instruct", Lora(), 50_331_648, 8_015_581_184),
        ("GSAI-ML/LLaDA-8B-Base", Lora("qkvo"), 67_108_864, 8_015_581_184),
        ("GSAI-ML/LLaDA-1.5", None, 8_015_581_184, 8_015_581_184),
        ("Dream-org/Dream-v0-Instruct-7B", Lora(), 27_525_120, 7_615_616_512),
    ],
)
def test_published_models_are_known_by_name(no_network, name, lora, trainable, total):
    shape, dtype = shape_of(name)
    settings = Settings(lora=lora, length=64)
    plan = make_plan(shape, dtype, parse("scope"), settings)
    assert plan.audit.trainable == trainable
    assert plan.audit.total - (trainable if lora else 0) == total
    assert (plan.steps, plan.rows, plan.tokens) == (500, 4, 500 * 4 * 64)
    # bfloat16 weights and a float32 adapter, or float32 altogether; gradients; AdamW's two averages.
    assert plan.memory.weights == total * (2 if lora else 4) + (4 * trainable if lora else 0)
    assert plan.memory.gradients == 4 * trainable
    assert plan.memory.averages == 8 * trainable


def test_the_papers_setting_fits_the_cards_it_is_said_to(no_network):
    """performance.md: at length 2048 at most 26 GiB, with checkpointing at most 19. To be measured on a GPU still."""
    shape, dtype = shape_of("GSAI-ML/LLaDA-8B-Instruct")
    plain, less = (
        predict_memory(shape, dtype, parse("scope"), Settings(length=2048, gradient_checkpointing=on)).peak / 2**30
        for on in (False, True)
    )
    assert 22 < plain < 26
    assert 16 < less < 19


def test_sharded_parameters_are_divided():
    shape = config(8, width=256)
    one = predict_memory(shape, torch.float32, parse("mdm"), Settings(length=64, lora=None))
    four = predict_memory(shape, torch.float32, parse("mdm"), Settings(length=64, lora=None, shard=True), world=4)
    assert four.weights == one.weights // 4
    assert four.averages == one.averages // 4
    assert one.activations < four.activations < one.activations + one.weights // 2


def test_an_unknown_model_is_not_looked_for_on_the_network(no_network):
    with pytest.raises(ValueError, match=r"a plan downloads nothing, and somebody/else .*LLaDA-8B-Instruct"):
        shape_of("somebody/else")
    with pytest.raises(ValueError, match="neither a folder here"):
        shape_of("nowhere")


def test_the_bundled_model_and_folders_are_read_from_their_configs(tmp_path):
    shape, dtype = shape_of("bundled")
    stated = json.loads((Path(redraft.models.__file__).parent / "bundled" / "config.json").read_text())
    assert (planning.layers_of(shape), str(dtype)) == (stated["n_layers"], f"torch.{stated['dtype']}")
    config(7).save_pretrained(tmp_path)
    assert planning.layers_of(shape_of(str(tmp_path))[0]) == 7


@pytest.mark.long
def test_on_a_cpu_the_plan_counts_python_and_pytorch_too(tmp_path):
    """What the log of a run says that it took, within the 15 % that are promised."""
    (tmp_path / "sums.txt").write_text("7 + 5 = 12 ; " * 500)
    options = ("train", "--model", "bundled", "--length", "64", "--device", "cpu")
    said, _ = start(*options, "--plan", stdout=PIPE).communicate()
    (planned,) = re.findall(r"peak memory +([\d.]+) GiB", said)
    run = start(*options, "--data", tmp_path / "sums.txt", "--steps", "2", "--out", tmp_path / "run", stdout=PIPE)
    run.communicate()
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert float(planned) == pytest.approx(last["memory_gib"], rel=0.15)


def test_guesses_are_ranges_that_know_the_recipe():
    shape, settings = config(), Settings(length=128, lora=Lora(rank=4))
    plan = make_plan(shape, torch.float32, parse("mdm"), settings)
    fast, slow = planning.guess_seconds(plan, gpu=True)
    assert 0 < fast < slow
    ours = planning.operations(plan.audit, parse("scope"), settings) * plan.tokens
    # Half of the micro-batches have a second forward pass: 5 N a token against 4 N (methods S8).
    assert ours / plan.operations == pytest.approx(5 / 4, rel=0.02)


def test_a_measured_time_is_that_of_the_whole_depth(monkeypatch):
    times = {1: 0.3, 2: 0.5}
    monkeypatch.setattr(planning, "_timed", lambda shape, *_: times[planning.layers_of(shape)])
    seconds = planning.measure_rate(config(10), torch.float32, parse("mdm"), Settings(length=128), torch.device("cpu"))
    assert seconds == pytest.approx(0.3 + 9 * 0.2)


def test_a_measurement_runs_the_recipe():
    settings = Settings(length=64, lora=Lora(rank=4))
    seconds = planning.measure_rate(config(2, 64), torch.float32, parse("scope"), settings, torch.device("cpu"))
    assert 0 < seconds < 30
