"""Changes counted in bulk: the numbers that a recorded trajectory gives."""

import pytest
import torch

from fakes import MASK, READING, Chaos, fresh, responses
from redraft.decoding import Trajectory, walk
from redraft.evals.changes import Changes, count_changes
from redraft.samplers import parse


@pytest.mark.parametrize("sampler", ["d3im", "d3im(t2m=False)", "d3im(t2t=False)", "unmask"])
@pytest.mark.parametrize("block", [None, 4])
def test_they_are_what_the_trajectory_says(sampler, block):
    canvas = fresh(12, [[1, 2], [3], [4, 5, 6], [7]])
    steps = list(walk(Chaos(1), canvas, parse(sampler), steps=12, block=block, reading=READING))
    states = torch.tensor([canvas.response.tolist(), *responses(steps)])
    trajectory = Trajectory.of(steps)
    expected = [
        Changes(*trajectory.counts(row).values(), len(trajectory.oscillations(row))) for row in range(trajectory.rows)
    ]
    assert count_changes(states.int(), MASK) == expected
    if sampler == "d3im(t2m=False)" and block is None:
        assert sum(changes.oscillations for changes in expected) > 3


def states(*tokens):
    return torch.tensor(tokens)[:, None, None]


@pytest.mark.parametrize(
    ("tokens", "oscillations"),
    [
        ((MASK, 0, 1, 0), 1),
        ((MASK, 0, 1, 2), 0),
        ((MASK, 0, 1, 2, 1), 1),
        ((MASK, 0, MASK, 0), 0),  # masked again and revealed: no overwrite
        ((MASK, 0, 1, MASK, 0), 0),
        ((MASK, 0, 1, MASK, 2, 0), 1),
        ((MASK, 5, 5, 5), 0),
    ],
)
def test_an_oscillation_is_a_return(tokens, oscillations):
    (changes,) = count_changes(states(*tokens), MASK)
    assert changes.oscillations == oscillations
