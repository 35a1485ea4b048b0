"""The transitions a sampler makes are exactly those it declares: none besides, and each of them somewhere."""

from collections.abc import Iterator

import pytest
import torch

import redraft.samplers
from fakes import EOS, MASK, ORDINARY, READING, Chaos, fresh, pin
from redraft.decoding import Block, Clock, Denoise, Sampler, Step, walk
from test_contract import samplers

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

MODELS = [Chaos(0), Chaos(4, spread=20), Chaos(5, spread=60)]  # the latter sure of themselves, as thresholds want
MODELS += [Chaos(1, preserve=3), Chaos(2, eos=1), Chaos(3, preserve=5, eos=2)]
SHAPES = [(8, 8, None), (8, 4, 4), (9, 6, 3), (12, 6, None), (20, 20, None)]
ENOUGH = 4  # walks without a forbidden transition; a declared one is waited for longer


def transitions(before: Block, after: Block) -> set[str]:
    changed = before.tokens != after.tokens
    was, now = before.tokens != MASK, after.tokens != MASK
    kinds = {"m2t": ~was & now, "t2m": was & ~now, "t2t": was & now & changed}
    assert not (changed & ~before.active).any()
    return {kind for kind, where in kinds.items() if where.any()}


def walks(sampler: Sampler) -> Iterator[list[Step]]:
    canvas = [fresh(9, [[1, 2], [3], [4, 5, 6]]), pin(fresh(9, [[7]]), {(0, 2): 5, (0, 7): EOS[0]})]
    for model in MODELS:
        for length, steps, block in SHAPES:
            given = canvas[length % 2] if length == 9 else fresh(length, [[1], [2, 3]], seed=steps)
            yield list(walk(model, given, sampler, steps=steps, block=block, reading=READING))


@samplers
def test_walks_make_exactly_the_declared_transitions(notation):
    sampler, made = redraft.samplers.parse(notation), set()
    for number, steps in enumerate(walks(sampler)):
        made |= set().union(*(transitions(step.before, step.after) for step in steps))
        if number >= ENOUGH and made == sampler.channels:
            break
    assert made == sampler.channels


@samplers
def test_no_state_leads_a_step_to_an_undeclared_transition(notation):
    """A canvas may be edited between steps, so the promise holds from states that no schedule leads to."""
    sampler = redraft.samplers.parse(notation)
    generator = torch.Generator().manual_seed(0)
    for seed in range(24):
        start = fresh(8, [[1, 2]] * 3, seed=seed).window(2, 10)
        tokens = torch.randint(len(ORDINARY), start.tokens.shape, generator=generator)
        shown = torch.rand(tokens.shape, generator=generator) < seed / 24
        block = sampler.begin(start).write(torch.where(shown, tokens, MASK))
        clock = Clock.at(1 + seed % 4, 4, 0, 3, torch.device("cpu"))
        canvas = fresh(8, [[1, 2]] * 3, seed=seed).place(block, 2)
        denoise = Denoise(Chaos(seed, preserve=seed % 5), canvas, block, clock, 2, READING)
        assert transitions(block, sampler.step(denoise, block, clock)) <= sampler.channels


@pytest.mark.parametrize(
    ("notation", "channels"),
    [
        ("unmask", {"m2t"}),
        ("d3im", {"m2t", "t2t", "t2m"}),
        ("d3im(t2t=False)", {"m2t", "t2m"}),
        ("d3im(t2m=False)", {"m2t", "t2t"}),
        ("d3im(t2t=False, t2m=False)", {"m2t"}),
    ],
)
def test_the_papers_channels(notation, channels):
    assert redraft.samplers.parse(notation).channels == channels
