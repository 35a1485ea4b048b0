"""LLaDA2.1's joint thresholds: what they reveal, overwrite and wait for, and the whole rule by hand."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, Script, decode, go
from redraft.samplers import Editing, Unmask, parse
from test_papers import best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.mark.parametrize("block", [None, 4])
def test_without_edits_and_with_a_bar_that_nothing_passes_it_is_unmask_a_token_a_step(block):
    ours = decode("editing(th=1.0, th_edit=1.0, max_post=0)", Chaos(2), 12, 3, block)
    assert ours == decode(Unmask(), Chaos(2), 12, 12, block)


def test_no_token_is_overwritten_where_the_bar_of_edits_cannot_be_passed():
    states = [state[0] for state in decode("editing(th=0.3, th_edit=1.0)", Chaos(3, spread=12), 12, 3, 4)]
    for old, new in pairwise(states):
        assert all(a in (MASK, b) for a, b in zip(old, new, strict=True))


def test_an_edit_needs_a_rival_that_is_surer_than_its_bar():
    """The first pass reveals one token; in the second its rival has .8, which passes .7 and not .85."""
    script = [[{0: 0.9}, {1: 0.4}], [{5: 0.8}, {1: 0.99}], *[[{5: 0.8}, {1: 0.99}]] * 2]
    for bar, first in ((0.7, 5), (0.85, 0)):
        states = decode(f"editing(th_edit={bar})", Script(script, 3), 2, 2)
        assert [state[0] for state in states[:2]] == [[0, MASK], [first, 1]]


def test_a_full_block_is_passed_over_until_nothing_changes_and_max_post_times_at_most():
    flicker = [[{1 + number % 2: 0.99}] for number in range(30)]
    for most in (0, 3, 16):
        states = decode(f"editing(th_edit=0.0, max_post={most})", Script(flicker, 3), 1, 1)
        assert len(states) == 1 + most
    calm = [[{1: 0.99}]] * 30
    assert len(decode("editing(th_edit=0.0)", Script(calm, 3), 1, 1)) == 2


def test_blocks_are_its_own_unless_given_and_steps_bound_nothing():
    assert [stage.stop for stage in Editing().stages(96, 4)] == [32, 64, 96]
    assert [stage.stop for stage in Editing().stages(96, 4, 48)] == [48, 96]
    assert Editing().calls(96, 4) == 3 * (32 + 16)
    assert len({len(decode("editing(th=0.5)", Chaos(), 12, steps)) for steps in (1, 12, 40)}) == 1


def test_a_negative_number_of_passes_is_refused():
    with pytest.raises(ValueError, match="max_post is 0 or more, not -1"):
        parse("editing(max_post=-1)").stages(8, 4)


def editing_by_hand(model, prompt, length, block, th, th_edit, max_post, vetoed):
    """Methods 6.6; the last pass that a block may take vetoes nothing."""
    x, history = [*prompt, *[MASK] * length], []
    for start in range(len(prompt), len(x), block):
        window, post, tick = range(start, start + block), 0, 0
        while True:
            masks = [i for i in window if x[i] == MASK]
            post += not masks
            if post > max_post:
                break
            tick += 1
            z = logits_of(model, x)
            log_p = {i: log_softmax(z[i], {MASK}) for i in window}
            x0, p = {i: log_p[i].index(max(log_p[i])) for i in window}, {i: math.exp(max(log_p[i])) for i in window}
            waits = {i for i in window if vetoed and tick < block + max_post and x0[i] in EOS}
            free = [i for i in masks if i not in waits] or masks
            written = [i for i in free if p[i] > th] or best({i: p[i] for i in free}, 1)
            edits = [i for i in window if i not in masks and i not in waits and p[i] > th_edit and x0[i] != x[i]]
            for i in [*written, *edits]:
                x[i] = x0[i]
            history.append(x[len(prompt) :])
            if not masks and not edits:
                break
    return history


@settings(max_examples=60)
@given(
    st.builds(
        Chaos,
        st.integers(0, 10**6),
        spread=st.sampled_from([6.0, 12.0, 20.0]),
        preserve=st.sampled_from([0.0, 3.0]),
        eos=st.sampled_from([0.0, 2.0]),
    ),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 3), (6, 6), (5, 5), (8, 4)]),
    st.sampled_from([0.3, 0.95]),
    st.sampled_from([0.0, 0.4, 0.9]),
    st.sampled_from([0, 2, 5]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, th, th_edit, max_post, vetoed):
    (length, block), reading = shape, READING if vetoed else NO_EOS
    sampler = Editing(th, th_edit, max_post)
    steps = go(sampler, model, length, length, block, prompts=[prompt], reading=reading)
    assert sum(step.calls for step in steps) <= sampler.calls(length, length, block)
    theirs = editing_by_hand(model, prompt, length, block, th, th_edit, max_post, vetoed)
    assert [step.result.response[0].tolist() for step in steps] == theirs
