"""XDLM's sampler: its budget and its reach (methods, section 9, item 13), and the whole rule by hand."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, decode, fresh, go
from redraft.samplers import XDLM, Unmask, parse
from test_papers import CUMULATIVE, best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
RESTLESS = Chaos(5)  # which contradicts nearly every token at every step


def replaced(step) -> int:
    old, new = step.before.tokens[:, step.before.lead :], step.after.tokens[:, step.before.lead :]
    return int(((old != MASK) & (new != old)).sum())


@pytest.mark.parametrize("shape", [(12, 12, None), (12, 6, 4), (14, 4, None)])
@pytest.mark.parametrize("reading", [NO_EOS, READING])
def test_without_noise_in_its_training_it_is_unmask(shape, reading):
    assert decode("xdlm(k1=0)", Chaos(), *shape, reading=reading) == decode(Unmask(), Chaos(), *shape, reading=reading)


@pytest.mark.parametrize(("steps", "first"), [(32, [0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1]), (64, [0, 0, 1, 0, 1, 0, 1, 0])])
def test_256_tokens_may_be_replaced_28_times(steps, first):
    """d_t at k1 = 0.1, here and as a restless model spends it."""
    budget = [int(256 * t / steps * 0.1 / 0.9) if t > 1 else 0 for t in range(steps + 1)]
    allowed = [later - earlier for earlier, later in pairwise(budget)]
    assert allowed[: len(first)] == first
    assert sum(allowed) == 28
    spent = [replaced(step) for step in go("xdlm", Chaos(1, spread=30), 256, steps)]
    assert sum(spent) <= 28
    assert all(sum(spent[:t]) <= budget[t] for t in range(steps + 1))
    assert sum(spent) > 20


def test_what_is_visible_is_the_schedule_of_unmasking():
    for shape in ((12, 5, None), (12, 9, 4)):
        counts = [[state[0].count(MASK) for state in decode(name, RESTLESS, *shape)] for name in ("xdlm", "unmask")]
        assert counts[0][: len(counts[1])] == counts[1]


def test_window_leaves_the_prompt_and_finished_blocks_and_canvas_may_rewrite_both():
    for region, rewrites in (("window", False), ("canvas", True)):
        sampler, prompt = parse(f"xdlm(k1=0.5, region={region})"), fresh(12).tokens[0, :3].tolist()
        steps = go(sampler, RESTLESS, 12, 12, 4)
        prompts = [step.result.tokens[0, :3].tolist() for step in steps]
        first = [step.result.response[0, :4].tolist() for step in steps[3:]]
        assert (prompts[-1] != prompt) == rewrites
        assert (first[-1] != first[0]) == rewrites
        assert sampler.reach == ("canvas" if rewrites else "block")


@pytest.mark.parametrize("k1", ["-0.1", "1", "1.5"])
def test_nonsense_is_refused(k1):
    with pytest.raises(ValueError, match="k1 is at least 0 and less than 1"):
        parse(f"xdlm(k1={k1})")


def xdlm_by_hand(model, prompt, length, steps, block, k1, region, vetoed):
    """Methods 5.6."""
    x, start, history = [*prompt, *[MASK] * length], len(prompt), []
    each = steps // (length // block)
    for stop in range(start + block, len(x) + 1, block):
        reach = range(0 if region == "canvas" else stop - block, stop)
        allowed, left = [0], 0
        for t in range(1, each + 1):
            allowed.append(int(CUMULATIVE["front"](block, t, each) * k1 / (1 - k1)) if t > 1 else 0)
            z = logits_of(model, x)
            log_p = {i: log_softmax(z[i], {MASK}) for i in reach}
            x0 = {i: log_p[i].index(max(log_p[i])) for i in reach}
            score = {i: max(log_p[i]) for i in reach}
            score = {i: -math.inf if vetoed and t < each and x0[i] in EOS else score[i] for i in reach}
            masks = [i for i in reach if x[i] == MASK]
            more = CUMULATIVE["front"](block, t, each) - CUMULATIVE["front"](block, t - 1, each)
            revealed = masks if t == each else best({i: score[i] for i in masks}, more)
            rivals = {i: score[i] for i in reach if x[i] not in (MASK, x0[i]) and max(log_p[i]) >= log_p[i][x[i]]}
            budget = left + allowed[t] - allowed[t - 1]
            changed = best(rivals, budget)
            left = budget - len(changed)
            for i in [*revealed, *changed]:
                x[i] = x0[i]
            history.append(list(x))
    return history


@settings(max_examples=50)
@given(
    st.builds(Chaos, st.integers(0, 10**6), preserve=st.sampled_from([0.0, 3.0]), eos=st.sampled_from([0.0, 2.0])),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 6, 3), (6, 4, 6), (9, 9, 9), (10, 6, 5)]),
    st.sampled_from([0.1, 0.3, 0.61]),
    st.sampled_from(["window", "canvas"]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, k1, region, vetoed):
    steps = go(XDLM(k1, region), model, *shape, prompts=[prompt], reading=READING if vetoed else NO_EOS)
    theirs = xdlm_by_hand(model, prompt, *shape, k1, region, vetoed)
    assert [step.result.tokens[0].tolist() for step in steps] == theirs
