"""Where the tests of a single text begin: programs often arrive with their tests behind them, as one piece.

    def add(a, b): ...            the program, for the worker
    def check(candidate): ...     the tests, for the driver: a last function that is called at the very end,
    check(add)                    or asserts at the end

The end of the text is its grader's: a program cannot come after it. But a program may end in tests of its own making,
which would then be run beside the verdict; so of statements only those are taken that can do nothing but compute, with
the builtins that `SAFE` lists. Whatever is not recognised stays with the program.
"""

from __future__ import annotations

import ast
import builtins
from typing import NamedTuple

COMPUTING = frozenset({
    "abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr", "complex", "dict", "divmod",
    "enumerate", "filter", "float", "format", "frozenset", "hash", "hex", "id", "int", "isinstance", "issubclass",
    "iter", "len", "list", "map", "max", "min", "next", "oct", "ord", "pow", "print", "range", "repr", "reversed",
    "round", "set", "slice", "sorted", "str", "sum", "tuple", "type", "zip", "True", "False", "None",
    "NotImplemented", "Ellipsis",
})  # fmt: skip
SAFE = COMPUTING | {
    name for name, held in vars(builtins).items() if isinstance(held, type) and issubclass(held, BaseException)
}
STATEMENTS = (
    ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.For, ast.If, ast.Try, ast.With, ast.Pass,
    ast.Raise,
)  # fmt: skip


class Parts(NamedTuple):
    program: str
    tests: str
    trusted: bool  # the tests are a function of the grader's, and may use all of Python


def split(text: str) -> Parts:
    """A text whose tests are not recognised is all program."""
    body = ast.parse(text).body
    start, trusted = _function(body), True
    if start is None:
        start, trusted = _asserts(body), False
    if start is None:
        return Parts(text, "", False)
    tests = body[start:]
    for statement in tests:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = []  # the program's last line may be a decorator, and would then decide
    return Parts(_source(body[:start]), _source(tests), trusted)


def _source(body: list[ast.stmt]) -> str:
    return ast.unparse(ast.Module(body, []))


def _function(body: list[ast.stmt]) -> int | None:
    """`def check(candidate)` directly before calls of it."""
    last = len(body)
    while last and _called(body[last - 1]):
        last -= 1
    if not (0 < last < len(body)) or not isinstance(function := body[last - 1], ast.FunctionDef):
        return None
    if not all(_called(statement) == function.name for statement in body[last:]):
        return None
    if not any(isinstance(node, ast.Assert) for node in ast.walk(function)):
        return None
    if not (function.args.args or function.name.startswith("test")):
        return None
    return last - 1


def _called(statement: ast.stmt) -> str | None:
    """The name of a function that is called with names alone, or without anything."""
    if isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        plain = all(isinstance(argument, ast.Name) for argument in call.args) and not call.keywords
        return call.func.id if plain and isinstance(call.func, ast.Name) else None
    return None


def _asserts(body: list[ast.stmt]) -> int | None:
    """From the first assert of the last unbroken run of harmless statements."""
    start = None
    defined = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    for place in range(len(body) - 1, -1, -1):
        if not _harmless(body[place], defined):
            break
        asserting = any(isinstance(node, ast.Assert) for node in ast.walk(body[place]))
        if asserting or (start == place + 1 and not _names(body[place], ast.Store) & _names(body[:place], ast.Load)):
            start = place  # what is bound before an assert goes with it, unless the program uses it too
    return start


def _names(part: ast.stmt | list[ast.stmt], context: type) -> set[str]:
    nodes = ast.walk(part if isinstance(part, ast.stmt) else ast.Module(part, []))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _harmless(statement: ast.stmt, defined: set[str]) -> bool:
    return isinstance(statement, STATEMENTS) and all(_harmless_part(node, defined) for node in ast.walk(statement))


def _harmless_part(node: ast.AST, defined: set[str]) -> bool:
    if isinstance(node, ast.stmt):
        return isinstance(node, STATEMENTS)
    if isinstance(node, ast.Attribute):
        return not node.attr.startswith("_")
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id in SAFE or node.id == "__name__" or not (hasattr(builtins, node.id) or node.id.startswith("__"))
    if isinstance(node, ast.Name):
        return node.id not in defined and not hasattr(builtins, node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return len(node.args) == 1 and not node.keywords  # with three it makes a class, which may equal everything
    return not isinstance(node, ast.Lambda | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr)
