"""LoRA adapters through PEFT, audited: PEFT says nothing when a target name or a saved tensor matches nothing."""

from __future__ import annotations

import copy
import difflib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from redraft.models.folders import read_json, resolve
from redraft.models.weights import compare, read_shapes

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"

_ATTENTION = ("q_proj", "k_proj", "v_proj")
# Which modules a name stands for, per architecture. `paper` is what the published SCOPE adapter has: the paper lists
# an "o_proj", which LLaDA calls attn_out, so PEFT left it out without a word (50.3 M parameters instead of 67.1 M).
PRESETS: dict[str, dict[str, tuple[str, ...]]] = {
    "llada": {
        "paper": _ATTENTION,
        "qkvo": (*_ATTENTION, "attn_out"),
        "all": (*_ATTENTION, "attn_out", "ff_proj", "up_proj", "ff_out"),
    },
    "Dream": {
        "paper": _ATTENTION,
        "qkvo": (*_ATTENTION, "o_proj"),
        "all": (*_ATTENTION, "o_proj", "gate_proj", "up_proj", "down_proj"),
    },
}


@dataclass(frozen=True)
class Lora:
    """The paper's adapter; its dropout and biases are not given there and are taken as none."""

    targets: str | tuple[str, ...] = "paper"  # a preset, or names of modules
    rank: int = 64
    alpha: float | int = 128
    dropout: float | int = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.rank, int) and self.rank >= 1):
            raise ValueError(f"the rank of an adapter is a whole number of at least 1, not {self.rank!r}")
        if not self.alpha > 0:
            raise ValueError(f"the alpha of an adapter is above 0, not {self.alpha!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"the dropout of an adapter lies in [0, 1), not {self.dropout!r}")


@dataclass(frozen=True)
class Audit:
    """What of a network is trained, in numbers that were counted and not computed."""

    matched: dict[str, list[str]]  # the modules that each target name stands for; empty for full training
    trainable: int
    total: int

    def lines(self) -> list[str]:
        said = [
            f"{target}: {names[0]}" if len(names) == 1 else f"{target}: {len(names)} modules, {names[0]} ..."
            for target, names in self.matched.items()
        ]
        return [*said, f"{self.trainable:,} of {self.total:,} parameters are trained"]


def target_names(kind: str, targets: str | Sequence[str]) -> tuple[str, ...]:
    """The module names of a preset of this architecture (a config's model_type), or the given ones."""
    if not isinstance(targets, str):
        if not targets:
            raise ValueError("an adapter needs at least one target module")
        return tuple(dict.fromkeys(targets))
    presets = PRESETS[kind]
    if targets not in presets:
        close = difflib.get_close_matches(targets, presets, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"there is no adapter preset {targets!r}{hint}; there are: {', '.join(presets)}")
    return presets[targets]


def match_targets(network: Any, names: Sequence[str]) -> dict[str, list[str]]:
    """The modules that each name stands for; a name that stands for none is an error.

    LLaDA calls its head `ff_out`, as the last matrix of every layer: the bare name never means the head.
    """
    linear = [name for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)]
    head = next(name for name, module in network.named_modules() if module is network.get_output_embeddings())
    found: dict[str, list[str]] = {}
    for target in names:
        matched = [name for name in linear if name == target or name.endswith(f".{target}")]
        found[target] = [name for name in matched if name != head or "." in target]
        if not found[target]:
            leaves = sorted({name.rsplit(".", 1)[-1] for name in linear})
            close = difflib.get_close_matches(target, leaves, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(
                f"no module of this model is called {target!r}{hint}: an adapter can sit on {', '.join(leaves)}"
            )
    return found


def adapt(network: Any, lora: Lora, *, seed: int = 0, base: str | None = None) -> tuple[Any, Audit]:
    """`network` with a fresh LoRA adapter: trainable, its numbers a function of `seed`, in float32 at least."""
    from peft import LoraConfig, get_peft_model

    if hasattr(network, "peft_config"):
        raise ValueError("this model carries an adapter already: merge it first, as Model.merged() does")
    matched = match_targets(network, target_names(network.config.model_type, lora.targets))
    chosen = {name for names in matched.values() for name in names}
    alike = [
        name
        for name, module in network.named_modules()
        if name not in chosen and any(name.endswith(f".{target}") for target in matched) and not list(module.children())
    ]
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=lora.dropout,
        bias="none",
        target_modules=list(matched),
        exclude_modules=alike or None,
        # No task type: CAUSAL_LM would ask the network for left-to-right generation.
    )
    with torch.random.fork_rng(devices=[]), _quietly():
        torch.manual_seed(seed)
        wrapped = get_peft_model(network, config)
    if base is not None:
        wrapped.peft_config["default"].base_model_name_or_path = base
    wanted = sum(len(names) for names in matched.values())
    got = sum(name.endswith("lora_A.default") for name, _ in wrapped.named_modules())
    assert got == wanted, f"PEFT adapted {got} modules instead of {wanted}"
    return wrapped, audit(wrapped, matched)


@contextmanager
def _quietly() -> Iterator[None]:
    """PEFT asks transformers for something by its old name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def audit(network: Any, matched: dict[str, list[str]] | None = None) -> Audit:
    parameters = list(network.parameters())
    return Audit(
        matched=matched or {},
        trainable=sum(one.numel() for one in parameters if one.requires_grad),
        total=sum(one.numel() for one in parameters),
    )


def adapter_files(network: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """What PEFT's save_pretrained would write, without its look at the hub. `tensors` are by parameter name."""
    config = copy.copy(network.peft_config["default"])
    config.inference_mode = True
    return {
        WEIGHTS: {saved_name(name): tensor for name, tensor in tensors.items()},
        CONFIG: lambda path: config.save_pretrained(str(path.parent)),
    }


def saved_name(name: str) -> str:
    """A parameter's name in an adapter's file: without the name that the adapter has in memory."""
    return name.replace(".default.", ".")


def check_adapter(name: str | Path) -> None:
    """What can be refused before a model is loaded: a name that leads nowhere, or to something else."""
    read_json(resolve(name) / CONFIG)


def attach(network: Any, folder: Path) -> Any:
    """`network` with the adapter in `folder` on top: every target, module and tensor that the folder names is used."""
    settings = read_json(folder / CONFIG)
    if settings.get("peft_type") != "LORA":
        raise ValueError(f"{folder} is a PEFT adapter of type {settings.get('peft_type')!r}; only LORA is built.")
    if not (folder / WEIGHTS).is_file():
        pickled = (
            "only adapter_model.bin, a pickle, which can run code and is not opened"
            if (folder / "adapter_model.bin").is_file()
            else "no adapter weights"
        )
        raise ValueError(f"{folder} holds no {WEIGHTS} ({pickled}). Save it again with PEFT's save_pretrained.")
    saved = read_shapes(folder / WEIGHTS)
    _check_targets(network, settings, folder)

    from peft import PeftConfig, PeftModel, get_peft_model_state_dict

    config = PeftConfig.from_pretrained(str(folder))
    config.inference_mode = True
    # Not PeftModel.from_pretrained: it reads the weights before they can be compared, and for an adapter marked
    # CAUSAL_LM, as many are, it makes a wrapper that asks the network for left-to-right generation.
    with _quietly():
        wrapped = PeftModel(network, config)
        # "auto", the default, would look for the base model's config on the hub.
        state = get_peft_model_state_dict(wrapped, save_embedding_layers=False)
        compare(saved, {name: tuple(tensor.shape) for name, tensor in state.items()}, str(folder))
        wrapped.load_adapter(str(folder), "default")
    return wrapped


def _check_targets(network: Any, settings: dict[str, Any], folder: Path) -> None:
    names = [name for name, _ in network.named_modules()]
    targets = settings.get("target_modules") or []
    listed = (
        [] if isinstance(targets, str) else targets
    )  # a string is a regular expression; PEFT raises if it matches none
    for target in [*listed, *(settings.get("modules_to_save") or [])]:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            leaves = sorted(
                {name.rsplit(".", 1)[-1] for name in names if name and not name.rsplit(".", 1)[-1].isdigit()}
            )
            raise ValueError(f"{folder} adapts {target!r}, which this model does not have; it has {', '.join(leaves)}.")
