"""Opens a model: finds the folder, checks its files against its config, and only then reads the weights.

Remote code is never run, pickles are never opened, and whatever does not fit is an error instead of a log line.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from redraft.models.adapters import attach
from redraft.models.devices import best_device, check_device
from redraft.models.families import family_of
from redraft.models.fingerprint import FILE as FINGERPRINT
from redraft.models.fingerprint import check_fingerprint
from redraft.models.folders import read_json, resolve
from redraft.models.model import Model
from redraft.models.progress import bars_if_large
from redraft.models.tokens import open_tokenizer
from redraft.models.weights import Shapes, checkpoint_shapes, compare


def load(
    name_or_path: str | Path,
    *,
    adapter: str | Path | None = None,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    device_map: str | dict[str, Any] | None = None,
    revision: str | None = None,
    fingerprint: bool | str | Path | None = None,
) -> Model:
    """The model in a folder, on the hub ("GSAI-ML/LLaDA-8B-Instruct"), or in the package ("bundled").

    `dtype`: "auto" is the checkpoint's own. `device`: None is the GPU if there is one; `device_map` is accelerate's,
    and spreads a model over several. `fingerprint`: None checks fingerprint.json if the folder has one, True insists on
    it, False skips it, a path names another.
    """
    if device is not None and device_map is not None:
        raise ValueError("Give device or device_map, not both.")
    check_device(None if device is None else str(device))
    folder = resolve(name_or_path, revision)
    if (folder / "adapter_config.json").is_file():  # transformers would follow it to another model, on the hub
        raise ValueError(
            f"{folder} is an adapter: load the model it was trained on, with adapter={str(name_or_path)!r}."
        )
    kind, config = _stated(folder / "config.json")
    shapes = wanted_shapes(kind, config)
    compare(checkpoint_shapes(folder), shapes, str(folder))
    tokenizer = open_tokenizer(folder)
    with bars_if_large(shapes):
        network, report = kind.from_pretrained(
            folder,
            config=config,
            dtype=_dtype(dtype),
            device_map=device_map if device_map is not None else _placed(device),
            use_safetensors=True,
            output_loading_info=True,
            local_files_only=True,
        )
    if leftovers := {key: value for key, value in report.items() if value}:
        raise ValueError(f"{folder} was not read completely: {leftovers}.")
    model = Model.of(network.eval(), tokenizer, name=str(name_or_path))
    if fingerprint is None:
        fingerprint = (folder / FINGERPRINT).is_file()
    if fingerprint is not False:
        check_fingerprint(model, folder if fingerprint is True else fingerprint)
    if adapter is not None:
        adapted = attach(network, resolve(adapter)).eval()
        model = replace(model, network=adapted, name=f"{name_or_path}+{adapter}")
    return model


def wanted_shapes(kind: type, config: Any) -> Shapes:
    """Names and shapes of a network of this config, built without memory."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in kind(config).state_dict().items()}


def _stated(path: Path) -> tuple[Any, Any]:
    """The network class and the config that a config.json asks for."""
    stated = read_json(path)
    kind: Any = family_of(stated, str(path)).network()
    try:
        return kind, kind.config_class.from_dict(stated)
    except (ValueError, TypeError, AttributeError) as error:  # transformers' own fields are hardly checked
        raise ValueError(f"{path}: {error}") from error


def _dtype(dtype: str | torch.dtype) -> str | torch.dtype:
    found = dtype if dtype == "auto" else getattr(torch, str(dtype).removeprefix("torch."), None)
    if found != "auto" and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise ValueError(f'dtype must be "auto", "bfloat16", "float32", "float64" or a torch.dtype, not {dtype!r}.')
    return found


def _placed(device: str | torch.device | None) -> dict[str, Any] | None:
    """Straight onto an accelerator, without a copy of all weights in main memory first."""
    if device is None:
        device = best_device()
    return None if torch.device(device).type == "cpu" else {"": device}
