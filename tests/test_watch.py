"""The log, the curves and the card of a run."""

import json
import sys

import pytest

from redraft.train.watch import Log, curves, headline, model_card, read_log, seen, smooth


def record(step, **changed):
    plain = {
        "step": step, "loss": 2.0, "loss_wrong": 6.0, "loss_right": 0.5, "loss_masked": 1.0, "error_rate": 0.3,
        "committed": 10.0, "temperature": 1.5, "grad_norm": 1.0, "tokens_per_second": 1234.5,
    }  # fmt: skip
    return {**plain, **changed}


def test_a_log_is_one_line_a_step_and_is_cut_to_where_a_run_goes_on(tmp_path):
    log = Log(tmp_path / "deep" / "log.jsonl")
    for step in (1, 2, 3, 4):
        log.add(record(step))
    with log.path.open("a") as file:
        file.write('{"step": 5, "lo')  # a kill in the middle of a line
    again = Log(log.path)
    again.truncate(2)
    assert [one["step"] for one in again.records] == [1, 2]
    assert [json.loads(line)["step"] for line in log.path.read_text().splitlines()] == [1, 2]
    again.add(record(3))
    assert [one["step"] for one in read_log(log.path)] == [1, 2, 3]
    assert [path.name for path in log.path.parent.iterdir()] == ["log.jsonl"]


def test_a_log_without_a_file_is_kept_in_memory():
    log = Log(None)
    log.add(record(1))
    log.flush()
    assert len(log.records) == 1


def test_the_average_is_unbiased():
    assert smooth([2.0, 2.0, 2.0], 0.9) == pytest.approx([2.0, 2.0, 2.0])
    assert smooth([0.0, 1.0], share=0.5) == pytest.approx([0.0, 2 / 3])


def test_a_curve_has_no_points_where_nothing_was_measured():
    records = [record(1, loss_wrong=None), record(2, loss_wrong=5.0), record(3), record(4, loss_wrong=None)]
    assert seen(records, "loss_wrong") == ([2, 3], [5.0, 6.0])


def test_the_progress_line_says_what_there_is():
    assert headline(record(1)) == "loss 2.000, wrong commits 6.00, right 0.50, errors 30%, 1,234 tokens/s"
    assert headline(record(1, loss_wrong=None, loss_right=None, error_rate=None)) == "loss 2.000, 1,234 tokens/s"


def test_curves_are_a_picture_and_need_matplotlib(tmp_path, monkeypatch):
    records = [record(1), record(2, loss_wrong=None, error_rate=None, temperature=None)]
    assert curves(records, tmp_path / "curves.png", title="a run")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not curves(records, tmp_path / "none.png", title="a run")
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


PROTOCOL = {
    "run": {
        "model": "owner/model", "recipe": "scope(focus=False)", "data": "x.jsonl", "steps": 20, "rows": 4, "length": 64,
        "lr": 1.5e-4, "warmup": 5, "seed": 7, "lora": {"targets": "paper", "rank": 64, "alpha": 128, "dropout": 0.0},
    },
    "versions": {"redraft": "0.1.0"}, "tokens": 5120, "trainable": 1000, "seconds": 12.0, "hardware": "1 x cpu",
}  # fmt: skip


def test_the_card_says_how_it_was_made_and_what_was_seen():
    records = [record(step, loss=20.0 - step, loss_wrong=None if step < 3 else 1.0) for step in range(1, 21)]
    card = model_card(PROTOCOL, records, picture=True)
    assert card.startswith("---\nbase_model: owner/model\n")
    assert "| recipe | `scope(focus=False)` |" in card
    assert "LoRA on paper, rank 64, alpha 128, dropout 0" in card
    assert "| loss | 18.500 | 0.500 |" in card  # of two steps each: a tenth
    assert "| loss on wrong commits | - | 1.000 |" in card
    assert "![curves](curves.png)" in card
    assert json.loads(card.split("```json\n")[1].split("```")[0]) == PROTOCOL
    assert "![curves]" not in model_card(PROTOCOL, records, picture=False)
    whole = {**PROTOCOL, "run": {**PROTOCOL["run"], "lora": None}}
    assert "LoRA" not in model_card(whole, records, picture=False)
