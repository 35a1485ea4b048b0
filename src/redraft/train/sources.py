"""Where training text comes from: one `Source` for hub datasets, local files and Python iterables.

A reader gives one epoch of records, each with the place to go on from after it, so that a run resumes at any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

POSSIBLE = (
    "hf:owner/name/config:split (a hub dataset, streamed; config and split may be left out), a .jsonl, .json, .parquet "
    "or .txt file, a folder of such files, tasks:words,algebra,code (made here, without end), or hf:json:PATH, "
    "hf:parquet:PATH and hf:text:PATH (local files, streamed by the datasets library)"
)

Place = dict[str, Any]  # where reading goes on, as JSON; None is the beginning


class Record(NamedTuple):
    """One document as it was found. `where` is how a message names it; `after` is the place behind it."""

    where: str
    content: Any
    after: Place
    ends: bool = True  # False: the next record continues this text


@runtime_checkable
class Reader(Protocol):
    identity: Place  # as JSON; another one means other data, and an exact resume is impossible

    def read(self, place: Place | None) -> Iterator[Record]: ...


class Columns(NamedTuple):
    """Under which names a record keeps its text; None looks for the usual ones."""

    text: str | None = None
    prompt: str | None = None
    response: str | None = None


@dataclass(frozen=True)
class Source:
    name: str  # for messages and for the model card
    reader: Reader
    columns: Columns = Columns()


def open_source(
    spec: str | Path | Iterable[Any],
    *,
    text_column: str | None = None,
    prompt_column: str | None = None,
    response_column: str | None = None,
    streaming: bool | None = None,
    text_files: Literal["whole", "lines"] = "whole",
) -> Source:
    """A source from its name, or from any iterable of str, {"text"}, {"prompt", "response"} or {"messages"}.

    `streaming` is for what the datasets library reads: True streams local files through it too, False downloads a hub
    dataset first. `text_files`: a .txt file is one document, or each of its lines is.
    """
    if text_column is not None and (prompt_column is not None or response_column is not None):
        raise ValueError("give text_column for plain text, or prompt_column and response_column for pairs, not both")
    if text_files not in ("whole", "lines"):
        raise ValueError(f"text_files is 'whole' or 'lines', not {text_files!r}")
    columns = Columns(text_column, prompt_column, response_column)
    lines = text_files == "lines"
    if isinstance(spec, str) and spec.startswith("tasks:"):
        from redraft.train.generated import parse as parse_tasks

        return Source(spec, parse_tasks(spec), columns)
    if isinstance(spec, str) and spec.startswith("hf:"):
        from redraft.train.hub import parse

        return Source(spec, parse(spec, streaming=streaming is not False, lines=lines), columns)
    if isinstance(spec, str | Path):
        from redraft.train.files import Files

        files = Files(_local(spec), lines=lines)
        if streaming:
            from redraft.train.hub import Streamed

            return Source(str(spec), Streamed.local(files, str(spec)), columns)
        return Source(str(spec), files, columns)
    if type(spec).__module__.startswith("datasets.") and hasattr(spec, "load_state_dict"):
        from redraft.train.hub import Streamed

        name = type(spec).__name__
        return Source(name, Streamed(name, lambda: spec), columns)
    if isinstance(spec, Iterable) and not isinstance(spec, bytes | dict):
        return Source(f"a Python {type(spec).__name__}", Listed(spec), columns)
    raise ValueError(f"{spec!r} is no source of text; possible are {POSSIBLE}, or a Python iterable of documents.")


def _local(spec: str | Path) -> Path:
    path = Path(spec).expanduser()
    if not path.exists():
        raise ValueError(f"there is no file or folder {str(spec)!r} to read text from; possible are {POSSIBLE}.")
    return path


class Listed:
    """Documents from a Python iterable; one that can be started again can also be read for several epochs."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items
        self.identity: Place = {"kind": "iterable"}
        self._spent = False

    def read(self, place: Place | None) -> Iterator[Record]:
        done = place["documents"] if place else 0
        items = iter(self.items)
        if items is self.items:  # a generator or the like
            if self._spent:
                raise ValueError(
                    "this Python iterator has been read and cannot start again: give a list, or an object whose "
                    "__iter__ starts anew"
                )
            self._spent = True
        number = 0
        for number, content in enumerate(items, start=1):
            if number > done:
                yield Record(f"item {number}", content, {"documents": number})
        if number < done:
            raise ValueError(f"the iterable ended after {number} documents; the interrupted run had read {done} of it")
