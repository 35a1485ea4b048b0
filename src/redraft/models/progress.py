"""Progress bars for models that take a while to read or write, and none for those that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod

A_WHILE = 1_000_000_000  # parameters


@contextmanager
def bars_if_large(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[None]:
    """transformers' bars, on or off for the whole process, stay off inside for less than a billion numbers."""
    from transformers.utils import logging

    if sum(map(prod, shapes.values())) >= A_WHILE or not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
