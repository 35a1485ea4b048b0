"""The process of the tests and the verdict. It never runs a line of the program: it asks the worker.

Names that the tests use and do not define are looked up in the program, save builtins: a program whose `abs` is a
constant fails. (Where the tests use nothing but builtins, the program's own are what is tested: MBPP 126 asks for a
`sum`.) What the tests expect never leaves this process, so no program can answer to please them.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
import types
from contextlib import suppress
from typing import Any, TypedDict

from .confine import Refused, Terms, confine
from .joined import SAFE, split
from .values import resolve
from .wire import Ended, Peer
from .worker import Uncompilable

SAID = 2000  # characters of an error that are kept
# Modules that tests may use without importing them, because the program does. They hold nothing that equals everything.
MODULES = frozenset({
    "math", "cmath", "itertools", "functools", "collections", "heapq", "bisect", "datetime", "decimal", "fractions",
    "re", "statistics", "random", "string", "operator", "copy", "json", "time",
})  # fmt: skip
HARMLESS_MODULES = frozenset({
    "math", "cmath", "itertools", "collections", "heapq", "bisect", "datetime", "decimal", "fractions", "re",
    "statistics",
})  # fmt: skip


class Job(TypedDict):
    program: str
    tests: str
    entry_point: str | None
    packages: list[str]


def main(line: int, verdicts: int, terms: Terms) -> None:
    job: Job = json.load(sys.stdin)
    peer = Peer(line, {"call": _call}, trusts=_trusts)
    confine(terms)
    try:
        peer.receive()  # the worker is confined too
    except Ended:
        raise Refused("worker", "it ended before it was confined") from None
    os.write(verdicts, b'["ready", ""]\n')
    verdict, said = judge(job, peer)
    os.write(verdicts, json.dumps([verdict, said[:SAID]]).encode() + b"\n")


def judge(job: Job, peer: Peer) -> tuple[str, str]:
    """The verdict, and what there is to say about it."""
    try:
        _judge(job, peer)
        if peer.lost:
            raise Ended("the program is gone")
    except Ended as ended:
        return "killed", str(ended)
    except (SystemExit, KeyboardInterrupt) as exited:
        return "killed", f"the program raised {type(exited).__name__}"
    except MemoryError:
        return "memory", "MemoryError"
    except BaseException as wrong:
        if type(wrong).__name__ == Uncompilable.__name__:
            return "syntax", str(wrong)
        return "wrong", f"{type(wrong).__name__}: {wrong}".rstrip(": ")
    return "passed", ""


def _judge(job: Job, peer: Peer) -> None:
    program, tests, trusted = job["program"], job["tests"], True
    whole = not tests
    if whole:
        with suppress(SyntaxError, ValueError, MemoryError, RecursionError):  # the worker says what is wrong with it
            program, tests, trusted = split(program)
    peer.ask("load", program, "solution" if tests else "__main__")
    if not tests:
        return peer.ask("alive")
    if not trusted:
        peer.trusts, peer.resolve = _trusts_harmless, _harmless
    code = compile(tests, "<tests>", "exec", dont_inherit=True)
    names = Names(peer, {job["entry_point"]} if job["entry_point"] else only_builtins(tests), trusted)
    exec(code, names)
    if job["entry_point"] and "check" in names:
        names["check"](peer.ask("look up", job["entry_point"]))


def only_builtins(tests: str) -> set[str]:
    """The names that the tests use, if all of them are builtins."""
    used = {node.id for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Name)}
    return used if all(hasattr(builtins, name) for name in used) else set()


class Names(dict[str, Any]):
    """The globals of the tests: their own, then builtins, then the program's."""

    def __init__(self, peer: Peer, tested: set[str], trusted: bool) -> None:
        safe = {name: held for name, held in vars(builtins).items() if name in SAFE}
        super().__init__(__builtins__=builtins if trusted else safe, __name__="__main__")
        self.peer = peer
        self.tested = tested  # builtins that are the program's own

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) and name not in self.tested:
            raise KeyError(name)
        try:
            return self.peer.ask("look up", name)
        except NameError:
            raise KeyError(name) from None


def _call(function: Any, *arguments: Any, **named: Any) -> Any:
    """The worker may call the functions that the tests hand to the program."""
    if not isinstance(function, types.FunctionType):
        raise TypeError("not a function of the tests")
    return function(*arguments, **named)


def _trusts(home: str, name: str) -> bool:
    """Whole modules, and what they define themselves: no way leads from there to other modules."""
    if home == "builtins":
        return isinstance(getattr(builtins, name, None), type)
    return home in MODULES and name[:1] != "_" and "." not in name


def _trusts_harmless(home: str, name: str) -> bool:
    return name in SAFE if home == "builtins" else home in HARMLESS_MODULES and _trusts(home, name)


def _harmless(home: str, name: str) -> Any:
    """As `resolve`, but of a module only what is no module itself: from there all of Python can be reached."""
    found = resolve(home, name)
    if not isinstance(found, types.ModuleType):
        return found
    public = {
        key: held for key, held in vars(found).items() if key[0] != "_" and not isinstance(held, types.ModuleType)
    }
    return types.SimpleNamespace(**public)
