"""Mathematical answers as they are written, in LaTeX or plainly, cut into tokens: `tokens(text)`.

What is written in several ways comes out in one: \\dfrac is \\frac, ≤ and \\leq are <=, 12{,}345 and ten are numbers.
"""

from __future__ import annotations

import re

from redraft.evals.units import BARE, POWERS

Token = tuple[str, str]  # "number", "repeating", "scientific", "letter", "text" or "sign"; and what it says

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMERALS = {word: str(number) for number, word in enumerate(ONES)}
NUMERALS |= {word: str(10 * number) for number, word in enumerate(TENS, 2)}
NUMERALS |= {f"{ten}-{ONES[one]}": str(int(NUMERALS[ten]) + one) for ten in TENS for one in range(1, 10)}
PHRASES = {"all real numbers": r"\reals", "no solution": r"\emptyset", "no solutions": r"\emptyset"}

WORDS = (
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|up)?|mbox|hbox|fbox|mathrm|mathbf|mathit|mathsf|operatorname\*?)\s*\{([^{}]*)\}"
)
GROUPED = r"[1-9]\d{0,2}(?:(?:,\\!\s*|\{,\}|,|\\,|\ )\d{3})+(?!\d)(?:\.\d+)?"
SYMBOL = re.compile(r"\\(?:math\w+|operatorname\*?)\s*\{[A-Za-z]\}")
LEXER = re.compile(
    rf"""(?P<text>{WORDS})
    |(?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*(?:\{{\d+\}}|\d))
    |(?P<going_on>(?P<settled>\d*\.\d*?)(?P<period>\d{{1,9}}?)(?P=period)+(?:\.\.\.|…|\\[cl]?dots(?![a-z])))
    |(?P<scientific>\d+(?:\.\d+)?[eE][-+]?\d{{1,3}}(?!\d))
    |(?P<grouped>{GROUPED})
    |(?P<ordinal>\d*(?:1st|2nd|3rd|\dth)(?![A-Za-z]))
    |(?P<number>\d+(?:\.\d+)?|\.\d+)
    |(?P<phrase>(?i:{"|".join(PHRASES)})(?![A-Za-z]))
    |(?P<word>(?i:{"|".join(TENS)})-[A-Za-z]+|sq\.|[A-Za-z]+)
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
    "$": r"\$", "±": r"\pm", "∓": r"\mp", "∪": r"\cup", "∈": r"\in", "√": r"\surd", "∞": r"\infty", "π": r"\pi",
    "θ": r"\theta", "%": r"\%",
    r"\lt": "<", r"\gt": ">", "**": "^", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]",
}  # fmt: skip
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
        elif kind == "going_on":  # 0.1666...
            found.append(("repeating", rf"{match['settled']}\overline{{{match['period']}}}"))
        elif kind == "ordinal":
            found.append(("number", said[:-2]))
        elif kind == "phrase":
            found.append(("sign", PHRASES[said.lower()]))
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
    if said.lower() in PHRASES:
        return [("sign", PHRASES[said.lower()])]
    if re.fullmatch(r"\([A-Za-z]\)", said):  # \text{(C)}
        return [("letter", said[1])]
    known = said in SAID or said in FUNCTIONS or said.lower() in NUMERALS
    return _word(said) if known else [("text", said)] if said else []


def _grouped(said: str, depth: int) -> list[Token]:
    """12,345 is one number; within brackets a plain comma separates, and `(1,100)` is a point."""
    if depth > 0 and re.search(r"\d,\d", said):
        parts = said.split(",")
        return [token for part in parts for token in (("sign", ","), ("number", part))][1:]
    return [("number", re.sub(r"[^\d.]", "", said))]
