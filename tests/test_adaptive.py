"""Adaptive D3IM: what it commits to, when it ends, and the whole rule by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, Script, decode, go
from redraft.samplers import D3IM, Adaptive
from test_papers import CUMULATIVE, best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.mark.parametrize("shape", [(12, 6, None), (12, 12, 4), (9, 5, 9), (6, 12, None)])
@pytest.mark.parametrize("schedule", ["floor", "ceil"])
def test_with_a_bar_that_nothing_passes_it_is_d3im(shape, schedule):
    for seed in range(4):
        model = Chaos(seed, preserve=2.0)
        ours = decode(Adaptive(th=1.0, schedule=schedule), model, *shape, prompts=[[1, 2], [3]])
        assert ours == decode(D3IM(schedule=schedule), model, *shape, prompts=[[1, 2], [3]])


def test_a_sure_model_that_stands_still_takes_two_calls_a_block():
    """One to write everything, one to see that nothing would change."""
    steps = go("adaptive(th=0.9)", Chaos(2, spread=1e6, deaf=True), 12, 12, 4)
    assert [step.calls for step in steps] == [1, 1] * 3


def test_what_was_committed_too_boldly_is_taken_back():
    """Both are above the bar, but with the first in sight the second is contradicted, then doubted."""
    script = [
        [{0: 0.95}, {1: 0.92}, {2: 0.3}, {3: 0.2}],
        [{0: 0.95}, {4: 0.91}, {2: 0.3}, {3: 0.2}],
        [{0: 0.95}, {5: 0.10}, {2: 0.7}, {3: 0.8}],
        [{0: 0.95}, {6: 0.50}, {2: 0.7}, {3: 0.8}],
    ]
    states = decode("adaptive(th=0.9)", Script(script, 3), 4, 4)
    assert [state[0] for state in states] == [[0, 1, MASK, MASK], [0, 4, MASK, MASK], [0, MASK, 2, 3], [0, 6, 2, 3]]


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([0.2, 0.5]))
def test_never_less_is_visible_than_its_schedule_wants(seed, th):
    for step in go(Adaptive(th=th), Chaos(seed, spread=10), 12, 8):
        assert (step.after.tokens != MASK).sum() >= 12 * int(step.clock.step) // 8


def test_it_takes_fewer_calls_than_its_steps_only_where_the_model_comes_to_rest():
    restless = go("adaptive(th=0.1)", Chaos(1), 12, 12)
    calm = go("adaptive(th=0.1)", Chaos(1, preserve=50.0), 12, 12)
    assert len(restless) == 12
    assert len(calm) == 2
    assert Adaptive().calls(12, 12) == 12


def adaptive_by_hand(model, prompt, length, steps, block, th, vetoed):
    """D3IM (methods 2.2) with its count raised to that of sure candidates; done once a pass changes nothing."""
    x, history = [*prompt, *[MASK] * length], []
    each = steps // (length // block)
    for start in range(len(prompt), len(x), block):
        window = range(start, start + block)
        for t in range(1, each + 1):
            z = logits_of(model, x)
            log_p = {i: log_softmax(z[i], {MASK}) for i in window}
            x0, p = {i: log_p[i].index(max(log_p[i])) for i in window}, {i: max(log_p[i]) for i in window}
            free = {i: p[i] for i in window if not (vetoed and t < each and x0[i] in EOS)}
            sure = sum(math.exp(value) > th for value in free.values())
            kept = best(free, max(sure, CUMULATIVE["floor"](block, t, each)))
            settled = all(x[i] == x0[i] for i in window)
            if settled or len(kept) == len(free):  # end tokens that may not be kept wait for the others only
                kept = window
            for i in window:
                x[i] = x0[i] if i in kept else MASK
            history.append(x[len(prompt) :])
            if settled:
                break
    return history


@settings(max_examples=50)
@given(
    st.builds(
        Chaos,
        st.integers(0, 10**6),
        spread=st.sampled_from([6.0, 12.0]),
        preserve=st.sampled_from([0.0, 4.0, 12.0]),
        eos=st.sampled_from([0.0, 2.0]),
    ),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 6, 3), (6, 4, 6), (5, 10, 5), (8, 4, 4)]),
    st.sampled_from([0.2, 0.5, 0.9]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, th, vetoed):
    ours = decode(Adaptive(th=th), model, *shape, prompts=[prompt], reading=READING if vetoed else NO_EOS)
    assert [rows[0] for rows in ours] == adaptive_by_hand(model, prompt, *shape, th, vetoed)
