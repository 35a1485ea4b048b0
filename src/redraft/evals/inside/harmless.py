"""What a statement at the end of a text may do to be taken for a test, and be run in the process of the verdict.

A program may end in tests of its own making. So of statements only those are taken that can do nothing but compute,
with the builtins that `SAFE` lists: they make no classes (one might equal everything), they change nothing that is not
the program's own, and no attribute of theirs leads to the frames and modules of the driver.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
from collections.abc import Iterator

from .imported import MODULES, imports

COMPUTING = frozenset({
    "abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr", "complex", "dict", "divmod",
    "enumerate", "filter", "float", "format", "frozenset", "hash", "hex", "id", "int", "isinstance", "issubclass",
    "iter", "len", "list", "map", "max", "min", "next", "oct", "ord", "pow", "print", "range", "repr", "reversed",
    "round", "set", "slice", "sorted", "str", "sum", "tuple", "type", "zip", "True", "False", "None",
    "NotImplemented", "Ellipsis", "getattr", "hasattr",
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
INSPECTING = re.compile(r"_(?!_(?:name|doc)__$)|mro$|(?:ag|co|cr|f|func|gi|im|tb)_")
FORMATTING = frozenset({"format", "format_map"})  # whose fields reach attributes
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def harmless(statement: ast.stmt, later: list[ast.stmt]) -> bool:
    """Whether it can only compute, and leaves what is used `later` as it is. `later`: tests for certain.

    All else depends on the statement alone, so that no program can do anything to have a test not recognised.
    """
    if any(name.startswith("__") for name in bound(statement)) or _rebinds(statement, later):
        return False
    nodes = [node for each in (statement, *later) for node in ast.walk(each)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert) and node.msg is not None and not _computes(node.msg, names):
            node.msg = None  # it would be told only after the verdict
    lasting = any(isinstance(node, ast.Lambda) for node in _walk_outside(statement, (ast.Assert,)))
    return _computes(statement, names) and (isinstance(statement, ast.Assert) or not lasting)


def bound(part: ast.AST) -> set[str]:
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


def _rebinds(statement: ast.stmt, later: list[ast.stmt]) -> bool:
    """Whether it gives another meaning to a builtin that is called later, or to a module or what comes from one."""
    nodes = [node for each in later for node in ast.walk(each)]
    roots = {one.value.id for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)}
    called = _relied_on(nodes)
    library = MODULES | {*imports([each for each in later if isinstance(each, IMPORTS)])}
    return bool(bound(statement) & ({name for name in called if hasattr(builtins, name)} | library & (called | roots)))


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
    if isinstance(node, ast.Assign) and len(node.targets) > 1:
        return not any(isinstance(target, ast.Attribute) for target in node.targets)
    if isinstance(node, ast.Attribute):
        return not INSPECTING.match(node.attr) and (node.attr not in FORMATTING or _fills_in(node))
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
