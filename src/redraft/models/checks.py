"""Checks on the numbers of a config.json: transformers accepts ``hidden_size="64"`` and layers without end."""

from __future__ import annotations

import math
from collections.abc import Mapping


def whole(owner: str, field: str, value: object, low: int, high: int) -> None:
    """`value` is an int, not a bool or a string, between `low` and `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{owner}: {field} must be a whole number from {low} to {high}, not {value!r}.")


def positive(owner: str, field: str, value: object) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{owner}: {field} must be a positive number, not {value!r}.")


def switch(owner: str, field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{owner}: {field} must be true or false, not {value!r}.")


def only(owner: str, given: Mapping[str, object], built: Mapping[str, object]) -> None:
    """Every field of `given` that `built` names has the one value that is built here."""
    for field, value in built.items():
        if field in given and given[field] != value:
            raise ValueError(f"{owner}: {field}={given[field]!r} is not built here, only {field}={value!r}.")


def heads(owner: str, width: int, query_heads: int, key_heads: int) -> None:
    """`width` splits into `query_heads` even-sized heads, which share `key_heads` keys and values evenly."""
    if width % query_heads or (width // query_heads) % 2:
        raise ValueError(
            f"{owner}: {query_heads} heads do not split a width of {width} into equal heads of even size; "
            "change one of the two."
        )
    if query_heads % key_heads:
        raise ValueError(f"{owner}: {query_heads} query heads cannot share {key_heads} key-value heads evenly.")
