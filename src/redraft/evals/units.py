"""Units of measurement as answers carry them: `15 cm^2` is 15 square centimetres, and no number of metres."""

from __future__ import annotations

import re

ALSO = {
    "centimeter": "cm cms centimetre",
    "millimeter": "mm mms millimetre",
    "kilometer": "km kms kilometre",
    "meter": "m metre",
    "inch": "in inches",
    "foot": "ft feet",
    "yard": "yd yds",
    "mile": "mi",
    "gram": "g gm gms",
    "kilogram": "kg kgs",
    "pound": "lb lbs",
    "ounce": "oz",
    "liter": "l litre",
    "milliliter": "ml millilitre",
    "second": "s sec secs",
    "minute": "min mins",
    "hour": "h hr hrs",
    "dollar": "usd bucks",
    "cent": "¢",
    "degree": "deg",
    "percent": "pct %",
    "mile/hour": "mph",
    "kilometer/hour": "kph",
    "meter/second": "mps",
    "unit": "",
}
NAMES = {other: name for name, others in ALSO.items() for other in others.split()}
UNITS = frozenset({*ALSO, *NAMES, *(f"{name}s" for name in ALSO)})
POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}
BARE = frozenset(name for name in UNITS if len(name) > 1) - {
    "in",
    "mi",
    "lb",
    "min",
    "sec",
}  # beside digits, no variables


def unit(said: str) -> str:
    """One spelling of a unit: `sq. cm`, `centimeters squared` and `cm^2` are centimeter^2."""
    said = re.sub(r"\b([ap])\.m\b", r"\1m", said)
    said = re.sub(r"\b(?:a|an|of|the)\b|[.{}\\]", " ", re.sub(r"\bper\b", "/", said.lower()))
    names: list[list[str | int]] = []
    pending, divided = 1, ""
    for word in re.findall(r"/|\^\s*-?\d+|[^\W\d_]+|¢|%", said):
        if word == "/":
            divided = "/"
        elif word[0] == "^" and names:
            names[-1][1] = int(word[1:])
        elif word in ("squared", "cubed") and names:
            names[-1][1] = POWERS[word]
        elif word in POWERS:
            pending = POWERS[word]
        else:
            named, _, under = _singular(word).partition("/")  # mph is miles per hour
            names += [[divided + named, pending], *([[f"/{under}", 1]] if under else [])]
            pending, divided = 1, ""
    return " ".join(f"{name}^{power}" if power != 1 else str(name) for name, power in names)


def _singular(word: str) -> str:
    known = NAMES.get(word) or NAMES.get(word.removesuffix("s")) if word not in ALSO else word
    if known:
        return known
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
