"""How the two processes ask each other: a line of JSON a message, one question at a time, each answered in turn."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from .remote import CONVERSIONS
from .values import CHANGEABLE, LARGEST, Values


class Ended(BaseException):
    """The other side is gone, or says what cannot be understood."""


class Peer(Values):
    """One end of the line. Either side may ask while it is being asked."""

    def __init__(
        self,
        line: int,
        operations: dict[str, Callable[..., Any]],
        *,
        trusts: Callable[[str, str], bool] = lambda home, name: True,
    ) -> None:
        super().__init__(trusts)
        self.line, self.operations = line, operations
        self.buffer = bytearray()
        self.asked = 0  # questions so far; an answer is to the last of them that is open
        self.lost = False  # no test may swallow it for good that the other side is gone

    def send(self, message: list[Any]) -> None:
        data = json.dumps(message, check_circular=False).encode() + b"\n"
        if len(data) > LARGEST:
            raise MemoryError("a value too large to be handed over")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.line, view) :]
        except OSError:
            raise self.ended("the other side is gone") from None

    def receive(self) -> list[Any]:
        while (end := self.buffer.find(b"\n")) < 0:
            try:
                data = os.read(self.line, 1 << 16)
            except OSError:
                data = b""
            if not data or len(self.buffer) > LARGEST:
                raise self.ended("the other side is gone" if not data else "a message without end")
            self.buffer += data
        data = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise self.ended("a message that is none") from None
        if not isinstance(message, list) or not message:
            raise self.ended("a message that is none")
        return message

    def ended(self, why: str) -> Ended:
        self.lost = True
        return Ended(why)

    def ask(self, operation: str, *arguments: Any, **named: Any) -> Any:
        """What the other side makes of it: a value, or an exception raised here."""
        if operation not in CONVERSIONS:
            self.converted.clear()
        self.asked += 1
        number = self.asked
        self.send(["ask", number, operation, self.encode(list(arguments)), self.encode(named)])
        while (message := self.receive())[0] == "ask":
            self.serve(message)
        try:
            kind, answered, value, changed = message
            if answered != number:
                raise self.ended("an answer to another question")
            value = self.raised(value) if kind == "raise" else self.decode(value)
            for place, now in changed:
                update(arguments[place] if isinstance(place, int) else named[place], self.decode(now))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as wrong:
            raise self.ended(f"an answer that is none: {wrong}") from None
        if kind == "raise":
            raise value
        return value

    def serve(self, message: list[Any]) -> None:
        """Answer one question."""
        _, number, operation, given, named = message
        given, named = self.decode(given), self.decode(named)
        held = {place: each for place, each in (*enumerate(given), *named.items()) if isinstance(each, CHANGEABLE)}
        before = {place: json.dumps(self.encode(each)) for place, each in held.items()}
        try:
            value = self.encode(self.operations[operation](*given, **named))
            now = {place: self.encode(each) for place, each in held.items()}
            changed = [[place, each] for place, each in now.items() if json.dumps(each) != before[place]]
            self.send(["is", number, value, changed])
        except Ended:
            raise
        except BaseException as raised:
            self.send(["raise", number, self.exception(raised), []])

    def loop(self) -> None:
        while True:
            self.serve(self.receive())


def update(mine: Any, now: Any) -> None:
    """Change an argument in place as its copy was changed."""
    if isinstance(mine, list):
        mine[:] = [kept(*pair) for pair in zip(mine, now, strict=False)] + now[len(mine) :]
    elif isinstance(mine, dict):
        fresh = {key: kept(mine[key], held) if key in mine else held for key, held in now.items()}
        mine.clear()
        mine.update(fresh)
    elif isinstance(mine, set):
        mine.clear()
        mine.update(now)
    elif isinstance(mine, bytearray | deque):
        mine.clear()
        mine.extend(now)


def kept(mine: Any, now: Any) -> Any:
    """The same object as before where it can hold what it should now."""
    if type(mine) is type(now) and isinstance(mine, CHANGEABLE):
        update(mine, now)
        return mine
    return now
