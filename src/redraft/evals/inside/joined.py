"""Where the tests of a single text begin: programs often arrive with their tests behind them, as one piece.

    def add(a, b): ...            the program, for the worker
    def check(candidate): ...     the tests, for the driver: last functions that are called at the very end,
    check(add)                    or asserts at the end

The end of the text is its grader's: a program cannot come after it. What it can do is to end in tests of its own: of
asserts only those are taken that are `harmless`. Whatever is not recognised stays with the program.
"""

from __future__ import annotations

import ast
import io
import symtable
import tokenize
from typing import NamedTuple

from .harmless import IMPORTS, bound, harmless


class Parts(NamedTuple):
    program: str
    tests: ast.Module
    trusted: bool  # the tests are functions of the grader's, and may use all of Python


def split(text: str) -> Parts:
    """A text whose tests are not recognised is all program; raises what `compile` does for one that is not Python."""
    text = _unjoined(text.replace("\r\n", "\n").replace("\r", "\n"))
    body = ast.parse(text, "<program>").body
    for layout in (body, _unguarded(body)):
        for part, trusted in ((_functions, True), (_asserts, False)):
            start = part(layout)
            if start is not None:
                return _parts(text, body, layout, start, trusted)
    return Parts(text, ast.Module([], []), False)


def _unjoined(text: str) -> str:
    """Without backslashes before what stands at the margin. A program that ends in one would make what follows a part
    of its own last statement: `if 0: \\`, `async \\`."""
    lines = text.split("\n")
    if not any(line.endswith("\\") for line in lines):
        return text
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            row, column = token.start
            if row > 1 and not column and token.string.strip():
                lines[row - 2] = lines[row - 2].removesuffix("\\")
    except tokenize.TokenError as wrong:
        raise SyntaxError(wrong.args[0]) from None
    return "\n".join(lines)


def _parts(text: str, body: list[ast.stmt], layout: list[ast.stmt], start: int, trusted: bool) -> Parts:
    tests = [statement for statement in layout[start:] if not isinstance(statement, IMPORTS)]
    also = [statement for statement in layout[start:] if isinstance(statement, IMPORTS)]
    for statement in tests:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = []  # the program's last line may be a decorator, and would then decide
    unguarded = len(body) - 1 if layout is not body else len(body)
    program = _before(text, body[min(start, unguarded)])
    if not trusted:  # what is set before an assert may be a constant of the program's as well
        used = _used(program)
        also = [each for each in layout[start:] if each in also or (not _asserting(each) and bound(each) & used)]
    rest = ast.unparse(ast.Module(layout[unguarded:start] + also, []))
    module = ast.Module(tests, [])
    return Parts(f"{program}\n{rest}", module if trusted else _Setting().visit(module), trusted)


class _Setting(ast.NodeTransformer):
    """Attributes are set by a function, which looks whose they are."""

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target = node.targets[0]
        if not isinstance(target, ast.Attribute):
            return node
        given = [target.value, ast.Constant(target.attr), node.value]
        called = ast.Expr(ast.Call(ast.Name("__set__", ast.Load()), given, []))
        return ast.fix_missing_locations(ast.copy_location(called, node))


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


def _functions(body: list[ast.stmt]) -> int | None:
    """`def check(candidate)` directly before calls of it; or several such functions. What is printed is no matter."""
    last = len(body)
    while last and (_called(body[last - 1]) or _renames(body[last - 1])):
        last -= 1
    called, start = {name for statement in body[last:] for name in _called(statement)} - {"print"}, last
    while start and isinstance(function := body[start - 1], ast.FunctionDef) and function.name in called:
        called.remove(function.name)  # another function of this name further up is not the one that is called
        if not (function.args.args or function.name.startswith(("test", "check", "main"))):
            return None
        start -= 1
    asserting = any(map(_asserting, body[start:last]))
    return start if asserting and start and not called else None


def _called(statement: ast.stmt) -> set[str]:
    """The names of the functions that are called with names and constants alone, or without anything: as a statement,
    as `result = check(f)`, or several of these within a `try`."""
    if isinstance(statement, ast.Try):
        called = [_called(each) for each in statement.body]
        return set[str]().union(*called) if all(called) else set()
    if isinstance(statement, ast.Expr | ast.Assign) and isinstance(call := statement.value, ast.Call):
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        plain = all(isinstance(argument, ast.Name | ast.Constant) for argument in given)
        return {call.func.id} if plain and isinstance(call.func, ast.Name) else set()
    return set()


def _renames(statement: ast.stmt) -> bool:
    """candidate = f"""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name)


# --- asserts at the end ---


def _asserts(body: list[ast.stmt]) -> int | None:
    """From the first assert, and what is set before it, of the last unbroken run of harmless statements."""
    start, reached = None, None
    for place in range(len(body) - 1, -1, -1):
        statement = body[place]
        if isinstance(statement, IMPORTS):  # they do not break it
            reached = place if reached == place + 1 else reached
            continue
        if isinstance(statement, ast.If) and _is_guard(statement) and not _asserting(statement):
            break  # the program's own
        if not harmless(statement, body[reached:] if reached is not None else []):
            break
        if _asserting(statement) or reached == place + 1:
            start = reached = place
    return start


def _asserting(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(statement))


def _used(program: str) -> set[str]:
    """The globals that a program reads, or sets from within functions."""
    tables, found = [symtable.symtable(f"{program}pass", "<program>", "exec")], set[str]()  # it may end in `if ...:`
    while tables:
        table = tables.pop()
        tables += table.get_children()
        own = table.get_type() == "module"
        found |= {one.get_name() for one in table.get_symbols() if (own and one.is_referenced()) or one.is_global()}
    return found
