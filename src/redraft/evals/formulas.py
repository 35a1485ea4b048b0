"""Mathematical answers as they are written, in LaTeX or plainly, read into small trees: `parse(text)`.

A tree is a tuple whose first part says what it is:

    number f | variable name | add a b | multiply a b | divide a b | power a b | negate a | choice a | degrees a
    call name a... | based digits base | quantity a unit | relation sides signs | union parts
    list items | set items | bracket open close items | matrix rows

`choice a` is plus or minus a. What cannot be read is `Puzzling`: such answers are compared as text alone.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from redraft.evals.spelling import FUNCTIONS, GREEK, ORDINALS, Token, tokens
from redraft.evals.units import unit

Node = tuple[Any, ...]

LONGEST = 1000  # characters; the longest answer of MATH-500 has 53
DEEPEST = 40  # brackets, fractions and exponents within one another


class Puzzling(ValueError):
    """This is no formula that we can read."""


SIGNS = ("+", "-", r"\pm", r"\mp")
RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!=", r"\in"})
INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
REALS = ("bracket", "(", ")", (("negate", ("variable", "oo")), ("variable", "oo")))
SIGNED = {
    r"\pi": ("constant", "pi"),
    r"\infty": ("variable", "oo"),
    r"\emptyset": ("set", ()),
    r"\reals": REALS,
    r"\ldots": ("variable", "..."),
}
LETTERS = {"e": ("constant", "e"), "i": ("constant", "i")}
TH = ("multiply", ("variable", "t"), ("variable", "h"))  # 5^{th}
STARTS = frozenset(
    {"(", "[", "{", r"\{", r"\langle", r"\frac", r"\binom", r"\sqrt", r"\surd", r"\lfloor", r"\lceil", *SIGNED, *GREEK}
)
END: Token = ("end", "")


def parse(text: str) -> Node:
    text = trimmed(text)
    if not text or len(text) > LONGEST:
        raise Puzzling(text[:LONGEST])
    parser = _Parser(tokens(text))
    tree = parser.items()
    if parser.token != END:
        raise Puzzling(text)
    return tree


def trimmed(text: str) -> str:
    """Without the blanks, dollar signs and full stop around it."""
    text = STOP.sub("", text.strip())
    if len(MATHS.findall(text)) % 2 == 0:  # of formulas, not of money
        text = STOP.sub("", MATHS.sub(" ", text).strip())
    return text


STOP = re.compile(r"(?<!\.)\s*\.\Z")  # 0.333... keeps its dots
MATHS = re.compile(r"(?<!\\)\$\$?")


class _Parser:
    """Recursive descent: items, relation, union, total, product, power, atom."""

    def __init__(self, found: list[Token]) -> None:
        self.rest = [END, *reversed(found)]
        self.token = self.rest.pop()
        self.depth = 0
        self.bars = 0  # how many |...| are open

    def take(self) -> Token:
        taken, self.token = self.token, self.rest.pop() if self.rest else END
        return taken

    def accept(self, said: str) -> bool:
        if self.token == ("sign", said):
            self.take()
            return True
        return False

    def expect(self, said: str) -> None:
        if not self.accept(said):
            raise Puzzling(f"{said} was expected")

    def items(self, kind: str = "list") -> Node:
        """One item alone, or a list of them."""
        found = [self.relation()]
        while self.accept(","):
            if self.token[1] != ",":  # "1, 2, and 3"
                found.append(self.relation())
        return found[0] if len(found) == 1 and kind == "list" else (kind, tuple(found))

    def relation(self) -> Node:
        self.accept("=")  # "= 5" and "\approx 5"
        sides, signs = [self.union()], []
        while self.token[0] == "sign" and self.token[1] in RELATIONS:
            signs.append(self.take()[1])
            sides.append(self.union())
        return ("relation", tuple(sides), tuple(signs)) if signs else sides[0]

    def union(self) -> Node:
        parts = [self.ratio()]
        if parts == [REALS] and (self.accept(r"\setminus") or self.accept(r"\backslash")):
            kind, *held = self.ratio()
            if kind != "set" or len(held[0]) != 1:
                raise Puzzling("without more than one number")
            return ("relation", (("variable", "x"), held[0][0]), ("!=",))
        while self.accept(r"\cup"):
            parts.append(self.ratio())
        return ("union", tuple(parts)) if len(parts) > 1 else parts[0]

    def ratio(self) -> Node:
        terms = [self.total()]
        while self.accept(":"):
            terms.append(self.total())
        if len(terms) == 1:
            return terms[0]
        *_, last = terms
        if last[0] == "quantity":  # 9:30 a.m.
            return ("quantity", ratio([*terms[:-1], last[1]]), last[2])
        return ratio(terms)

    def total(self) -> Node:
        tree = self.signed()
        while self.token[0] == "sign" and self.token[1] in SIGNS:
            sign = self.take()[1]
            tree = ("add", tree, signed(sign, self.product()))
        return tree

    def signed(self) -> Node:
        if self.token[0] == "sign" and self.token[1] in SIGNS:
            return signed(self.take()[1], self.signed())
        return self.product()

    def product(self) -> Node:
        dollars = self.accept(r"\$")
        tree = self.power()
        while True:
            kind, said = self.token
            if kind == "sign" and said in ("*", "/"):
                self.take()
                factor = self.signed_power()
                tree = ("multiply" if said == "*" else "divide", tree, factor)
            elif kind == "text" or said == r"\%":
                return ("quantity", tree, self.unit())
            elif self.starts():
                tree = self.juxtaposed(tree)
            else:
                dollars = dollars or self.accept(r"\$")
                return ("quantity", tree, "dollar") if dollars else tree

    def signed_power(self) -> Node:
        if self.accept("-"):
            return ("negate", self.signed_power())
        return self.power()

    def starts(self) -> bool:
        """Whether a factor may begin here without a sign between."""
        kind, said = self.token
        return kind in ("number", "repeating", "scientific", "letter") or (
            kind == "sign"
            and (
                said in STARTS or said[1:] in FUNCTIONS or said.startswith(r"\begin") or (said == "|" and not self.bars)
            )
        )

    def juxtaposed(self, tree: Node) -> Node:
        """Side by side: a product, or a mixed number such as 1 4/5."""
        whole = tree[0] == "number" and tree[1].denominator == 1
        if self.token[0] == "number":
            part = self.power()
            if part[0] == "call":  # 5! 3!
                return ("multiply", tree, part)
            if not (whole and part[0] == "number" and self.accept("/")):
                raise Puzzling("two numbers side by side")
            return ("add", tree, ("divide", part, self.power()))
        if self.token == ("sign", r"\frac") and whole:
            part = self.power()
            mixed = part[0] == "divide" and part[1][0] == part[2][0] == "number"
            return ("add", tree, part) if mixed else ("multiply", tree, part)
        return ("multiply", tree, self.power())

    def unit(self) -> str:
        said = ""
        while self.token[0] == "text" or self.token[1] in (r"\%", "/", "^"):
            kind, word = self.take()
            if word == "^":
                braced = self.accept("{")
                word = "^" + self.take()[1]
                if braced:
                    self.expect("}")
            said += word if kind == "sign" else f" {word} "
        return unit(said)

    def power(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Puzzling("nested too deeply")
        tree = self.atom()
        while self.token[0] == "sign":
            if self.token[1] == "^":
                self.take()
                tree = self.raised(tree)
            elif self.accept("!"):
                tree = ("call", "factorial", tree)
            elif self.accept(r"\degree"):
                tree = self.degrees(tree)
            elif self.token[1] == "_" and tree[0] == "number":
                self.take()
                tree = ("based", tree[1], self.subscript())
            else:
                break
        self.depth -= 1
        return tree

    def raised(self, tree: Node) -> Node:
        if self.accept("{"):
            if self.accept(r"\degree"):
                self.expect("}")
                return self.degrees(tree)
            if self.token[0] == "text" and self.token[1] in ORDINALS:
                self.take()
                self.expect("}")
                return tree
            exponent = self.items()
            self.expect("}")
            if exponent == TH:
                return tree
        elif self.accept(r"\degree"):
            return self.degrees(tree)
        else:
            exponent = self.signed_atom()
            if self.accept("^"):  # a tower leans to the right
                exponent = self.raised(exponent)
        return ("power", tree, exponent)

    def degrees(self, tree: Node) -> Node:
        if self.token in (("letter", "C"), ("letter", "F")):
            return ("quantity", tree, f"degree {self.take()[1]}")
        return ("degrees", tree)

    def signed_atom(self) -> Node:
        return ("negate", self.signed_atom()) if self.accept("-") else self.atom()

    def subscript(self) -> str:
        if not self.accept("{"):
            return self.take()[1]
        said = ""
        while not self.accept("}"):
            if self.token == END:
                raise Puzzling("an open subscript")
            said += self.take()[1]
        return said.strip("()")

    def atom(self) -> Node:
        """A number, a letter, or whatever has its own brackets."""
        kind, said = self.take()
        if kind in ("number", "scientific"):
            return ("number", Fraction(int(said) if said.isdigit() else said))
        if kind == "repeating":
            return ("number", repeating(said))
        if kind == "letter" or (kind == "text" and (len(said) == 1 or self.token == ("sign", "="))):
            return LETTERS.get(said) or self.variable(said)
        if kind != "sign":
            raise Puzzling(said)
        if said in ("(", "["):
            return self.bracket(said, (")", "]"))
        if said == r"\langle":
            return self.bracket("(", (r"\rangle",))
        if said == r"\{":
            return self.set()
        if said == "{":
            tree = self.items()
            if self.accept(r"\choose"):
                tree = ("call", "binomial", tree, self.items())
            self.expect("}")
            return tree
        if said == "|":
            self.bars += 1
            tree = self.total()
            self.expect("|")
            self.bars -= 1
            return ("call", "abs", tree)
        if said in (r"\lfloor", r"\lceil"):
            tree = self.total()
            self.expect(said.replace("l", "r", 1))
            return ("call", said[2:], tree)
        if said == r"\frac":
            return ("divide", self.argument(), self.argument())
        if said == r"\binom":
            return ("call", "binomial", self.argument(), self.argument())
        if said == r"\sqrt":
            return self.root()
        if said == r"\surd":
            return _root(self.atom())
        if said in SIGNED:
            return SIGNED[said]
        if said in GREEK:
            return self.variable(said)
        if said.startswith(r"\begin"):
            return self.matrix(said)
        if said[1:] in FUNCTIONS:
            return self.function(said[1:])
        raise Puzzling(said)

    def variable(self, name: str) -> Node:
        return ("variable", f"{name}_{self.subscript()}" if self.accept("_") else name)

    def bracket(self, opened: str, closing: tuple[str, ...]) -> Node:
        bars, self.bars = self.bars, 0
        tree = self.items()
        self.bars = bars
        said = self.take()[1]
        if said not in closing:
            raise Puzzling("an open bracket")
        closed = ")" if said == r"\rangle" else said
        if tree[0] == "list":
            return ("bracket", opened, closed, tree[1])
        if opened + closed not in ("()", "[]"):
            raise Puzzling("a bracket closed by another")
        return tree

    def set(self) -> Node:
        """What it holds, or what is said of them: {x | x > 3} is x > 3."""
        if self.accept(r"\}"):
            return ("set", ())
        kind = "set"
        if self.token[0] == "letter" and self.rest[-1:] in ([("sign", "|")], [("sign", ":")]):
            self.take()
            self.take()
            kind = "list"
        tree = self.items(kind)
        self.expect(r"\}")
        return tree

    def argument(self) -> Node:
        """Of a fraction or a root: braces, or as in LaTeX a single digit or letter."""
        kind, said = self.token
        if kind == "number" and len(said) > 1 and said.isdigit():
            self.token = ("number", said[1:])
            return ("number", Fraction(said[0]))
        return self.atom()

    def root(self) -> Node:
        degree: Node = ("number", Fraction(2))
        if self.accept("["):
            degree = self.total()
            self.expect("]")
        return _root(self.argument(), degree)

    def function(self, name: str) -> Node:
        base = self.argument() if self.accept("_") else None
        exponent = None
        if self.accept("^"):
            exponent = self.signed_atom()
        if exponent == ("negate", ("number", Fraction(1))) and name in INVERSE:
            name, exponent = INVERSE[name], None
        tree: Node = ("call", name, *self.arguments())
        if base is not None:
            if name != "log":
                raise Puzzling(f"{name} has no base")
            tree = ("divide", ("call", "ln", *tree[2:]), ("call", "ln", base))
        return ("power", tree, exponent) if exponent else tree

    def arguments(self) -> tuple[Node, ...]:
        """In brackets, or all that is multiplied without a sign up to the next function: sin 2x."""
        if self.token[1] in ("(", "{", "[", r"\{"):
            given = self.atom()
            return given[3] if given[0] == "bracket" else given[1] if given[0] in ("list", "set") else (given,)
        tree = self.signed_power()
        while self.starts() and self.token[1] not in ("(", "[") and self.token[1][1:] not in FUNCTIONS:
            tree = ("multiply", tree, self.power())
        return (tree,)

    def matrix(self, begun: str) -> Node:
        kind = begun[begun.index("{") + 1 : begun.index("}")]
        if kind not in ("matrix", "pmatrix", "bmatrix", "array", "smallmatrix"):
            raise Puzzling(kind)
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while True:
            row.append(self.total())
            if self.accept("&"):
                continue
            rows.append(tuple(row))
            row = []
            ended = self.accept("\\\\")
            if self.token[1].startswith(r"\end"):
                self.take()
                return ("matrix", tuple(rows))
            if not ended:
                raise Puzzling("a matrix without an end")


def ratio(terms: list[Node]) -> Node:
    return ("divide", *terms) if len(terms) == 2 else ("bracket", ":", ":", tuple(terms))


def signed(sign: str, term: Node) -> Node:
    if sign in ("-", r"\mp"):
        term = ("negate", term)
    return ("choice", term) if sign in (r"\pm", r"\mp") else term


def _root(of: Node, degree: Node = ("number", Fraction(2))) -> Node:
    return ("power", of, ("divide", ("number", Fraction(1)), degree))


def repeating(said: str) -> Fraction:
    """0.1\\overline{6} is a sixth."""
    before, again = re.split(r"\\[a-z]+", said)
    again = re.sub(r"\D", "", again)
    whole, _, part = before.partition(".")
    scale = 10 ** len(part)
    start = Fraction(int((whole or "0") + part), scale)
    return start + Fraction(int(again), scale * (10 ** len(again) - 1))
