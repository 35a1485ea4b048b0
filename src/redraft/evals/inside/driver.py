"""The process of the tests and the verdict. It never runs a line of the program: it asks the worker.

What the tests expect never leaves this process, so no program can answer to please them; and what they use beside the
program, they have from here: see `names`.
"""

from __future__ import annotations

import ast
import json
import os
import random
import sys
from typing import TypedDict

from .confine import Refused, Terms, confine
from .imported import imports
from .joined import Parts, split
from .names import Names, trusts, trusts_computing
from .plain import mistrusted
from .remote import OPERATIONS
from .wire import Ended, Peer
from .worker import UNCOMPILABLE

SAID = 2000  # characters of an error that are kept
UNTESTED = "it reached its end; no tests were recognised"
MISTRUSTED = "its tests could not be told from the program, and {}: give them as tests="


class Job(TypedDict):
    program: str
    tests: str
    entry_point: str | None


class Uncompilable(Exception):
    """The program is not Python."""


def main(line: int, verdicts: int, terms: Terms, packages: list[str]) -> None:
    sys.path.extend(packages)  # which tests may import, as programs do
    job: Job = json.load(sys.stdin)
    peer = Peer(line, {}, trusts=trusts)
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
        said = _judge(job, peer)
        if peer.lost:
            raise Ended("the program is gone")
    except Ended as ended:
        return "killed", str(ended)
    except (SystemExit, KeyboardInterrupt) as exited:
        return "killed", f"the program raised {type(exited).__name__}"
    except MemoryError:
        return "memory", "MemoryError"
    except Uncompilable as wrong:
        return "syntax", str(wrong)
    except BaseException as wrong:
        return "wrong", f"{type(wrong).__name__}: {wrong}".rstrip(": ")
    return "passed", said


def _judge(job: Job, peer: Peer) -> str:
    """Raises unless it passes; what there is to say about that."""
    tests = ast.parse(job["tests"])
    try:
        parts = Parts(job["program"], tests, trusted=True) if tests.body else split(job["program"])
        imported = imports(ast.parse(parts.program, "<program>").body)
    except UNCOMPILABLE as wrong:
        raise Uncompilable(f"{type(wrong).__name__}: {wrong}") from None
    if said := peer.ask("compile", parts.program):
        raise Uncompilable(said)
    peer.ask("load", "solution" if parts.tests.body else "__main__")
    if not parts.tests.body:
        peer.ask("alive")
        if doubt := mistrusted(parts.program):
            raise AssertionError(MISTRUSTED.format(doubt))
        return UNTESTED
    if not parts.trusted:
        peer.trusts = trusts_computing
    names = Names(peer, parts.tests, imported, entry_point=job["entry_point"], trusted=parts.trusted)
    peer.operations = {name: names.for_own(name) for name in OPERATIONS}
    exec(compile(parts.tests, "<tests>", "exec", dont_inherit=True), names)
    if job["entry_point"] and "check" in names:
        names["check"](peer.ask("look up", job["entry_point"]))
    return ""
