"""Asking any model for something about a few positions' logits: ours in chunks, any other denoiser whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.models.model import Model
from redraft.models.rows import Rows
from redraft.shapes import Bool, Float, Int


def ask(
    model: Any,
    tokens: Int[Tensor, "b n"],
    attend: Bool[Tensor, "b n"] | None,
    index: Int[Tensor, " r"],
    read: Callable[..., tuple[Tensor, ...]],
    given: tuple[Tensor, ...] = (),
    chunk: int | None = None,
) -> tuple[Tensor, ...]:
    """`read(logits, *given)` at the flat positions `index`: one forward call on `model` as it is handed in, so that
    DDP, FSDP, autocast and adapters all take part."""
    network = network_of(model)
    rows = Rows(index, read, given, chunk)
    if takes_rows(network):
        return network(input_ids=tokens, attention_mask=attend, rows=rows)
    logits = model(tokens, attend=attend).flatten(0, 1)
    return rows.through(lambda wanted: wanted, logits.index_select(0, index), logits.shape[-1])


def network_of(model: Any) -> Any:
    """The network that gradients go through: a `Model`'s, or what was handed in."""
    return model.network if isinstance(model, Model) else model


def innermost(model: Any) -> Any:
    """The network inside its wrappers: compiled, PEFT's, and those of DDP, FSDP and DeepSpeed."""
    network = network_of(model)
    for name in ("_orig_mod", "module"):
        if isinstance(inner := getattr(network, name, None), nn.Module):
            return innermost(inner)
    peft = getattr(network, "get_base_model", None)
    return innermost(peft()) if callable(peft) else network


def takes_rows(network: Any) -> bool:
    inside = innermost(network)
    return isinstance(inside, nn.Module) and "rows" in inspect.signature(type(inside).forward).parameters


def mask_of(model: Any) -> int:
    """The mask token of a model or network."""
    return model.mask_id if isinstance(model, Model) else innermost(model).config.mask_token_id


def ends_of(model: Any) -> tuple[int, ...]:
    """End of text, from the config: the same for a network as for the `Model` round it, which knows end of turn too."""
    named = innermost(model).config.eos_token_id
    return tuple(named) if isinstance(named, (list, tuple)) else (named,)


def vocabulary_of(model: Any) -> int:
    """The width of the logits, from the config: a sharded weight need not have its shape."""
    config = innermost(model).config
    return getattr(config, "embedding_size", None) or config.vocab_size


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode, and afterwards every module's own mode again, frozen parts included.

    Autocast's cache is off meanwhile: older torch would keep weights cast without a gradient for the pass that needs
    one, which then trained nothing (pytorch issue 158232).
    """
    network = network_of(model)
    training = [part for part in network.modules() if part.training] if isinstance(network, nn.Module) else []
    caching = torch.is_autocast_cache_enabled()
    try:
        torch.set_autocast_cache_enabled(False)
        for part in training:
            part.training = False
        yield
    finally:
        torch.set_autocast_cache_enabled(caching)
        for part in training:
            part.training = True


def flat(where: Bool[Tensor, "b n"]) -> Int[Tensor, " r"]:
    return where.flatten().nonzero().squeeze(-1)


def token_cross_entropy(logits: Float[Tensor, "c v"], targets: Int[Tensor, " c"]) -> tuple[Float[Tensor, " c"]]:
    """In float32, or float64 where the model has it."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (F.cross_entropy(wide, targets, reduction="none"),)
