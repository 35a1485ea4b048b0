"""Samplers from a file outside the package: `./mine.py:mine(k=3)`.

The file is Python and is run as any script that its user names. It registers its samplers as ours do, and from then on
they go by their names alone; what they came from is in `Sampler.source`, and so on every protocol card.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple

from redraft.decoding.notation import split, suggest
from redraft.decoding.sampler import SAMPLERS, Sampler

NOTATION = re.compile(r"\s*([^()]+\.py)\s*(?::(.*))?", re.DOTALL)


class Loaded(NamedTuple):
    digest: str
    names: list[str]


LOADED: dict[Path, Loaded] = {}


def names_file(text: str) -> bool:
    return NOTATION.fullmatch(text) is not None


def read(text: str) -> Sampler:
    """The sampler that a file defines."""
    found = NOTATION.fullmatch(text)
    assert found is not None
    file, notation = found[1], (found[2] or "").strip()
    if not notation:
        raise ValueError(f"{file} is a file of samplers: say which, as in {file}:name or {file}:name(option=value)")
    name, _ = split(notation, "sampler")
    names = load(Path(file).expanduser())
    if name not in names:
        have = f"it has {', '.join(names)}" if names else "it has none; write @register above the class of one"
        raise ValueError(f"{file} has no sampler {name!r}{suggest(name, names)}: {have}")
    return SAMPLERS.parse(notation)


def load(path: Path) -> list[str]:
    """Run a file, once for each content it has had, and name the samplers that it registered."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder: name a Python file in it") from None
    digest, place = hashlib.sha256(content).hexdigest()[:16], path.resolve()
    before = LOADED.get(place)
    if before and before.digest == digest:
        return before.names
    for name in before.names if before else ():
        del SAMPLERS.classes[name]
    LOADED.pop(place, None)
    known = set(SAMPLERS)
    try:
        _run(content, path, digest)
        names = [name for name in SAMPLERS.classes if name not in known]
        for name in names:
            _check(SAMPLERS.classes[name], name, path)
            SAMPLERS.classes[name].source = f"{path.name} sha256:{digest}"
    except ValueError:
        for name in set(SAMPLERS) - known:
            del SAMPLERS.classes[name]
        raise
    LOADED[place] = Loaded(digest, names)
    return names


def _run(content: bytes, path: Path, digest: str) -> None:
    module = ModuleType(f"redraft_outside_{digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and type hints look their module up there
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))
    except SyntaxError as wrong:
        where = "" if wrong.lineno is None else f" (line {wrong.lineno})"
        raise ValueError(f"{path} cannot be read as Python{where}: {wrong.msg}") from None
    except (Exception, SystemExit) as wrong:
        kind = "" if type(wrong) is ValueError else f"{type(wrong).__name__}: "
        raise ValueError(f"{path} cannot be loaded{_line(wrong.__traceback__, path)}: {kind}{wrong}") from None


def _line(trace: TracebackType | None, path: Path) -> str:
    """Where in the file something went wrong: the innermost of its lines."""
    found = ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def _check(cls: type, name: str, path: Path) -> None:
    """What the package's own samplers are held to by tests, so far as it can be told without running one."""
    asks = None
    if not (isinstance(cls, type) and issubclass(cls, Sampler)):
        asks = "is not a Sampler: write `class Name(Sampler)`"
    elif not (is_dataclass(cls) and cls.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        asks = "is not a frozen dataclass: write @dataclass(frozen=True, repr=False) between @register and its class"
    elif cls.__repr__ is not Sampler.__repr__:
        asks = "has a repr of its own, which results could not be read back from: write @dataclass(..., repr=False)"
    elif bare := [field.name for field in fields(cls) if field.default is MISSING]:
        asks = f"has no default for {', '.join(bare)}: give every option one"
    elif not hasattr(cls, "channels"):
        asks = 'does not say what it may do: write channels = frozenset({"m2t"}), with "t2t" and "t2m" as they apply'
    elif cls.step is Sampler.step:
        asks = "has no method step(self, denoise, block, clock)"
    if asks:
        raise ValueError(f"the sampler {name!r} of {path} {asks}")
