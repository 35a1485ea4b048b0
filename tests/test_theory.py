"""The corrector view of D3IM, statement by statement as numbered in docs/theory.md.

One position's update is a matrix: rows are what was there, columns what comes, the last of each the mask. That makes
most statements exact; simulation is left for whole walks.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fakes import MASK, READING, Chaos, fresh, responses
from redraft.decoding import walk
from redraft.samplers import D3IM

TOKENS = 4
DATA = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.05, 0.15, 0.3, 0.5]]).double()  # by position
STEPS = 8
CHAINS = 40_000
shares = st.floats(0.01, 0.99)


def weights(now: float, then: float, c: float) -> tuple[float, float, float]:
    """The a and b that belong to c (statement 2), for a visible share that goes from `now` to `then`."""
    return then - c * now, (1 - then) - c * (1 - now), c


def most(now: float, then: float) -> float:
    return (1 - then) / (1 - now)


def update(a: float, b: float, c: float, posterior: torch.Tensor) -> torch.Tensor:
    """The update of one position; `posterior` [old, new] is the model's distribution for each old state."""
    predicted = torch.cat([posterior, torch.zeros(TOKENS + 1, 1).double()], dim=1)
    masked = torch.zeros(TOKENS + 1, TOKENS + 1).double()
    masked[:, -1] = 1
    return a * predicted + b * masked + c * torch.eye(TOKENS + 1).double()


def law(p: torch.Tensor, visible: float) -> torch.Tensor:
    """A token of `p` with probability `visible`, else the mask."""
    return torch.cat([visible * p, p.new_tensor([1 - visible])])


def hearing(p: torch.Tensor) -> torch.Tensor:
    """A model that predicts `p` whatever is at the position itself."""
    return p.expand(TOKENS + 1, TOKENS)


def absorbing(p: torch.Tensor) -> torch.Tensor:
    """A model that predicts `p` at a mask, and at a visible token that token."""
    return torch.cat([torch.eye(TOKENS).double(), p[None]])


def rising(draw_now: float, draw_then: float) -> tuple[float, float]:
    now, then = sorted((draw_now, draw_then))
    assume(then - now > 0.01)
    return now, then


# --- the family ---


@given(shares, shares, st.floats(0, 1))
def test_1_and_2_noise_is_conserved_by_these_weights(one, other, part):
    now, then = rising(one, other)
    a, b, c = weights(now, then, part * most(now, then))
    assert a + b + c == pytest.approx(1)
    assert b + c * (1 - now) == pytest.approx(1 - then)
    after = law(DATA[0], now) @ update(a, b, c, hearing(DATA[0]))
    assert float(after[-1]) == pytest.approx(1 - then)


@given(shares, shares, st.floats(0, 1), st.floats(0.01, 0.5), st.sampled_from([1, -1]))
def test_1_another_b_does_not_conserve_noise(one, other, part, off, sign):
    now, then = rising(one, other)
    a, b, c = weights(now, then, part * most(now, then))
    after = law(DATA[0], now) @ update(a - sign * off, b + sign * off, c, hearing(DATA[0]))
    assert float(after[-1]) - (1 - then) == pytest.approx(sign * off)


@given(shares, shares, st.floats(0, 1))
def test_2_weights_are_probabilities_up_to_the_greatest_c(one, other, c):
    now, then = rising(one, other)
    assume(abs(c - most(now, then)) > 1e-6)
    assert (min(weights(now, then, c)) >= 0) == (c < most(now, then))


@given(shares, shares)
def test_3_clean_slate(one, other):
    now, then = rising(one, other)
    assert weights(now, then, 0.0) == pytest.approx((then, 1 - then, 0))


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_3_a_share_c_of_wrong_tokens_survives(part):
    wrong, now, then = 0, 0.5, 0.6  # the model never says token 0, yet it is all that is visible
    p = torch.tensor([0.0, 0.5, 0.25, 0.25]).double()
    a, b, c = weights(now, then, part * most(now, then))
    before = law(torch.tensor([1.0, 0, 0, 0]).double(), now)
    after = before @ update(a, b, c, hearing(p))
    assert float(after[wrong]) == pytest.approx(c * now)
    assert (c == 0) == (part == 0)


# --- standard unmasking ---


def unmasking(now: float, then: float, p: torch.Tensor) -> torch.Tensor:
    """Masked positions are revealed at the schedule's rate, visible ones stay."""
    rows = torch.eye(TOKENS + 1).double()
    rows[-1] = law(p, (then - now) / (1 - now))
    return rows


@given(shares, shares)
def test_4_standard_unmasking_conserves_noise(one, other):
    now, then = rising(one, other)
    after = law(DATA[2], now) @ unmasking(now, then, DATA[2])
    assert torch.allclose(after, law(DATA[2], then))


@given(shares, shares)
def test_5_the_greatest_c_is_standard_unmasking_where_the_posterior_absorbs(one, other):
    now, then = rising(one, other)
    a, b, c = weights(now, then, most(now, then))
    assert b == pytest.approx(0, abs=1e-12)
    assert torch.allclose(update(a, b, c, absorbing(DATA[0])), unmasking(now, then, DATA[0]))
    assert not torch.allclose(update(a, b, c, hearing(DATA[0])), unmasking(now, then, DATA[0]))


@given(shares, shares, st.floats(0, 1))
def test_6_remasking_is_paid_for_by_masked_positions(one, other, part):
    now, then = rising(one, other)
    remasked = part * min(1, (1 - then) / now)
    left = (1 - then - now * remasked) / (1 - now)
    assert -1e-12 <= left <= 1
    rows = torch.diag(torch.cat([torch.full((TOKENS,), 1 - remasked), torch.zeros(1)])).double()
    rows[:-1, -1] = remasked
    rows[-1] = law(DATA[0], 1 - left)
    assert float((law(DATA[0], now) @ rows)[-1]) == pytest.approx(1 - then)


# --- what is preserved ---


@given(shares, shares)
def test_7_clean_slate_has_the_right_marginals(one, other):
    now, then = rising(one, other)
    a, b, c = weights(now, then, 0.0)
    for p in DATA:
        for posterior in (hearing(p), absorbing(p)):  # true conditionals, given all but the position or given all
            assert torch.allclose(law(p, now) @ update(a, b, c, posterior), law(p, then))


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_7_simulated_over_a_whole_walk(part):
    """A factorised model, where nothing is lost by drawing positions independently."""
    generator = torch.Generator().manual_seed(0)
    canvas = torch.full((CHAINS, len(DATA)), TOKENS)
    for t in range(1, STEPS + 1):
        now, then = (t - 1) / STEPS, t / STEPS
        a, b, _ = weights(now, then, part * most(now, then))
        predicted = torch.stack([torch.multinomial(p, CHAINS, True, generator=generator) for p in DATA], dim=1)
        coin = torch.rand(canvas.shape, generator=generator)
        canvas = torch.where(coin < a, predicted, torch.where(coin < a + b, TOKENS, canvas))
        for position, p in enumerate(DATA):
            seen = torch.bincount(canvas[:, position], minlength=TOKENS + 1).double() / CHAINS
            assert torch.allclose(seen, law(p, then), atol=5 * 0.5 / math.sqrt(CHAINS))


def test_8_the_joint_law_is_lost_where_positions_depend_on_each_other():
    """Data in which two positions always agree, each token half of the time, all revealed in one step from blanks."""
    p = torch.tensor([0.5, 0.5, 0, 0]).double()
    first = second = update(*weights(0.0, 1.0, 0.0), hearing(p))[-1, :-1]
    agreement = float((first * second).sum())
    assert agreement == pytest.approx(0.5)
    assert torch.equal(first, p)  # though each is right by itself


# --- D3IM ---


@pytest.mark.parametrize(("length", "steps"), [(12, 12), (12, 5), (10, 4), (5, 8)])
def test_10_the_masked_share_of_d3im_is_exact(length, steps):
    reading = replace(READING, eos="none")
    history = responses(list(walk(Chaos(), fresh(length), D3IM(), steps=steps, reading=reading)))
    masked = [state[0].count(MASK) / length for state in history]
    assert masked == pytest.approx([1 - (length * t // steps) / length for t in range(1, steps + 1)])


def test_11_the_same_positions_win_every_time():
    """With confidences fixed, by a model that ignores its input, a position is visible always or never."""
    reading = replace(READING, eos="none")
    shown = []
    for seed in range(10):
        steps = list(walk(Chaos(deaf=True), fresh(12, seed=seed), D3IM(), steps=12, reading=reading))
        shown.append([token != MASK for token in responses(steps)[5][0]])
    often = torch.tensor(shown).double().mean(0)
    assert set(often.tolist()) == {0.0, 1.0}
    assert float(often.mean()) == 6 / 12  # the share of the update, though no position has its probability
