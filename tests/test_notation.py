"""The one-line notation: what is printed parses back, what is misspelt is pointed out, nothing is evaluated."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redraft.samplers
from redraft.decoding import SAMPLERS, Registry, spell
from redraft.decoding.notation import check_options, listed, option_types

THINGS: Registry = Registry("thing")


@THINGS.register
@dataclass(frozen=True)
class Thing:
    """One option of every type a sampler may have."""

    flag: bool = True
    count: int = 3
    share: float = 0.5
    word: str = "plain"
    choice: Literal["kept", "max", 7] = "kept"
    maybe: float | None = None
    many: tuple[int, ...] = ()

    def __post_init__(self):
        check_options(Thing, vars(self))


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
OPTIONS = {
    "flag": st.booleans(),
    "count": st.integers(),
    "share": numbers,
    "word": st.text() | st.sampled_from(["true", "None", "None_", "ﬁ", "nan", "\ud800", "a b"]),
    "choice": st.sampled_from(["kept", "max", 7]),
    "maybe": st.none() | numbers,
    "many": st.lists(st.integers(), max_size=4).map(tuple),
}


@given(st.fixed_dictionaries({}, optional=OPTIONS))
def test_what_is_spelt_parses_back(options):
    thing = Thing(**options)
    again = THINGS.parse(spell(thing))
    assert again == thing
    assert [type(value) for value in vars(again).values()] == [type(value) for value in vars(thing).values()]


def values_of(hint):
    """Every value of a finite option; for the others their default is all that is tried."""
    return {bool: [True, False]}.get(hint, getattr(hint, "__args__", []))


@pytest.mark.parametrize("name", [*SAMPLERS])
def test_every_sampler_parses_back_with_every_choice(name):
    cls = SAMPLERS.classes[name]
    tried = [cls()]
    for option, hint in option_types(cls).items():
        tried += [cls(**{option: value}) for value in values_of(hint) if not isinstance(value, type)]
    for sampler in tried:
        assert redraft.samplers.parse(repr(sampler)) == sampler


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("d3im", "d3im"),
        ("d3im()", "d3im"),
        ("  d3im( t2t = False ) ", "d3im(t2t=False)"),
        ("d3im(t2t=false)", "d3im(t2t=False)"),
        ("d3im(t2t=True)", "d3im"),
        ("d3im(schedule=front, t2m=False)", "d3im(t2m=False, schedule=front)"),
        ("d3im(schedule='front')", "d3im(schedule=front)"),
        ("low_confidence", "unmask"),
        ("llada(schedule=floor)", "unmask(schedule=floor)"),
    ],
)
def test_many_spellings_one_repr(text, spelt):
    assert repr(redraft.samplers.parse(text)) == spelt


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("d3in", r"no sampler 'd3in' \(did you mean 'd3im'\?\); there are: .*d3im, "),
        ("D3IM", "did you mean 'd3im'"),
        ("unmsak", "did you mean 'unmask'"),
        ("d3im(t2tt=False)", r"'d3im' has no option 't2tt' \(did you mean 't2t'\?\); it has t2t, t2m, "),
        ("d3im(shedule=front)", "did you mean 'schedule'"),
        ("d3im(schedule=frnt)", r"'schedule' of 'd3im' is one of floor, front, ceil, late, not 'frnt'.*'front'"),
        ("d3im(t2t=1)", "'t2t' of 'd3im' is True or False, not 1"),
        ("d3im(t2t=none)", "'t2t' of 'd3im' is True or False, not 'none'"),
        ("d3im(False)", r"named: write d3im\(option=value\)"),
        ("", "cannot read"),
        ("d3im(", "cannot read"),
        ("d3im(t2t=True, t2t=False)", "cannot read"),
        ("d3im(**{'t2t': False})", "cannot read"),
        ("d3im; unmask", "cannot read"),
        ("d3im\0", "cannot read"),
        ("(" * 500 + ")" * 500, "cannot read"),
    ],
)
def test_mistakes_are_refused_with_advice(text, message):
    with pytest.raises(ValueError, match=message):
        redraft.samplers.parse(text)


@pytest.mark.parametrize(
    "value",
    ["__import__('os').abort()", "[].append(1)", "().__class__", "lambda: 0", "f'{1}'", "t2m.real", "1 if 1 else 0"],
)
def test_hostile_values_are_never_evaluated(value):
    with pytest.raises(ValueError, match=r"is not a number, a word|cannot read"):
        redraft.samplers.parse(f"d3im(t2t={value})")


@given(st.text(max_size=40) | st.from_regex(r"d3im\((t2t|word)=.{0,20}\)", fullmatch=True))
def test_any_text_is_a_sampler_or_a_value_error(text):
    with suppress(ValueError):
        sampler = redraft.samplers.parse(text)
        assert redraft.samplers.parse(repr(sampler)) == sampler


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "0.5", None])
def test_a_number_is_a_finite_number(value):
    with pytest.raises(ValueError, match="'share' of 'thing' is a number"):
        Thing(share=value)


def test_names_are_taken_once():
    registry: Registry = Registry("thing")
    registry.register(Thing, name="one")
    try:
        with pytest.raises(ValueError, match="two things are called 'one'"):
            registry.register(Thing, name="one")
    finally:
        Thing.name = "thing"


# --- lists ---


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ["a"]),
        ("a,b;c", ["a", "b", "c"]),
        (" a ; b , c ", ["a", "b", "c"]),
        ("a;b;", ["a", "b"]),
        ("unmask;d3im(t2t=False, t2m=False),x", ["unmask", "d3im(t2t=False, t2m=False)", "x"]),
        ("x(a=(1, 2), b='c,;d)')", ["x(a=(1, 2), b='c,;d)')"]),
        (r"""x(a='\'",;'),y""", [r"""x(a='\'",;')""", "y"]),
        ("./a.py:mine(k=3);./b.py:mine", ["./a.py:mine(k=3)", "./b.py:mine"]),
    ],
)
def test_lists_are_cut_outside_of_brackets_and_quotes(text, parts):
    assert listed(text) == parts


@pytest.mark.parametrize("text", ["", " ", ",", "a,,b", ";a", "a;;"])
def test_empty_parts_are_refused(text):
    with pytest.raises(ValueError, match="one of its parts is empty"):
        listed(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a(b", "a bracket is not closed"),
        ("a)b", "a bracket is not opened"),
        ("a)(b", "a bracket is not opened"),
        ("a(b))", "a bracket is not opened"),
        ("x='y", "a quote is not closed"),
        (r"x='y\'", "a quote is not closed"),
    ],
)
def test_what_is_not_closed_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        listed(text)


@given(st.lists(st.fixed_dictionaries({}, optional=OPTIONS), min_size=1, max_size=4), st.sampled_from([",", "; "]))
def test_what_is_spelt_can_be_listed(options, between):
    things = [Thing(**given) for given in options]
    parts = listed(between.join(map(spell, things)))
    assert [THINGS.parse(part) for part in parts] == things
