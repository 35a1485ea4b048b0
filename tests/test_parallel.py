"""`threshold`, `factor` and `dream`: what makes each of them itself, and each written out position by position."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, READING, Chaos, Script, fresh, responses
from redraft.decoding import Clock, walk
from redraft.decoding.noise import counter_uniform, stream_number
from redraft.samplers import Unmask, parse
from test_papers import best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
NO_EOS = replace(READING, eos="none")


def decode(sampler, model, length, steps, *, block=None, reading=NO_EOS, prompt=(3, 1, 4)):
    sampler = parse(sampler) if isinstance(sampler, str) else sampler
    taken = walk(model, fresh(length, [list(prompt)]), sampler, steps=steps, block=block, reading=reading)
    return [response[0] for response in responses(list(taken))]


def visible(response: list[int]) -> int:
    return sum(token != MASK for token in response)


@st.composite
def models(draw):
    spread, eos = draw(st.sampled_from([6.0, 20.0, 40.0])), draw(st.sampled_from([0.0, 3.0]))
    return Chaos(draw(st.integers(0, 10**6)), spread=spread, preserve=draw(st.sampled_from([0.0, 3.0])), eos=eos)


# --- threshold and factor ---


@pytest.mark.parametrize("sampler", ["threshold(th=1.1)", "factor(factor=0.0)"])
@pytest.mark.parametrize("block", [None, 4])
def test_a_bar_that_nothing_reaches_reveals_a_token_a_step(sampler, block):
    whole = decode(sampler, Chaos(2, spread=30.0), 12, 3, block=block)
    one_a_step = decode(Unmask(), Chaos(2, spread=30.0), 12, 12, block=block)
    if sampler.startswith("factor"):  # which lets the last of a block pass with the one before it
        assert [visible(state) for state in whole] == [
            n for n in range(1, 13) if n % (block or 12) != (block or 12) - 1
        ]
    else:
        assert whole == one_a_step


@pytest.mark.parametrize("sampler", ["threshold(th=0.0)", "factor(factor=100.0)"])
def test_a_bar_that_everything_reaches_takes_one_step_a_block(sampler):
    assert len(decode(sampler, Chaos(), 12, 12)) == 1
    assert [visible(state) for state in decode(sampler, Chaos(), 12, 3, block=4)] == [4, 8, 12]


def test_threshold_counts_the_bar_itself_as_reached():
    script = Script([[{0: 0.5}, {1: 0.75}, {2: 0.25}]] * 3, 3)
    flat = [state[:2] for state in decode("threshold(th=0.75)", script, 3, 3)]
    assert flat[0] == [MASK, 1]
    assert decode("threshold(th=0.5)", Script(script.calls, 3), 3, 3)[0] == [0, 1, MASK]


@pytest.mark.parametrize(
    ("factor", "probabilities", "revealed"),
    [
        (1.0, [0.99, 0.7, 0.76, 0.3], [0, 2]),  # 1 - 1/2, 1 - 1/3, 1 - 1/4: the third best, .7, is below .75
        (1.0, [0.99, 0.76, 0.76, 0.3], [0, 1, 2, 3]),  # only the last fails: it passes
        (1.0, [0.2, 0.1, 0.1, 0.1], [0]),  # one at least
        (0.5, [0.99, 0.85, 0.8, 0.3], [0, 1]),  # 1 - .5/3 = .833, 1 - .5/4 = .875
    ],
)
def test_factor_by_example(factor, probabilities, revealed):
    script = Script([[{token: p} for token, p in enumerate(probabilities)]] * 4, 3)
    first = decode(f"factor(factor={factor})", script, 4, 4)[0]
    assert [position for position, token in enumerate(first) if token != MASK] == revealed


def test_steps_set_nothing_and_rows_end_by_themselves():
    model, prompts = Chaos(4, spread=30.0), [[1, 2], [3], [4, 5, 6]]
    for sampler in ("threshold", "factor"):
        runs = [list(walk(model, fresh(12, prompts), parse(sampler), steps=n, block=4)) for n in (3, 12)]
        assert responses(runs[0]) == responses(runs[1])
        assert any(len(step.rows) < 3 for step in runs[0])
        assert parse(sampler).calls(12, 3, 4) == 12


@pytest.mark.parametrize("sampler", ["threshold", "factor", "threshold(th=0.0)"])
def test_a_veto_holds_end_tokens_back_until_nothing_else_is_left_and_no_longer(sampler):
    model = Chaos(4, spread=12.0, eos=4.0)
    steps = list(walk(model, fresh(12), parse(sampler), steps=12, reading=READING))
    assert len(steps) <= 12
    for step in steps:
        new = step.before.masked & ~step.after.masked
        ends = sum((step.after.tokens == token) for token in EOS).bool() & new
        others = step.before.masked & ~step.predictions[0].vetoed
        assert not (ends.any() and others.any())
    assert set(EOS) & set(steps[-1].result.response[0].tolist())


def revealed_by_hand(rule, x0, p, masks, eos_vetoed):
    """Which of `masks` to reveal, methods 6.16."""
    free = [i for i in masks if not (eos_vetoed and x0[i] in EOS)] or masks
    order = best({i: p[i] for i in free}, len(free))
    name, value = rule
    if name == "threshold":
        return [i for i in order if p[i] >= value] or order[:1]
    count = 0
    for n, i in enumerate(order, 1):
        if n > 1 and p[i] < 1 - value / (n + 1):
            break
        count = n
    return order if count == len(order) - 1 else order[:count]


def parallel_by_hand(model, prompt, length, block, rule, eos_vetoed):
    x, history = [*prompt, *[MASK] * length], []
    for start in range(len(prompt), len(x), block):
        window, tick = range(start, start + block), 0
        while masks := [i for i in window if x[i] == MASK]:
            tick += 1
            log_p = {i: log_softmax(z, {MASK}) for i, z in enumerate(logits_of(model, x)) if i in masks}
            x0 = {i: log_p[i].index(max(log_p[i])) for i in masks}
            chosen = revealed_by_hand(
                rule, x0, {i: math.exp(max(log_p[i])) for i in masks}, masks, eos_vetoed and tick < block
            )
            for i in chosen:
                x[i] = x0[i]
            history.append(x[len(prompt) :])
    return history


@settings(max_examples=40)
@given(
    models(),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 6), (6, 3), (4, 1), (5, 5)]),
    st.sampled_from([("threshold", 0.9), ("threshold", 0.5), ("factor", 1.0), ("factor", 0.3), ("factor", 2.5)]),
    st.booleans(),
)
def test_parallel_decoding_position_by_position(model, prompt, shape, rule, vetoed):
    (length, block), (name, value) = shape, rule
    sampler = f"{name}({'th' if name == 'threshold' else 'factor'}={value})"
    reading = READING if vetoed else NO_EOS
    ours = decode(sampler, model, length, length // block, block=block, reading=reading, prompt=prompt)
    assert ours == parallel_by_hand(model, prompt, length, block, rule, vetoed)


# --- Dream ---


@pytest.mark.parametrize("alg", ["maskgit_plus", "topk_margin", "entropy"])
@pytest.mark.parametrize(
    ("length", "steps", "counts"),
    [(16, 4, [3, 4, 4, 5]), (40, 40, [0, *[1] * 38, 2]), (5, 1, [5]), (3, 3, [0, 1, 2])],
)
def test_dream_reveals_what_truncation_leaves(alg, length, steps, counts):
    history = [0, *(visible(state) for state in decode(f"dream(alg={alg})", Chaos(deaf=True), length, steps))]
    assert [now - then for then, now in pairwise(history)] == counts


def test_of_256_tokens_in_256_steps_it_reveals_none_first_and_two_last():
    left, counts = 256, []
    clock = Clock(torch.arange(257)[:, None], torch.full((257, 1), 256), 0)
    times = parse("dream")._time(clock.step, clock).squeeze(1)
    for then, now in pairwise(times[:-1]):
        counts.append(int(left * (1 - now / then)))
        left -= counts[-1]
    assert [*counts, left] == [0, *[1] * 254, 2]


def test_its_times_are_torchs_to_the_bit():
    sampler = parse("dream")
    for steps in (1, 2, 3, 7, 64, 222, 333, 555):
        ticks = torch.arange(steps + 1)[:, None]
        clock = Clock(ticks, torch.full_like(ticks, steps), 0)
        assert sampler._time(ticks, clock).squeeze(1).tolist() == torch.linspace(1, 1e-3, steps + 1).tolist()


def test_dream_ranks_by_what_its_algorithm_says():
    plans = {alg: parse(f"dream(alg={alg})").stages(12, 6) for alg in ("maskgit_plus", "topk_margin", "entropy")}
    ranks = {alg: plan[0].reading["rank"] for alg, plan in plans.items()}
    assert ranks == {"maskgit_plus": "probability", "topk_margin": "margin", "entropy": "entropy"}
    assert len({str(decode(f"dream(alg={alg})", Chaos(6), 12, 6)) for alg in plans}) == 3


def test_dreams_origin_is_random_and_reveals_as_much_in_the_mean():
    steps = [
        [visible(row) for row in response]
        for response in responses(
            list(walk(Chaos(deaf=True), fresh(20, [[1]] * 200), parse("dream(alg=origin)"), steps=4))
        )
    ]
    means = [sum(rows) / 200 for rows in steps]
    assert all(abs(mean - 5 * tick) < 0.5 for tick, mean in enumerate(means, 1))
    assert len(set(steps[1])) > 3
    assert set(steps[-1]) == {20}


def test_a_temperature_of_the_order_draws_positions_from_their_softmax():
    script = [[{0: 0.6}, {1: 0.3}, {2: 0.1 + 1e-9}]]
    rows, steps = 4000, 3
    first = {}
    for seed in range(2):
        model = Script(script * steps, 1)
        canvas = fresh(3, [[1]] * (rows // 2), seed=seed)
        taken = list(walk(model, canvas, parse("dream(alg=maskgit_plus, alg_temp=0.3)"), steps=steps, reading=NO_EOS))
        for row in responses(taken)[1]:
            for position, token in enumerate(row):
                if token != MASK:
                    first[position] = first.get(position, 0) + 1 / rows
    weights = [math.exp(p / 0.3) for p in (0.6, 0.3, 0.1)]
    for position, weight in enumerate(weights):
        assert first[position] == pytest.approx(weight / sum(weights), abs=0.03)


def entropy(log_p):
    return sum(math.exp(value) * value for value in log_p if value > -math.inf)


def margin(log_p):
    one, two = sorted(log_p)[-1:-3:-1]
    return math.exp(one) - math.exp(two)


def dream_by_hand(model, prompt, length, steps, block, alg, seed):
    """Methods 7.5, in float32 where Dream counts."""
    x, history = [*prompt, *[MASK] * length], []
    each = steps // (length // block)
    time = torch.linspace(1, 1e-3, each + 1)
    for number, start in enumerate(range(len(prompt), len(x), block)):
        for i in range(each):
            masks = [j for j in range(start, start + block) if x[j] == MASK]
            if not masks:
                break
            z = logits_of(model, x)
            log_p = {j: log_softmax(z[j], {MASK}) for j in masks}
            share = 1 - time[i + 1] / time[i] if i < each - 1 else torch.tensor(1.0)
            if alg == "origin":
                unit = counter_uniform(seed, (number, i + 1, stream_number("reveal")), (block,))[0]
                chosen = [j for j in masks if unit[j - start] < share]
            else:
                score = {"maskgit_plus": max, "topk_margin": margin, "entropy": entropy}[alg]
                chosen = best({j: score(log_p[j]) for j in masks}, int(torch.tensor(float(len(masks))) * share))
            for j in chosen:
                x[j] = log_p[j].index(max(log_p[j]))
            history.append(x[len(prompt) :])
    return history


@settings(max_examples=40)
@given(
    models(),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(8, 5, 8), (8, 4, 4), (6, 2, 6), (7, 7, 7)]),
    st.sampled_from(["origin", "maskgit_plus", "topk_margin", "entropy"]),
)
def test_dream_position_by_position(model, prompt, shape, alg):
    length, steps, block = shape
    ours = decode(f"dream(alg={alg})", model, length, steps, block=block, prompt=prompt)
    assert ours == dream_by_hand(model, prompt, length, steps, block, alg, fresh(length, [prompt]).seeds)
