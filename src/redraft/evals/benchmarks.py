"""The four benchmarks' problems, from the hub or from local files; those whose name is known must have its checksum."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """Where a benchmark comes from. `files`: the file of each split, in a folder of them; `known`: SHA-256 by name."""

    hub: str
    fields: tuple[str, ...]
    files: dict[str, str]
    known: dict[str, str]
    config: str | None = None
    places: dict[str, range] = field(default_factory=dict)  # task_ids of a split, where one file holds all


GSM8K = Source(
    hub="openai/gsm8k",
    config="main",
    fields=("question", "answer"),
    files={"test": "gsm8k_test.jsonl", "train": "gsm8k_train.jsonl"},
    known={
        "gsm8k_test.jsonl": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        "gsm8k_train.jsonl": "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    },
)
MATH500 = Source(
    hub="HuggingFaceH4/MATH-500",
    fields=("problem", "answer"),
    files={"test": "math500.jsonl"},
    known={"math500.jsonl": "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"},
)
HUMANEVAL = Source(
    hub="openai/openai_humaneval",
    fields=("task_id", "prompt", "test", "entry_point"),
    files={"test": "humaneval.jsonl"},
    known={"humaneval.jsonl": "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2"},
)
MBPP = Source(
    hub="google-research-datasets/mbpp",
    config="full",
    fields=("task_id", "text", "code", "test_setup_code", "test_list"),
    files=dict.fromkeys(("test", "validation", "train", "prompt"), "mbpp.jsonl"),
    known={"mbpp.jsonl": "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f"},
    places={"prompt": range(1, 11), "test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)},
)


def rows(source: Source, split: str, data: str | Path | None = None) -> list[Row]:
    """The problems of a split, in their published order. `data`: a file, or a folder with the files by their names."""
    if split not in source.files:
        raise ValueError(f"{source.hub} has no split {split!r}: it has {', '.join(source.files)}")
    if data is None:
        return _from_hub(source, split)
    path = Path(data) / source.files[split] if Path(data).is_dir() else Path(data)
    found = _from_file(source, path)
    if source.places:
        found = [row for row in found if row["task_id"] in source.places[split]]
    if not found:
        raise ValueError(f"{path} has no problem of the {split} split")
    return found


def _from_file(source: Source, path: Path) -> list[Row]:
    content = path.read_bytes()
    known = source.known.get(path.name)
    if known and hashlib.sha256(content).hexdigest() != known:
        raise ValueError(
            f"{path} is not the published file of this name: its SHA-256 should begin with {known[:16]}. Get it again,"
            " or rename it if it is meant to differ"
        )
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [_row(source, path, number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]


def _row(source: Source, path: Path, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line)
    except ValueError:
        raise ValueError(f"{path}, line {number}, is not JSON: one problem a line is wanted") from None
    missing = [name for name in source.fields if not isinstance(row, dict) or name not in row]
    if missing:
        raise ValueError(f"{path}, line {number}, has no {' and no '.join(map(repr, missing))}")
    return row


def _from_hub(source: Source, split: str) -> list[Row]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise ValueError(
            "reading a benchmark from the hub needs the datasets library: pip install 'redraft[eval]', or give its file"
            " with --data"
        ) from None
    try:
        return [dict(row) for row in load_dataset(source.hub, source.config, split=split)]
    except (OSError, ValueError) as unreachable:
        raise ValueError(
            f"{source.hub} cannot be read from the hub: give its file with --data ({unreachable})"
        ) from None


def first(found: Iterable[T], count: int | None) -> list[T]:
    listed = list(found)
    if count is not None and count < 0:
        raise ValueError(f"a number of problems is wanted, not {count}")
    return listed if count is None else listed[:count]
