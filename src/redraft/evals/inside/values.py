"""Values between the two processes: plain data is copied, everything else stays where it is and is spoken to from afar.

What arrives is data or a `Remote`, never code: nothing is unpickled or evaluated, so the worse half of the pair can do
no more than answer wrongly. Builtin types cross exactly, subclasses of them as what they derive from, so that a number
which calls itself equal to everything arrives as the number it is.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .remote import Remote, parts_of

LARGEST = 32 * 2**20  # bytes of a message
DEEPEST = 200  # containers within one another; what lies deeper stays where it is
SAFE_INTEGER = 2**53  # larger ones are written in hexadecimal, which has no limit of digits

SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "OrderedDict", Counter: "Counter"}
MAKERS: dict[str, Callable[[Any], Any]] = {
    **{name: kind for kind, name in SEQUENCES.items()},
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(pairs)),
}
SPELT = {("decimal", "Decimal"), ("fractions", "Fraction")}  # equal to what their text gives again
DATED = {("datetime", "date"), ("datetime", "time"), ("datetime", "datetime")}
BASES = (bool, int, float, complex, str, bytes, bytearray, tuple, frozenset, list, set, dict, deque)
CHANGEABLE = (list, dict, set, bytearray, deque)
ITEMS = (type({}.items()), type(OrderedDict[Any, Any]().items()))
VIEWS = (type({}.keys()), type(OrderedDict[Any, Any]().keys()), *ITEMS)
NAMED = (types.ModuleType, types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType, type)
NUMPY_SCALARS = ("bool", "bool_", "int", "uint", "float", "complex", "str_", "bytes_")


@lru_cache(1000)
def named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """A class of our own with these fields, and nothing else of theirs: names with an underscore are refused."""
    return namedtuple(name, fields)


def resolve(home: str, name: str) -> Any:
    """A module of the standard library, or a name in it."""
    if home.split(".")[0] not in sys.stdlib_module_names:
        raise ValueError(f"{home} is not in the standard library")
    found: Any = importlib.import_module(home)
    for part in filter(None, name.split(".")):
        found = getattr(found, part)
    return found


class Values:
    """What one side knows of the other's objects, and how values are written for it and read from it."""

    def __init__(self, trusts: Callable[[str, str], bool]) -> None:
        self.trusts = trusts  # what the other side may name of the standard library
        self.mine: dict[int, Any] = {}  # what the other side may name
        self.theirs: dict[int, Any] = {}  # one Remote for each of its objects, so that identity is kept
        self.converted: dict[tuple[str, int], Any] = {}  # what its objects are as numbers, until more is asked of them

    def encode(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            if value.bit_length() > 4 * LARGEST:
                raise MemoryError("a number too large to be handed over")
            return value if -SAFE_INTEGER < value < SAFE_INTEGER else ["int", hex(value)]
        if depth > DEEPEST:
            return self.handle(value)
        if kind in SEQUENCES:
            return [SEQUENCES[kind], *(self.encode(part, depth + 1) for part in value)]
        if kind in MAPPINGS:
            pairs = list(dict.items(value))
            return [MAPPINGS[kind], *([self.encode(a, depth + 1), self.encode(b, depth + 1)] for a, b in pairs)]
        if kind is defaultdict:
            return ["defaultdict", self.encode(value.default_factory), self.encode(list(dict.items(value)), depth + 1)]
        if kind is deque:
            return ["deque", value.maxlen, *(self.encode(part, depth + 1) for part in value)]
        if kind in (bytes, bytearray):
            return [kind.__name__, value.hex()]
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is range:
            return ["range", *map(self.encode, (value.start, value.stop, value.step))]
        if value is Ellipsis:
            return ["ellipsis"]
        if kind is Remote:
            peer, number = parts_of(value)
            return ["yours", number] if peer is self else self.handle(value)
        return self.encode_rarely(value, kind, depth)

    def encode_rarely(self, value: Any, kind: type, depth: int) -> Any:
        origin = (kind.__module__, kind.__name__)
        if origin in SPELT:
            return ["spelt", *origin, str(value)]
        if origin in DATED:
            return ["dated", *origin, value.isoformat()]
        if origin == ("datetime", "timedelta"):
            return ["timedelta", value.days, value.seconds, value.microseconds]
        if origin[0] == "numpy" and origin[1].rstrip("0123456789") in NUMPY_SCALARS:
            return self.encode(value.item(), depth)
        if isinstance(value, NAMED):
            return self.named(value) or self.handle(value)
        if isinstance(value, VIEWS):
            return ["view", isinstance(value, ITEMS), self.encode(list(value), depth + 1)]
        if isinstance(value, tuple) and (names := fields(kind)):
            return ["namedtuple", kind.__name__, names, self.encode(plain(value, tuple), depth + 1)]
        for base in BASES:
            if isinstance(value, base) and not (base in CHANGEABLE and has_methods(kind)):
                return self.encode(plain(value, base), depth + 1)
        return self.handle(value)

    def named(self, value: Any) -> Any:
        """Modules, functions and classes of the standard library exist on both sides."""
        if isinstance(value, types.ModuleType):
            home, name = value.__name__, ""
        else:
            home = getattr(getattr(value, "__objclass__", value), "__module__", None)  # of str.upper, that of str
            name = getattr(value, "__qualname__", "")
        if not isinstance(home, str) or home.split(".")[0] not in sys.stdlib_module_names or home == "__main__":
            return None
        self.mine[id(value)] = value
        try:
            return ["named", home, name, id(value)] if resolve(home, name) is value else None
        except (ImportError, AttributeError, ValueError):
            return None

    def handle(self, value: Any) -> Any:
        self.mine[id(value)] = value
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", id(value), value.__name__, builtin_base(value)]
        return ["mine", id(value)]

    def decode(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, *parts = value
        if kind in ("list", "tuple", "set", "frozenset"):
            return MAKERS[kind](map(self.decode, parts))
        if kind in MAKERS:
            return MAKERS[kind]([(self.decode(key), self.decode(held)) for key, held in parts])
        if kind == "int":
            return int(parts[0], 16)
        if kind == "mine":
            return self.remote(parts[0])
        if kind == "yours":
            return self.mine[parts[0]]
        if kind == "defaultdict":
            factory = self.decode(parts[0])
            return defaultdict(factory if callable(factory) else None, self.decode(parts[1]))
        if kind == "view":
            held = self.decode(parts[1])
            return dict(held).items() if parts[0] else dict.fromkeys(held).keys()
        if kind == "namedtuple":
            return named_tuple(str(parts[0]), tuple(map(str, parts[1])))._make(self.decode(parts[2]))
        if kind == "deque":
            return deque(map(self.decode, parts[1:]), parts[0])
        if kind in ("bytes", "bytearray"):
            return getattr(builtins, kind).fromhex(parts[0])
        if kind == "complex":
            return complex(float(parts[0]), float(parts[1]))
        if kind == "range":
            return range(*map(self.decode, parts))
        if kind == "exception":
            return self.exception_class(*parts)
        if kind == "named":
            return resolve(*parts[:2]) if self.trusts(*parts[:2]) else self.remote(parts[2])
        if kind == "ellipsis":
            return Ellipsis
        if kind == "spelt" and tuple(parts[:2]) in SPELT:
            return resolve(*parts[:2])(parts[2])
        if kind == "dated" and tuple(parts[:2]) in DATED:
            return resolve(*parts[:2]).fromisoformat(parts[2])
        if kind == "timedelta":
            return resolve("datetime", "timedelta")(*map(int, parts))
        raise ValueError(f"a value of unknown kind {kind!r}")

    def remote(self, number: int) -> Any:
        return self.theirs.setdefault(number, Remote(self, number))

    # --- exceptions ---

    def exception(self, raised: BaseException) -> Any:
        kind = type(raised)
        arguments = [part if isinstance(part, str | int | float) else repr(part)[:1000] for part in raised.args]
        try:
            told = self.encode(kind)
            return [told, self.encode(list(arguments)), self.handle(raised) if told[0] == "exception" else None]
        except Exception:
            return [self.encode(builtins.Exception), ["list"], None]

    def raised(self, value: Any) -> BaseException:
        kind, arguments, origin = map(self.decode, value)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            kind = RuntimeError
        try:
            made = kind(*arguments)
        except TypeError:  # its first argument is not all that json.JSONDecodeError is made of
            try:
                made = kind.__new__(kind, *arguments)
            except TypeError:
                return RuntimeError(f"{kind.__name__}: {arguments}")
        if hasattr(kind, "__getattr__"):
            made.__dict__["_origin"] = origin
        return made

    def exception_class(self, number: int, name: str, base: str) -> type:
        """A class of the other side's own, to be raised and caught on this side."""
        if number not in self.theirs:
            parent = getattr(builtins, base, None)
            assert isinstance(parent, type)
            assert issubclass(parent, BaseException)
            self.theirs[number] = type(str(name), (parent,), {"__getattr__": attribute})
        return self.theirs[number]


def attribute(raised: BaseException, name: str) -> Any:
    """Of an exception of the other side's: what its class adds is there."""
    origin = raised.__dict__.get("_origin")
    if name.startswith("__") or not isinstance(origin, Remote):
        raise AttributeError(name)
    return getattr(origin, name)


def builtin_base(kind: type) -> str:
    return next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")


def has_methods(kind: type) -> bool:
    """Whether a class adds anything to the builtin one that it derives from."""
    return any(
        not name.startswith("__") for base in kind.__mro__ if base.__module__ != "builtins" for name in vars(base)
    )


def fields(kind: type) -> list[str]:
    """Of a named tuple; none where their names were made up, which would be refused as names."""
    named = getattr(kind, "_fields", ())
    return list(named) if all(isinstance(name, str) and name[:1] != "_" for name in named) else []


def plain(value: Any, base: type) -> Any:
    """What a subclass of a builtin type holds, whatever it says of itself."""
    if base is str:
        return str.__str__(value)
    if base in (bool, int):
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    if base is complex:
        return complex(complex.__getattribute__(value, "real"), complex.__getattribute__(value, "imag"))
    if base in (bytes, bytearray):
        return base(memoryview(value))
    if base is dict:
        return dict(dict.items(value))
    return base(base.__iter__(value))
