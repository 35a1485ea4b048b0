"""Tolerator: its rounds (methods, section 9, item 12), its lock, and both phases by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, VOCABULARY, Chaos, Spy, decode, fresh, go
from redraft.decoding.noise import counter_uniform, gumbel, stream_number
from redraft.samplers import Tolerator, Unmask, parse
from test_papers import CUMULATIVE, best, log_softmax
from test_remdm import flat

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
COLD = "temperature=0.0, refine_temperature=0.0, eos_penalty=1.0"


# --- what makes it itself ---


@pytest.mark.parametrize("shape", [(12, 12, None), (12, 6, 4), (14, 4, None)])
@pytest.mark.parametrize("reading", [NO_EOS, READING])
def test_its_filling_alone_is_unmask(shape, reading):
    model = Chaos(eos=1.0)
    ours = decode(f"tolerator(rounds=0, {COLD})", model, *shape, reading=reading)
    assert ours == decode(Unmask(), model, *shape, reading=reading)


def test_64_steps_are_32_of_filling_and_32_rounds_that_mask_205_to_103_of_256():
    spy = Spy(flat)
    steps = go("tolerator", spy, 256, 64)
    assert [step.stage for step in steps] == [0] * 32 + [1] * 32
    assert len(spy.asked) == sum(step.calls for step in steps) == Tolerator().calls(256, 64) == 64
    masked = [int((asked["tokens"] == MASK).sum()) for asked in spy.asked[32:]]
    assert (masked[0], masked[-1]) == (205, 103)
    assert masked == sorted(masked, reverse=True)
    assert sum(masked) / 32 == pytest.approx(154, abs=1)
    assert all(MASK not in step.after.tokens for step in steps[31:])  # no mask after any round


def test_the_cosine_by_example():
    spy = Spy(flat)
    go("tolerator(rounds=4)", spy, 21, 6)
    assert [int((asked["tokens"] == MASK).sum()) for asked in spy.asked[2:]] == [17, 15, 11, 9]  # .8, .7, .5, .4


def test_blocks_are_filled_one_by_one_and_refined_together():
    plan = Tolerator().stages(12, 12, 4)
    assert [(stage.start, stage.stop, stage.steps) for stage in plan] == [(0, 4, 2), (4, 8, 2), (8, 12, 2), (0, 12, 6)]


def test_a_token_drawn_often_enough_in_a_row_stays_and_a_locked_canvas_costs_nothing():
    steps = go(f"tolerator(rounds=30, lock=2, {COLD})", Chaos(deaf=True), 8, 34)
    assert len(steps) < 34  # the same tokens are drawn every time, until all are locked
    assert steps[-1].after.memory[1].ge(2).all()
    free = go(f"tolerator(rounds=30, lock=0, {COLD})", Chaos(deaf=True), 8, 34)
    assert len(free) == 34


@pytest.mark.parametrize("option", ["start=0.0", "end=1.5", "update_rate=0"])
def test_nonsense_is_refused(option):
    with pytest.raises(ValueError, match="start, end and update_rate are shares"):
        parse(f"tolerator({option})").stages(8, 4)


def test_a_negative_lock_is_refused_for_it_would_lock_everything():
    with pytest.raises(ValueError, match=r"lock is 0 \(never\) or more"):
        parse("tolerator(lock=-1)").stages(8, 4)


@pytest.mark.parametrize("rounds", [4, 9, -1])
def test_rounds_leave_a_step_to_fill_in(rounds):
    with pytest.raises(ValueError, match="of 4 steps 0 to 3 can be rounds of refinement"):
        Tolerator(rounds=rounds).stages(8, 4)


# --- the rule, by hand ---


def tolerator_by_hand(model, prompt, length, fill, rounds, block, options, vetoed, seed):
    """Methods 5.4."""
    x, history, start = [*prompt, *[MASK] * length], [], len(prompt)
    start_ratio, end_ratio, decay, update_rate, lock = options
    each = fill // (length // block)
    for number in range(length // block):
        window = range(start + number * block, start + (number + 1) * block)
        for t in range(1, each + 1):
            z = penalised(model, x, 1.2)
            noise = counter_uniform(seed, (number, t, stream_number("gumbel.0")), (block, VOCABULARY))[0]
            x0, score = {}, {}
            for i in (i for i in window if x[i] == MASK):
                log_p = log_softmax(z[i], {MASK})
                x0[i] = drawn(log_p, noise[i - window[0]], 0.5)
                score[i] = -math.inf if vetoed and t < each and x0[i] in EOS else log_p[x0[i]]
            more = CUMULATIVE["front"](block, t, each) - CUMULATIVE["front"](block, t - 1, each)
            for i in x0 if t == each else best(score, more):
                x[i] = x0[i]
            history.append(x[start:])
    stage, counters, last = length // block, dict.fromkeys(range(start, len(x)), 0), {}
    for it in range(rounds):
        free = [i for i in range(start, len(x)) if not lock or counters[i] < lock]
        if not free:
            break
        done = it / (rounds - 1) if rounds > 1 else 1.0
        ratio = end_ratio + (start_ratio - end_ratio) * 0.5 * (1 + math.cos(math.pi * done))
        if decay == "exponential":
            ratio = start_ratio * (end_ratio / start_ratio) ** done
        lottery = counter_uniform(seed, (stage, it + 1, stream_number("keep")), (length,))[0].tolist()
        keep = best({i: lottery[i - start] for i in free}, int(len(free) * (1.0 - ratio)))
        hidden = [i for i in free if i not in keep]
        z = penalised(model, [MASK if i in hidden else token for i, token in enumerate(x)], 1.0)
        noise = counter_uniform(seed, (stage, it + 1, stream_number("gumbel.0")), (length, VOCABULARY))[0]
        log_p = {i: log_softmax(z[i], {MASK}) for i in hidden}
        chosen = best({i: -log_p[i][x[i]] for i in hidden}, max(1, int(len(hidden) * update_rate)))
        for i in chosen:
            token = drawn(log_p[i], noise[i - start], 0.3)
            if vetoed and it < rounds - 1 and token in EOS:
                continue
            counters[i] = counters[i] + 1 if token == last.get(i, 0) else 1
            x[i] = last[i] = token
        history.append(x[start:])
    return history


def penalised(model, x, penalty):
    """Logits, end-of-text's divided; a negative one rises."""
    z = model(torch.tensor([x]))[0].tolist()
    return [[value / penalty if v == EOS[0] else value for v, value in enumerate(row)] for row in z]


def drawn(log_p, unit, temperature):
    noise = gumbel(unit).tolist()
    return max(range(len(log_p)), key=lambda v: (log_p[v] + temperature * noise[v], -v))


@settings(max_examples=40)
@given(
    st.builds(Chaos, st.integers(0, 10**6), spread=st.sampled_from([3.0, 8.0]), eos=st.sampled_from([0.0, 2.0])),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 2, 4, 3), (6, 4, 3, 6), (8, 8, 12, 8), (5, 1, 1, 5)]),
    st.sampled_from([(0.8, 0.4), (0.5, 0.2), (1.0, 1.0)]),
    st.sampled_from(["cosine", "exponential"]),
    st.sampled_from([1.0, 0.5]),
    st.sampled_from([10, 2, 0]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, ratios, decay, update_rate, lock, vetoed):
    length, fill, rounds, block = shape
    start, end = ratios
    sampler = Tolerator(rounds=rounds, start=start, end=end, decay=decay, update_rate=update_rate, lock=lock)
    reading = READING if vetoed else NO_EOS
    ours = decode(sampler, model, length, fill + rounds, block, prompts=[prompt], reading=reading)
    options, seed = (start, end, decay, update_rate, lock), fresh(length, [prompt]).seeds
    theirs = tolerator_by_hand(model, prompt, length, fill, rounds, block, options, vetoed, seed)
    assert [rows[0] for rows in ours] == theirs
