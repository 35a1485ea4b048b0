"""Where commands print: answers to stdout, everything about them to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


def plain(text: str) -> str:
    """Text in which brackets are brackets and not markup."""
    return escape(text)


@contextmanager
def progress(*, hidden: bool = False) -> Iterator[Progress]:
    """A bar on stderr with an estimate of what is left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=hidden or not err.is_terminal) as bar:
        yield bar
