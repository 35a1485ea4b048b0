"""Values between the two processes: plain data is copied, everything else stays where it is and is spoken to from afar.

What arrives is data or a `Remote`, never code: nothing is unpickled or evaluated, so the worse half of the pair can do
no more than answer wrongly. Builtin types cross exactly, subclasses of them as what they derive from; a class that
calls itself equal to everything arrives as a Remote, and a Remote equals nothing but itself and what its own side says
of two of its own objects.
"""

from __future__ import annotations

import builtins
import importlib
import json
import operator
import os
import secrets
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

LARGEST_MESSAGE = 32 * 2**20
DEEPEST = 200  # containers within one another; what lies deeper stays where it is
SAFE_INTEGER = 2**53  # larger ones are written in hexadecimal, which has no limit of digits

SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "OrderedDict", Counter: "Counter", defaultdict: "defaultdict"}
MAKERS: dict[str, Callable[[Any], Any]] = {
    **{name: kind for kind, name in SEQUENCES.items()},
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(pairs)),
    "defaultdict": lambda pairs: defaultdict(None, pairs),
}
SPELT = {("decimal", "Decimal"), ("fractions", "Fraction")}  # equal to what their text gives again
DATED = {("datetime", "date"), ("datetime", "time"), ("datetime", "datetime")}
BASES = (bool, int, float, complex, str, bytes, bytearray, tuple, frozenset, list, set, dict, deque)
CHANGEABLE = (list, dict, set, bytearray, deque)
NUMPY_SCALARS = ("bool", "bool_", "int", "uint", "float", "complex", "str_", "bytes_")


class Ended(BaseException):
    """The other side is gone, or says what cannot be understood. Not an Exception: no test may swallow it."""


class Exited(BaseException):
    """The program wanted to exit."""


def resolve(home: str, name: str) -> Any:
    """A module of the standard library, or a name in it."""
    if home.split(".")[0] not in sys.stdlib_module_names:
        raise ValueError(f"{home} is not in the standard library")
    found: Any = importlib.import_module(home)
    for part in filter(None, name.split(".")):
        found = getattr(found, part)
    return found


class Peer:
    """One end of the line. Either side may ask while it is being asked."""

    def __init__(
        self,
        line: int,
        operations: dict[str, Callable[..., Any]],
        *,
        trusts: Callable[[str, str], bool] = lambda home, name: True,
        resolve: Callable[[str, str], Any] = resolve,
    ) -> None:
        self.line, self.operations = line, operations
        self.trusts, self.resolve = trusts, resolve  # what the other side may name of the standard library
        self.buffer = bytearray()
        self.mine: dict[int, Any] = {}  # what the other side may name
        self.theirs: dict[int, Any] = {}  # one Remote for each of its objects, so that identity is kept

    # --- messages ---

    def send(self, message: list[Any]) -> None:
        data = json.dumps(message, check_circular=False).encode() + b"\n"
        if len(data) > LARGEST_MESSAGE:
            raise MemoryError("a value too large to be handed over")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.line, view) :]
        except OSError:
            raise Ended("the other side is gone") from None

    def receive(self) -> list[Any]:
        while (end := self.buffer.find(b"\n")) < 0:
            try:
                data = os.read(self.line, 1 << 16)
            except OSError:
                data = b""
            if not data or len(self.buffer) > LARGEST_MESSAGE:
                raise Ended("the other side is gone" if not data else "a message without end")
            self.buffer += data
        data = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise Ended("a message that is none") from None
        if not isinstance(message, list) or not message:
            raise Ended("a message that is none")
        return message

    def ask(self, operation: str, *arguments: Any, **named: Any) -> Any:
        """What the other side makes of it: a value, or an exception raised here."""
        number = secrets.token_hex(8)
        self.send(["ask", number, operation, self.encode(list(arguments)), self.encode(named)])
        while (message := self.receive())[0] == "ask":
            self.serve(message)
        try:
            kind, answered, value, changed = message
            if answered != number:
                raise Ended("an answer to another question")
            value = self.raised(value) if kind == "raise" else self.decode(value)
            for place, now in changed:
                update(arguments[place], self.decode(now))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as wrong:
            raise Ended(f"an answer that is none: {wrong}") from None
        if kind == "raise":
            raise value
        return value

    def serve(self, message: list[Any]) -> None:
        """Answer one question."""
        _, number, operation, given, named = message
        given, named = self.decode(given), self.decode(named)
        before = [json.dumps(self.encode(each)) if isinstance(each, CHANGEABLE) else "" for each in given]
        try:
            value = self.encode(self.operations[operation](*given, **named))
            changed = [[place, self.encode(each)] for place, each in enumerate(given) if before[place]]
            changed = [each for each in changed if json.dumps(each[1]) != before[each[0]]]
            self.send(["is", number, value, changed])
        except Ended:
            raise
        except BaseException as raised:
            self.send(["raise", number, self.exception(raised), []])

    def loop(self) -> None:
        while True:
            self.serve(self.receive())

    # --- values ---

    def encode(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            return value if -SAFE_INTEGER < value < SAFE_INTEGER else ["int", hex(value)]
        if depth > DEEPEST:
            return self.handle(value)
        if kind in SEQUENCES:
            return [SEQUENCES[kind], *(self.encode(part, depth + 1) for part in value)]
        if kind in MAPPINGS:
            pairs = list(dict.items(value))
            return [MAPPINGS[kind], *([self.encode(a, depth + 1), self.encode(b, depth + 1)] for a, b in pairs)]
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
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType | types.FunctionType | type):
            return self.named(value) or self.handle(value)
        for base in BASES:
            if isinstance(value, base) and not (base in CHANGEABLE and has_methods(kind)):
                return self.encode(plain(value, base), depth + 1)
        return self.handle(value)

    def named(self, value: Any) -> Any:
        """Modules, functions and classes of the standard library exist on both sides."""
        if isinstance(value, types.ModuleType):
            home, name = value.__name__, ""
        else:
            home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
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
            return self.resolve(*parts[:2]) if self.trusts(*parts[:2]) else self.remote(parts[2])
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
        if isinstance(raised, Exited):
            kind = SystemExit
        arguments = [part if isinstance(part, str | int | float) else repr(part)[:1000] for part in raised.args]
        try:
            return [self.encode(kind), self.encode(list(arguments))]
        except Exception:
            return [self.encode(builtins.Exception), ["list"]]

    def raised(self, value: Any) -> BaseException:
        kind, arguments = map(self.decode, value)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            kind = RuntimeError
        if issubclass(kind, SystemExit | KeyboardInterrupt | GeneratorExit | Ended):
            return Exited(kind.__name__)
        try:
            return kind(*arguments)
        except TypeError:
            return RuntimeError(f"{kind.__name__}: {arguments}")

    def exception_class(self, number: int, name: str, base: str) -> type:
        """A class of the other side's own, to be raised and caught on this side."""
        if number not in self.theirs:
            parent = getattr(builtins, base, None)
            assert isinstance(parent, type)
            assert issubclass(parent, BaseException)
            self.theirs[number] = type(str(name), (parent,), {})
        return self.theirs[number]


class Remote:
    """An object of the other side. Whatever is done with it happens there."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__name__", "__doc__"):
            raise AttributeError(name)
        return do("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        do("setattr", self, name, value)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        try:
            return do("call", self, *arguments, **named)
        except StopIteration as stopped:  # would quietly end a loop of the tests
            raise RuntimeError("the program raised StopIteration") from stopped

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Remote and bool(do("eq", self, other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __instancecheck__(self, instance: Any) -> bool:
        return type(instance) is Remote and bool(do("isinstance", instance, self))

    def __iter__(self) -> Any:
        return do("iter", self)


def do(operation: str, remote: Remote, *arguments: Any, **named: Any) -> Any:
    return object.__getattribute__(remote, "_peer").ask(operation, remote, *arguments, **named)


def parts_of(remote: Remote) -> tuple[Peer, int]:
    return object.__getattribute__(remote, "_peer"), object.__getattribute__(remote, "_number")


# Asked about one object: the answer cannot depend on what the tests expect. Of two, both must be the program's own.
ALONE = (
    "next",
    "len",
    "bool",
    "str",
    "repr",
    "int",
    "float",
    "index",
    "abs",
    "enter",
    "neg",
    "pos",
    "invert",
    "reversed",
)
WITH_DATA = ("getitem", "setitem", "delitem", "exit", "round")
PAIRED = (
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "matmul",
)


def _install(name: str) -> None:
    def alone(self: Remote, *arguments: Any) -> Any:
        return do(name, self, *arguments)

    def paired(self: Remote, other: Any) -> Any:
        return do(name, self, other) if type(other) is Remote else NotImplemented

    setattr(Remote, f"__{name}__", paired if name in PAIRED else alone)


for _name in (*ALONE, *WITH_DATA, *PAIRED):
    _install(_name)

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*PAIRED, "eq", "neg", "pos", "invert", "index", "abs")},
    **{name: getattr(operator, f"__{name}__") for name in ("getitem", "setitem", "delitem")},
    **{kind.__name__: kind for kind in (bool, str, int, float, reversed)},
    **{function.__name__: function for function in (getattr, setattr, isinstance, iter, next, len, repr, round)},
    "call": lambda function, *arguments, **named: function(*arguments, **named),
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": lambda manager, kind, *_: type(manager).__exit__(manager, kind, None, None),
}


def builtin_base(kind: type) -> str:
    return next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")


def has_methods(kind: type) -> bool:
    """Whether a class adds anything to the builtin one that it derives from."""
    return any(
        not name.startswith("__") for base in kind.__mro__ if base.__module__ != "builtins" for name in vars(base)
    )


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


def update(mine: Any, now: Any) -> None:
    """Change an argument in place as its copy was changed."""
    if isinstance(mine, list):
        mine[:] = [kept(*pair) for pair in zip(mine, now, strict=False)] + now[len(mine) :]
    elif isinstance(mine, dict):
        fresh = {key: kept(mine[key], held) if key in mine else held for key, held in now.items()}
        mine.clear()
        mine.update(fresh)
    elif isinstance(mine, set):
        mine.clear()
        mine.update(now)
    elif isinstance(mine, bytearray | deque):
        mine.clear()
        mine.extend(now)


def kept(mine: Any, now: Any) -> Any:
    """The same object as before where it can hold what it should now."""
    if type(mine) is type(now) and isinstance(mine, CHANGEABLE):
        update(mine, now)
        return mine
    return now
