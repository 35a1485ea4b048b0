"""Redraft: text generation by masked diffusion models that can change their mind.

    from redraft import generate, load

    model = load("bundled")
    print(generate(model, ["..."], "d3im", length=64, steps=16)[0].text)

Importing this package is cheap: torch and transformers come in with the first name that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from redraft.decoding import Canvas as Canvas
    from redraft.decoding import Reading as Reading
    from redraft.decoding import Sampler as Sampler
    from redraft.decoding import Trajectory as Trajectory
    from redraft.decoding import register as register
    from redraft.decoding import walk as walk
    from redraft.generation import Answer as Answer
    from redraft.generation import generate as generate
    from redraft.models import Model as Model
    from redraft.models import load as load
    from redraft.samplers import parse as parse

_HOMES = {
    "redraft.decoding": ("Canvas", "Reading", "Sampler", "Trajectory", "register", "walk"),
    "redraft.generation": ("Answer", "generate"),
    "redraft.models": ("Model", "load"),
    "redraft.samplers": ("parse",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'redraft' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
