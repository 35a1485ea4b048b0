"""Local .jsonl, .json, .parquet and .txt files, and folders of them, read without the datasets library.

A place is a file and an offset in it, so going on after an interruption costs nothing. Whatever is wrong with a file
ends with its name and the line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from redraft.train.sources import Place, Record

SUFFIXES = (".jsonl", ".json", ".parquet", ".txt")
PIECE = 1 << 20  # characters: a longer text file is read as pieces of one document, so that memory stays bounded


class Files:
    """A file, or every file of a folder that has one of the suffixes, in the order of their names."""

    def __init__(self, root: Path, *, lines: bool = False) -> None:
        self.root, self.lines = root, lines
        self.paths = [root] if root.is_file() else _inside(root)
        if root.is_file() and root.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{root} is not a kind of file that can be read; those are {', '.join(SUFFIXES)}.")
        if not self.paths:
            raise ValueError(f"the folder {root} holds none of the files that can be read: {', '.join(SUFFIXES)}.")
        self.identity = self._identity()

    def _identity(self) -> Place:
        """Names and sizes: enough to notice that a file was replaced or appended to, and cheap for any amount."""
        digest = hashlib.sha256()
        for path in self.paths:
            name = path.name if path == self.root else path.relative_to(self.root).as_posix()
            with _named(path):
                digest.update(json.dumps([name, path.stat().st_size]).encode())
        return {"kind": "files", "files": len(self.paths), "lines": self.lines, "digest": digest.hexdigest()[:16]}

    def read(self, place: Place | None) -> Iterator[Record]:
        first, inner = (place["file"], place["inside"]) if place else (0, None)
        for number, path in enumerate(self.paths[first:], start=first):
            for record in self._reader(path)(path, inner):
                yield record._replace(after={"file": number, "inside": record.after})
            inner = None

    def _reader(self, path: Path) -> Any:
        suffix = path.suffix.lower()
        if suffix == ".txt":
            return _text_lines if self.lines else _text
        return {".jsonl": _json_lines, ".json": _json, ".parquet": _parquet}[suffix]


def _inside(folder: Path) -> list[Path]:
    def shown(path: Path) -> bool:
        return not any(part.startswith(".") for part in path.relative_to(folder).parts)

    found = [path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and shown(path) and path.is_file()]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}.") from None


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with _named(path), path.open("rb") as file:
        yield file


class Line(NamedTuple):
    where: str
    text: str
    after: Place


def _lines(path: Path, place: Place | None) -> Iterator[Line]:
    number, offset = (place["line"], place["offset"]) if place else (0, 0)
    with _opened(path) as file:
        file.seek(offset)
        while line := file.readline():
            number, offset = number + 1, offset + len(line)
            where = f"line {number} of {path}"
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark that some editors write
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{where} is not UTF-8: byte 0x{line[error.start]:02x} at column {error.start + 1}; convert the "
                    "file, for example with iconv."
                ) from None
            yield Line(where, text, {"line": number, "offset": offset})


def _parsed(where: str, text: str) -> Any:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error}): one record a line is needed.") from None
    if not isinstance(content, dict | str):
        raise ValueError(f"{where} is a JSON {type(content).__name__}; a record is an object such as {{'text': ...}}.")
    return content


def _json_lines(path: Path, place: Place | None) -> Iterator[Record]:
    for where, text, after in _lines(path, place):
        if not text.isspace():
            yield Record(where, _parsed(where, text), after)


def _json(path: Path, place: Place | None) -> Iterator[Record]:
    """A list of records, or JSON lines: hub datasets call both .json."""
    with _opened(path) as file:
        start = file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start != b"[":
        yield from _json_lines(path, place)
        return
    text = "".join(line.text for line in _lines(path, None))
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} of {path} is not JSON ({error.msg}, column {error.colno}).") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}).") from None
    first = place["entry"] if place else 0
    for number, content in enumerate(entries[first:], start=first + 1):
        where = f"entry {number} of {path}"
        if not isinstance(content, dict | str):
            raise ValueError(f"{where} is a {type(content).__name__}; a record is an object such as {{'text': ...}}.")
        yield Record(where, content, {"entry": number})


def _parquet(path: Path, place: Place | None) -> Iterator[Record]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"{path} needs pyarrow, which is not installed: pip install 'redraft[train]', or save it as .jsonl."
        ) from None
    done = number = place["row"] if place else 0
    try:
        with _opened(path) as file:
            table = pyarrow.parquet.ParquetFile(file)
            skip, first = done, 0
            while first < table.num_row_groups and skip >= (rows := table.metadata.row_group(first).num_rows):
                skip, first = skip - rows, first + 1
            for batch in table.iter_batches(batch_size=64, row_groups=list(range(first, table.num_row_groups))):
                rest = batch.slice(skip)
                skip -= batch.num_rows - rest.num_rows
                for content in rest.to_pylist():
                    number += 1
                    given = {key: value for key, value in content.items() if value is not None}
                    yield Record(f"row {number} of {path}", given, {"row": number})
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} cannot be read as parquet past row {number}: {_first(error)}.") from None


def _first(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _text_lines(path: Path, place: Place | None) -> Iterator[Record]:
    for where, text, after in _lines(path, place):
        yield Record(where, text.rstrip("\r\n"), after)


def _text(path: Path, place: Place | None) -> Iterator[Record]:
    """The file as one document, in pieces that end at the end of a line."""
    piece: list[str] = []
    size, start, after = 0, "", place or {}
    for line in _lines(path, place):
        if size >= PIECE:
            yield Record(start, "".join(piece), after, ends=False)
            piece, size = [], 0
        start = start if piece else line.where
        piece.append(line.text.replace("\r\n", "\n"))
        size, after = size + len(line.text), line.after
    if piece:
        yield Record(start, "".join(piece), after)
