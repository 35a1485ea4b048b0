"""RCR: its schedule, its memory, and the whole rule position by position against the vectorised sampler."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, READING, Chaos, Script, fresh, pin, responses
from redraft.decoding import walk
from redraft.samplers import RCR, Unmask, parse
from test_papers import best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
NO_EOS = replace(READING, eos="none")


def decode(sampler, model, length, steps, block=None, prompts=((3, 1, 4),), reading=NO_EOS):
    return responses(list(walk(model, fresh(length, prompts), sampler, steps=steps, block=block, reading=reading)))


@pytest.mark.parametrize("seed", range(4))
def test_one_step_is_one_argmax(seed):
    assert decode(RCR(), Chaos(seed), 12, 1) == decode(Unmask(), Chaos(seed), 12, 1)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 14))
def test_what_is_visible_is_the_ceiling_schedule(seed, length, steps):
    history = decode(RCR(), Chaos(seed), length, steps)
    assert [length - state[0].count(MASK) for state in history] == [
        math.ceil(length * t / steps) for t in range(1, steps + 1)
    ]


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3))
def test_the_response_wide_count_is_the_same_with_finished_blocks_full(seed, each, blocks):
    history = decode(RCR(region="response"), Chaos(seed), 5 * blocks, each * blocks, 5)
    expected = [5 * number + math.ceil(5 * t / each) for number in range(blocks) for t in range(1, each + 1)]
    assert [5 * blocks - state[0].count(MASK) for state in history] == expected


def test_regions_are_one_where_there_is_one_block():
    assert decode(RCR(), Chaos(), 12, 6) == decode(RCR(region="response"), Chaos(), 12, 6)
    assert decode(RCR(), Chaos(), 12, 6, 4) != decode(RCR(region="response"), Chaos(), 12, 6, 4)


def test_a_finished_block_is_revised_only_where_the_region_says_so():
    def first_block(text):
        return {str(state[0][:4]) for state in decode(parse(text), Chaos(), 12, 9, 4)[2:]}

    assert len(first_block("rcr")) == 1
    assert any(str(MASK) in block for block in first_block("rcr(region=response)"))


def test_pinned_tokens_are_never_masked():
    canvas = pin(fresh(8), {(0, 1): 5, (0, 6): 5})
    taken = walk(Chaos(), canvas, RCR(region="response"), steps=8, block=4, reading=NO_EOS)
    assert all(state[0][1] == state[0][6] == 5 for state in responses(list(taken)))


def test_the_worked_example():
    """Methods 6.1: a token revealed early loses to later ones that are surer."""
    script = [
        [{0: 0.5}, {1: 0.4}, {2: 0.3}, {3: 0.2}],
        [{9: 0.9}, {1: 0.9}, {2: 0.8}, {3: 0.1}],
        [{7: 0.6}, {9: 0.9}, {9: 0.9}, {8: 0.3}],
        [{9: 0.9}, {9: 0.9}, {9: 0.9}, {6: 0.3}],
    ]
    history = decode(RCR(top_p=1.0), Script(script, 3), 4, 4)
    assert [state[0] for state in history] == [
        [0, MASK, MASK, MASK],
        [MASK, 1, 2, MASK],
        [7, 1, 2, MASK],
        [7, 1, 2, 6],
    ]


def test_the_nucleus_inflates_confidence_and_so_changes_the_order():
    assert decode(RCR(top_p=0.6), Chaos(), 12, 6) != decode(RCR(top_p=1.0), Chaos(), 12, 6)
    with pytest.raises(ValueError, match="top_p is more than 0 and at most 1, not 0"):
        parse("rcr(top_p=0)")


def rcr_by_hand(model, prompt, length, steps, block, top_p, everywhere, eos):
    """Methods 6.1."""
    x, start = [*prompt, *[MASK] * length], len(prompt)
    each, record, history = steps // (length // block), {}, []
    for k in range(length // block):
        stop = start + (k + 1) * block
        reach = range(start if everywhere else stop - block, stop)
        for i in range(1, each + 1):
            z = logits_of(model, x)
            for position in reach:
                if x[position] != MASK:
                    continue
                log_p = log_softmax(z[position], {MASK})
                order = sorted(range(len(log_p)), key=lambda token: (-log_p[token], token))
                mass, nucleus = 0.0, []
                for token in order:
                    if mass > top_p:
                        break
                    nucleus.append(token)
                    mass += math.exp(log_p[token])
                token = order[0]
                if eos == "confidence" and i < each and token in EOS:
                    continue
                x[position] = token
                record[position] = log_p[token] - math.log(math.fsum(math.exp(log_p[other]) for other in nucleus))
            shown = {position: record[position] for position in reach if x[position] != MASK}
            kept = best(shown, len(reach) - block + math.ceil(block * i / each))
            for position in reach:
                x[position] = x[position] if position in kept else MASK
            history.append(x[start:])
    return history


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 11), max_size=3),
    st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 7)),
    st.sampled_from([0.3, 0.8, 1.0]),
    st.sampled_from(["window", "response"]),
    st.sampled_from(["none", "confidence"]),
)
def test_rcr(seed, prompt, shape, top_p, region, eos):
    block, blocks, each = shape
    model = Chaos(seed, eos=1.0)
    sampler, reading = RCR(top_p=top_p, region=region), replace(READING, eos=eos)
    ours = decode(sampler, model, block * blocks, each * blocks, block, [prompt], reading)
    theirs = rcr_by_hand(model, prompt, block * blocks, each * blocks, block, top_p, region == "response", eos)
    assert [state[0] for state in ours] == theirs
