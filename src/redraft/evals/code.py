"""`code`: a description or docstring to a Python function of a few lines, the small mirror of HumanEval and MBPP.

A function takes some of a collection's items, changes them, and makes one value of them; or it chooses between two
formulas. What is right is computed here from the parts; what a model wrote runs in the sandbox. Problems are functions
of (split, index) alone; version 1 is frozen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from redraft.evals.generated import Problem, asked, draws, split_of, until
from redraft.evals.task import Grade, Task

NAME, VERSION = "code", 1

FUNCTIONS = [
    "f",
    "g",
    "h",
    "solve",
    "compute",
    "process",
    "run",
    "apply",
    "make",
    "find",
    "get",
    "work",
    "calc",
    "answer",
    "build",
    "pick",
    "result",
    "total",
    "check",
    "value",
]
LETTERS = "abcdehilnorst"
WORDS = [
    "apple",
    "red",
    "sky",
    "on",
    "river",
    "tree",
    "a",
    "sun",
    "cat",
    "bird",
    "Moon",
    "to",
    "Green",
    "stone",
    "ink",
    "at",
    "Old",
    "hat",
    "echo",
    "under",
]


class Part(NamedTuple):
    """A filter or a map: how it is told, written and done. `{}` is a constant, which some have."""

    told: str  # of filters: an adjective, or a clause that begins with a preposition or a relative pronoun
    written: str  # Python, of the item {x} and the constant {k}
    done: Callable[[Any, Any], Any]
    constant: str = ""  # "": none; "number", "length", "letter"


# --- filters and maps of numbers ---

NUMBER_FILTERS = {
    "all": Part("", "", lambda x, k: True),
    "even": Part("even", "{x} % 2 == 0", lambda x, k: x % 2 == 0),
    "odd": Part("odd", "{x} % 2 == 1", lambda x, k: x % 2 == 1),
    "positive": Part("positive", "{x} > 0", lambda x, k: x > 0),
    "negative": Part("negative", "{x} < 0", lambda x, k: x < 0),
    "above": Part("that are greater than {k}", "{x} > {k}", lambda x, k: x > k, "number"),
    "below": Part("that are less than {k}", "{x} < {k}", lambda x, k: x < k, "number"),
    "other": Part("that are not {k}", "{x} != {k}", lambda x, k: x != k, "number"),
    "multiple": Part("that are divisible by {k}", "{x} % {k} == 0", lambda x, k: x % k == 0, "number"),
    "indivisible": Part("that are not divisible by {k}", "{x} % {k} != 0", lambda x, k: x % k != 0, "number"),
}
NUMBER_MAPS = {
    "same": Part("", "{x}", lambda x, k: x),
    "square": Part("squared", "{x} * {x}", lambda x, k: x * x),
    "double": Part("doubled", "{x} * 2", lambda x, k: x * 2),
    "negate": Part("negated", "-{x}", lambda x, k: -x),
    "plus": Part("increased by {k}", "{x} + {k}", lambda x, k: x + k, "number"),
    "minus": Part("decreased by {k}", "{x} - {k}", lambda x, k: x - k, "number"),
    "times": Part("multiplied by {k}", "{x} * {k}", lambda x, k: x * k, "number"),
}

# --- filters and maps of characters and of words ---

CHARACTER_FILTERS = {
    "all": Part("", "", lambda x, k: True),
    "vowels": Part("that are vowels", '{x} in "aeiou"', lambda x, k: x in "aeiou"),
    "consonants": Part("that are not vowels", '{x} not in "aeiou"', lambda x, k: x not in "aeiou"),
    "is": Part('equal to "{k}"', '{x} == "{k}"', lambda x, k: x == k, "letter"),
    "is_not": Part('other than "{k}"', '{x} != "{k}"', lambda x, k: x != k, "letter"),
}
CHARACTER_MAPS = {
    "same": Part("", "{x}", lambda x, k: x),
    "upper": Part("in upper case", "{x}.upper()", lambda x, k: x.upper()),
    "twice": Part("written twice", "{x} * 2", lambda x, k: x * 2),
    "dash": Part('followed by "-"', '{x} + "-"', lambda x, k: x + "-"),
}
WORD_FILTERS = {
    "all": Part("", "", lambda x, k: True),
    "longer": Part("longer than {k} letters", "len({x}) > {k}", lambda x, k: len(x) > k, "length"),
    "shorter": Part("shorter than {k} letters", "len({x}) < {k}", lambda x, k: len(x) < k, "length"),
    "starts": Part('that start with "{k}"', '{x}.startswith("{k}")', lambda x, k: x.startswith(k), "letter"),
    "ends": Part('that end with "{k}"', '{x}.endswith("{k}")', lambda x, k: x.endswith(k), "letter"),
    "contains": Part('that contain "{k}"', '"{k}" in {x}', lambda x, k: k in x, "letter"),
}
WORD_MAPS = {
    "same": Part("", "{x}", lambda x, k: x),
    "upper": Part("in upper case", "{x}.upper()", lambda x, k: x.upper()),
    "lower": Part("in lower case", "{x}.lower()", lambda x, k: x.lower()),
    "reversed": Part("reversed", "{x}[::-1]", lambda x, k: x[::-1]),
    "first": Part("cut to the first letter", "{x}[0]", lambda x, k: x[0]),
    "mark": Part('followed by "!"', '{x} + "!"', lambda x, k: x + "!"),
}


class Source(NamedTuple):
    """Where the items come from."""

    parameter: str
    noun: str
    where: str
    iterated: str
    item: str
    filters: dict[str, Part]
    maps: dict[str, Part]
    reducers: tuple[str, ...]
    items: Callable[[Any], list[Any]]
    example: Callable[[random.Random], Any]
    empty: Any
    rich: Any  # something for every filter to take and to leave


SOURCES = {
    "list": Source(
        "xs", "numbers", "in xs", "xs", "x", NUMBER_FILTERS, NUMBER_MAPS,
        ("sum", "count", "list", "largest", "smallest", "product", "sorted", "backwards"),
        list, lambda rng: [rng.randint(-9, 12) for _ in range(rng.randint(3, 5))],
        [], [7, -6, 4, 9, -1, 10, 2, -3, 8, 5, -8, 3, 12, 6, 1],
    ),
    "range": Source(
        "n", "numbers", "from 1 to n", "range(1, n + 1)", "i",
        {name: part for name, part in NUMBER_FILTERS.items() if name not in ("positive", "negative")}, NUMBER_MAPS,
        ("sum", "count", "list", "largest", "product"),
        lambda n: list(range(1, n + 1)), lambda rng: rng.randint(3, 9), 0, 12,
    ),
    "characters": Source(
        "s", "characters", "of s", "s", "c", CHARACTER_FILTERS, CHARACTER_MAPS,
        ("joined", "count", "list", "backwards_joined"),
        list, lambda rng: rng.choice(WORDS[4:]) + rng.choice(("", "a", "es")),
        "", "Those children sleep in a garden, but I do not mind",
    ),
    "words": Source(
        "s", "words", "of s", "s.split()", "w", WORD_FILTERS, WORD_MAPS,
        ("spaced", "count", "list", "longest", "sorted"),
        str.split, lambda rng: " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 4))),
        "", " ".join([*WORDS, "near", "debt", "lean", "rib", "coil", "music", "cloth", "taxi", "gas"]),
    ),
}  # fmt: skip


class Reducer(NamedTuple):
    """What becomes of the items that were taken and changed."""

    told: str
    written: str  # of a generator {g}
    done: Callable[[list[Any]], Any]
    start: str  # of a loop
    grows: str  # inside it, with the item {v}
    ends: str = "{out}"


REDUCERS = {
    "sum": Reducer("the sum of {them}", "sum({g})", sum, "0", "{out} += {v}"),
    "count": Reducer("the count of {them}", "sum(1 for {x} in {xs}{if_})", len, "0", "{out} += 1"),
    "list": Reducer("a list of {them}", "[{g}]", list, "[]", "{out}.append({v})"),
    "largest": Reducer(
        "the largest of {them}, or 0 if there are none",
        "max(({g}), default=0)",
        lambda v: max(v, default=0),
        "[]",
        "{out}.append({v})",
        "max({out}, default=0)",
    ),
    "smallest": Reducer(
        "the smallest of {them}, or 0 if there are none",
        "min(({g}), default=0)",
        lambda v: min(v, default=0),
        "[]",
        "{out}.append({v})",
        "min({out}, default=0)",
    ),
    "product": Reducer("the product of {them}", "", lambda v: product(v), "1", "{out} *= {v}"),
    "sorted": Reducer("a sorted list of {them}", "sorted({g})", sorted, "[]", "{out}.append({v})", "sorted({out})"),
    "backwards": Reducer(
        "a list of {them}, last first", "[{g}][::-1]", lambda v: v[::-1], "[]", "{out}.append({v})", "{out}[::-1]"
    ),
    "joined": Reducer("one string of {them}", '"".join({g})', "".join, '""', "{out} += {v}"),
    "backwards_joined": Reducer(
        "one string of {them}, last first",
        '"".join({g})[::-1]',
        lambda v: "".join(v)[::-1],
        '""',
        "{out} += {v}",
        "{out}[::-1]",
    ),
    "spaced": Reducer(
        "one string of {them}, joined by spaces",
        '" ".join({g})',
        " ".join,
        "[]",
        "{out}.append({v})",
        '" ".join({out})',
    ),
    "longest": Reducer(
        'the longest of {them}, or "" if there are none',
        'max(({g}), key=len, default="")',
        lambda v: max(v, key=len, default=""),
        "[]",
        "{out}.append({v})",
        'max({out}, key=len, default="")',
    ),
}


def product(values: list[int]) -> int:
    result = 1
    for value in values:
        result *= value
    return result


# --- functions of two numbers: a condition chooses one of two formulas ---

CONDITIONS = {
    "greater": ("a is greater than b", "a > b", lambda a, b, k: a > b),
    "equal": ("a equals b", "a == b", lambda a, b, k: a == b),
    "even_sum": ("the sum of a and b is even", "(a + b) % 2 == 0", lambda a, b, k: (a + b) % 2 == 0),
    "both_positive": ("a and b are both positive", "a > 0 and b > 0", lambda a, b, k: a > 0 and b > 0),
    "a_above": ("a is greater than {k}", "a > {k}", lambda a, b, k: a > k),
    "b_below": ("b is less than {k}", "b < {k}", lambda a, b, k: b < k),
}
FORMULAS = {
    "sum": ("a plus b", "a + b", lambda a, b: a + b),
    "difference": ("a minus b", "a - b", lambda a, b: a - b),
    "product": ("a times b", "a * b", lambda a, b: a * b),
    "a": ("a", "a", lambda a, b: a),
    "b": ("b", "b", lambda a, b: b),
    "larger": ("the larger of a and b", "max(a, b)", max),
    "square": ("the square of a", "a * a", lambda a, b: a * a),
    "zero": ("0", "0", lambda a, b: 0),
}

Skeleton = tuple[str, ...]


class Function(NamedTuple):
    """A function: what it returns, in words, in Python, and in fact."""

    header: str
    told: str
    body: str
    call: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    hard: list[tuple[Any, ...]]  # inputs that every solution must stand


def pipeline(rng: random.Random, skeleton: Skeleton, name: str) -> tuple[Function, list[Any]]:
    source, (filter_, change, reducer, parameter) = SOURCES[skeleton[0]], skeleton[1:5]
    kept, mapped, reduced = source.filters[filter_], source.maps[change], REDUCERS[reducer]
    k, m = constant(rng, kept), constant(rng, mapped)
    asks = parameter == "parameter"  # the filter's constant is an argument
    adjective, clause = ("", f" {kept.told}") if " " in kept.told else (f"{kept.told} ".lstrip(), "")
    noun = f"{adjective}{source.noun}"
    shown = "k" if asks else k
    clause = clause.format(k=shown)
    clause = clause.replace('"k"', "k") if asks else clause
    them = f"the {noun} {source.where}{clause}"
    if mapped.told:
        them += f", each {mapped.told.format(k=m)}"
    told = reduced.told.format(them=them)
    test = kept.written.format(x=source.item, k=shown)
    test = test.replace('"k"', "k") if asks else test
    value = mapped.written.format(x=source.item, k=m)
    header = f"def {name}({source.parameter}{', k' if asks else ''}):"

    def call(given: Any, *rest: Any) -> Any:
        bar = rest[0] if rest else k
        return reduced.done([mapped.done(x, m) for x in source.items(given) if kept.done(x, bar)])

    def arguments() -> tuple[Any, ...]:
        return (source.example(rng), *([constant(rng, kept)] if asks else []))

    hard = [(given, *([k] if asks else [])) for given in (source.empty, source.rich)]
    body = write(rng, source, reduced, test, value)
    return Function(header, told, body, call, arguments, hard), [k, m]


def constant(rng: random.Random, part: Part) -> Any:
    if part.constant == "letter":
        return rng.choice(LETTERS)
    return rng.randint(2, {"number": 9, "length": 4}[part.constant]) if part.constant else None


def write(rng: random.Random, source: Source, reduced: Reducer, test: str, value: str) -> str:
    """The function's body, in one of three ways."""
    x, xs = source.item, source.iterated
    if_ = f" if {test}" if test else ""
    style = rng.choice(("line", "loop", "steps") if reduced.written else ("loop",))
    if style == "line":
        return "    return " + reduced.written.format(g=f"{value} for {x} in {xs}{if_}", x=x, xs=xs, if_=if_)
    if style == "steps" and test and "{if_}" not in reduced.written:
        kept = rng.choice(("kept", "some"))
        later = reduced.written.format(g=f"{value} for {x} in {kept}")
        return f"    {kept} = [{x} for {x} in {xs}{if_}]\n    return {later}"
    out = rng.choice(("out", "result", "total" if reduced.start in "01" else "found"))
    grows = reduced.grows.format(out=out, v=value)
    inner = f"        if {test}:\n            {grows}" if test else f"        {grows}"
    return f"    {out} = {reduced.start}\n    for {x} in {xs}:\n{inner}\n    return {reduced.ends.format(out=out)}"


def choice(rng: random.Random, skeleton: Skeleton, name: str) -> tuple[Function, list[Any]]:
    (when, test, holds), (then, yes, first), (other, no, second) = (
        CONDITIONS[skeleton[1]], FORMULAS[skeleton[2]], FORMULAS[skeleton[3]],
    )  # fmt: skip
    k = rng.randint(2, 9)
    test = test.format(k=k)
    body = rng.choice(
        (
            f"    if {test}:\n        return {yes}\n    return {no}",
            f"    return {yes} if {test} else {no}",
            f"    if {test}:\n        return {yes}\n    else:\n        return {no}",
        )
    )

    def call(a: int, b: int) -> int:
        return first(a, b) if holds(a, b, k) else second(a, b)

    def arguments() -> tuple[int, int]:
        return rng.randint(-9, 12), rng.randint(-9, 12)

    told = f"{then} if {when.format(k=k)}, otherwise {other}"
    hard = [(k, k), (k + 1, k - 1), (k - 1, k + 1)]
    return Function(f"def {name}(a, b):", told, body, call, arguments, hard), [k if "{k}" in when else 0]


FORMS = ("write", "implement", "docstring", "docstring_two")
TESTS = 6  # hidden, beside the hard ones


def drawn_skeleton(rng: random.Random) -> Skeleton:
    form = rng.choice(FORMS)
    kind = rng.choices(("list", "range", "characters", "words", "choice"), (4, 2, 2, 2, 2))[0]
    if kind == "choice":
        then, other = rng.sample(list(FORMULAS), 2)
        return kind, rng.choice(list(CONDITIONS)), then, other, form
    source = SOURCES[kind]
    filter_, change, reducer = (
        rng.choice(list(source.filters)),
        rng.choice(list(source.maps)),
        rng.choice(source.reducers),
    )
    change = "same" if reducer == "count" else change  # counting does not see the change
    asks = bool(source.filters[filter_].constant) and rng.random() < 0.3
    return kind, filter_, change, reducer, "parameter" if asks else "constant", form


def problem(split: str, index: int) -> Problem:
    """Problem `index` of a split: a function of these two and the version."""
    rng = draws(NAME, VERSION, split, index)
    while True:
        skeleton = until(lambda: drawn_skeleton(rng), what_it_does, split)
        for _ in range(40):
            name = rng.choice(FUNCTIONS)
            function, constants = (choice if skeleton[0] == "choice" else pipeline)(rng, skeleton, name)
            shown = [function.arguments() for _ in range(2)]
            numbers = (skeleton[0], *constants, *map(repr, shown))
            if shown[0] != shown[1] and split_of(numbers) == split:
                return told(rng, skeleton, name, function, shown, numbers)


def what_it_does(skeleton: Skeleton) -> Skeleton:
    """Without how it is asked for: a function of the test split is never trained on, in whatever words."""
    return skeleton[:4]


def told(
    rng: random.Random, skeleton: Skeleton, name: str, function: Function, shown: list[Any], numbers: tuple[Any, ...]
) -> Problem:
    calls = [(f"{name}({', '.join(map(repr, given))})", repr(function.call(*given))) for given in shown]
    signature = function.header.removeprefix("def ").removesuffix(":")
    call, value = calls[0]
    question = {
        "write": f"Write a Python function {signature} that returns {function.told}. Example: {call} == {value}.",
        "implement": f"Implement {signature} in Python. It returns {function.told}. For example, {call} is {value}.",
        "docstring": docstring(function, calls[:1]),
        "docstring_two": docstring(function, calls),
    }[skeleton[-1]]
    hidden = [*shown, *function.hard, *(function.arguments() for _ in range(TESTS))]
    tests = "\n".join(f"assert {name}({', '.join(map(repr, given))}) == {function.call(*given)!r}" for given in hidden)
    gold = {"entry_point": name, "tests": tests}
    return Problem(question, f"{function.header}\n{function.body}", gold, what_it_does(skeleton), numbers)


def docstring(function: Function, calls: list[tuple[str, str]]) -> str:
    examples = "".join(f"\n    >>> {call}\n    {value}" for call, value in calls)
    return f'Complete this function.\n\n{function.header}\n    """Return {function.told}.\n{examples}\n    """'


def program(response: str, entry_point: str) -> str | None:
    """The code of a response: from the first fenced block if there is one; it must define the function."""
    if "```" in response:
        response = response.split("```", 2)[1].removeprefix("python").lstrip("\n")
    return response.rstrip() + "\n" if f"def {entry_point}(" in response else None


def grade(response: str, gold: dict[str, str]) -> Grade:
    """Whether the function that was written passes all the tests, those of the question among them."""
    from redraft.evals import sandbox  # training processes only make problems

    code = program(response, gold["entry_point"])
    if code is None:
        return Grade("no_code")
    return Grade(sandbox.run(code, tests=gold["tests"], entry_point=gold["entry_point"]).verdict, code)


TASK = Task(
    name=NAME,
    version=VERSION,
    citation="Redraft's own; the small mirror of HumanEval (Chen et al. 2021, arXiv 2107.03374) and MBPP",
    items=asked(problem, NAME, VERSION),
    grade=grade,
    length=128,
    runs_code=True,
)
