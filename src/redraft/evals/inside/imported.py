"""What a program imports under which name, as its text says: the tests may use it too, from the driver's own library.

Asked for, a program could hand over an `isclose` of its own that is always true.
"""

from __future__ import annotations

import ast
import importlib
import types
from typing import Any

# Modules that tests may use without importing them, because the program does. They hold nothing that equals everything.
MODULES = frozenset({
    "math", "cmath", "itertools", "functools", "collections", "heapq", "bisect", "datetime", "decimal", "fractions",
    "re", "statistics", "random", "string", "operator", "copy", "json", "time",
})  # fmt: skip
# Those of them that give no way to attributes by name, for tests that may only compute.
COMPUTING_MODULES = frozenset({
    "math", "cmath", "itertools", "collections", "heapq", "bisect", "datetime", "decimal", "fractions", "re",
    "statistics",
})  # fmt: skip
# They change how numbers compare: an answer that is wrong by less than 1 is right to no digits.
CONTEXTS = frozenset({"getcontext", "setcontext", "localcontext", "Context", "DefaultContext", "BasicContext"})


def imports(body: list[ast.stmt]) -> dict[str, tuple[str, str]]:
    """Name: (module, name in it or nothing), as the statements at the margin leave them."""
    found: dict[str, tuple[str, str]] = {}
    for statement in body:
        if isinstance(statement, ast.Import):
            whole = [each for each in statement.names if each.asname or "." not in each.name]
            found |= {each.asname or each.name: (each.name, "") for each in whole}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            home = statement.module
            for each in statement.names:
                names = _public(home) if each.name == "*" else [each.name]
                found |= {each.asname or name: (home, name) for name in names}
        else:
            for name in _defined(statement):
                found.pop(name, None)
    return found


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def fetch(home: str, name: str, *, computing: bool) -> Any:
    """Of the driver's own library; KeyError for what the tests may not have from there."""
    if home not in (COMPUTING_MODULES if computing else MODULES):
        raise KeyError(home)
    module = importlib.import_module(home)
    if name.startswith("_"):
        raise KeyError(name)
    if not computing:
        return getattr(module, name) if name else module
    names = set(_public(home)) - CONTEXTS
    held = {key: getattr(module, key) for key in names if _is_of(home, getattr(module, key))}
    return held[name] if name else types.SimpleNamespace(**held)


def _public(home: str) -> list[str]:
    return [name for name in dir(importlib.import_module(home)) if name[0] != "_"] if home in MODULES else []


def _is_of(home: str, value: Any) -> bool:
    """What a module defines itself: from modules that it imports all of Python can be reached."""
    return isinstance(value, int | float | str) or getattr(value, "__module__", None) in (home, f"_{home}")
