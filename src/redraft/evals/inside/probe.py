"""Tries the walls: a confined process does what no program may, and reports what it could do."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable

from .confine import Terms, confine


def main(verdicts: int, terms: Terms, outside: str) -> None:
    parent = os.getppid()
    confine(terms)
    attempts: dict[str, Callable[[], object]] = {
        "read files": lambda: open(outside).close(),
        "write files": lambda: open(outside, "a").close(),
        "make files": lambda: os.mkdir(f"{outside}.made"),
        "see other processes": lambda: open(f"/proc/{parent}/environ").close(),
        "signal other processes": lambda: os.kill(parent, signal.SIGCONT),
        "use the network": lambda: socket.socket().close(),
        "start processes": _fork,
    }
    done = [name for name, attempt in attempts.items() if _works(attempt)]
    os.write(verdicts, json.dumps(["tried", *done]).encode() + b"\n")


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()
