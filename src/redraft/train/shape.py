"""Small networks of LLaDA's architecture, untrained: the very class of the 8B, with other numbers in its config."""

from __future__ import annotations

from typing import Any

import torch

from redraft.models import Model

SHAPES: dict[str, dict[str, Any]] = {
    "bundled": {"d_model": 256, "n_layers": 8, "n_heads": 8, "mlp_hidden_size": 640, "max_sequence_length": 2048},
    "tiny": {"d_model": 64, "n_layers": 2, "n_heads": 4, "mlp_hidden_size": 160, "max_sequence_length": 2048},
}
ROPE_THETA = 10_000.0  # LLaDA's 500,000 is for longer contexts


def untrained(shape: str, tokenizer: Any, *, seed: int = 0, device: str = "cpu") -> Model:
    from redraft.models.llada.configuration import LLaDAConfig
    from redraft.models.llada.modeling import LLaDAForMaskedLM

    size = len(tokenizer)
    config = LLaDAConfig(
        **known(shape),
        rope_theta=ROPE_THETA,
        vocab_size=size,
        mask_token_id=tokenizer.mask_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = LLaDAForMaskedLM(config)
    torch.nn.Module.to(network, device)
    return Model.of(network, tokenizer, name=shape)


def known(shape: str) -> dict[str, Any]:
    if shape not in SHAPES:
        raise ValueError(f"there is no shape {shape!r}: there are {', '.join(SHAPES)}")
    return SHAPES[shape]
