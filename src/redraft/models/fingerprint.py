"""What a model is, in a small file next to its weights: a broken load is noticed before its answers are believed.

A transformers upgrade that left buffers uninitialised, a file that lost a tensor, a config edited by hand: each gives
fluent nonsense and no error. The file holds the config's numbers, a hash of each tensor (of at most 65,536 of its
numbers, spread over all of it), and the logits of one fixed input. The logits are compared with a tolerance, for they
differ between processors; a wrong model differs by as much as the logits themselves.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from redraft.models.folders import read_json

if TYPE_CHECKING:
    from redraft.models.model import Model

FILE = "fingerprint.json"
SAMPLE = 65_536
STRIDE = 2_654_435_761  # Knuth's multiplicative hash constant, prime: i * STRIDE mod n spreads over all of n
LENGTH = 16
PLACES = 8  # logits kept of each position, spread over the vocabulary

# Largest difference allowed, as a share of the largest logit. bfloat16 against float32 differs by 0.04 in random
# networks of 32 layers (measured; two bfloat16 runs by less); float32 leaves room for the TF32 mode of GPUs.
TOLERANCE = {torch.float64: 1e-5, torch.float32: 5e-3, torch.bfloat16: 0.1, torch.float16: 0.1}


def fingerprint(model: Model) -> dict[str, Any]:
    """A JSON object that only an equal model has."""
    return {
        "config": _config(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "tensors": _tensor_hashes(model, model.dtype),
        "logits": _logits(model).tolist(),
    }


def save_fingerprint(model: Model, folder: str | Path) -> Path:
    path = Path(folder) / FILE
    path.write_text(json.dumps(fingerprint(model)) + "\n", encoding="utf-8")
    return path


def check_fingerprint(model: Model, path: str | Path) -> None:
    """Raises ValueError with all in which `model` differs from the stored fingerprint (a file, or its folder)."""
    path = Path(path) / FILE if Path(path).is_dir() else Path(path)
    stored = read_json(path)
    dtype = getattr(torch, str(stored.get("dtype")), None)
    kinds = {"config": dict, "tensors": dict, "logits": list}
    if dtype not in TOLERANCE or not all(isinstance(stored.get(name), kind) for name, kind in kinds.items()):
        raise ValueError(f"{path} is not a fingerprint that this version of redraft reads.")
    faults = []
    config = _config(model)
    if fields := sorted(
        name for name in config.keys() | stored["config"] if config.get(name) != stored["config"].get(name)
    ):
        faults.append(f"the config's {', '.join(fields)}")
    # bfloat16 weights opened as float32 are still the same numbers; float32 weights opened as bfloat16 are not.
    if torch.promote_types(model.dtype, dtype) == model.dtype:
        here = _tensor_hashes(model, dtype)
        changed = sorted(name for name, value in here.items() if stored["tensors"].get(name) != value)
        if changed:
            faults.append(
                f"{len(changed)} of {len(here)} tensors ({', '.join(changed[:3])}{', ...' if changed[3:] else ''})"
            )
    then, now = torch.tensor(stored["logits"], dtype=torch.float64), _logits(model)
    allowed = max(TOLERANCE[dtype], TOLERANCE[model.dtype])
    gap = float((then - now).abs().max() / then.abs().max()) if then.shape == now.shape else float("nan")
    if not gap <= allowed:  # a NaN fails too
        faults.append(f"the logits of a fixed input (by {gap:.3g} of the largest, allowed {allowed:g})")
    if faults:
        raise ValueError(
            f"{model.name} is not the model that {path} describes; different: {'; '.join(faults)}. "
            "Fetch the weights again, or pass fingerprint=False if the change is meant."
        )


def _config(model: Model) -> dict[str, Any]:
    """The family's own numbers, not what transformers adds: that changes from release to release."""
    config = model.network.config
    names = inspect.signature(type(config).__init__).parameters
    return {name: getattr(config, name) for name in names if name not in ("self", "rest")}


def _tensor_hashes(model: Model, dtype: torch.dtype) -> dict[str, str]:
    return {
        name: _hash(_sample(tensor).to(dtype))
        for name, tensor in model.network.state_dict().items()
        if not tensor.is_meta  # kept on disk by accelerate
    }


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten()
    if len(flat) <= SAMPLE:
        return flat.cpu()
    spread = torch.arange(SAMPLE, device=flat.device) * STRIDE % len(flat)
    return flat[spread].cpu()


def _hash(numbers: Tensor) -> str:
    return hashlib.sha256(numbers.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:32]


def _logits(model: Model) -> Tensor:
    """Every second position masked, the others spread over the vocabulary."""
    tokens = torch.arange(LENGTH) * STRIDE % model.vocab_size
    tokens[1::2] = model.mask_id
    places = torch.arange(PLACES) * STRIDE % model.vocab_size
    return model(tokens[None])[0].cpu()[:, places].double()
