"""The preview of a training batch: every position in its colour, and in words where there are no colours."""

import io
import re

import pytest
import torch
from rich.console import Console

from redraft.models.standin import random_llada
from redraft.train.batch import Batch, Draft
from redraft.train.corrupt import hide, self_commit
from redraft.train.data import Packed, collate, open_source
from redraft.train.preview import GIVEN, MASKED, PROMPT, RIGHT, TRUTH, WRONG, draw_row, preview, printable
from redraft.train.recipes import parse

MODEL = random_llada()
EOS, EOT = MODEL.eos_ids


def ids(text):
    return MODEL.tokenizer(text, add_special_tokens=False)["input_ids"]


def example():
    """P: prompt, g: given, m: masked, a guess in place of `r` that is right and of `w` that is wrong, then padding."""
    true = [*ids("PPgmrw"), EOT, EOS, EOS]
    seen = [*ids("PPg"), MODEL.mask_id, *ids("rX"), EOT, EOS, EOS]
    kinds = "PPgmrwg--"
    where = {kind: torch.tensor([[one == kind for one in kinds]]) for kind in "Pgmrw-"}
    batch = Batch(torch.tensor([true]), ~(where["P"] | where["-"]), ~where["-"], torch.tensor([17]))
    conditioned = torch.ones(1, dtype=torch.bool)
    committed = where["r"] | where["w"]
    return batch, Draft(torch.tensor([seen]), committed, where["m"], where["w"], conditioned)


def printed(*, colour, batch=None, draft=None, **options):
    if batch is None:
        batch, draft = example()
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=colour, color_system="standard" if colour else None)
    preview(batch, draft, MODEL.pieces, eos_ids=MODEL.eos_ids, console=console, **options)
    return file.getvalue()


def test_every_position_has_the_colour_of_what_it_is():
    heading, text = draw_row(*example(), 0, MODEL.pieces, eos_ids=MODEL.eos_ids).renderables
    assert text.plain == "PPg·rXw■"
    styles = [GIVEN] * len(text.plain)
    for span in text.spans:
        styles[span.start : span.end] = [span.style] * (span.end - span.start)
    assert styles == [PROMPT, PROMPT, GIVEN, MASKED, RIGHT, WRONG, TRUTH, GIVEN]
    expected = "example 17: 2 prompt, 2 given, 1 masked, 2 committed, 1 of them wrong, 2 padding"
    assert heading.plain == expected
    assert len({PROMPT, GIVEN, MASKED, RIGHT, WRONG, TRUTH}) == 6


def test_without_colours_brackets_say_it():
    text = printed(colour=False)
    assert "\x1b" not in text
    assert text.splitlines()[1] == "PPg·[r][X≠w]■"
    assert "[committed wrong≠truth]" in text


def test_with_colours_they_do():
    text = printed(colour=True)
    assert "\x1b[1;32mr\x1b[0m" in text
    assert "\x1b[1;37;41mX\x1b[0m" in text
    assert "≠" not in text


def test_a_long_row_and_a_large_batch_are_cut():
    batch, draft = example()
    batch = batch.rows(torch.tensor([0, 0, 0]))
    draft = Draft(*(part.repeat_interleave(3, 0) for part in draft))
    text = printed(colour=False, batch=batch, draft=draft, rows=2, width=4)
    assert text.count("example 17") == 2
    assert "and 1 more rows" in text
    assert text.count("PPg· … 3 more tokens") == 2


@pytest.mark.parametrize(
    ("piece", "shown"), [("a\nb", "a⏎b"), ("\tx", " x"), ("\x1b[2J", "�[2J"), ("\r\x07", "��"), ("é☃", "é☃")]
)
def test_nothing_in_the_data_commands_the_terminal(piece, shown):
    assert printable(piece) == shown


def test_markup_in_the_data_is_text():
    batch, draft = example()
    tokens = torch.tensor([ids("[b]x[/z][")])
    nothing = torch.zeros_like(tokens, dtype=torch.bool)
    batch = Batch(tokens, ~nothing, None, torch.tensor([0]))
    draft = Draft(tokens, nothing, nothing, nothing, torch.zeros(1, dtype=torch.bool))
    assert printed(colour=False, batch=batch, draft=draft).splitlines()[1] == "[b]x[/z]["


def test_a_real_batch_after_masking_and_committing():
    """What is counted in the headings is what the corruption did."""
    records = [{"prompt": f"{i}?", "response": "an answer " * i} for i in range(1, 5)]
    stream = Packed(open_source(records), MODEL, length=256, shuffle=1, pad_loss=False)
    batch = collate(stream.take(4), pad_id=MODEL.pad_id)
    seeds = batch.seeds(0)
    hidden = hide(batch, "beta(2,2)", seeds)
    draft = self_commit(
        MODEL, batch.tokens, hidden, MODEL.mask_id, recipe=parse("scope"), seeds=seeds, attend=batch.attend
    )
    text = printed(colour=False, batch=batch, draft=draft)
    headings = re.findall(
        r"example (\d+): [^:]*?(\d+)\s+given,\s+(\d+)\s+masked,\s+(\d+)\s+committed,\s+(\d+)\s+of", text
    )
    assert [int(index) for index, *_ in headings] == [0, 1, 2, 3]
    for row, (_, given, masked, committed, wrong) in enumerate(headings):
        assert int(masked) == int(draft.masked[row].sum())
        assert int(committed) == int(draft.committed[row].sum()) >= int(wrong) == int(draft.wrong[row].sum())
        assert int(given) + int(masked) + int(committed) == int(batch.eligible[row].sum())
    assert text.count("≠") == int(draft.wrong.sum()) + 1  # and the legend
