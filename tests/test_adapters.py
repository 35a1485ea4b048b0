"""LoRA adapters: what a name stands for, what is counted, and what others can do with what we save."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from redraft.models import load
from redraft.models.adapters import PRESETS, Lora, adapt
from redraft.models.standin import random_dream, random_llada
from training import make, trained

MAKERS = {"llada": random_llada, "Dream": random_dream}
TOKENS = torch.arange(5, 17)[None]

# Nothing of ours is imported here: the base is any module whose matrices have the names that its file says.
STRANGER = """
import sys, torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

base, adapter, out = sys.argv[1:]
network = torch.nn.Module()
for name, tensor in load_file(base).items():
    *path, leaf = name.split(".")
    inside = network
    for part in path[:-1]:
        if not hasattr(inside, part):
            inside.add_module(part, torch.nn.Module())
        inside = getattr(inside, part)
    if tensor.dim() == 2:
        holder = torch.nn.Linear(tensor.shape[1], tensor.shape[0], bias=False)
    else:
        holder = torch.nn.LayerNorm(tensor.shape, bias=False)
    assert leaf == "weight"
    holder.weight = torch.nn.Parameter(tensor)
    inside.add_module(path[-1], holder)
merged = PeftModel.from_pretrained(network, adapter).merge_and_unload()
assert not any(name.startswith("redraft") for name in sys.modules)
save_file(merged.state_dict(), out)
"""


@pytest.mark.long
def test_what_we_save_merges_to_the_same_logits_where_only_peft_is_known(tmp_path):
    run = make(out=tmp_path / "run", lora=Lora("all", rank=4), lr=0.05)
    list(run)
    random_llada().save_pretrained(tmp_path / "base")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    files = (tmp_path / "base" / "model.safetensors", run.finish(), tmp_path / "merged.safetensors")
    subprocess.run([sys.executable, "-c", STRANGER, *map(str, files)], env=environment, check=True, cwd=tmp_path)

    ours, plain = run.result(), random_llada()
    merged = random_llada()
    merged.network.load_state_dict(load_file(files[2]))
    torch.testing.assert_close(merged(TOKENS), ours(TOKENS), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(plain(TOKENS), ours(TOKENS), atol=1e-2), "the adapter should matter"
    opened = load(tmp_path / "base", adapter=tmp_path / "run" / "adapter")
    assert torch.equal(opened(TOKENS), ours(TOKENS))
    settings = json.loads((tmp_path / "run" / "adapter" / "adapter_config.json").read_text())
    assert settings["task_type"] is None
    assert settings["inference_mode"] is True


@pytest.mark.parametrize("kind", PRESETS)
@pytest.mark.parametrize("preset", ["paper", "qkvo", "all"])
def test_a_preset_stands_for_modules_of_every_layer(kind, preset):
    network = MAKERS[kind]().network
    layers = network.config.num_hidden_layers
    linear = {name: one for name, one in network.named_modules() if isinstance(one, torch.nn.Linear)}
    wrapped, counted = adapt(network, Lora(preset, rank=3))
    assert tuple(counted.matched) == PRESETS[kind][preset]
    assert {len(names) for names in counted.matched.values()} == {layers}
    names = [name for matched in counted.matched.values() for name in matched]
    assert counted.trainable == sum(3 * (linear[name].in_features + linear[name].out_features) for name in names)
    assert counted.trainable == sum(one.numel() for one in wrapped.parameters() if one.requires_grad)
    assert len(names) == {"paper": 3, "qkvo": 4, "all": 7}[preset] * layers
    if preset == "all":  # every matrix of the layers, and never the head
        assert len(names) == len(linear) - 1


def test_llada_calls_its_head_as_a_matrix_of_its_layers():
    network = random_llada().network
    _, counted = adapt(network, Lora(("ff_out",)))
    assert counted.matched == {"ff_out": [f"model.transformer.blocks.{n}.ff_out" for n in range(2)]}
    _, counted = adapt(random_llada().network, Lora(("transformer.ff_out",)))
    assert counted.matched == {"transformer.ff_out": ["model.transformer.ff_out"]}


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (("q_proj", "o_proj"), "no module of this model is called 'o_proj'"),  # PEFT alone would say nothing
        (("q_porj",), "did you mean 'q_proj'"),
        ("papers", "did you mean 'paper'"),
        ((), "at least one target"),
    ],
)
def test_a_name_that_matches_nothing_is_an_error(targets, words):
    with pytest.raises(ValueError, match=words):
        adapt(random_llada().network, Lora(targets))


def test_the_seed_decides_the_start_and_torchs_generator_is_left_alone():
    starts = [adapt(random_llada().network, Lora(rank=4), seed=seed)[0] for seed in (1, 1, 2)]
    first, again, other = ({n: p for n, p in one.named_parameters() if "lora_A" in n} for one in starts)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)
    network, before = random_llada().network, torch.get_rng_state()
    adapt(network, Lora(rank=4))
    assert torch.equal(before, torch.get_rng_state())


def test_an_adapter_on_an_adapter_is_refused():
    wrapped, _ = adapt(random_llada().network, Lora(rank=4))
    with pytest.raises(ValueError, match="carries an adapter already"):
        adapt(wrapped, Lora(rank=4))


def test_an_adapter_starts_as_no_change_and_in_float32():
    model = random_llada(dtype=torch.bfloat16)
    run = make(model=model)
    assert {one.dtype for one in trained(run).values()} == {torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(run.network.eval()(input_ids=TOKENS).logits, model(TOKENS))
