"""ReMDM: its distributions and expectations (methods, section 9, item 10), and both styles of it by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, VOCABULARY, Chaos, decode, fresh, go
from redraft.decoding import Clock
from redraft.decoding.noise import counter_uniform, gumbel, stream_number
from redraft.samplers import ReMDM, Unmask, parse
from test_papers import best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
CPU = torch.device("cpu")


def flat(tokens, *, columns=slice(None), **context):
    """A model that knows nothing."""
    return torch.zeros(*tokens.shape, VOCABULARY)[:, columns]


def paces(sampler: ReMDM, steps: int, length: int = 10, shown: float = 0.5):
    """alpha before and after, and each position's sigma, at every step, with a share of tokens visible."""
    generator = torch.Generator().manual_seed(0)
    visible = torch.rand(1, length, generator=generator) < shown
    block = fresh(length).window(3, 3 + length)
    block = block.write(torch.where(visible, 5, MASK), memory=torch.rand(1, length, generator=generator))
    for tick in range(1, steps + 1):
        before, after, sigma = sampler.pace(block, Clock.at(tick, steps, 0, 1, CPU))
        yield block, float(before), float(after), sigma.expand(1, length)[0].tolist()


# --- what is a theorem ---


@pytest.mark.parametrize("shape", [(12, 12, None), (12, 6, 4), (14, 4, None)])
@pytest.mark.parametrize("reading", [NO_EOS, replace(READING, overflow="fill")])
def test_at_eta_0_it_is_unmask_with_its_schedule_rounded_down(shape, reading):
    ours = decode("remdm(eta=0)", Chaos(), *shape, reading=reading)
    assert ours == decode(Unmask(schedule="floor"), Chaos(), *shape, reading=reading)


@pytest.mark.parametrize("kind", ["cap", "rescale", "loop"])
@pytest.mark.parametrize("style", ["confidence", "ancestral"])
def test_at_eta_0_nothing_is_masked_again(kind, style):
    states = [[MASK] * 12, *(state[0] for state in decode(f"remdm(kind={kind}, style={style}, eta=0)", Chaos(), 12, 8))]
    for old, new in pairwise(states):
        assert all(a in (MASK, b) for a, b in zip(old, new, strict=True))


@pytest.mark.parametrize(
    "notation",
    [
        "remdm(eta=0.3)",
        "remdm(eta=1.0)",
        "remdm(kind=rescale, eta=0.7)",
        "remdm(kind=conf)",
        "remdm(kind=loop, eta=0.1)",
    ],
)
@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_what_a_position_may_become_is_a_distribution(notation, steps):
    for block, before, after, sigmas in paces(parse(notation), steps):
        for sigma, masked in zip(sigmas, block.masked[0].tolist(), strict=True):
            assert 0 <= sigma <= 1
            if masked and before < 1:
                reveal = (after - (1 - sigma) * before) / (1 - before)
                stay = (1 - after - sigma * before) / (1 - before)
                assert reveal + stay == pytest.approx(1)
                assert min(reveal, stay) > -1e-6


def test_the_worked_example():
    """Methods 5.2: alpha .5 to .75 at eta .2: sigma .2, a mask is revealed with .7 and stays with .3."""
    _, before, after, sigmas = list(paces(ReMDM(eta=0.2), 4))[2]
    assert (before, after) == (0.5, 0.75)
    assert sigmas == pytest.approx([0.2] * 10)
    assert (after - 0.8 * before) / (1 - before) == pytest.approx(0.7)


@pytest.mark.parametrize("shown", [0.0, 0.5, 1.0])
def test_the_weights_of_conf_sum_to_one_over_what_is_visible(shown):
    for block, before, after, sigmas in paces(ReMDM(kind="conf"), 8, shown=shown):
        room = min(1, (1 - after) / before) if before else 1
        assert sum(sigmas) == pytest.approx(room if shown else 0)  # and no NaN where nothing is visible
        assert all(sigma == 0 for sigma, masked in zip(sigmas, block.masked[0].tolist(), strict=True) if masked)


def test_surer_tokens_are_masked_again_less_often():
    block = fresh(3).window(3, 6).write(torch.tensor([[5, 5, 5]]), memory=torch.tensor([[0.1, 0.5, 0.9]]))
    sigma = ReMDM(kind="conf").pace(block, Clock.at(2, 8, 0, 1, CPU))[2][0].tolist()
    assert sigma == sorted(sigma, reverse=True)
    assert sigma[0] / sigma[2] == pytest.approx(math.exp(0.8))


def test_cap_masks_62_and_a_half_tokens_again():
    """In expectation, at 256 tokens and 64 steps; the confidence style shows exactly K(t) tokens meanwhile."""
    expected = sum(256 * before * sigmas[0] for _, before, _, sigmas in paces(ReMDM(), 64))
    assert expected == pytest.approx(62.5, abs=0.05)
    steps = go("remdm", flat, 256, 64, prompts=[[1]] * 24)
    again = sum(((step.before.tokens != MASK) & (step.after.tokens == MASK)).sum().item() for step in steps) / 24
    assert again == pytest.approx(62.5, abs=6)
    assert all((step.after.tokens != MASK).sum(-1).eq(4 * tick).all() for tick, step in enumerate(steps, 1))


def test_published_rates():
    assert {kind: ReMDM(kind=kind).rate for kind in ("cap", "rescale", "loop")} == {
        "cap": 0.008,
        "rescale": 0.015,
        "loop": 0.02,
    }


@pytest.mark.parametrize("option", ["eta=1.5", "kind=conf, eta=0.1", "t_on=0.01", "alpha_on=1.0"])
def test_nonsense_is_refused(option):
    with pytest.raises(ValueError, match="0 <= eta <= 1"):
        parse(f"remdm({option})").stages(8, 4)


# --- the rule, by hand ---


def shares(kind, eta, tick, steps, t_on, t_off, alpha_on):
    """alpha_t, alpha_s and sigma at the given step; without the weights of conf (methods 5.2 and 5.3)."""
    t, s = 1 - (tick - 1) / steps, 1 - tick / steps
    if kind == "loop":
        if t > t_on + 1e-6:
            before, after = ((1 - time) * alpha_on / (1 - t_on) for time in (t, s))
            return min(before, alpha_on), (1.0 if tick == steps else min(after, alpha_on)), 0.0
        if t < t_off + 1e-6:
            return 1 - t * (1 - alpha_on) / t_off, 1 - s * (1 - alpha_on) / t_off, 0.0
        return alpha_on, (1.0 if tick == steps else alpha_on), (0.0 if tick == steps else eta)
    room = min(1.0, (1 - (1 - s)) / (1 - t)) if tick > 1 else 1.0
    return 1 - t, 1 - s, {"cap": min(eta, room), "rescale": eta * room, "conf": room}[kind]


def remdm_by_hand(model, prompt, length, steps, block, kind, style, eta, top_p, vetoed, seed):
    """Methods 5.2 and 5.3, both styles; the last step takes what is still masked."""
    x, history = [*prompt, *[MASK] * length], []
    each = steps // (length // block)
    for number, start in enumerate(range(len(prompt), len(x), block)):
        window, stored = range(start, start + block), {}
        for tick in range(1, each + 1):
            before, after, sigma = shares(kind, eta, tick, each, 0.55, 0.05, 0.9)
            counters = (number, tick)
            lottery = counter_uniform(seed, (*counters, stream_number("remask")), (block,))[0].tolist()
            noise = counter_uniform(seed, (*counters, stream_number("gumbel.0")), (block, VOCABULARY))[0]
            z, x0, p = logits_of(model, x), {}, {}
            for i in window:
                log_p = log_softmax(z[i], {MASK})
                if style == "ancestral":
                    log_p = nucleus(log_p, top_p)
                    draws = gumbel(noise[i - start]).tolist()
                    x0[i] = max(range(VOCABULARY), key=lambda v: (log_p[v] + draws[v], -v))
                else:
                    x0[i] = log_p.index(max(log_p))
                p[i] = log_p[x0[i]]
            shown = [i for i in window if x[i] != MASK]
            masks = [i for i in window if x[i] == MASK]
            waits = {i for i in masks if vetoed and tick < each and x0[i] in EOS}
            chance = dict.fromkeys(window, sigma)
            if kind == "conf":
                weights = {i: math.exp(-stored[i]) for i in shown}
                chance = {i: sigma * weights.get(i, 0.0) / (sum(weights.values()) or 1) for i in window}
            again = [i for i in shown if lottery[i - start] < chance[i]]
            if style == "ancestral":
                revealed = [
                    i
                    for i in masks
                    if i not in waits and lottery[i - start] < (after - (1 - chance[i]) * before) / (1 - before)
                ]
            else:
                visible = int(after * block + 1e-3) if kind == "loop" else block * tick // each
                again = best({i: -lottery[i - start] / chance[i] for i in again}, block - visible)
                surest = {i: -math.inf if i in waits else p[i] for i in masks}
                revealed = best(surest, visible - len(shown) + len(again))
            if tick == each:
                revealed = masks
            for i in again:
                x[i] = MASK
            for i in revealed:
                x[i], stored[i] = x0[i], math.exp(p[i])
            history.append(x[len(prompt) :])
    return history


def nucleus(log_p: list[float], top_p: float) -> list[float]:
    """The most probable tokens whose mass is at most `top_p`, one at least; unlike the usual rule."""
    mass, kept = 0.0, []
    for v in sorted(range(len(log_p)), key=lambda v: (-log_p[v], v)):
        mass += math.exp(log_p[v])
        if kept and mass > top_p:
            break
        kept.append(v)
    total = math.log(math.fsum(math.exp(log_p[v]) for v in kept))
    return [log_p[v] - total if v in kept else -math.inf for v in range(len(log_p))]


@settings(max_examples=60)
@given(
    st.builds(Chaos, st.integers(0, 10**6), spread=st.sampled_from([4.0, 8.0]), eos=st.sampled_from([0.0, 2.0])),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 6, 3), (6, 4, 6), (8, 8, 8), (8, 20, 8), (10, 6, 5)]),
    st.sampled_from(["cap", "rescale", "conf", "loop"]),
    st.sampled_from(["confidence", "ancestral"]),
    st.sampled_from([0.3, 0.9]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, kind, style, eta, vetoed):
    sampler = ReMDM(kind=kind, style=style, eta=None if kind == "conf" else eta, top_p=0.8)
    ours = decode(sampler, model, *shape, prompts=[prompt], reading=READING if vetoed else NO_EOS)
    seed = fresh(shape[0], [prompt]).seeds
    theirs = remdm_by_hand(model, prompt, *shape, kind, style, eta, 0.8, vetoed, seed)
    assert [rows[0] for rows in ours] == theirs
