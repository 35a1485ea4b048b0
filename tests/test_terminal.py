"""The drawing of a decoding: a colour for each kind of change, end tokens as marks, steps passed on untouched."""

import io

import numpy as np
import pytest
from rich.console import Console

from fakes import EOS, MASK, Chaos, fresh
from redraft.decoding import Reading, walk
from redraft.samplers import parse
from redraft.terminal import DEMOTED, OVERWRITTEN, REVEALED, draw_row, legend, watch
from redraft.terminal import MASK as HOLE


def pieces(ids):
    return [f"{token} " for token in ids]


def drawn(before, after, pieces=pieces):
    """(text, style) of each stretch of a drawn row."""
    text = draw_row(np.array(before), np.array(after), pieces, mask_id=MASK, eos_ids=EOS)
    return [(text.plain[span.start : span.end], span.style) for span in text.spans]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (MASK, 5, ("5 ", REVEALED)),
        (4, 5, ("5 ", OVERWRITTEN)),
        (5, MASK, ("×", DEMOTED)),
        (MASK, MASK, (HOLE, "dim")),
        (MASK, EOS[1], ("■", REVEALED)),
        (5, EOS[0], ("■", OVERWRITTEN)),
        (EOS[0], MASK, ("×", DEMOTED)),
    ],
)
def test_every_change_has_its_colour(before, after, said):
    assert drawn([before, 3], [after, 3])[0] == said


def test_what_stays_has_no_colour():
    text = draw_row(np.array([5, 6]), np.array([5, 6]), pieces, mask_id=MASK, eos_ids=EOS)
    assert text.plain == "5 6 "
    assert not any(span.style for span in text.spans)


def test_ends_that_stand_are_one_mark():
    assert drawn([3, EOS[0], EOS[1], EOS[0]], [4, EOS[0], EOS[0], EOS[1]]) == [("4 ", OVERWRITTEN), (" ■", "dim")]
    row = draw_row(np.array([EOS[0], 3]), np.array([EOS[0], 3]), pieces, mask_id=MASK, eos_ids=EOS)
    assert row.plain == "■3 ", "an end before other tokens is drawn where it is"


def test_control_characters_are_not_obeyed():
    ((said, _),) = drawn([MASK], [5], lambda ids: ["\x1b[2Ja\rb\n"])
    assert said == "�[2Ja�b\n"


def test_the_legend_names_the_colours():
    said = {legend().plain[span.start : span.end]: span.style for span in legend().spans}
    assert said == {
        "revealed": REVEALED,
        "overwritten": OVERWRITTEN,
        "× masked again": DEMOTED,
        f"{HOLE} masked": "dim",
    }


def steps(rows=1, block=None):
    canvas = fresh(12, prompts=[(1, 2, 3)] * rows)
    return walk(Chaos(), canvas, parse("d3im"), steps=8, block=block, reading=Reading(eos_ids=EOS, temperature=1.0))


def watched(rows=1, terminal=True, height=24, block=None, **options):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=60, height=height, color_system="standard")
    shown = watch(steps(rows, block), pieces, eos_ids=EOS, console=console, title="[b]d3im", **options)
    return list(shown), console.file


def test_steps_are_passed_on_unchanged():
    for terminal in (True, False):
        seen, _ = watched(rows=2, terminal=terminal)
        assert [one.result.tokens.tolist() for one in seen] == [one.result.tokens.tolist() for one in steps(2)]


def test_nothing_is_drawn_off_a_terminal():
    assert watched(terminal=False)[1].getvalue() == ""


def test_drawings_say_where_and_how_often():
    seen, file = watched(rows=2)
    said = file.getvalue()
    assert "[b]d3im  step 8 of 8" in said, "the title is text, not markup"
    before = seen[0].before.tokens[0]
    overwritten = demoted = 0
    for step in seen:
        after = step.result.response[0]
        overwritten += int(((before != after) & (before != MASK) & (after != MASK)).sum())
        demoted += int(((before != MASK) & (after == MASK)).sum())
        before = after
    assert overwritten
    assert demoted
    assert f"{overwritten} overwritten, {demoted} masked again so far" in said
    assert "block" not in said
    assert "block 1, step 1 of 4" in watched(block=6)[1].getvalue()


@pytest.mark.parametrize(("rows", "count"), [(6, 4), (2, 2)])
def test_only_some_rows_are_drawn(rows, count):
    said = watched(rows=rows, height=60)[1].getvalue()
    assert said.split("step 8 of 8")[1].count("so far") == count


def test_a_drawing_never_outgrows_the_terminal_but_ends_whole():
    """More lines than the terminal has cannot be redrawn in place: they would flood it."""
    said = watched(rows=4, height=6)[1].getvalue()
    assert said.split("step 7 of 8")[1].split("step 8 of 8")[0].count("so far") < 4
    assert said.rsplit("step 8 of 8", 1)[1].count("so far") == 4


def test_drawings_stay_for_a_while(monkeypatch):
    slept = []
    monkeypatch.setattr("redraft.terminal.time.sleep", slept.append)
    watched(pause=5.0)
    assert len(slept) == 8
    assert all(4 < seconds <= 5 for seconds in slept)
