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


def main(line: int, terms: Terms, packages: list[str]) -> None:
    sys.path.extend(packages)
    module, compiled = types.ModuleType("solution"), []
    peer = Peer(line, {})

    def compiles(source: str) -> str:
        """What is wrong with a program that is not Python. Nothing of it has run by then, so this is believed."""
        try:
            compiled.append(compile(source, "<program>", "exec", dont_inherit=True))
        except UNCOMPILABLE as wrong:
            return f"{type(wrong).__name__}: {wrong}"
        return ""

    def load(name: str) -> None:
        module.__name__ = name
        sys.modules[name] = module
        exec(compiled.pop(), module.__dict__)

    def look_up(name: str) -> Any:
        try:
            return module.__dict__[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined") from None

    peer.operations = {**OPERATIONS, "compile": compiles, "load": load, "look up": look_up, "alive": lambda: None}
    confine(terms)
    os.environ.clear()
    random.seed(0)
    try:
        peer.send(["ready"])
        peer.loop()
    except Ended:
        pass
