"""Schedules: how many tokens are visible after each step (methods 0.4 and 9.8)."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import MASK, fresh, pin
from redraft.decoding import SCHEDULES, Block, Clock

WORKED_OUT = [
    ("floor", 10, 4, [2, 5, 7, 10]),
    ("front", 10, 4, [3, 6, 8, 10]),
    ("ceil", 10, 4, [3, 5, 8, 10]),
    ("late", 10, 4, [2, 4, 7, 10]),
    ("floor", 7, 3, [2, 4, 7]),
    ("front", 7, 3, [3, 5, 7]),
    ("ceil", 7, 3, [3, 5, 7]),
    ("late", 7, 3, [2, 4, 7]),
    ("floor", 5, 8, [0, 1, 1, 2, 3, 3, 4, 5]),
    ("front", 5, 8, [1, 2, 3, 4, 5, 5, 5, 5]),
]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)
sizes = given(st.integers(0, 600), st.integers(1, 600))


def block_of(width: int) -> Block:
    return fresh(width).window(3, 3 + width)


def cumulative(schedule: str, n: int, steps: int) -> list[int]:
    return SCHEDULES[schedule](torch.tensor(n), torch.arange(steps + 1), torch.tensor(steps)).tolist()


@pytest.mark.parametrize(("schedule", "n", "steps", "expected"), WORKED_OUT)
def test_worked_out_by_hand(schedule, n, steps, expected):
    assert cumulative(schedule, n, steps)[1:] == expected


@schedules
@sizes
def test_starts_at_nothing_never_falls_and_ends_at_all(schedule, n, steps):
    counts = cumulative(schedule, n, steps)
    assert (counts[0], counts[-1]) == (0, n)
    assert all(before <= after for before, after in pairwise(counts))


@given(st.integers(1, 40), st.integers(1, 40))
def test_all_schedules_agree_when_steps_divide_tokens(each, steps):
    plans = [cumulative(schedule, each * steps, steps) for schedule in SCHEDULES]
    assert plans == [[each * t for t in range(steps + 1)]] * len(plans)


@schedules
@settings(max_examples=20)
@given(n=st.integers(1, 20), steps=st.integers(1, 20))
def test_quota_and_increment_read_the_same_schedule(schedule, n, steps):
    block = block_of(n)
    clocks = [Clock.at(t, steps, 0, 1, torch.device("cpu")) for t in range(1, steps + 1)]
    quotas = [int(clock.quota(block, schedule)) for clock in clocks]
    assert quotas == cumulative(schedule, n, steps)[1:]
    increments = [int(clock.increment(block, schedule)) for clock in clocks]
    assert increments == [after - before for before, after in pairwise([0, *quotas])]


def test_only_active_positions_count():
    canvas = pin(fresh(8, [[1], [2]]), {(1, 0): 5, (1, 3): 6})
    clock = Clock.at(1, 2, 0, 2, torch.device("cpu"))
    assert clock.quota(canvas.window(1, 9)).tolist() == [[4], [3]]


def test_rows_may_be_at_different_steps():
    clock = Clock(torch.tensor([[1], [4]]), torch.tensor([[4], [4]]), stage=0)
    block = Block(torch.full((2, 8), MASK), torch.ones(2, 8, dtype=torch.bool), MASK, torch.arange(2))
    assert clock.quota(block).tolist() == [[2], [8]]
    assert clock.final.tolist() == [[False], [True]]
    assert clock.rows(torch.tensor([1])).final.tolist() == [[True]]
