"""Models: a denoiser with its tokenizer and its special ids. They know nothing of samplers.

Importing this package loads neither transformers nor peft (4 to 5 s each): names are fetched on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.models.folders import resolve
    from redraft.models.loading import load
    from redraft.models.model import Model

_HOME = {
    "Model": "redraft.models.model",
    "load": "redraft.models.loading",
    "resolve": "redraft.models.folders",
}

__all__ = ["Model", "load", "resolve"]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
