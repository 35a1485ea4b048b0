"""`proseco` and `corrective`: what makes each of them itself, and each written out position by position."""

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, READING, Chaos, Script, Spy, fresh, responses
from redraft.decoding import walk
from redraft.samplers import D3IM, Unmask, parse
from test_papers import CUMULATIVE, best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
NO_EOS = replace(READING, eos="none")


def go(sampler, model, length, steps, *, block=None, reading=NO_EOS, prompts=((3, 1, 4),)):
    sampler = parse(sampler) if isinstance(sampler, str) else sampler
    return list(walk(model, fresh(length, prompts), sampler, steps=steps, block=block, reading=reading))


def decode(*arguments, **options):
    return responses(go(*arguments, **options))


models = st.builds(
    Chaos,
    st.integers(0, 10**6),
    spread=st.sampled_from([6.0, 20.0]),
    preserve=st.sampled_from([0.0, 3.0, 8.0]),
    eos=st.sampled_from([0.0, 2.0]),
)
prompts = st.lists(st.integers(0, 11), max_size=3)

# --- ProSeCo ---


@pytest.mark.parametrize("reading", [NO_EOS, READING, replace(NO_EOS, temperature=0.7)])
def test_without_a_corrector_it_is_unmask_in_blocks_of_32(reading):
    model, rows = Chaos(1, eos=1.0), [[1, 2], [3]]
    ours = decode("proseco(s=0)", model, 64, 16, reading=reading, prompts=rows)
    assert ours == decode(Unmask(), model, 64, 16, block=32, reading=reading, prompts=rows)


def test_a_canvas_that_stands_still_is_left_alone_and_costs_one_pass_a_correction():
    model = Chaos(2, deaf=True)
    steps = go("proseco(n=2)", model, 12, 12, block=4)
    assert responses(steps) == decode(Unmask(), model, 12, 12, block=4)
    assert [step.calls for step in steps] == [1, 2] * 6


def test_the_corrector_reads_no_mask_and_all_blocks_to_the_right_filled():
    spy = Spy(Chaos(3))
    steps = go("proseco(s=2, n=2)", spy, 12, 6, block=4)
    assert [step.calls for step in steps] == [1, 3] * 3
    for number, asked in enumerate(spy.asked):
        assert (MASK in asked["tokens"]) == (number % 4 < 2)


def test_finished_blocks_are_corrected_only_by_region_response():
    model = Chaos(4)
    for region, rewritten in (("response", True), ("window", False)):
        steps = go(f"proseco(region={region})", model, 12, 12, block=4)
        assert any(step.result.response[0, :4].tolist() != steps[3].result.response[0, :4].tolist()
                   for step in steps[4:]) == rewritten  # fmt: skip
    one_block = [decode(f"proseco(region={region})", model, 12, 12) for region in ("response", "window")]
    assert one_block[0] == one_block[1]


@pytest.mark.parametrize("option", ["s=-1", "n=0"])
def test_nonsense_is_refused(option):
    with pytest.raises(ValueError, match="s is 0 or more and n at least 1"):
        parse(f"proseco({option})").stages(12, 12)


def proseco_by_hand(model, prompt, length, steps, block, s, n, region, vetoed):
    """Methods 6.5; `vetoed` is the EOS policy `confidence`."""
    x, history, start = [*prompt, *[MASK] * length], [], len(prompt)
    each = steps // (length // block)
    for stop in range(start + block, len(x) + 1, block):
        first = start if region == "response" else stop - block
        for t in range(1, each + 1):
            masks = [i for i in range(stop - block, stop) if x[i] == MASK]
            if not masks:
                break
            log_p = [log_softmax(z, {MASK}) for z in logits_of(model, x)]
            x0 = [p.index(max(p)) for p in log_p]
            now = list(x)
            if t % n == 0 and s > 0:
                y = [x0[i] if i >= start and token == MASK else token for i, token in enumerate(x)]
                for _ in range(s):
                    log_p = [log_softmax(z, {MASK}) for z in logits_of(model, y)]
                    x0 = [p.index(max(p)) for p in log_p]
                    better = [x0[i] if first <= i < stop else token for i, token in enumerate(y)]
                    if better == y:
                        break
                    y = better
                for i in range(first, stop):
                    if x[i] != MASK and not (vetoed and t < each and x0[i] in EOS):
                        now[i] = x0[i]
            more = CUMULATIVE["front"](block, t, each) - CUMULATIVE["front"](block, t - 1, each)
            score = {i: -math.inf if vetoed and t < each and x0[i] in EOS else max(log_p[i]) for i in masks}
            for i in masks if t == each else best(score, more):
                now[i] = x0[i]
            x = now
            history.append(x[start:])
    return history


@settings(max_examples=50)
@given(
    models,
    prompts,
    st.sampled_from([(6, 6, 3), (6, 4, 3), (5, 5, 5), (6, 3, 2)]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["response", "window"]),
    st.booleans(),
)
def test_proseco_position_by_position(model, prompt, shape, s, n, region, vetoed):
    (length, steps, block), reading = shape, READING if vetoed else NO_EOS
    ours = decode(f"proseco(s={s}, n={n}, region={region})", model, length, steps, block=block, reading=reading,
                  prompts=[prompt])  # fmt: skip
    assert [rows[0] for rows in ours] == proseco_by_hand(model, prompt, length, steps, block, s, n, region, vetoed)


# --- Corrective DLM ---


def test_a_threshold_of_0_takes_one_pass():
    assert [step.calls for step in go("corrective(th=0.0)", Chaos(), 12, 12)] == [1]


def test_a_threshold_that_nothing_passes_ends_where_passes_repeat_themselves():
    model = Chaos()
    steps = go("corrective(th=1.0)", model, 12, 12, block=4)
    assert [step.calls for step in steps] == [1, 1, 1]
    assert responses(steps)[-1] == decode("d3im", model, 12, 3, block=4)[-1]


@pytest.mark.parametrize("length", [12, 7])
def test_linear_is_d3im_that_may_not_overwrite_with_its_schedule_rounded_up(length):
    for seed in range(5):
        model = Chaos(seed, preserve=2.0)
        ours = decode("corrective(rule=linear)", model, length, 5)
        assert ours == decode(D3IM(t2t=False, schedule="ceil"), model, length, 5)[: len(ours)]


def test_mad_by_example():
    """Median .8, deviations .1 0 .1 .5 0, their median .1: masked again is what lies below .8 - 2.5 x 1.4826 x .1."""
    script = [[{0: 0.9}, {1: 0.8}, {2: 0.7}, {3: 0.3}, {4: 0.8}]]
    assert decode("corrective(rule=mad)", Script(script * 2, 3), 5, 2)[0] == [[0, 1, 2, MASK, 4]]
    assert decode("corrective(rule=mad, k=4.0)", Script(script * 2, 3), 5, 2)[0] == [[0, 1, 2, 3, 4]]


def test_end_tokens_that_must_wait_do_not_end_the_correction():
    """Only they are sure at first. They are kept once all others wait for them, and what was doubtful is read anew."""
    end = EOS[0]
    script = [[{0: 0.4}, {1: 0.4}, {end: 0.95}], [{2: 0.95}, {3: 0.95}, {end: 0.95}]]
    assert decode("corrective", Script(script, 3), 3, 4, reading=READING) == [[[MASK, MASK, end]], [[2, 3, end]]]


def corrective_by_hand(model, prompt, length, steps, block, rule, value, vetoed):
    """Methods 6.11."""
    x, history = [*prompt, *[MASK] * length], []
    each = steps // (length // block)
    for start in range(len(prompt), len(x), block):
        window = range(start, start + block)
        for t in range(1, each + 1):
            if all(x[i] != MASK for i in window):
                break
            log_p = {i: log_softmax(z, {MASK}) for i, z in enumerate(logits_of(model, x)) if i in window}
            y = {i: log_p[i].index(max(log_p[i])) if x[i] == MASK else x[i] for i in window}
            p = {i: math.exp(log_p[i][y[i]]) for i in window}
            waiting = {i for i in window if vetoed and x[i] == MASK and y[i] in EOS}
            if rule == "linear":
                score = {i: -math.inf if vetoed and y[i] in EOS else p[i] for i in window}
                again = set(window) - set(best(score, math.ceil(block * t / each)))
            else:
                middle = statistics.median_low(p.values())
                spread = max(1e-10, statistics.median_low(abs(middle - value) for value in p.values()))
                bar = value if rule == "threshold" else middle - value * 1.4826 * spread
                again = {i for i in window if p[i] < bar or (p[i] == bar and rule == "threshold")}
                for masked in (again | waiting if again else again, again, set()):  # until something changes
                    if any((MASK if i in masked else y[i]) != x[i] for i in window):
                        break
                again = masked
            for i in window:
                x[i] = MASK if i in again and t < each else y[i]
            history.append(x[len(prompt) :])
    return history


@settings(max_examples=60)
@given(
    models,
    prompts,
    st.sampled_from([(6, 6, 3), (6, 4, 6), (5, 5, 5), (6, 9, 2)]),
    st.sampled_from([("threshold", 0.9), ("threshold", 0.4), ("linear", 0), ("mad", 2.5), ("mad", 0.5)]),
    st.booleans(),
)
def test_corrective_position_by_position(model, prompt, shape, rule, vetoed):
    (length, steps, block), (name, value), reading = shape, rule, READING if vetoed else NO_EOS
    options = {"threshold": f", th={value}", "mad": f", k={value}", "linear": ""}[name]
    ours = decode(f"corrective(rule={name}{options})", model, length, steps, block=block, reading=reading,
                  prompts=[prompt])  # fmt: skip
    theirs = corrective_by_hand(model, prompt, length, steps, block, name, value, vetoed)
    assert [rows[0] for rows in ours] == theirs
