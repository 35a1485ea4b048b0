"""What the names in the tests stand for: what they define, then builtins and modules, then what the program defines.

A program whose `abs` is a constant fails, and so does one whose `math` calls everything close. (Where the tests use
nothing but builtins, the program's own are what is tested: MBPP 126 asks for a `sum`.)
"""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from .harmless import FORMATTING, INSPECTING, SAFE
from .imported import MODULES, fetch
from .remote import OPERATIONS, Remote
from .values import CHANGEABLE
from .wire import Peer


class Names(dict[str, Any]):
    """The globals of the tests. `imported`: what the program has from the standard library, as its text says."""

    def __init__(
        self,
        peer: Peer,
        tests: ast.Module,
        imported: dict[str, tuple[str, str]],
        *,
        entry_point: str | None,
        trusted: bool,
    ) -> None:
        safe = {name: held for name, held in vars(builtins).items() if name in SAFE} | COMPUTING
        super().__init__(__builtins__=builtins if trusted else safe, __name__="__main__", __set__=_set)
        self.peer, self.trusted = peer, trusted
        self.tested = {entry_point} if entry_point else _only_builtins(tests)  # builtins that are the program's own
        self.imported = {name: (name, "") for name in _modules(tests)} | imported

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
                if INSPECTING.match(attribute) or (name == "setattr" and _is_method(value, attribute)):
                    raise AttributeError(attribute)
            return operation(value, *arguments, **named)

        return done

    def is_own(self, value: Any) -> bool:
        """Functions, classes and objects of classes that the tests define, and what fills a list of theirs."""
        if isinstance(value, types.BuiltinMethodType) and type(value.__self__) in CHANGEABLE:
            return True
        function = value.__func__ if isinstance(value, types.MethodType) else value
        if isinstance(function, types.FunctionType):
            return function.__globals__ is self
        return (value if isinstance(value, type) else type(value)).__module__ == "__main__"


def _get(value: Any, name: str, *default: Any) -> Any:
    if name in FORMATTING or INSPECTING.match(name):
        raise AttributeError(name)
    return getattr(value, name, *default)


def _has(value: Any, name: str) -> bool:
    try:
        _get(value, name)
    except AttributeError:
        return False
    return True


def _set(value: Any, name: str, to: Any) -> None:
    """For tests that are not trusted: what is the program's they may change, and nothing else."""
    if type(value) is not Remote:
        raise TypeError(f"{name} is not set on an object of the program")
    setattr(value, name, to)


COMPUTING = {"getattr": _get, "hasattr": _has}


def _is_method(value: Any, attribute: str) -> bool:
    kinds = [type(value), *([value] if isinstance(value, type) else [])]
    return any(callable(getattr(kind, attribute, None)) for kind in kinds)


def _only_builtins(tests: ast.Module) -> set[str]:
    """The names that the tests use, if all of them are builtins."""
    used = {node.id for node in ast.walk(tests) if isinstance(node, ast.Name)}
    return used if all(hasattr(builtins, name) for name in used) else set()


def _modules(tests: ast.Module) -> set[str]:
    """Modules that the tests use without importing them: nothing but `math.something` is said of `math`.

    Not datetime, whose class of the same name is used in the same way.
    """
    roots = [node.value for node in ast.walk(tests) if isinstance(node, ast.Attribute)]
    others = {node.id for node in ast.walk(tests) if isinstance(node, ast.Name) and node not in roots}
    return {node.id for node in roots if isinstance(node, ast.Name)} & MODULES - others - {"datetime"}


def trusts(home: str, name: str) -> bool:
    """What the program may name of the standard library: builtin classes, and exceptions of modules that are here."""
    held = getattr(builtins if home == "builtins" else sys.modules.get(home), name, None)
    if not isinstance(held, type):
        return False
    return home == "builtins" or (home.split(".")[0] in sys.stdlib_module_names and issubclass(held, BaseException))


def trusts_computing(home: str, name: str) -> bool:
    """Not `type`, which makes classes."""
    return trusts(home, name) and (home != "builtins" or name in SAFE - {"type"})
