"""Saved states of a run: folders of safetensors and JSON, whole or not there, each file with its sha256 in a manifest.

A state is written to a hidden folder beside its place, flushed to the disk and renamed, so that a kill or a full disk
at any moment leaves the states before it untouched. Nothing is pickled, and nothing here can run code when read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from torch import Tensor

MANIFEST = "manifest.json"
NAME = re.compile(r"step-(\d{6,})")
Content = Mapping[str, Any]  # by file name: see `write`


@dataclass(frozen=True)
class Checkpoint:
    """One state on the disk. Everything in it has been compared with the manifest."""

    folder: Path
    step: int

    def record(self, file: str) -> dict[str, Any]:
        return json.loads((self.folder / file).read_text(encoding="utf-8"))

    def tensors(self, file: str) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        return load_file(self.folder / file)


def write(folder: Path, content: Content, *, manifest: bool = True) -> None:
    """`folder` with these files and their manifest, or no folder at all.

    A name ending in .safetensors takes tensors, one in .json an object, any other a text; a function is given the path.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}-{token_hex(4)}")
    draft.mkdir()
    try:
        for name, value in content.items():
            _write_file(draft / name, value)
        if manifest:
            _write_file(draft / MANIFEST, {"files": {path.name: _describe(path) for path in sorted(draft.iterdir())}})
        for path in [*sorted(draft.iterdir()), draft]:
            flush(path)
        if folder.exists():  # a damaged one that is being replaced
            discard(folder)
        draft.rename(folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_file(path: Path, value: Any) -> None:
    if callable(value):
        value(path)
    elif isinstance(value, str):
        path.write_text(value, encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    else:
        _save_tensors(dict(value), path)


def write_text(path: Path, text: str) -> None:
    """A file of its own, whole or not there."""
    draft = path.with_name(f".{path.name}-{token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8")
        flush(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    except SafetensorError as refused:  # it hides the operating system's error in a text
        code = re.search(r"os error (\d+)", str(refused))
        if code is None:
            raise
        raise OSError(int(code.group(1)), os.strerror(int(code.group(1))), str(path)) from refused
    os.umask(mask := os.umask(0))
    path.chmod(0o666 & ~mask)  # safetensors makes files that only their owner can read


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def flush(path: Path) -> None:
    """Onto the disk itself: a rename must never be there before what it names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as refused:  # some network file systems cannot flush a folder
        if refused.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def damage(folder: Path) -> str | None:
    """What is wrong with a saved state, in words; None if it is whole."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        for name, said in listed.items():
            if not (folder / name).is_file():
                return f"{name} is missing"
            found = _describe(folder / name)
            if found["bytes"] != said["bytes"]:
                return f"{name} has {found['bytes']:,} bytes instead of {said['bytes']:,}"
            if found["sha256"] != said["sha256"]:
                return f"{name} is not what was written"
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} cannot be read"
    return None


def saved(place: Path) -> list[Checkpoint]:
    """All states in a folder, the newest first, unchecked."""
    found = [(NAME.fullmatch(path.name), path) for path in place.glob("step-*")] if place.is_dir() else []
    states = [Checkpoint(path, int(match.group(1))) for match, path in found if match and path.is_dir()]
    return sorted(states, key=lambda state: state.step, reverse=True)


def newest(place: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest state that is whole. Damaged ones are reported; if there are only such, that is an error."""
    states = saved(place)
    for state in states:
        fault = damage(state.folder)
        if fault is None:
            return state
        report(f"{state.folder} is damaged ({fault}) and is passed over")
    if states:
        raise ValueError(f"every saved state in {place} is damaged: --overwrite starts the run anew")
    return None


def save(place: Path, step: int, content: Content, *, keep: int) -> Path:
    """Add the state of `step` and remove all but the last `keep`, and whatever killed runs left half-written."""
    folder = place / f"step-{step:06}"
    write(folder, content)
    for old in saved(place)[keep:]:
        discard(old.folder)
    for partial in place.glob(".step-*"):
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def discard(folder: Path) -> None:
    """Renamed first: a kill in the middle leaves no half of it under its name."""
    hidden = folder.with_name(f".{folder.name}-{token_hex(4)}")
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
