"""The rows of a sweep: made of finished runs alone, with intervals checked against other ways of computing them."""

import json
import random
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from redraft.evals.figure import limits, panels, png
from redraft.evals.page import html
from redraft.evals.rows import HEAD, Baseline, cells, jsonl, legend, markdown, results, said_of
from redraft.evals.run import Record
from redraft.evals.sweep import Combination
from redraft.generation import Plan
from redraft.samplers import parse
from test_page import HOSTILE, data_of

PROTOCOL = {
    "task": "words", "split": "test", "subset": "first-60", "items": 60, "shots": 0, "template": "plain", "length": 16,
    "block": None, "eos": "confidence", "temperature": 0.0, "guidance": 0.0, "seed": 0, "dtype": "float32",
    "batch_size": 16, "device": "cpu", "packages": {"torch": "2", "redraft": "0"},
}  # fmt: skip


def one(sampler="unmask", steps=4, *, task="words", adapter="none", paced=True) -> Combination:
    return Combination(task, adapter, Plan.of(parse(sampler), length=16, steps=steps), paced)


def record(index, correct, calls=4) -> Record:
    return Record(
        index, f"words-1/test/{index}", correct, "passed" if correct else "wrong", None, {}, "text", [1, 2], "hash", 3,
        2, calls, 30 * calls, 16, index % 3, index % 2, 0,
    )  # fmt: skip


def put(out: Path, combination: Combination, correct, **protocol) -> Combination:
    """A finished run with these verdicts."""
    folder = out / combination.folder
    folder.mkdir(parents=True)
    card = {"subject": {"sampler": repr(combination.sampler)}, "protocol": {**PROTOCOL, **protocol}}
    (folder / "card.json").write_text(json.dumps(card))
    lines = [json.dumps(asdict(record(index, right))) for index, right in enumerate(correct)]
    (folder / "items.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return combination


def drawn(n, share, seed):
    source = random.Random(seed)
    return [source.random() < share for _ in range(n)]


UNMASK = Baseline(parse("unmask"), "none")


# --- differences ---


def exact(both, lost, gained, neither):
    """The 2.5 % and 97.5 % quantiles of the resampled difference, from its distribution: n draws of -1, 0 or 1 added
    up, which is the coefficients of a power of a polynomial."""
    n = both + lost + gained + neither
    law = np.ones(1)
    for _ in range(n):
        law = np.convolve(law, np.array([lost, both + neither, gained]) / n)
    below = np.cumsum(law)
    return [(int(np.searchsorted(below, share)) - n) / n for share in (0.025, 0.975)]


@pytest.mark.parametrize(
    ("both", "lost", "gained", "neither"), [(20, 3, 12, 25), (40, 10, 10, 0), (0, 1, 0, 59), (5, 50, 2, 3)]
)
def test_paired_intervals_are_those_of_the_exact_resampling(tmp_path, both, lost, gained, neither):
    kinds = [(True, True)] * both + [(True, False)] * lost + [(False, True)] * gained + [(False, False)] * neither
    random.Random(0).shuffle(kinds)
    asked = [put(tmp_path, one(), [a for a, _ in kinds]), put(tmp_path, one("d3im"), [b for _, b in kinds])]
    rows, _ = results(tmp_path, asked, UNMASK)
    row, n = rows[1], len(kinds)
    assert (row.gained, row.lost) == (gained, lost)
    assert row.difference == pytest.approx((gained - lost) / n, abs=1e-6)
    low, high = exact(both, lost, gained, neither)
    assert row.difference_interval == pytest.approx((low, high), abs=1 / n + 1e-6)  # one step of the lattice
    assert row.accuracy == pytest.approx((both + gained) / n, abs=1e-6)
    for end in row.interval:  # Wilson's ends are the shares that the observed one is just 1.96 deviations from
        assert abs(row.accuracy - end) == pytest.approx(1.959964 * (end * (1 - end) / n) ** 0.5, abs=1e-4)


def test_pairs_are_of_the_same_items_and_not_of_the_same_places(tmp_path):
    right = drawn(60, 0.5, 1)
    asked = [put(tmp_path, one(), right), put(tmp_path, one("d3im"), right)]
    path = tmp_path / asked[1].folder / "items.jsonl"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    rows, _ = results(tmp_path, asked, UNMASK)
    assert rows[1].gained == rows[1].lost == 0
    assert rows[1].against == "+0.0 (no item differs)", "a bootstrap of nothing says nothing"


def test_a_row_says_what_its_records_do(tmp_path):
    asked = [put(tmp_path, one("d3im(t2t=False)"), drawn(60, 0.4, 2))]
    (row,), protocols = results(tmp_path, asked, UNMASK)
    assert (row.task, row.adapter, row.sampler, row.steps) == ("words", "none", "d3im(t2t=False)", 4)
    assert (row.items, row.correct) == (60, sum(drawn(60, 0.4, 2)))
    assert (row.calls, row.processed, row.overwrites, row.demotions) == (4, 120, 1, 0.5)
    assert (row.baseline, row.difference, row.difference_interval, row.mcnemar_p) == (None, None, None, None)
    assert row.against == "no such row"
    assert row.run == asked[0].folder.as_posix()
    assert protocols == {"words": PROTOCOL}


def test_runs_of_other_protocols_are_not_put_into_one_table(tmp_path):
    asked = [put(tmp_path, one(), [True]), put(tmp_path, one("d3im"), [True], dtype="bfloat16")]
    with pytest.raises(ValueError, match=r"d3im.* was run otherwise: dtype \('float32', now 'bfloat16'\)"):
        results(tmp_path, asked, UNMASK)


def test_tasks_have_protocols_of_their_own(tmp_path):
    asked = [put(tmp_path, one(), [True]), put(tmp_path, one(task="algebra"), [True], length=64)]
    _, protocols = results(tmp_path, asked, UNMASK)
    assert [protocols[task]["length"] for task in ("words", "algebra")] == [16, 64]


# --- what is set against what ---


@pytest.mark.parametrize(
    ("baseline", "row", "against"),
    [
        (Baseline(parse("unmask"), "none"), one("d3im", 2), one("unmask", 2)),
        (Baseline(parse("unmask"), "none"), one("unmask", 2), one("unmask", 2)),
        (Baseline(parse("unmask"), "none", 4), one("d3im", 2), one("unmask", 4)),
        (Baseline(parse("unmask"), "none"), one("d3im", 2, adapter="scope"), one("unmask", 2)),
        (Baseline(parse("unmask"), "scope"), one("d3im", 2, adapter="scope"), one("unmask", 2, adapter="scope")),
        (Baseline(parse("unmask"), "none"), one("threshold", 16, paced=False), one("unmask", 4)),
        (Baseline(parse("unmask"), "none", 2), one("threshold", 16, paced=False), one("unmask", 2)),
        (Baseline(parse("threshold"), "none"), one("d3im", 2), one("threshold", 16, paced=False)),
        (Baseline(parse("unmask"), "none"), one("d3im", 8), None),
        (Baseline(parse("unmask"), "none"), one("d3im", 2, task="algebra"), None),
    ],
)
def test_the_baseline_of_a_row(baseline, row, against):
    among = [
        one("unmask", 2), one("unmask", 4), one("d3im", 2), one("d3im", 8), one("threshold", 16, paced=False),
        one("unmask", 2, adapter="scope"),
    ]  # fmt: skip
    assert baseline.of(row, among) == against


# --- what is made of them ---


@pytest.fixture
def sweep(tmp_path):
    """Two adapters, of which one is hostile, and samplers of which one sets its own pace."""
    adapters = ("none", HOSTILE[0] + "|" + HOSTILE[4])
    asked = [
        put(tmp_path, one(sampler, steps, adapter=adapter, paced=paced), drawn(60, 0.3 + 0.05 * steps / 4, steps))
        for adapter in adapters
        for sampler, steps, paced in [
            ("unmask", 2, True),
            ("unmask", 4, True),
            ("d3im", 4, True),
            ("threshold", 16, False),
        ]
    ]
    return *results(tmp_path, asked, UNMASK), UNMASK, HOSTILE[0]


def test_json_lines_hold_the_rows(sweep):
    rows, *_ = sweep
    lines = [json.loads(line) for line in jsonl(rows).split("\n")[:-1]]
    assert lines == [json.loads(json.dumps(asdict(row))) for row in rows]


def test_the_markdown_table_has_every_row_and_its_cells(sweep):
    rows, _, _, model = sweep
    text = markdown(*sweep)
    assert text.startswith(f"# Samplers on {model}\n\n## words\n\n60 items (test, first-60), 0 shots;")
    table = [line for line in text.split("\n") if line.startswith("| ")]
    found = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]
    assert found[0] == list(HEAD)
    assert len(found) == 1 + len(rows)
    for line, row in zip(found[1:], rows, strict=True):
        assert len(line) == len(HEAD)
        assert line[1] == f"`{row.sampler}`"
        assert line[2:] == list(cells(row)[2:])


def test_the_page_draws_the_rows_and_is_not_broken_by_a_name(sweep):
    rows, *_ = sweep
    page = html(*sweep)
    data = data_of(page)
    for given, row in zip(data["rows"], rows, strict=True):
        assert {name: given[name] for name in asdict(row)} == json.loads(json.dumps(asdict(row)))
        assert (given["against"], given["right"]) == (row.against, row.right)
    assert data["series"] == ["unmask", "d3im", "threshold"]
    assert [len(line) for line in data["panels"]] == [2]
    assert page.count("<script") == page.count("</script") == 2
    assert page.count("<tr>") == 1 + len(rows)
    assert "\u2028" not in page


def test_the_picture_is_a_png_and_the_same_each_time(sweep):
    rows, protocols, _, model = sweep
    picture = png(rows, protocols, model)
    assert picture.startswith(b"\x89PNG\r\n")
    width, height = (int.from_bytes(picture[at : at + 4]) for at in (16, 20))
    assert width > 1.5 * height > 500, "two panels side by side"
    assert picture != png(rows, protocols, f"{model} $\\frac$ $"), "no dollar is looked into"
    assert png(rows, protocols, model) == picture


def test_panels_stand_adapter_beside_adapter_or_task_beside_task(sweep):
    rows, *_ = sweep
    second = rows[-1].adapter
    assert panels(rows) == [[("words", "none"), ("words", second)]]
    alone = [row for row in rows if row.adapter == "none"]
    assert panels(alone) == [[("words", "none")]]


def test_limits_have_room_for_every_interval(sweep):
    rows, *_ = sweep
    low, high = limits(rows)
    assert low <= 100 * min(row.interval[0] for row in rows) < 100 * max(row.interval[1] for row in rows) <= high
    assert 0 <= low < high <= 100
    assert low % 5 == high % 5 == 0


def test_the_legend_warns_of_many_comparisons(sweep):
    rows, *_ = sweep
    assert "by chance" not in legend(rows, UNMASK)
    assert "of 12 such intervals about 1 would miss 0 by chance" in legend([*rows, *rows], UNMASK)
    assert "its most, for samplers at their own pace" in legend(rows, UNMASK)


def test_a_protocol_in_a_line():
    said = said_of({**PROTOCOL, "block": 8, "guidance": 1.5, "template": "chat 123"})
    for part in ("prompts as a chat", "16 tokens in blocks of 8", "guidance 1.5", "EOS policy confidence"):
        assert part in said
