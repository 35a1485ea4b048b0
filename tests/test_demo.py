"""`redraft demo`: one problem decoded twice, a table that is what it says, and a page that needs nothing else."""

import importlib
import re

import pytest

from redraft.evals.words import TASK
from running import run

demo = importlib.import_module("redraft.commands.demo")
STEPS = TASK.length // demo.TOKENS_A_STEP


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "page.html"


@pytest.fixture(scope="module")
def shown(page):
    done = run("demo", "--problems", 3, "--replay", page)
    assert done.code == 0, done.err
    return done


def test_it_solves_one_problem_twice_and_compares(shown):
    (frozen,) = re.findall(r"frozen: unmask: (right|wrong); (\d+) tokens overwritten, (\d+) masked again", shown.out)
    assert frozen[1:] == ("0", "0"), "what unmask reveals is never changed"
    assert re.search(r"revising: SCOPE and d3im: (right|wrong); \d+ tokens overwritten, \d+ masked again", shown.out)
    for model in ("as trained", "after SCOPE"):
        rows = [line for line in shown.out.splitlines() if f"│ {model} " in line]
        assert [re.search(r"unmask|d3im", row)[0] for row in rows] == list(demo.SAMPLERS)
        for row in rows:
            low, high = map(int, re.search(r"(\d+)% to (\d+)%", row).groups())
            assert 0 <= low < high <= 100
        assert rows[0].count(" 0.0 ") == 2


def test_off_a_terminal_it_is_plain_text(shown):
    assert "\x1b" not in shown.out
    assert shown.err == ""


def test_the_page_replays_both_and_loads_nothing(shown, page):
    text = page.read_text(encoding="utf-8")
    assert str(page) in shown.out.replace("\n", "")
    assert "frozen: unmask" in text
    assert "revising: SCOPE and d3im" in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)


def test_the_command_it_ends_with_works(shown):
    command = re.search(r'redraft (generate --watch .*) \\\n\s+"(.*)"', shown.out)
    assert run(*command[1].split(), command[2]).code == 0


def test_the_drawn_problem_is_not_in_the_table():
    for problems in (1, demo.SHOWN + 4):
        drawn, others = demo._items(problems)
        assert drawn.id not in {other.id for other in others}
        assert len({other.id for other in others}) == problems


def test_a_page_that_cannot_be_written_is_refused_at_once(tmp_path):
    done = run("demo", "--replay", tmp_path / "nowhere" / "page.html")
    assert (done.code, done.out) == (2, "")
    assert "nowhere" in done.err


def test_it_is_drawn_on_a_terminal(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "PAUSE", 0.0)
    monkeypatch.setattr("redraft.commands.console.out._force_terminal", True)
    done = run("demo", "--problems", 1, "--replay", tmp_path / "page.html")
    assert done.code == 0
    for title in ("frozen: unmask", "revising: SCOPE and d3im"):
        assert re.search(rf"{title}\s+step {STEPS} of {STEPS}", done.out)
    assert "× masked again" in done.out
