"""The protocol card: what a result is a result of.

Its *subject* is what comparisons vary: model, adapter, sampler, steps. Its *protocol* is what they may not: the items
and how they are asked, decoded and graded. Two results whose protocols differ are not comparable, whatever differs.
"""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import torch

import redraft
from redraft.evals.run import Evaluation, hash_of
from redraft.models import Model
from redraft.models.fingerprint import fingerprint

PACKAGES = ("redraft", "torch", "transformers", "tokenizers", "peft", "numpy", "mpmath")
Card = dict[str, dict[str, Any]]


def weights(model: Model) -> str:
    """A hash of a model's weights as they were loaded."""
    return hash_of(fingerprint(model)["tensors"])


def subject(
    evaluation: Evaluation, *, model: str, adapter: str | None, revision: str | None, hashed: str | None = None
) -> dict[str, Any]:
    """`hashed`: the weights' hash, where it is known already."""
    return {
        "model": model,
        "revision": revision,
        "adapter": adapter,
        "fingerprint": hashed or weights(evaluation.model),
        "sampler": repr(evaluation.plan.sampler),
        "steps": evaluation.plan.steps,
        **({"sampler_file": source} if (source := evaluation.plan.sampler.source) else {}),
    }


def protocol(evaluation: Evaluation, *, split: str, subset: str, shots: int, sandbox: str | None) -> dict[str, Any]:
    """Where the items came from is not in it: what they are is."""
    task, plan, reading = evaluation.task, evaluation.plan, evaluation.plan.reading
    return {
        "task": task.name,
        "version": task.version,
        "split": split,
        "subset": subset,
        "items": len(evaluation.items),
        "prompts": hash_of([[item.id, item.prompt] for item in evaluation.items]),
        "golds": hash_of([item.gold for item in evaluation.items]),
        "shots": shots,
        "template": _template(evaluation),
        "length": plan.length,
        "block": plan.block,
        "eos": reading.eos,
        "overflow": reading.overflow,
        "temperature": reading.temperature,
        "rank": reading.rank,
        "guidance": reading.guidance,
        "precision": reading.dtype,
        "until": list(task.until),
        "filter": evaluation.filter or next(iter(task.filters), None),
        "seed": evaluation.seed,
        "batch_size": evaluation.batch_size,
        "dtype": str(evaluation.model.dtype).removeprefix("torch."),
        "device": device_name(evaluation.model.device),
        "sandbox": sandbox,
        "packages": {name: _version(name) for name in PACKAGES} | {"python": platform.python_version()},
    }


def _template(evaluation: Evaluation) -> str:
    """ "plain" where prompts are the text itself, else a hash of the chat template they are put into."""
    chats = evaluation.task.chat if evaluation.chat is None else evaluation.chat
    template = evaluation.model.template
    return f"chat {hash_of(template)}" if chats and template else "plain"


def device_name(device: torch.device) -> str:
    """The kind of processor, without its number: two of a kind give the same answers."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return f"{device.type} {platform.machine()}"


def _version(name: str) -> str | None:
    if name == "redraft":  # which may run from its source, not installed
        return redraft.__version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def differing(a: dict[str, Any], b: dict[str, Any], within: str = "") -> dict[str, tuple[Any, Any]]:
    """The fields, nested ones as `packages.torch`, in which two halves of cards are not equal."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in [*a, *(name for name in b if name not in a)]:
        one, other = a.get(name), b.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= differing(one, other, f"{within}{name}.")
        elif one != other:
            found[within + name] = one, other
    return found
