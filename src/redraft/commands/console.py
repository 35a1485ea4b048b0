"""Where commands print: answers to stdout, everything about them to stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

FIRST_LINE, NEXT_LINES = 2.0, 30.0  # seconds; off a terminal, progress is a line now and then


def plain(text: str) -> str:
    """Text in which brackets are brackets and not markup."""
    return escape(text)


def write(text: str) -> None:
    """A line on stdout as it is: rich would expand its tabs and drop its control characters."""
    out.file.write(text + "\n")
    out.file.flush()


@contextmanager
def loading(name: str) -> Iterator[None]:
    """A line while something loads. Not a spinner: those swallow the bars that transformers draws for large models."""
    if err.is_terminal:
        err.print(f"[dim]loading {plain(name)} ...[/]", end="\r")
    try:
        yield
    finally:
        if err.is_terminal:
            err.file.write("\r\x1b[K")
            err.file.flush()


class Meter:
    """How far a job is, with an estimate of what is left: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self, what: str, total: int, bar: Progress | None) -> None:
        self.what, self.total, self.done, self.bar = what, total, 0, bar
        self.task = bar.add_task(what, total=total) if bar else None
        self.started, self.next_line = time.monotonic(), FIRST_LINE

    def advance(self, count: int = 1, what: str | None = None) -> None:
        self.done, self.what = self.done + count, what or self.what
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=self.done, total=self.total or None, description=self.what)
        elif 0 < self.done < self.total and (spent := time.monotonic() - self.started) >= self.next_line:
            self.next_line = spent + NEXT_LINES
            left = spent / self.done * (self.total - self.done)
            err.print(f"{plain(self.what)}: {self.done} of {self.total}, about {duration(left)} left")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The bar makes room for what is printed meanwhile."""
        if self.bar:
            self.bar.stop()
        yield
        if self.bar:
            self.bar.start()


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress(what: str, total: int, *, hidden: bool = False) -> Iterator[Meter]:
    """A meter on stderr; hidden where something else is drawn."""
    if hidden or not err.is_terminal:
        meter = Meter(what, total, None)
        meter.next_line = float("inf") if hidden else FIRST_LINE
        yield meter
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        yield Meter(what, total, bar)
