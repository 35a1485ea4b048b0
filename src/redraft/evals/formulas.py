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

from redraft.evals.units import BARE, POWERS, unit

Node = tuple[Any, ...]
Token = tuple[str, str]  # "number", "repeating", "scientific", "letter", "text" or "sign"; and what it says

LONGEST = 1000  # characters; the longest answer of MATH-500 has 53
DEEPEST = 40  # brackets, fractions and exponents within one another


class Puzzling(ValueError):
    """This is no formula that we can read."""


# --- text to tokens ---

WORDS = (
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|up)?|mbox|hbox|fbox|mathrm|mathbf|mathit|mathsf|operatorname\*?)\s*\{([^{}]*)\}"
)
GROUPED = r"[1-9]\d{0,2}(?:(?:,\\!\s*|\{,\}|,|\\,|\ )\d{3})+(?!\d)(?:\.\d+)?"
SYMBOL = re.compile(r"\\(?:math\w+|operatorname\*?)\s*\{[A-Za-z]\}")
LEXER = re.compile(
    rf"""(?P<text>{WORDS})
    |(?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*(?:\{{\d+\}}|\d))
    |(?P<scientific>\d+(?:\.\d+)?[eE][-+]?\d{{1,3}}(?!\d))
    |(?P<grouped>{GROUPED})
    |(?P<number>\d+(?:\.\d+)?|\.\d+)
    |(?P<word>sq\.|[A-Za-z]+)
    |(?P<sign>\\(?:begin|end)\s*\{{[a-zA-Z]+\*?\}}(?:\{{[clr|]+\}})?|\\mathbb\s*\{{?[A-Z]\}}?|\\[A-Za-z]+|\\.|\*\*|[<>!]=|\S)
    |(?P<blank>\s+)""",
    re.VERBOSE,
)
SILENT = (  # of these nothing is worth comparing
    r"\left", r"\right", r"\bigl", r"\bigr", r"\Bigl", r"\Bigr", r"\big", r"\Big", r"\bigg", r"\Bigg",
    r"\displaystyle", r"\textstyle", r"\limits", r"\boxed", r"\quad", r"\qquad", r"\,", r"\;", r"\:", r"\!", r"\(",
    r"\)", r"\[", r"\]", r"\hfill", "~", r"\angle", r"\triangle", "\\ ",
)  # fmt: skip
SAME = {  # other spellings of a sign
    **dict.fromkeys(SILENT, ""),
    **dict.fromkeys((r"\dfrac", r"\tfrac", r"\cfrac"), r"\frac"),
    **dict.fromkeys((r"\dbinom", r"\tbinom"), r"\binom"),
    **dict.fromkeys((r"\cdot", r"\times", "×", "·", "∙", "⋅"), "*"),
    **dict.fromkeys((r"\div", "÷", "∕"), "/"),
    **dict.fromkeys(("−", "–", "—"), "-"),
    **dict.fromkeys((r"\leq", r"\le", r"\leqslant", "≤"), "<="),
    **dict.fromkeys((r"\geq", r"\ge", r"\geqslant", "≥"), ">="),
    **dict.fromkeys((r"\neq", r"\ne", "≠"), "!="),
    **dict.fromkeys((r"\lvert", r"\rvert", r"\vert", r"\mid"), "|"),
    **dict.fromkeys((r"\circ", "°", r"\degree", r"\degrees"), r"\degree"),
    **dict.fromkeys((r"\varnothing", "∅"), r"\emptyset"),
    **dict.fromkeys((r"\approx", r"\simeq", "≈"), "="),
    **dict.fromkeys((r"\dots", r"\cdots", r"\ldots", "…"), r"\ldots"),
    **dict.fromkeys((r"\wedge", r"\land", r"\lor", r"\vee", ";"), ","),
    **dict.fromkeys((r"\mathbb{R}", r"\mathbb R", "ℝ"), r"\reals"),
    "±": r"\pm", "∪": r"\cup", "∈": r"\in", "√": r"\surd", "∞": r"\infty", "π": r"\pi", "θ": r"\theta", "%": r"\%",
    r"\lt": "<", r"\gt": ">", "**": "^", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]",
}  # fmt: skip
COUNTED = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
NUMERALS = {word: str(number) for number, word in enumerate(COUNTED)}
RAISED = {"²": "2", "³": "3"}
PARTS = {"½": "1/2", "¼": "1/4", "¾": "3/4"}
OPEN, CLOSE = {"(", "[", r"\{", r"\langle"}, {")", "]", r"\}", r"\rangle"}
GREEK = frozenset({
    r"\alpha", r"\beta", r"\gamma", r"\delta", r"\epsilon", r"\varepsilon", r"\zeta", r"\eta", r"\theta", r"\iota",
    r"\kappa", r"\lambda", r"\mu", r"\nu", r"\xi", r"\rho", r"\sigma", r"\tau", r"\phi", r"\varphi", r"\chi", r"\psi",
    r"\omega", r"\Gamma", r"\Delta", r"\Theta", r"\Lambda", r"\Sigma", r"\Phi", r"\Psi", r"\Omega", r"\ell",
})  # fmt: skip
FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln",
    "exp", "min", "max", "gcd", "lcm", "abs",
})  # fmt: skip
SAID = {
    **dict.fromkeys(("and", "or"), ","),
    **dict.fromkeys(("degree", "degrees", "deg"), r"\degree"),
    **dict.fromkeys(("infinity", "inf", "oo"), r"\infty"),
    **dict.fromkeys(("pi",), r"\pi"),
    **dict.fromkeys(("in",), r"\in"),
    **dict.fromkeys(("sqrt",), r"\surd"),  # of a whole number, where \sqrt17 is that of 1, times 7
    **dict.fromkeys((r"\$", "$"), r"\$"),
    **dict.fromkeys((r"\%", "%"), r"\%"),
}
ORDINALS = ("st", "nd", "rd", "th")  # 5^{\text{th}}


def tokens(text: str) -> list[Token]:
    found: list[Token] = []
    depth = 0
    for match in LEXER.finditer(text):
        kind, said = str(match.lastgroup), match[0]
        if kind in ("number", "repeating", "scientific"):
            found.append((kind, said))
        elif kind == "word":
            found.extend(_word(said))
        elif kind == "grouped":
            found.extend(_grouped(said, depth))
        elif kind == "text":
            found.extend([("letter", match[2])] if SYMBOL.fullmatch(said) else _text(match[2]))
        elif said in RAISED:
            found += [("sign", "^"), ("number", RAISED[said])]
        elif said in PARTS:
            found += [("sign", r"\frac"), ("number", PARTS[said][0]), ("number", PARTS[said][2])]
        elif kind == "sign" and (said := SAME.get(said, said)):
            depth += (said in OPEN) - (said in CLOSE)
            found.append((kind, said))
    return found


def _word(said: str) -> list[Token]:
    """Letters without a backslash: a separator, a function, a number, a unit, a word, or variables side by side."""
    if said.lower() in NUMERALS:
        return [("number", NUMERALS[said.lower()])]
    if said in SAID:
        return [("sign", SAID[said])]
    if said in FUNCTIONS:
        return [("sign", f"\\{said}")]
    if len(said) > 3 or said.lower() in BARE or said.lower().rstrip(".") in POWERS:
        return [("text", said)]
    return [("letter", letter) for letter in said]


def _text(said: str) -> list[Token]:
    """What stands in \\text{...}."""
    said = said.strip(" ,.")
    if said[:1].isdecimal():  # \text{120 ways}
        return tokens(said)
    known = said in SAID or said in FUNCTIONS or said.lower() in NUMERALS
    return _word(said) if known else [("text", said)] if said else []


def _grouped(said: str, depth: int) -> list[Token]:
    """12,345 is one number; within brackets a plain comma separates, and `(1,100)` is a point."""
    if depth > 0 and re.search(r"\d,\d", said):
        parts = said.split(",")
        return [token for part in parts for token in (("sign", ","), ("number", part))][1:]
    return [("number", re.sub(r"[^\d.]", "", said))]


# --- tokens to trees ---

RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!=", r"\in"})
INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
SIGNED = {
    r"\pi": ("constant", "pi"),
    r"\infty": ("variable", "oo"),
    r"\emptyset": ("set", ()),
    r"\reals": ("bracket", "(", ")", (("negate", ("variable", "oo")), ("variable", "oo"))),
    r"\ldots": ("variable", "..."),
}
LETTERS = {"e": ("constant", "e"), "i": ("constant", "i")}
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
    text = text.strip().rstrip(".").rstrip()
    while len(text) > 1 and text[0] == text[-1] == "$":
        text = text[1:-1].strip().rstrip(".").rstrip()
    return text


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
        while self.accept(r"\cup"):
            parts.append(self.ratio())
        return ("union", tuple(parts)) if len(parts) > 1 else parts[0]

    def ratio(self) -> Node:
        terms = [self.total()]
        while self.accept(":"):
            terms.append(self.total())
        if len(terms) == 2:
            return ("divide", *terms)
        return ("bracket", ":", ":", tuple(terms)) if len(terms) > 1 else terms[0]

    def total(self) -> Node:
        tree = self.signed()
        while self.token[0] == "sign" and self.token[1] in ("+", "-", r"\pm"):
            sign = self.take()[1]
            term = self.product()
            tree = ("add", tree, term if sign == "+" else ("negate" if sign == "-" else "choice", term))
        return tree

    def signed(self) -> Node:
        if self.accept("-"):
            return ("negate", self.signed())
        if self.accept("+"):
            return self.signed()
        if self.accept(r"\pm"):
            return ("choice", self.signed())
        return self.product()

    def product(self) -> Node:
        dollars = self.accept(r"\$") or self.accept("$")
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
            if self.accept(r"\}"):
                return ("set", ())
            tree = self.items("set")
            self.expect(r"\}")
            return tree
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
