"""Texts that hold tests which could not be told apart from the program: what in them could fool such tests.

The tests then run beside the program, in its process, and it could have seen to it that they cannot fail: by an object
that equals everything, by another meaning of what the tests call. So such a text passes only where it is plain: where
it has tests that fail by `assert` or `raise`, and nothing else in it is known to be able to fool those.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Iterator

from .harmless import IMPORTS, INSPECTING, bound
from .imported import imports

# Libraries that test: a program could have changed them, or they tell of a failure and go on.
TESTING = frozenset({"doctest", "hypothesis", "nose", "pytest", "testing", "unittest"})
# Modules that give everything else away.
REACHING = frozenset({
    "_thread", "ast", "builtins", "cffi", "code", "codeop", "copyreg", "ctypes", "dill", "dis", "forge", "gc", "imp",
    "importlib", "inspect", "marshal", "mock", "opcode", "pickle", "pkgutil", "pydoc", "runpy", "shelve",
    "signal", "site", "threading", "trace", "traceback", "types", "weakref",
})  # fmt: skip
HOOKS = frozenset({"addaudithook", "meta_path", "modules", "monitoring", "path_hooks", "setprofile", "settrace"})
OF_SYS = frozenset({
    "argv", "byteorder", "float_info", "getrecursionlimit", "getsizeof", "int_info", "maxsize",
    "set_int_max_str_digits", "setrecursionlimit", "stderr", "stdin", "stdout", "version", "version_info",
})  # fmt: skip
BUILTINS = frozenset({
    "__build_class__", "__builtins__", "__import__", "breakpoint", "compile", "delattr", "eval", "exec", "globals",
    "locals", "setattr", "vars",
})  # fmt: skip
# What a class may say of itself without a say in comparisons, sums and truth.
METHODS = frozenset({
    "__all__", "__author__", "__call__", "__delitem__", "__doc__", "__enter__", "__exit__", "__getitem__", "__init__",
    "__iter__", "__next__", "__post_init__", "__repr__", "__reversed__", "__setitem__", "__slots__", "__str__",
    "__version__",
})  # fmt: skip
BASES = frozenset({"object", "Exception", "ValueError", "RuntimeError", "ABC", "Generic", "NamedTuple", "Protocol"})
DECORATORS = frozenset({
    "abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "dataclass", "lru_cache", "property",
    "staticmethod", "wraps",
})  # fmt: skip
DUNDER = re.compile(r"__\w+__")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def mistrusted(text: str) -> str | None:
    """What the tests in a text cannot be trusted for, if it has any."""
    body = ast.parse(text, "<program>").body
    nodes = [node for statement in body for node in ast.walk(statement)]
    if not any(map(_tests, nodes)) and not any(map(_fails, _outside(body))):
        return None
    doubts = _Doubts(text, body)
    if doubts.shared:
        return f"a function of it uses {min(doubts.shared)}, which is set below"
    return next(filter(None, map(doubts.about, nodes)), None)


def _tests(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(re.search(r"(?m)^\s*(?:assert|raise)\b.", node.value))  # for exec
    return isinstance(node, ast.Assert) or bool(_names(node) & TESTING)


def _fails(node: ast.AST) -> bool:
    """Outside of functions: `if f(1) != 2: raise`, `sys.exit(1)`."""
    return isinstance(node, ast.Raise) or bool(_names(node) & {"exit", "quit", "_exit", "abort", "SystemExit"})


def _outside(body: list[ast.stmt]) -> Iterator[ast.AST]:
    left: list[ast.AST] = [*body]
    while left:
        node = left.pop()
        yield node
        left += [child for child in ast.iter_child_nodes(node) if not isinstance(child, SCOPES)]


def _names(node: ast.AST) -> set[str]:
    """The names that a node itself says, of variables, attributes and modules."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Import | ast.ImportFrom):
        said = [each.name for each in node.names] + [getattr(node, "module", None) or ""]
        return {part for name in said for part in name.split(".")}
    return set()


class _Doubts:
    def __init__(self, text: str, body: list[ast.stmt]) -> None:
        self.imported = imports(body)
        self.classes = {node.name for one in body for node in ast.walk(one) if isinstance(node, ast.ClassDef)}
        self.outside = {id(node) for node in _outside(body)}
        self.shared = _shared(text, body)

    def about(self, node: ast.AST) -> str | None:
        """What this node could be there for."""
        names = _names(node)
        if said := names & TESTING:
            return f"it tests with {min(said)}"
        if said := (names & BUILTINS) | (names & REACHING if isinstance(node, IMPORTS) else set()):
            return f"it uses {min(said)}"
        if isinstance(node, ast.ClassDef):
            return self._class(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return self._function(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name and hasattr(builtins, node.name):
            return f"it sets {node.name}"
        if isinstance(node, ast.alias) and (node.name == "*" or hasattr(builtins, node.asname or node.name)):
            return f"it imports {node.asname or node.name}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "__main__":
            return "it spells a special name" if DUNDER.search(node.value) else None
        return None

    def _class(self, node: ast.ClassDef) -> str | None:
        bases = {base.id if isinstance(base, ast.Name) else "" for base in node.bases}
        if node.keywords or bases - BASES - self.classes:
            return f"the class {node.name} is made from others"
        return self._decorated(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
        if hasattr(builtins, node.name) or (node.name.startswith("__") and node.name not in METHODS):
            return f"it defines {node.name}"
        return self._decorated(node)

    def _decorated(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
        """The program's last line could be a decorator, and what follows be the tests'."""
        for one in node.decorator_list:
            called = one.func if isinstance(one, ast.Call) else one
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            own = isinstance(called, ast.Name) and called.id not in self.imported and not hasattr(builtins, called.id)
            if name not in DECORATORS or own:
                return f"it decorates {node.name}"
        return None

    def _attribute(self, node: ast.Attribute) -> str | None:
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        private = re.fullmatch(r"_[a-z]\w*", node.attr) and own
        if (INSPECTING.match(node.attr) and not private and node.attr != "__init__") or node.attr in HOOKS:
            return f"it uses .{node.attr}"
        if isinstance(node.value, ast.Name) and self.imported.get(node.value.id, ("",))[0] == "sys":
            return None if node.attr in OF_SYS or node.attr == "exit" else f"it uses sys.{node.attr}"
        return None if own or isinstance(node.ctx, ast.Load) else f"it sets .{node.attr}"  # of a module, perhaps

    def _name(self, node: ast.Name) -> str | None:
        if isinstance(node.ctx, ast.Load):
            return None
        special = node.id.startswith("__") and node.id not in METHODS
        return f"it sets {node.id}" if special or (hasattr(builtins, node.id) and id(node) in self.outside) else None

    def _call(self, node: ast.Call) -> str | None:
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if called in ("make_dataclass", "new_class", "attrgetter", "methodcaller") or (
            called == "type" and len(node.args) != 1
        ):
            return f"it calls {called}"
        if called == "getattr" and not _looks_openly(node):
            return "it calls getattr"
        return None


def _looks_openly(call: ast.Call) -> bool:
    name = call.args[1] if len(call.args) > 1 else None
    return isinstance(name, ast.Constant) and not INSPECTING.match(str(name.value))


def _shared(text: str, body: list[ast.stmt]) -> set[str]:
    """Globals through which a function could look at tests or change them: such as are set below it, unless they are
    functions, and whatever is declared `global` and is one."""
    made = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    rows: dict[str, int] = {}  # where a global is last set
    for statement in body:
        if not isinstance(statement, (*SCOPES, *IMPORTS)):
            rows |= dict.fromkeys(bound(statement), statement.lineno)
    found, tables = set[str](), [(table, 0) for table in symtable.symtable(text, "<program>", "exec").get_children()]
    while tables:
        table, row = tables.pop()
        row = row or table.get_lineno()  # of what stands at the margin
        tables += [(child, row) for child in table.get_children()]
        symbols = [one for one in table.get_symbols() if one.is_global()]
        found |= {one.get_name() for one in symbols if rows.get(one.get_name(), 0) > row}
        found |= {one.get_name() for one in symbols if one.is_declared_global() and one.get_name() in made}
    return found
