"""An object of the other process, and what may be done with it from here.

Of one object anything may be asked that does not tell it what the tests expect: its answers are data. So a Remote
equals, exceeds or adds to nothing but another Remote, when both are the program's own. And as long as nothing is done
with the program, a Remote stays the same number: HumanEval 32 puts what it gets into a polynomial, power by power.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


class Remote:
    # Stands for the object; whatever is done with it happens there. Its docstring too is that of the object.

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Any, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)
        return do("getattr", self, name)

    @property
    def __doc__(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return do("getattr", self, "__doc__")

    def __setattr__(self, name: str, value: Any) -> None:
        do("setattr", self, name, value)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return do("call", self, *arguments, **named)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Remote and bool(do("eq", self, other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __instancecheck__(self, instance: Any) -> bool:
        return type(instance) is Remote and bool(do("isinstance", instance, self))

    def __iter__(self) -> Any:
        return do("iter", self)

    def __exit__(self, kind: Any, *_: object) -> bool:
        return bool(do("exit", self, kind)) and kind is not AssertionError  # which is for the tests to raise


def do(operation: str, remote: Remote, *arguments: Any, **named: Any) -> Any:
    peer, number = parts_of(remote)
    try:
        if operation not in CONVERSIONS:
            return peer.ask(operation, remote, *arguments, **named)
        if (operation, number) not in peer.converted:
            peer.converted[operation, number] = peer.ask(operation, remote)
        return peer.converted[operation, number]
    except StopIteration as stopped:
        if operation == "next":
            raise
        raise RuntimeError("the program raised StopIteration") from stopped  # would quietly end a loop of the tests


def parts_of(remote: Remote) -> tuple[Any, int]:
    return object.__getattribute__(remote, "_peer"), object.__getattribute__(remote, "_number")


CONVERSIONS = ("int", "float", "index")
ALONE = (
    "next",
    "len",
    "bool",
    "str",
    "repr",
    "int",
    "float",
    "index",
    "abs",
    "enter",
    "neg",
    "pos",
    "invert",
    "reversed",
)
WITH_DATA = ("getitem", "setitem", "delitem", "round", "format")
PAIRED = (
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "matmul",
)


def _install(name: str) -> None:
    def alone(self: Remote, *arguments: Any) -> Any:
        return do(name, self, *arguments)

    def paired(self: Remote, other: Any) -> Any:
        return do(name, self, other) if type(other) is Remote else NotImplemented

    setattr(Remote, f"__{name}__", paired if name in PAIRED else alone)


for _name in (*ALONE, *WITH_DATA, *PAIRED):
    _install(_name)

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*PAIRED, "eq", "neg", "pos", "invert", "index", "abs")},
    **{name: getattr(operator, f"__{name}__") for name in ("getitem", "setitem", "delitem")},
    **{kind.__name__: kind for kind in (bool, str, int, float, reversed)},
    **{
        function.__name__: function for function in (getattr, setattr, isinstance, iter, next, len, repr, round, format)
    },
    "call": lambda function, *arguments, **named: function(*arguments, **named),
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": lambda manager, kind: type(manager).__exit__(manager, kind, None, None),
}
