"""The process of the program under test. It holds no test and no verdict; whatever it says is data to the driver."""

from __future__ import annotations

import os
import random
import sys
import types
from typing import Any

from .confine import Terms, confine
from .remote import OPERATIONS
from .wire import Ended, Peer

UNCOMPILABLE = (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError, UnicodeError)


class Uncompilable(Exception):
    """The program is not Python."""


def main(line: int, terms: Terms, packages: list[str]) -> None:
    sys.path.extend(packages)
    module = types.ModuleType("solution")
    peer = Peer(line, {})

    def load(source: str, name: str) -> None:
        try:
            code = compile(source, "<program>", "exec", dont_inherit=True)
        except UNCOMPILABLE as wrong:
            raise Uncompilable(f"{type(wrong).__name__}: {wrong}") from None
        module.__name__ = name
        sys.modules[name] = module
        exec(code, module.__dict__)

    def look_up(name: str) -> Any:
        try:
            return module.__dict__[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined") from None

    peer.operations = {**OPERATIONS, "load": load, "look up": look_up, "alive": lambda: None}
    confine(terms)
    os.environ.clear()
    random.seed(0)
    try:
        peer.send(["ready"])
        peer.loop()
    except Ended:
        pass
