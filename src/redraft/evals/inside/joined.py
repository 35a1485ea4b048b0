"""Where the tests of a single text begin: programs often arrive with their tests behind them, as one piece.

    def add(a, b): ...            the program, for the worker
    def check(candidate): ...     the tests, for the driver: last functions that are called at the very end,
    check(add)                    or asserts at the end

The end of the text is its grader's: a program cannot come after it. But a program may end in tests of its own making,
which would then be run beside the verdict; so of statements only those are taken that can do nothing but compute, with
the builtins that `SAFE` lists: they make no classes (one might equal everything), they change nothing that is not
theirs, and no attribute of theirs leads to the frames and modules of the driver. The rest stays with the program.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
import symtable
from collections.abc import Iterator
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
SUSPENDED = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
# Attributes that lead from generators, tracebacks and the like to frames, and from there to everything; and from a
# class to those that it is made of, among which are some that make others.
INSPECTING = re.compile(r"_|mro$|(?:ag|co|cr|f|func|gi|im|tb)_")
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# A program that ends in a backslash would make what follows a part of its own last statement: `if 0: \`, `async \`.
CONTINUED = re.compile(r"\\\r?\n(?=(?:assert|class|check|def|for|from|import|test\w*|try|while|with)\b)")


class Parts(NamedTuple):
    program: str
    tests: ast.Module
    trusted: bool  # the tests are functions of the grader's, and may use all of Python


def split(text: str) -> Parts:
    """A text whose tests are not recognised is all program; raises what `compile` does for one that is not Python."""
    text = CONTINUED.sub("\n", text.replace("\r\n", "\n").replace("\r", "\n"))
    body = ast.parse(text, "<program>").body
    for layout in (body, _unguarded(body)):
        for part, trusted in ((_functions, True), (_asserts, False)):
            start = part(text, layout)
            if start is not None:
                return _parts(text, body, layout, start, trusted)
    return Parts(text, ast.Module([], []), False)


def _parts(text: str, body: list[ast.stmt], layout: list[ast.stmt], start: int, trusted: bool) -> Parts:
    tests = [statement for statement in layout[start:] if not isinstance(statement, IMPORTS)]
    others = [statement for statement in layout[start:] if isinstance(statement, IMPORTS)]
    for statement in tests:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = []  # the program's last line may be a decorator, and would then decide
    unguarded = len(body) - 1 if layout is not body else len(body)
    program = _before(text, body[min(start, unguarded)])
    rest = ast.unparse(ast.Module(layout[unguarded:start] + others, []))
    return Parts(f"{program}\n{rest}", ast.Module(tests, []), trusted)


def _before(text: str, statement: ast.stmt) -> str:
    """As it stands, for what is parsed cannot always be written again: a sum of a thousand numbers is too deep."""
    lines = text.split("\n")
    begun = lines[statement.lineno - 1].encode()[: statement.col_offset].decode()
    return "\n".join([*lines[: statement.lineno - 1], begun])


def _unguarded(body: list[ast.stmt]) -> list[ast.stmt]:
    """What a last `if __name__ == "__main__":` holds, at the margin."""
    last = body[-1] if body else None
    if isinstance(last, ast.If) and _is_guard(last) and not last.orelse:
        return body[:-1] + last.body
    return body


def _is_guard(statement: ast.If) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


# --- functions that are called at the end ---


def _functions(text: str, body: list[ast.stmt]) -> int | None:
    """`def check(candidate)` directly before calls of it; or several such functions. What is printed is no matter."""
    last = len(body)
    while last and _called(body[last - 1]):
        last -= 1
    called, start = {_called(statement) for statement in body[last:]} - {"print"}, last
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
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        plain = all(isinstance(argument, ast.Name | ast.Constant) for argument in given)
        return call.func.id if plain and isinstance(call.func, ast.Name) else None
    return None


# --- asserts at the end ---


def _asserts(text: str, body: list[ast.stmt]) -> int | None:
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
        if _asserting(statement) or (reached == place + 1 and not _bound(statement) & _used(_before(text, statement))):
            start = reached = place
    return start


def _asserting(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(statement))


def _bound(part: ast.AST) -> set[str]:
    """The names that a statement binds, and not those of its comprehensions."""
    nodes = list(_walk_outside(part, SCOPES))
    found = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return found | {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}


def _walk_outside(part: ast.AST, kinds: tuple[type, ...]) -> Iterator[ast.AST]:
    left = [part]
    while left:
        node = left.pop()
        yield node
        left += [child for child in ast.iter_child_nodes(node) if not isinstance(child, kinds)]


def _used(program: str) -> set[str]:
    """The globals that a program reads, or sets from within functions."""
    tables, found = [symtable.symtable(f"{program}pass", "<program>", "exec")], set[str]()  # it may end in `if ...:`
    while tables:
        table = tables.pop()
        tables += table.get_children()
        own = table.get_type() == "module"
        found |= {one.get_name() for one in table.get_symbols() if (own and one.is_referenced()) or one.is_global()}
    return found


def _harmless(statement: ast.stmt, onwards: list[ast.stmt], imported: set[str]) -> bool:
    """Whether a statement can only compute. `onwards`: it and what follows, which it must not change the meaning of."""
    if isinstance(statement, ast.If) and _is_guard(statement) and not _asserting(statement):
        return False  # the program's own
    if any(name.startswith("__") for name in _bound(statement)) or _rebinds(statement, onwards, imported):
        return False
    nodes = [node for each in onwards for node in ast.walk(each)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    bound |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    changing = any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) for node in nodes)
    if changing and imported & {node.id for node in names}:
        return False  # it might be something of the library that is changed
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert) and node.msg is not None and not _computes(node.msg, bound):
            node.msg = None  # it would be told only after the verdict
    lasting = any(isinstance(node, ast.Lambda) for node in _walk_outside(statement, (ast.Assert,)))
    return _computes(statement, bound) and (isinstance(statement, ast.Assert) or not lasting)


def _rebinds(statement: ast.stmt, onwards: list[ast.stmt], imported: set[str]) -> bool:
    """Whether it gives another meaning to what the asserts rely on: a builtin that they call, or what is imported."""
    nodes = [node for each in onwards for node in ast.walk(each)]
    roots = {one.value.id for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)}
    called = _relied_on(nodes)
    builtin = {name for name in called if hasattr(builtins, name)}
    return bool(_bound(statement) & (builtin | (imported & (called | roots))))


def _relied_on(nodes: list[ast.AST]) -> set[str]:
    """Names that are called, handed to those that take functions or classes, or caught: map(str, x)."""
    used: list[ast.AST | None] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            taking = isinstance(node.func, ast.Name) and node.func.id in ("filter", "isinstance", "issubclass", "map")
            used += [node.func, *(keyword.value for keyword in node.keywords), *(node.args if taking else [])]
        elif isinstance(node, ast.ExceptHandler):
            used.append(node.type)
        elif isinstance(node, ast.Raise):
            used.append(node.exc)
    parts = [part for one in used if one for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return {part.id for part in parts if isinstance(part, ast.Name)}


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
