"""The one-line notation: `d3im(t2t=False)` is what one types, what `repr` prints and what results carry.

`parse(spell(x)) == x` for everything registered. Values are Python literals; a bare word is a string, so that nothing
needs quotes inside a shell's quotes: `d3im(schedule=front)`.
"""

from __future__ import annotations

import ast
import difflib
import keyword
import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

T = TypeVar("T")
LETTERS = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|.""", re.DOTALL)  # strings whole, all else one by one
Number = float | int  # an option's type where 0 may be written for 0.0


class Registry(Generic[T]):
    """Names to dataclasses. `kind` is what error messages call them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.classes: dict[str, type[T]] = {}
        self.aliases: dict[str, str] = {}

    def register(self, cls: type[T], *, name: str | None = None) -> type[T]:
        """Class decorator: `cls` answers to its name in lower case."""
        name = name or cls.__name__.lower()
        if name in self.classes:
            raise ValueError(f"two {self.kind}s are called {name!r}: rename one")
        self.classes[name] = cls
        cls.name = name  # type: ignore[attr-defined]
        return cls

    def alias(self, other: str, name: str) -> None:
        self.aliases[other] = name

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.classes))

    def parse(self, text: str) -> T:
        """`name` or `name(option=value, ...)` to an instance; names and options that do not exist are refused."""
        name, options = split(text, self.kind)
        name = self.aliases.get(name, name)
        if name not in self.classes:
            known = [*self.classes, *self.aliases]
            raise ValueError(f"there is no {self.kind} {name!r}{suggest(name, known)}; there are: {', '.join(self)}")
        cls = self.classes[name]
        known = option_types(cls)
        for option in options:
            if option not in known:
                have = f"it has {', '.join(known)}" if known else "it has none"
                raise ValueError(f"{self.kind} {name!r} has no option {option!r}{suggest(option, known)}; {have}")
        check_options(cls, options)
        return cls(**options)


def suggest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def split(text: str, kind: str = "name") -> tuple[str, dict[str, Any]]:
    """`name(option=value)` into its parts; nothing is evaluated but literals."""
    malformed = f"cannot read {text!r} as a {kind}: write a name, or name(option=value, ...)"
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(malformed) from None
    if isinstance(node, ast.Name):
        return node.id, {}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(malformed)
    if node.args:
        raise ValueError(f"options of {node.func.id!r} are named: write {node.func.id}(option=value)")
    options: dict[str, Any] = {}
    for item in node.keywords:
        if item.arg is None or item.arg in options:
            raise ValueError(malformed)
        try:
            value = item.value
            options[item.arg] = _bare_word(value.id) if isinstance(value, ast.Name) else ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"option {item.arg!r} in {text!r} is not a number, a word, true or false") from None
    return node.func.id, options


def _bare_word(word: str) -> Any:
    """A word is a string, but `true` and `false` are what people who do not write Python type for True and False."""
    return {"true": True, "false": False}.get(word, word)


def listed(text: str) -> list[str]:
    """The parts of `a;b(c=1, d=2), e`: split at semicolons and at commas, but not within brackets or quotes."""
    parts, depth, open_quote = [""], 0, False
    for piece in LETTERS.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        open_quote |= piece in ("'", '"')
        if depth < 0 or open_quote:
            break
        if piece in ",;" and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    if depth or open_quote:
        what = "quote is not closed" if open_quote else f"bracket is not {'closed' if depth > 0 else 'opened'}"
        raise ValueError(f"cannot read the list {text!r}: a {what}")
    parts = [part.strip() for part in parts]
    if parts[-1] == "" and len(parts) > 1:  # one at the end does no harm
        parts.pop()
    if not all(parts):
        raise ValueError(f"cannot read the list {text!r}: one of its parts is empty")
    return parts


def spell(thing: Any) -> str:
    """The shortest text that parses back to `thing`: only options that differ from their defaults."""
    written = []
    for field in fields(thing):
        value = getattr(thing, field.name)
        if field.default is MISSING or value != field.default or type(value) is not type(field.default):
            written.append(f"{field.name}={_literal(value)}")
    name = getattr(type(thing), "name", type(thing).__name__.lower())
    return f"{name}({', '.join(written)})" if written else name


def _literal(value: Any) -> str:
    # Beyond ASCII, Python reads a bare word in its normal form, which may be another string.
    bare = isinstance(value, str) and value.isascii() and value.isidentifier() and not keyword.iskeyword(value)
    return value if bare and _bare_word(value) == value else repr(value)


@cache
def option_types(cls: type) -> dict[str, Any]:
    """The options of a registered class and their types."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def check_options(cls: type, options: Mapping[str, Any]) -> None:
    """Refuse option values of the wrong type, in words a user understands."""
    for name, hint in option_types(cls).items():
        value = options.get(name)
        if name in options and not _fits(value, hint):
            kind = getattr(cls, "name", cls.__name__)
            hinted = suggest(value, [c for c in get_args(hint) if isinstance(c, str)]) if isinstance(value, str) else ""
            raise ValueError(f"option {name!r} of {kind!r} is {describe(hint)}, not {value!r}{hinted}")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in get_args(hint))
    if origin is tuple:
        part = get_args(hint)[0]
        return isinstance(value, tuple) and all(_fits(item, part) for item in value)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if hint is None or hint is type(None):
        return value is None
    return type(value) is hint


def describe(hint: Any) -> str:
    """A type in words: `true or false`, `one of kept, max`, `a number`."""
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if origin in (types.UnionType, typing.Union):
        parts = get_args(hint)
        return " or ".join(describe(part) for part in parts if part is not int or float not in parts)
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "a word", type(None): "None"}
    return words.get(hint, str(hint))
