"""What a run will take, before anything is loaded: memory, parameters, tokens, time.

Memory is not a formula that could fall behind the code. The network itself, of the same widths but few layers, takes a
training step in torch's fake mode (shapes without numbers: no memory, no weights, no GPU), while every storage that
comes into being or goes is counted. A layer adds the same again, so two depths give all others. What is counted is what
torch's allocator hands out at the most; a GPU's own context, and the gaps between its blocks, come on top.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from redraft.models.adapters import Audit, adapt, audit
from redraft.models.families import FAMILIES, family_of
from redraft.models.folders import HUB_NAME, read_json, resolve
from redraft.models.rows import Rows
from redraft.train.ask import evaluating, token_cross_entropy
from redraft.train.batch import Batch
from redraft.train.corrupt import HIGHEST, _sample
from redraft.train.parallel import checkpoint_blocks
from redraft.train.recipes import MDM, Recipe, Scope
from redraft.train.settings import Settings

# Their shapes are the defaults of our configs, so that planning needs neither a network nor weights.
PUBLISHED = {
    "GSAI-ML/LLaDA-8B-Base": "llada",
    "GSAI-ML/LLaDA-8B-Instruct": "llada",
    "GSAI-ML/LLaDA-1.5": "llada",
    "Dream-org/Dream-v0-Base-7B": "Dream",
    "Dream-org/Dream-v0-Instruct-7B": "Dream",
}
DEPTHS = (2, 3)  # of the networks that are tried; the first layer may differ from the others, these two do not
LARGE = 500_000_000  # parameters: beyond it, nobody means to train on a CPU
# Floating-point operations a second that such work has been seen to reach (45 % of an A100, 73 % of an H200), and a
# wide range for CPUs. Only for guesses, which are marked as such.
GPU_RATES, CPU_RATES = (100e12, 570e12), (10e9, 400e9)


# --- what is planned ---


def shape_of(name: str) -> tuple[Any, torch.dtype]:
    """The config and dtype of a published model, the bundled one, or one in a folder; nothing is downloaded."""
    if name in PUBLISHED:
        network: Any = FAMILIES[PUBLISHED[name]].network()
        return network.config_class(), torch.bfloat16
    folder = _folder(name)
    stated = read_json(folder / "config.json")
    network = family_of(stated, str(folder / "config.json")).network()
    dtype = getattr(torch, str(stated.get("dtype") or stated.get("torch_dtype") or "float32"), torch.float32)
    return network.config_class.from_dict(stated), dtype


def _folder(name: str) -> Path:
    """Where a model is on this machine: a plan downloads nothing."""
    from huggingface_hub import try_to_load_from_cache

    if not HUB_NAME.fullmatch(name) or Path(name).expanduser().is_dir():
        return resolve(name)
    cached = try_to_load_from_cache(name, "config.json")
    if not isinstance(cached, str):
        raise ValueError(
            f"a plan downloads nothing, and {name} is neither a folder here nor in the hub's cache; known by name are "
            f"{', '.join(PUBLISHED)}"
        )
    return Path(cached).parent


def layers_of(config: Any) -> int:
    return config.num_hidden_layers


def with_layers(config: Any, layers: int) -> Any:
    """The same widths, another depth."""
    other = type(config).from_dict(config.to_dict())
    other.num_hidden_layers = layers  # LLaDA's n_layers answers to this name too
    return other


@dataclass(frozen=True)
class Memory:
    """Bytes of one process, by what they are for."""

    weights: int
    gradients: int
    averages: int  # AdamW's two
    activations: int  # everything else, at the worst moment

    @property
    def peak(self) -> int:
        return self.weights + self.gradients + self.averages + self.activations


@dataclass(frozen=True)
class Plan:
    audit: Audit
    memory: Memory
    steps: int
    rows: int  # examples of an optimiser step
    tokens: int  # of the whole run, at most
    operations: float  # of one process for the whole run


def make_plan(config: Any, dtype: torch.dtype, recipe: Recipe, settings: Settings, *, world: int = 1) -> Plan:
    rows = settings.rows(world)
    with torch.device("meta"):
        counted = _trainable(_network(config, dtype), settings)[1]
    tokens = settings.steps * rows * settings.length
    return Plan(
        audit=counted,
        memory=predict_memory(config, dtype, recipe, settings, world=world),
        steps=settings.steps,
        rows=rows,
        tokens=tokens,
        operations=operations(counted, recipe, settings) * tokens / world,
    )


def operations(counted: Audit, recipe: Recipe, settings: Settings) -> float:
    """Floating-point operations a token: 2 N forward, 2 N back through frozen weights (methods S8), more if trained."""
    passes = 2.0 + 2.0 * (1 + counted.trainable / counted.total) + 2.0 * settings.gradient_checkpointing
    if isinstance(recipe, Scope):
        passes += 2.0 * recipe.self_condition * recipe.rounds
    return passes * counted.total


def _network(config: Any, dtype: torch.dtype) -> nn.Module:
    network: Any = FAMILIES[config.model_type].network()
    return network(config).to(dtype)


def _trainable(network: Any, settings: Settings) -> tuple[Any, Audit]:
    """As `loop.Run` makes it."""
    if settings.gradient_checkpointing:
        checkpoint_blocks(network)
    if settings.lora is not None:
        return adapt(network.requires_grad_(False), settings.lora)
    low = next(network.parameters()).dtype in (torch.bfloat16, torch.float16)
    network = (network.float() if low else network).requires_grad_(True)
    return network, audit(network)


# --- memory ---


class Storages(TorchDispatchMode):
    """Counts the bytes of all storages that live, on whatever device, real or fake."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._seen:
            self._seen.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.hold(leaf)
        return result


def predict_memory(config: Any, dtype: torch.dtype, recipe: Recipe, settings: Settings, *, world: int = 1) -> Memory:
    """The peak of one process's training, from two shallow networks of the same widths.

    Sharded: weights, gradients and averages are divided; what is gathered of them for a moment (a layer, and the
    embedding and the head) is counted as activations.
    """
    depth = layers_of(config)
    low, high = (_few(config, dtype, recipe, settings, layers) for layers in DEPTHS)
    whole = _Step(*(a + (b - a) * (depth - DEPTHS[0]) for a, b in zip(low, high, strict=True)))
    weights, gradients, averages = whole.weights, whole.gradients, whole.averages
    activations = max(whole.guessing, whole.learning)
    if settings.shard and world > 1:
        layer = high.weights - low.weights
        activations += weights - layer * (depth - 2)
        weights, gradients, averages = weights // world, gradients // world, averages // world
    return Memory(weights, gradients, averages, activations)


class _Step(NamedTuple):
    """Bytes, each of which grows by the same amount with every layer. The larger of the last two need not."""

    weights: int
    gradients: int
    averages: int
    guessing: int  # most of the pass without gradients, beyond the three above
    learning: int  # most of the pass with gradients


def _few(config: Any, dtype: torch.dtype, recipe: Recipe, settings: Settings, layers: int) -> _Step:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        network, _ = _trainable(_network(with_layers(config, layers), dtype), settings)
    with FakeTensorMode():
        for module in network.modules():
            for name, one in module._parameters.items():
                if one is not None:
                    fake = torch.empty(one.shape, dtype=one.dtype)
                    module._parameters[name] = nn.Parameter(fake, requires_grad=one.requires_grad)
        return _step(network.train(), dtype, recipe, settings)


def _step(network: Any, dtype: torch.dtype, recipe: Recipe, settings: Settings) -> _Step:
    """One optimiser step, later than the first: AdamW's averages are there."""
    low = dtype in (torch.bfloat16, torch.float16)
    for module in network.modules():
        if hasattr(module, "lora_A"):
            module.cast_input_dtype_enabled = not low
    parameters = list(network.parameters())
    trained = [one for one in parameters if one.requires_grad]
    tokens = torch.zeros(settings.batch, settings.length, dtype=torch.long)
    precision = partial(torch.autocast, "cpu", torch.bfloat16, enabled=low, cache_enabled=False)
    guessing = learning = 0
    with Storages() as storages:
        for one in parameters:
            storages.hold(one)
        weights = storages.now
        averages = [torch.zeros_like(one) for one in trained for _ in range(2)]
        held = storages.now
        for _ in range(min(2, settings.accumulate)):  # from the second on, gradients are there beforehand
            if isinstance(recipe, Scope) and recipe.self_condition > 0:
                storages.peak = storages.now
                with torch.no_grad(), precision(), evaluating(network):
                    network(input_ids=tokens, rows=_guessing(tokens, recipe))
                guessing = storages.peak
            storages.peak = storages.now
            with precision():
                (losses,) = network(input_ids=tokens, rows=_learning(tokens, recipe))
            losses.sum().backward()
            del losses
            learning = storages.peak
        gradients = sum(one.grad.untyped_storage().nbytes() for one in trained if one.grad is not None)
        assert len(averages) == 2 * len(trained)
    below = held + gradients
    return _Step(weights, gradients, held - weights, guessing - below, learning - below)


def _wanted(tokens: Tensor, share: float) -> Tensor:
    return torch.arange(max(1, int(share * tokens.numel())))


def _guessing(tokens: Tensor, recipe: Scope) -> Rows:
    index = _wanted(tokens, HIGHEST)
    read = partial(_sample, mask_id=0, withheld=(), temperature=recipe.temperature, turn=0)  # ids cost nothing
    return Rows(index, read, (torch.zeros_like(index), index))


def _learning(tokens: Tensor, recipe: Recipe) -> Rows:
    """At the most positions that a row can have: memory must do for the worst batch, not for the average one."""
    clamped = (
        recipe.focus
        if isinstance(recipe, Scope)
        else isinstance(recipe, MDM) and recipe.weight == "none" and recipe.clamp
    )
    index = _wanted(tokens, HIGHEST if clamped else 1.0)
    return Rows(index, token_cross_entropy, (torch.zeros_like(index),))


# --- time ---


def measure_rate(config: Any, dtype: torch.dtype, recipe: Recipe, settings: Settings, device: torch.device) -> float:
    """Seconds of one micro-batch here: shallow networks of the same widths with random weights take a few of them."""
    depth = layers_of(config)
    depths = (1, 2) if depth > 2 else (depth,)
    length = settings.length if device.type == "cuda" or depth <= 2 else min(settings.length, 256)
    times = [
        _timed(with_layers(config, layers), dtype, recipe, replace(settings, length=length), device)
        for layers in depths
    ]
    whole = times[0] if len(times) == 1 else times[0] + (times[1] - times[0]) * (depth - 1)
    return max(whole, times[0]) * settings.length / length


def _timed(config: Any, dtype: torch.dtype, recipe: Recipe, settings: Settings, device: torch.device) -> float:
    from redraft.models.standin import seeded_weights

    network, _ = _trainable(seeded_weights(_network(config, torch.float32), 0).to(dtype), settings)
    network = network.to(device).train()
    low = dtype in (torch.bfloat16, torch.float16)
    for module in network.modules():
        if hasattr(module, "lora_A"):
            module.cast_input_dtype_enabled = not low
    coins: list[tuple[float, Recipe]] = [(1.0, recipe)]
    if isinstance(recipe, Scope):
        share = recipe.self_condition
        coins = [(share, replace(recipe, self_condition=1.0)), (1 - share, replace(recipe, self_condition=0.0))]
    mask = config.mask_token_id

    def micro_batch(one: Recipe, number: int) -> None:
        tokens = torch.randint(0, config.vocab_size, (settings.batch, settings.length), device=device)
        eligible = torch.ones_like(tokens, dtype=torch.bool)
        batch = Batch(tokens, eligible, None, torch.arange(settings.batch) + number)
        with torch.autocast(device.type, torch.bfloat16, enabled=low, cache_enabled=False):
            loss, _ = one.loss(
                network, batch, step=0, steps=settings.steps, seeds=batch.seeds(0), mask_id=mask, count=None
            )
        loss.backward()

    return sum(share * _clock(partial(micro_batch, one), device) for share, one in coins if share)


def _clock(call: Callable[[int], None], device: torch.device, limit: float = 1.5) -> float:
    """The fastest of a few calls, after one to warm up."""
    call(0)
    best, begun = float("inf"), time.perf_counter()
    for number in range(1, 6):
        started = time.perf_counter()
        call(number)
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
        if time.perf_counter() - begun > limit:
            break
    return best


def guess_seconds(plan: Plan, *, gpu: bool) -> tuple[float, float]:
    slow, fast = GPU_RATES if gpu else CPU_RATES
    return plan.operations / fast, plan.operations / slow


def is_large(plan: Plan) -> bool:
    return plan.audit.total > LARGE
