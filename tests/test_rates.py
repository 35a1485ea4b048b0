"""Rates: the notation, the inverse of each distribution, and the curriculum."""

import pytest
import torch

from redraft.train.rates import Beta, Fixed, Linear, Uniform, parse_rate

GRID = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000


def cdf_of_beta_2_2(x):
    return 3 * x**2 - 2 * x**3


def test_beta_2_2_is_inverted_exactly():
    x = parse_rate("beta(2,2)").at(GRID)
    assert torch.allclose(cdf_of_beta_2_2(x), GRID, rtol=0, atol=1e-14)
    assert ((x > 0) & (x < 1)).all()


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 5), (5, 1), (20, 20)])
def test_other_betas_have_their_mean_and_variance(a, b):
    x = Beta(a, b).at(GRID)
    assert (x.diff() >= 0).all()
    assert float(x.mean()) == pytest.approx(a / (a + b), abs=1e-4)
    assert float(x.var()) == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), rel=0.01)


def test_bisection_and_closed_form_agree():
    assert torch.allclose(Beta(2, 2).cdf(Beta(2, 2).at(GRID)), GRID, rtol=0, atol=1e-14)


def test_share_of_beta_2_2_that_the_clamp_cuts():
    x = parse_rate("beta(2,2)").at(GRID)
    assert float((x < 0.1).double().mean()) == pytest.approx(0.028, abs=1e-4)
    assert float((x > 0.9).double().mean()) == pytest.approx(0.028, abs=1e-4)


def test_uniform_and_fixed():
    x = parse_rate("uniform(0.1, 0.8)").at(GRID)
    assert float(x.min()) == pytest.approx(0.1, abs=1e-4)
    assert float(x.max()) == pytest.approx(0.8, abs=1e-4)
    assert float(x.mean()) == pytest.approx(0.45, abs=1e-6)
    assert torch.equal(parse_rate("0.3").at(GRID), torch.full_like(GRID, 0.3))


def test_curriculum_runs_from_the_first_step_to_the_last():
    rate = parse_rate("linear(0.1,0.8)")
    values = [float(rate.at(GRID[:1], step=step, steps=8)) for step in range(8)]
    assert values == pytest.approx([0.1 * (step + 1) for step in range(8)])
    assert float(rate.at(GRID[:1], step=0, steps=1)) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="how many steps"):
        rate.at(GRID[:1], step=3)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("0.3", Fixed(0.3)),
        (0.3, Fixed(0.3)),
        (1, Fixed(1.0)),
        (" uniform( 0.2 ,0.4 ) ", Uniform(0.2, 0.4)),
        ("linear(0.8,0.1)", Linear(0.8, 0.1)),
        ("beta(2,5)", Beta(2, 5)),
    ],
)
def test_notation(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("betta(2,2)", "did you mean 'beta'"),
        ("unifrom(0.1,0.8)", "did you mean 'uniform'"),
        ("uniform", "write 0.3, uniform"),
        ("uniform(0.1)", "did you mean 'uniform'"),
        ("uniform(0.1,0.2,0.3)", "cannot read"),
        ("uniform(a,b)", "needs two numbers"),
        ("uniform(0.8,0.1)", r"write uniform\(0.1,0.8\)"),
        ("uniform(0,2)", "between 0 and 1"),
        ("-0.1", "between 0 and 1"),
        (1.5, "between 0 and 1"),
        ("beta(0.5,0.5)", "whole numbers"),
        ("beta(0,2)", "whole numbers"),
        ("beta(2,21)", "whole numbers"),
        ("__import__('os')", "cannot read"),
        ("nan", "cannot read"),
        ("1e999", "cannot read"),
        ("", "cannot read"),
    ],
)
def test_what_is_no_rate_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_rate(text)
