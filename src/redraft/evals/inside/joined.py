"""Where the tests of a single text begin: programs often arrive with their tests behind them, as one piece.

    def add(a, b): ...            the program, for the worker
    def check(candidate): ...     the tests, for the driver: last functions that are called at the very end,
    check(add)                    or asserts at the end

The end of the text is its grader's: a program cannot come after it. But a program may end in tests of its own making,
which would then be run beside the verdict; so of statements only those are taken that can do nothing but compute, with
the builtins that `SAFE` lists: they make no classes (one might equal everything), and no attribute of theirs leads to
the frames and modules of the driver. Whatever is not recognised stays with the program.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
from typing import NamedTuple

from .imported import imports

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
IMPORTS = (ast.Import, ast.ImportFrom)
BINDING = (ast.Assign, ast.AnnAssign, ast.AugAssign)
SUSPENDED = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
# Attributes that lead from generators, tracebacks and the like to frames, and from there to everything.
INSPECTING = re.compile(r"_|(?:ag|co|cr|f|func|gi|im|tb)_")
# A program that ends in a backslash would make what follows a part of its own last statement: `if 0: \`, `async \`.
CONTINUED = re.compile(r"\\\r?\n(?=(?:assert|class|check|def|for|from|import|test\w*|try|while|with)\b)")


class Parts(NamedTuple):
    program: str
    tests: str
    trusted: bool  # the tests are functions of the grader's, and may use all of Python


def split(text: str) -> Parts:
    """A text whose tests are not recognised, or that is not Python, is all program."""
    text = CONTINUED.sub("\n", text)
    try:
        body = ast.parse(text).body
        for layout in (body, _unguarded(body)):
            for part, trusted in ((_functions, True), (_asserts, False)):
                start = part(layout)
                if start is not None:
                    return _parts(layout, start, trusted)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        pass
    return Parts(text, "", False)


def _parts(body: list[ast.stmt], start: int, trusted: bool) -> Parts:
    tests = [statement for statement in body[start:] if not isinstance(statement, IMPORTS)]
    imports = [statement for statement in body[start:] if isinstance(statement, IMPORTS)]
    for statement in tests:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = []  # the program's last line may be a decorator, and would then decide
    return Parts(_source(body[:start] + imports), _source(tests), trusted)


def _source(body: list[ast.stmt]) -> str:
    return ast.unparse(ast.Module(body, []))


def _unguarded(body: list[ast.stmt]) -> list[ast.stmt]:
    """What a last `if __name__ == "__main__":` holds, at the margin."""
    last = body[-1] if body else None
    if isinstance(last, ast.If) and _is_guard(last) and not last.orelse:
        return body[:-1] + last.body
    return body


def _is_guard(statement: ast.If) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


# --- functions that are called at the end ---


def _functions(body: list[ast.stmt]) -> int | None:
    """`def check(candidate)` directly before calls of it; or several such functions."""
    last = len(body)
    while last and _called(body[last - 1]):
        last -= 1
    called, start = {_called(statement) for statement in body[last:]}, last
    while start and isinstance(function := body[start - 1], ast.FunctionDef) and function.name in called:
        called.remove(function.name)  # another function of this name further up is not the one that is called
        if not (function.args.args or function.name.startswith(("test", "check"))):
            return None
        start -= 1
    asserting = any(map(_asserting, body[start:last]))
    return start if asserting and start and not called else None


def _called(statement: ast.stmt) -> str | None:
    """The name of a function that is called with names and constants alone, or without anything."""
    if isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        plain = all(isinstance(argument, ast.Name | ast.Constant) for argument in call.args) and not call.keywords
        return call.func.id if plain and isinstance(call.func, ast.Name) else None
    return None


# --- asserts at the end ---


def _asserts(body: list[ast.stmt]) -> int | None:
    """From the first assert of the last unbroken run of harmless statements; imports among them do not break it."""
    start, reached, imported = None, None, set(imports(body))
    for place in range(len(body) - 1, -1, -1):
        statement = body[place]
        if isinstance(statement, IMPORTS):
            reached = place if reached == place + 1 else reached
            continue
        if not _harmless(statement, body[place:], imported):
            break
        # What is bound before an assert goes with it, unless the program uses it too.
        own = not _names([statement], ast.Store) & _names(body[:place], ast.Load)
        if _asserting(statement) or (reached == place + 1 and own):
            start = reached = place
    return start


def _asserting(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(statement))


def _names(part: list[ast.stmt], context: type) -> set[str]:
    nodes = list(ast.walk(ast.Module(part, [])))
    found = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
    caught = {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    return found | caught if context is ast.Store else found


def _harmless(statement: ast.stmt, onwards: list[ast.stmt], imported: set[str]) -> bool:
    """Whether a statement can only compute. `onwards`: it and what follows, which it must not change the meaning of."""
    asserting = _asserting(statement)
    if isinstance(statement, ast.If) and _is_guard(statement) and not asserting:
        return False  # the program's own
    stored = _names([statement], ast.Store)
    if any(name.startswith("__") for name in stored) or stored & (imported | _used_as_builtins(onwards)):
        return False
    bound = _names(onwards, ast.Store)
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert) and node.msg is not None and not _computes(node.msg, bound):
            node.msg = None  # it would be told only after the verdict
    functions = any(isinstance(node, ast.Lambda) for node in ast.walk(statement))
    return _computes(statement, bound) and (asserting or not functions)


def _used_as_builtins(statements: list[ast.stmt]) -> set[str]:
    """Builtins that are called, handed to those that take functions or classes, or caught: map(str, x)."""
    used: list[ast.AST | None] = []
    for node in ast.walk(ast.Module(statements, [])):
        if isinstance(node, ast.Call):
            taking = isinstance(node.func, ast.Name) and node.func.id in ("filter", "isinstance", "issubclass", "map")
            used += [node.func, *(keyword.value for keyword in node.keywords), *(node.args if taking else [])]
        elif isinstance(node, ast.ExceptHandler):
            used.append(node.type)
        elif isinstance(node, ast.Raise):
            used.append(node.exc)
    parts = [part for one in used if one for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return {part.id for part in parts if isinstance(part, ast.Name) and hasattr(builtins, part.id)}


def _computes(part: ast.AST, bound: set[str]) -> bool:
    kinds = _asked_kinds(part)
    return all(_is_computing(node, bound, kinds) for node in ast.walk(part))


def _is_computing(node: ast.AST, bound: set[str], kinds: set[ast.AST]) -> bool:
    if isinstance(node, ast.stmt):
        return isinstance(node, STATEMENTS)
    if isinstance(node, ast.Attribute):
        return not INSPECTING.match(node.attr) and (node.attr not in ("format", "format_map") or _fills_in(node))
    if isinstance(node, ast.Name) and node.id == "type":
        return node in kinds
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        known = node.id in SAFE or node.id == "__name__" or node.id in bound
        return known or not (hasattr(builtins, node.id) or node.id.startswith("__"))
    return not isinstance(node, SUSPENDED)


def _fills_in(node: ast.Attribute) -> bool:
    """'{} is {:.2f}'.format(a, b), where no field of the text looks into what it is given."""
    text = node.value.value if isinstance(node.value, ast.Constant) else None
    if node.attr != "format" or not isinstance(text, str):
        return False
    try:
        fields = [(name or "", spec or "") for _, name, spec, _ in string.Formatter().parse(text)]
    except ValueError:
        return False
    return not any({*name} & {*".["} or "{" in spec for name, spec in fields)


def _asked_kinds(part: ast.AST) -> set[ast.AST]:
    """The `type`s that only ask what something is: type(x) == int, isinstance(x, type). Others may make classes."""
    asked: set[ast.AST] = set()
    for node in ast.walk(part):
        if isinstance(node, ast.Compare):
            asked.update(map(_kind_of, (node.left, *node.comparators)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked.update(node.args, map(_kind_of, node.args))
    return asked


def _kind_of(value: ast.expr) -> ast.AST:
    """The `type` of `type(x)`."""
    return value.func if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords else value
