"""The model families that can be opened, told apart by config.json alone; a checkpoint's own code is never run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Both templates always end with the assistant's header: a masked model has nothing else to continue.
# Newlines at the end of a jinja text are dropped, hence the quoted ones.
LLADA_TEMPLATE = (
    "<|startoftext|>"
    "{% for message in messages %}"
    "<|start_header_id|>{{ message['role'] }}<|end_header_id|>{{ '\\n\\n' }}{{ message['content'] | trim }}<|eot_id|>"
    "{% endfor %}"
    "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}"
)
DREAM_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "<|im_start|>system{{ '\\n' }}You are a helpful assistant.<|im_end|>{{ '\\n' }}"
    "{% endif %}"
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}{{ '\\n' }}{{ message['content'] }}<|im_end|>{{ '\\n' }}"
    "{% endfor %}"
    "<|im_start|>assistant{{ '\\n' }}"
)


def _llada() -> type:
    from redraft.models.llada.modeling import LLaDAForMaskedLM

    return LLaDAForMaskedLM


def _dream() -> type:
    from redraft.models.dream.modeling import DreamForMaskedLM

    return DreamForMaskedLM


@dataclass(frozen=True)
class Family:
    """What a family's checkpoints have in common beside their numbers."""

    name: str  # config.json's model_type
    network: Callable[[], type]  # imports transformers, hence a function
    template: str  # for checkpoints whose tokenizer carries none
    turn_end: str  # closes an assistant's answer, as end-of-text closes a document
    marks: tuple[str, ...]  # the special tokens that the template needs


FAMILIES = {
    "llada": Family(
        "llada",
        _llada,
        LLADA_TEMPLATE,
        turn_end="<|eot_id|>",
        marks=("<|startoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    "Dream": Family("Dream", _dream, DREAM_TEMPLATE, turn_end="<|im_end|>", marks=("<|im_start|>", "<|im_end|>")),
}


def family_of(config: Mapping[str, Any], place: str = "config.json") -> Family:
    """The family of a config.json. LLaDA-MoE's model_type is sometimes "llada" too: its experts give it away."""
    kind = str(config.get("model_type", ""))
    said = " ".join([kind, *map(str, config.get("architectures") or [])]).lower().replace("_", "")
    if "llada2" in said:
        raise ValueError(
            f"{place} is a LLaDA2 model (LLaDA2.0 or 2.1): those are not built yet. Use LLaDA-8B or Dream-7B."
        )
    if "lladamoe" in said or any(field in config for field in ("num_experts", "n_routed_experts")):
        raise ValueError(f"{place} is a LLaDA-MoE model: those are not built yet. Use LLaDA-8B or Dream-7B.")
    if kind not in FAMILIES:
        raise ValueError(f"{place} has model_type {kind!r}; the families that can be opened are {', '.join(FAMILIES)}.")
    return FAMILIES[kind]
