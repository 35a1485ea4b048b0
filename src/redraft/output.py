"""Answers as JSON lines, written as they come: an interrupted run leaves valid lines and goes on where it stopped.

While a run lasts its lines stand in `x.jsonl.part`; only a finished run has `x.jsonl`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


class AnswerFile:
    """A file of one JSON object a line. `run` names the settings; lines of another run are never mixed in."""

    def __init__(self, path: Path, run: dict[str, Any], *, overwrite: bool = False) -> None:
        check_writable(path)
        self.path, self.part, self.run = path, path.with_name(path.name + ".part"), run
        if path.exists() and not overwrite:
            raise ValueError(f"{path} exists: give another --out, or --overwrite to replace it")
        if overwrite:
            self.part.unlink(missing_ok=True)
        self.finished: dict[int, dict[str, Any]] = self._resume()
        self._file = self.part.open("a", encoding="utf-8")

    def _resume(self) -> dict[int, dict[str, Any]]:
        """The whole lines of an interrupted run; a last line cut off by a kill is dropped."""
        if not self.part.exists():
            self.part.write_text(_line({"run": self.run}), encoding="utf-8")
            return {}
        lines = self.part.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if not whole:  # killed before its first line was written
            self.part.write_text(_line({"run": self.run}), encoding="utf-8")
            return {}
        try:
            first, *records = [json.loads(line) for line in whole]
            before = dict(first["run"])
            finished = {int(record["index"]): record for record in records}
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"{self.part} is not an unfinished run: move it away, or --overwrite to replace it"
            ) from None
        differing = sorted(key for key in {*before, *self.run} if before.get(key) != self.run.get(key))
        if differing:
            raise ValueError(
                f"{self.part} is an unfinished run with other settings ({', '.join(differing)}): "
                f"repeat its command to finish it, give another --out, or --overwrite to start anew"
            )
        if len(whole) < len(lines):
            replace(self.part, b"".join(whole))
        return finished

    def add(self, record: dict[str, Any]) -> None:
        if record["index"] in self.finished:
            return
        try:
            self._file.write(_line(record))
            self._file.flush()
        except OSError as refused:  # it does not say where
            raise OSError(refused.errno, refused.strerror, str(self.part)) from refused
        self.finished[record["index"]] = record

    def finish(self) -> None:
        """Put the lines in order under their final name, in one move."""
        self._file.close()
        replace(self.path, "".join(_line(self.finished[index]) for index in sorted(self.finished)).encode())
        self.part.unlink()

    def close(self) -> None:
        """Leave an interrupted run's lines in place; a run that answered nothing leaves nothing."""
        with suppress(OSError):  # a full disk refuses the same line once more
            self._file.close()
        if not self.finished:
            self.part.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse an output that cannot be written, before any work is done for it."""
    folder = path.parent
    if not path.name:
        raise ValueError("the name of the output file is empty: give one")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder, so {path.name} cannot be written in it: write elsewhere")
    if not folder.is_dir():
        raise ValueError(f"the folder {folder} does not exist: make it first, or write elsewhere")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file")
    probe = folder / f".{path.name}.{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as refused:
        raise ValueError(f"cannot write in the folder {folder} ({refused.strerror}): write elsewhere") from None


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def replace(path: Path, content: bytes) -> None:
    """A file in one move: what it held before, or all of `content`."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # still there only if a disk was full
