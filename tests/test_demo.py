"""`redraft demo`: runs from nothing, off a terminal and on one, and its table is what it says."""

import importlib
import re

import pytest
from redraft.train.small import untrained

from redraft.evals import sums
from running import run

demo = importlib.import_module("redraft.commands.demo")


@pytest.fixture(scope="module")
def shown():
    done = run("demo", "--steps", 20, "--problems", 4)
    assert done.code == 0, done.err
    return done


def test_it_trains_watches_and_compares(shown):
    assert re.search(r"[\d,]+ parameters, 20 steps in \d+ seconds, last loss \d\.\d\d", shown.out)
    assert re.search(r"scope\(.*\), 20 steps in \d+ seconds", shown.out)
    assert shown.out.count("masked again on the way") == 2
    for model in ("masks alone", "after SCOPE"):
        rows = [line for line in shown.out.splitlines() if f"│ {model} " in line]
        assert [re.search(r"unmask|d3im", row)[0] for row in rows] == list(demo.SAMPLERS)
        for row in rows:
            low, high = map(int, re.search(r"(\d+)% to (\d+)%", row).groups())
            assert 0 <= low < high <= 100
        assert rows[0].count(" 0.0 ") == 2, "what unmask reveals is never changed"
    assert "redraft samplers" in shown.out


def test_off_a_terminal_it_is_plain_text(shown):
    assert "\x1b" not in shown.out
    assert shown.err == ""


def test_the_commands_it_ends_with_work(shown):
    command = re.search(r'redraft (generate --watch .*) "(.*)"', shown.out)
    assert run(*command[1].split(), command[2]).code == 0


def test_the_problem_to_watch_is_one_that_only_the_second_model_gets_right():
    from redraft.models import load

    model, other = load("bundled"), untrained()
    problems = [sums.problem(0, index, test=True) for index in range(12)]
    chosen = problems.index(demo._telling(other, model, problems))
    before, _ = demo._decode(other, problems, "d3im")
    after, trajectory = demo._decode(model, problems, "d3im")
    telling = [
        row for row, one in enumerate(problems) if sums.grade(after[row], one) and not sums.grade(before[row], one)
    ]
    changes = trajectory.changes("overwrite").sum(1) + trajectory.changes("demotion").sum(1)
    assert chosen == max(telling, key=lambda row: changes[row], default=0)


def test_it_is_drawn_on_a_terminal(monkeypatch):
    from redraft.models import load

    monkeypatch.setattr(demo, "PAUSE", 0.0)
    monkeypatch.setattr("redraft.commands.console.out._force_terminal", True)
    monkeypatch.setattr(demo, "_train", lambda steps: load("bundled"))
    monkeypatch.setattr(demo, "_post_train", lambda base, steps: base)
    done = run("demo", "--problems", 4)
    assert done.code == 0
    assert f"step {sums.LENGTH // 2} of {sums.LENGTH // 2}" in done.out
    assert "× masked again" in done.out
