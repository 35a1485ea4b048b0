"""The networks of `redraft.models` with `generate`, under the same names, for transformers' Auto classes."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from redraft.hf.configuration import RedraftGenerationConfig
from redraft.hf.generation import RedraftGenerationMixin
from redraft.models import Model
from redraft.models.dream import modeling as dream
from redraft.models.llada import modeling as llada


class LLaDAForMaskedLM(RedraftGenerationMixin, llada.LLaDAForMaskedLM):  # type: ignore[misc]
    """LLaDA, able to `generate`."""


class DreamForMaskedLM(RedraftGenerationMixin, dream.DreamForMaskedLM):  # type: ignore[misc]
    """Dream, able to `generate`."""


NETWORKS: dict[str, Any] = {"llada": LLaDAForMaskedLM, "Dream": DreamForMaskedLM}  # by a config.json's model_type


def register() -> None:
    """Lets ``AutoConfig``, ``AutoModel`` and ``AutoModelForMaskedLM`` open these families without remote code.

    Not ``AutoModelForCausalLM``: whatever asks for that reads the logits of column i as those of token i + 1.
    """
    for name, kind in NETWORKS.items():
        AutoConfig.register(name, kind.config_class, exist_ok=True)
        for auto in (AutoModel, AutoModelForMaskedLM):
            auto.register(kind.config_class, kind, exist_ok=True)


def attach(model: Model) -> Any:
    """The network of a model that `redraft.load` opened, adapter and all, now able to `generate`."""
    network = model.network
    inner = network.get_base_model() if hasattr(network, "get_base_model") else network
    inner.__class__ = NETWORKS[model.family]
    inner.generation_config = RedraftGenerationConfig(eos_token_id=model.eos_ids)
    return network
