"""Whether two mathematical answers are the same: `equal(pred, gold)`; and where an answer stands in a text: `boxed`.

Formulas are compared by value (identity.py), brackets and lists by their parts, units and words by name. Choices:

- What the question gives away may be left out: a unit, a base, `x =`, `x \\in`, dollars, degrees. Said and different
  is wrong: 5 m is not 5 cm, 2516_9 is not 2516_8. 50 % is 50 as well as a half.
- (1,2) is ordered, and its brackets matter; `1, 2` and {1, 2} are not ordered. `1, 2` may stand for (1,2).
- x >= 3 is [3, oo). Equations are the same if one is a multiple of the other.
- Rounded is different: a third is 0.\\overline{3}, and not 0.333333.
"""

from __future__ import annotations

import re

from redraft.evals import identity
from redraft.evals.formulas import LONGEST, Node, Puzzling, parse, trimmed

WORD = re.compile(r"[a-z]{3,}")
DRESS = re.compile(r"\\(?:text\w*|mbox|mathrm|mathbf|boxed)\s*\{([^{}]*)\}")
APART = re.compile(r"(?<=[\d.])\s+(?=\d)")  # 5 6 is not 56
SILENT = re.compile(r"\\(?:left|right|displaystyle|quad|[!,;: ])|[\s$~]")
DEEPEST_DRESS = 3  # \boxed{\text{\textbf{east}}}
MOST_ITEMS = 100  # of a list or a set that is compared without order


def equal(pred: str, gold: str) -> bool:
    """Whether a predicted answer says what the right one says. Never raises, never hangs, starts nothing."""
    pred, gold = pred.strip(), gold.strip()
    if not pred or not gold or max(len(pred), len(gold)) > LONGEST:
        return pred == gold != ""
    if pred == gold or (_words(pred) == _words(gold) and WORD.fullmatch(_words(gold))):
        return True
    try:
        return _same(parse(pred), parse(gold))
    except (Puzzling, RecursionError):
        return _words(pred) == _words(gold) != ""


def boxed(text: str) -> str | None:
    """What the last \\boxed{...} of a text holds; None if there is none, or if it is empty or a placeholder."""
    closing = _braces(text)
    for start in reversed([match.end() for match in re.finditer(r"\\(?:boxed|fbox)\s*(?=[{\w\\-])", text)]):
        if text[start] != "{":
            held = UNBRACED.split(text[start:], maxsplit=1)[0]
        elif start in closing:
            held = text[start + 1 : closing[start]]
        else:
            continue
        held = held.strip()
        return held if held.strip(". ") and held != r"\ldots" else None
    return None


UNBRACED = re.compile(r"[$\n]|\.(?!\d)")  # where an answer without braces ends


def _braces(text: str) -> dict[int, int]:
    """Where each opening brace that is closed is closed."""
    opened, closing = [], {}
    for match in re.finditer(r"\\.|[{}]", text, re.S):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing


def _words(text: str) -> str:
    """A text answer without its dress, in lower case."""
    bare = trimmed(text)
    for _ in range(DEEPEST_DRESS):
        bare = DRESS.sub(r" \1 ", bare)
    bare = SILENT.sub("", APART.sub("_", bare)).strip(".,").lower()
    while re.fullmatch(r"\([a-z]\)|\{[^{}]*\}", bare):
        bare = bare[1:-1]
    return bare


# --- parts ---


def _same(one: Node, other: Node) -> bool:
    if one[0] == other[0] == "relation" and _same_relation(one, other):
        return True
    if {one[0], other[0]} == {"bracket", "list"} and (_is_tuple(one) or _is_tuple(other)):
        return _each(one[-1], other[-1])
    ones, others = _members(one), _members(other)
    if len(ones) == len(others) == 1:
        return _same_item(ones[0], others[0])
    return _matched(ones, others)


def _is_tuple(tree: Node) -> bool:
    return tree[0] == "bracket" and tree[1:3] == ("(", ")")


def _members(tree: Node) -> list[Node]:
    """What an unordered collection holds, with both signs of every plus-or-minus. One item is its only member."""
    tree = _settled(tree)
    if tree[0] in ("list", "set", "union"):
        members = [member for part in tree[1] for member in ([part] if part[0] == "set" else _members(part))]
        return _unnamed(members) if tree[0] == "list" else members
    return [tree] if not _has_choice(tree) else [_chosen(tree, "add"), _chosen(tree, "negate")]


def _unnamed(members: list[Node]) -> list[Node]:
    """x = 1, x = 2 is 1, 2."""
    names = {_name(member) for member in members}
    return [_value(member) for member in members] if len(names - {None}) == 1 else members


def _has_choice(tree: Node) -> bool:
    return tree[:1] == ("choice",) or any(isinstance(part, tuple) and _has_choice(part) for part in tree)


def _chosen(tree: Node, sign: str) -> Node:
    if tree[0] == "choice":
        inner = _chosen(tree[1], sign)
        return inner if sign == "add" else ("negate", inner)
    return tuple(_chosen(part, sign) if isinstance(part, tuple) and part else part for part in tree)


def _matched(ones: list[Node], others: list[Node]) -> bool:
    """Whether the members are the same, in whatever order and however often they are said."""
    if max(len(ones), len(others)) > MOST_ITEMS:
        return False
    left = set(range(len(others)))
    for one in ones:
        found = {place for place, other in enumerate(others) if _same_item(one, other)}
        if not found:
            return False
        left -= found
    return not left


def _each(ones: tuple[Node, ...], others: tuple[Node, ...]) -> bool:
    return len(ones) == len(others) and all(_same(one, other) for one, other in zip(ones, others, strict=True))


# --- items ---

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
INFINITY: Node = ("variable", "oo")
LOWEST: Node = ("negate", INFINITY)


def _settled(tree: Node) -> Node:
    """An inequality as an interval, a member of a set as the set, and a unit round the whole."""
    if tree[0] == "negate" and tree[1][0] in ("quantity", "degrees"):
        kind, value, unit = _settled(tree[1])
        return (kind, ("negate", value), unit)
    if tree[0] == "degrees":
        return ("quantity", tree[1], "degree")
    if tree[0] == "relation" and tree[2] == (r"\in",) and tree[1][0][0] == "variable":
        return tree[1][1]
    if tree[0] == "relation" and tree[2] == ("!=",) and tree[1][0][0] == "variable":
        hole = tree[1][1]
        return ("union", (("bracket", "(", ")", (LOWEST, hole)), ("bracket", "(", ")", (hole, INFINITY))))
    if tree[0] == "relation" and ({*tree[2]} <= {"<", "<="} or {*tree[2]} <= {">", ">="}):
        return _interval(tree) or tree
    return tree


def _interval(tree: Node) -> Node | None:
    sides, signs = tree[1], tree[2]
    if signs[0] in (">", ">="):
        sides, signs = sides[::-1], tuple(FLIPPED[sign] for sign in reversed(signs))
    if len(sides) == 3 and sides[1][0] == "variable":
        (low, _, high), opened, closed = sides, signs[0], signs[1]
    elif len(sides) == 2 and sides[0][0] == "variable":
        low, high, opened, closed = LOWEST, sides[1], "<", signs[0]
    elif len(sides) == 2 and sides[1][0] == "variable":
        low, high, opened, closed = sides[0], INFINITY, signs[0], "<"
    else:
        return None
    return ("bracket", "(" if opened == "<" else "[", ")" if closed == "<" else "]", (low, high))


def _name(tree: Node) -> str | None:
    """x of `x = 5`, f of `f(x) = 5`, ABC of `ABC = 90`, (x, y) of `(x, y) = (1, 2)`."""
    if tree[0] != "relation" or {*tree[2]} != {"="}:
        return None
    return _named(tree[1][0])


def _named(tree: Node) -> str | None:
    if tree[0] == "variable":
        return tree[1]
    if tree[0] not in ("multiply", "bracket"):
        return None
    parts = [_named(part) for part in (tree[1:] if tree[0] == "multiply" else tree[3])]
    return None if None in parts else "".join(map(str, parts))


def _value(tree: Node) -> Node:
    return tree[1][-1] if _name(tree) else tree


def _same_item(one: Node, other: Node) -> bool:
    if one[0] == other[0] == "relation":
        return _same_relation(one, other)
    if one[0] == other[0] == "set":
        return _matched(_members(one), _members(other))
    if "relation" in (one[0], other[0]):
        return (_name(one) or _name(other)) is not None and _same(_value(one), _value(other))
    if "quantity" in (one[0], other[0]):
        return _same_quantity(one, other)
    if "based" in (one[0], other[0]):
        return _digits(one) == _digits(other) is not None and len({*one[2:], *other[2:]}) == 1
    if one[0] == other[0] == "bracket":
        return one[1:3] == other[1:3] and _each(one[3], other[3])
    if one[0] == other[0] == "matrix":
        return len(one[1]) == len(other[1]) and all(map(_each, one[1], other[1]))
    return identity.same(one, other)


def _same_relation(one: Node, other: Node) -> bool:
    if len(one[1]) != 2 or len(other[1]) != 2:
        return one == other
    difference, another = (("add", tree[1][0], ("negate", tree[1][1])) for tree in (one, other))
    sign = one[2][0]
    if other[2][0] not in (sign, FLIPPED.get(sign)):
        return False
    equation = sign in ("=", "!=")
    return identity.proportional(difference, another, None if equation else 1 if sign == other[2][0] else -1)


def _same_quantity(one: Node, other: Node) -> bool:
    value, unit = one[1:] if one[0] == "quantity" else (one, None)
    another, its_unit = other[1:] if other[0] == "quantity" else (other, None)
    if None not in (unit, its_unit) and unit != its_unit:
        return False
    if _same(value, another):
        return True
    if unit == its_unit or "percent" not in (unit, its_unit):
        return False
    percents, share = (value, another) if unit == "percent" else (another, value)
    return identity.same(percents, ("multiply", ("number", 100), share))


def _digits(tree: Node) -> object:
    return tree[1] if tree[0] in ("based", "number") else None
