"""LoRA adapters through PEFT, audited: PEFT says nothing when a target name or a saved tensor matches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redraft.models.folders import read_json
from redraft.models.weights import compare, read_shapes

WEIGHTS = "adapter_model.safetensors"


def attach(network: Any, folder: Path) -> Any:
    """`network` with the adapter in `folder` on top: every target, module and tensor that the folder names is used."""
    settings = read_json(folder / "adapter_config.json")
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
    wrapped = PeftModel(network, config)
    wanted = {name: tuple(tensor.shape) for name, tensor in get_peft_model_state_dict(wrapped).items()}
    compare(saved, wanted, str(folder))
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
