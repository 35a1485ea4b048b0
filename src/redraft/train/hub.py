"""What the datasets library reads, streamed: hub datasets, local files on request, a user's own dataset object."""

from __future__ import annotations

import copy
import glob
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redraft.train.files import Files
from redraft.train.sources import POSSIBLE, Place, Record

BUILDERS = {"json": (".json", ".jsonl"), "parquet": (".parquet",), "text": (".txt",)}
HUB = re.compile(
    r"hf:(?P<path>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<name>[\w.-]+))?(?::(?P<split>[^:/]+))?"
)


def parse(spec: str, *, streaming: bool = True, lines: bool = False) -> Streamed:
    """`hf:owner/name[@revision][/config][:split]`, or `hf:json:PATH` and its like for local files."""
    _check_installed(spec)  # before a model is loaded
    _, kind, *rest = spec.split(":", 2)
    if kind in BUILDERS and rest:
        path = Path(rest[0]).expanduser()
        if not path.exists():
            raise ValueError(f"{spec}: there is no file or folder {rest[0]!r}.")
        return Streamed.local(Files(path, lines=lines), spec, kind)
    if not (match := HUB.fullmatch(spec)):
        raise ValueError(f"cannot read {spec!r} as a hub dataset; possible are {POSSIBLE}.")
    options = {"split": "train"} | {key: value for key, value in match.groupdict().items() if value is not None}

    def load() -> Any:
        dataset = _datasets(spec).load_dataset(**options, streaming=streaming)
        return dataset if streaming else dataset.to_iterable_dataset()

    return Streamed(spec, load)


def _check_installed(name: str) -> None:
    if find_spec("datasets") is None:
        raise ValueError(
            f"{name} needs the datasets library, which is not installed: pip install 'redraft[train]'. "
            "Local .jsonl, .json and .txt files are read without it."
        )


def _datasets(name: str) -> Any:
    _check_installed(name)
    import datasets

    return datasets


class Streamed:
    """A datasets.IterableDataset, opened when it is first read; its own state says where to go on."""

    def __init__(self, name: str, load: Callable[[], Any], files: Files | None = None) -> None:
        self.name, self.files = name, files
        self._load, self._dataset = load, None
        self.identity: Place = {"kind": "datasets", "name": name}
        if files:  # their digest, not their name: a folder may be moved between two runs
            self.identity = {**files.identity, "kind": "datasets"}

    @classmethod
    def local(cls, files: Files, name: str, kind: str | None = None) -> Streamed:
        """Local files through `load_dataset(..., streaming=True)`; all must be of one kind."""
        suffixes = {path.suffix.lower() for path in files.paths}
        kind = kind or next((kind for kind, known in BUILDERS.items() if suffixes <= set(known)), None)
        if kind is None or not suffixes <= set(BUILDERS[kind]):
            raise ValueError(
                f"{name}: the datasets library streams files of one kind at a time, not {', '.join(sorted(suffixes))} "
                "together; without streaming they can be mixed."
            )
        # Brackets and stars in a path are not patterns.
        options: dict[str, Any] = {"data_files": [glob.escape(str(path.absolute())) for path in files.paths]}
        if kind == "text":
            options["sample_by"] = "line" if files.lines else "document"
        return cls(
            name, lambda: _datasets(name).load_dataset(kind, split="train", streaming=True, **options), files=files
        )

    def read(self, place: Place | None) -> Iterator[Record]:
        number = place["documents"] if place else 0
        try:
            if self._dataset is None:
                self._dataset = self._load()
            dataset = copy.deepcopy(self._dataset)  # it keeps its state in itself
            dataset.load_state_dict(place["dataset"] if place else None)  # None: from the beginning
            for content in dataset:
                number += 1
                after = {"documents": number, "dataset": dataset.state_dict()}
                if isinstance(
                    content, dict
                ):  # files whose records differ are one table, with None where a column lacks
                    content = {key: value for key, value in content.items() if value is not None}
                yield Record(f"record {number} of {self.name}", content, after)
        except Exception as error:
            if _is_ours(error):
                raise
            raise self._explained(error, number) from error

    def _explained(self, error: Exception, number: int) -> ValueError:
        if self.files:  # the library names neither file nor line; our own reader does
            try:
                for _ in self.files.read(None):
                    pass
            except ValueError as named:
                return named
        said = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        hint = (
            "" if self.files else " A hub dataset needs a network, and its name, config and split as the hub has them."
        )
        return ValueError(
            f"{self.name} cannot be {f'read past record {number}' if number else 'opened'}: {said}.{hint}"
        )


def _is_ours(error: Exception) -> bool:
    """Already a sentence: the datasets library is missing."""
    return isinstance(error, ValueError) and "pip install 'redraft[train]'" in str(error)
