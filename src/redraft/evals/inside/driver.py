"""The process of the tests and the verdict. It never runs a line of the program: it asks the worker.

Names that the tests use and do not define are looked up in the program, save builtins and what the program imports from
the standard library: a program whose `abs` is a constant fails. (Where the tests use nothing but builtins, the program's own are what is tested: MBPP 126 asks for a
`sum`.) What the tests expect never leaves this process, so no program can answer to please them.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypedDict

from .confine import Refused, Terms, confine
from .imported import fetch, imports
from .joined import INSPECTING, SAFE, split
from .remote import OPERATIONS
from .wire import Ended, Peer
from .worker import Uncompilable

SAID = 2000  # characters of an error that are kept


class Job(TypedDict):
    program: str
    tests: str
    entry_point: str | None
    packages: list[str]


def main(line: int, verdicts: int, terms: Terms) -> None:
    job: Job = json.load(sys.stdin)
    peer = Peer(line, {}, trusts=_trusts)
    confine(terms)
    try:
        peer.receive()  # the worker is confined too
    except Ended:
        raise Refused("worker", "it ended before it was confined") from None
    os.write(verdicts, b'["ready", ""]\n')
    random.seed(0)  # tests that draw what they ask draw the same every time, and so does the worker
    verdict, said = judge(job, peer)
    said = said[:SAID].encode(errors="backslashreplace").decode()  # programs may say what is no text
    os.write(verdicts, json.dumps([verdict, said]).encode() + b"\n")


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
    if not tests:
        program, tests, trusted = split(program)
    peer.ask("load", program, "solution" if tests else "__main__")
    if not tests:
        return peer.ask("alive")
    if not trusted:
        peer.trusts = _trusts_computing
    code = compile(tests, "<tests>", "exec", dont_inherit=True)
    names = Names(peer, {job["entry_point"]} if job["entry_point"] else only_builtins(tests), program, trusted)
    peer.operations = {name: names.for_own(name) for name in OPERATIONS}
    exec(code, names)
    if job["entry_point"] and "check" in names:
        names["check"](peer.ask("look up", job["entry_point"]))


def only_builtins(tests: str) -> set[str]:
    """The names that the tests use, if all of them are builtins."""
    used = {node.id for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Name)}
    return used if all(hasattr(builtins, name) for name in used) else set()


class Names(dict[str, Any]):
    """The globals of the tests: their own, then builtins, then what the program imports, then the program's."""

    def __init__(self, peer: Peer, tested: set[str], program: str, trusted: bool) -> None:
        safe = {name: held for name, held in vars(builtins).items() if name in SAFE}
        super().__init__(__builtins__=builtins if trusted else safe, __name__="__main__")
        self.peer, self.trusted = peer, trusted
        self.tested = tested  # builtins that are the program's own
        self.imported: dict[str, tuple[str, str]] = {}
        with suppress(SyntaxError, ValueError, MemoryError, RecursionError):  # the worker says what is wrong with it
            self.imported = imports(ast.parse(program).body)

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) and name not in self.tested:
            raise KeyError(name)
        with suppress(KeyError, AttributeError):
            return fetch(*self.imported[name], computing=not self.trusted)
        try:
            return self.peer.ask("look up", name)
        except NameError:
            raise KeyError(name) from None

    def for_own(self, name: str) -> Callable[..., Any]:
        """What the worker may do with what the tests hand to the program, and with nothing else of this process."""
        operation = OPERATIONS[name]

        def done(value: Any, *arguments: Any, **named: Any) -> Any:
            if not self.is_own(value) and not (isinstance(value, Iterator) and name in ("iter", "next")):
                raise TypeError("not of the tests")
            if name in ("getattr", "setattr"):
                attribute = str(arguments[0])
                hides = name == "setattr" and callable(getattr(type(value), attribute, None))
                if hides or INSPECTING.match(attribute):
                    raise AttributeError(attribute)
            return operation(value, *arguments, **named)

        return done

    def is_own(self, value: Any) -> bool:
        """Functions, classes and objects of classes that the tests define."""
        function = value.__func__ if isinstance(value, types.MethodType) else value
        if isinstance(function, types.FunctionType):
            return function.__globals__ is self
        return (value if isinstance(value, type) else type(value)).__module__ == "__main__"


def _trusts(home: str, name: str) -> bool:
    """Builtin classes, and the exceptions of modules that are here already."""
    held = getattr(builtins if home == "builtins" else sys.modules.get(home), name, None)
    known = home == "builtins" or (home.split(".")[0] in sys.stdlib_module_names and _is_exception(held))
    return known and isinstance(held, type)


def _is_exception(held: Any) -> bool:
    return isinstance(held, type) and issubclass(held, BaseException)


def _trusts_computing(home: str, name: str) -> bool:
    """Not `type`, which makes classes."""
    return _trusts(home, name) and (home != "builtins" or name in SAFE - {"type"})
