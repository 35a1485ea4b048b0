"""Counter-based noise: uniform, the same in any batch and on any device, different for anything that differs."""

import math

import pytest
import torch

from fakes import fresh
from redraft.decoding import Clock, derive, uniform
from redraft.decoding.noise import counter_uniform, gumbel, stream_number

MANY = 40_000


def draw(seed: int = 7, counters: tuple[int, ...] = (0, 1, 2), size: int = MANY) -> torch.Tensor:
    return counter_uniform(torch.tensor([seed]), counters, (size,))[0]


def correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


def counted_along_seeds(counters):
    return counter_uniform(torch.arange(MANY), counters, (1,)).flatten()


def counted_along_steps(counters):
    steps = torch.arange(MANY)
    return counter_uniform(torch.zeros(MANY, dtype=torch.int64), (*counters, steps), (1,)).flatten()


@pytest.mark.parametrize("counters", [(), (0,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize(
    "values",
    [
        *(lambda counters, seed=seed: draw(seed, counters) for seed in (0, 1, -1, 2**62 - 1, 2**32)),
        counted_along_seeds,
        counted_along_steps,
    ],
    ids=["seed 0", "seed 1", "seed -1", "seed 2^62-1", "seed 2^32", "along seeds", "along steps"],
)
def test_values_are_uniform(values, counters):
    values = values(counters)
    counts = torch.histc(values, bins=64, min=0, max=1)
    expected = MANY / 64
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 63 + 5 * math.sqrt(2 * 63)
    ranks = torch.arange(1, MANY + 1) / MANY
    assert float((values.sort().values - ranks).abs().max()) * math.sqrt(MANY) < 2.2  # Kolmogorov, p = 0.0001


def test_values_lie_strictly_between_0_and_1():
    values = torch.cat([draw(seed) for seed in range(25)])  # a million; gumbel() needs neither end
    assert values.min() > 0
    assert values.max() < 1
    assert gumbel(torch.tensor([2.0**-33, 1 - 2.0**-24])).isfinite().all()


def test_lowest_bits_are_uniform_too():
    bits = (draw().double() * 2**24).long() & 1
    assert abs(float(bits.double().mean()) - 0.5) < 5 * 0.5 / math.sqrt(MANY)


def test_neighbouring_numbers_are_uncorrelated():
    values = draw()
    for lag in (1, 2, 16):
        assert abs(correlation(values[:-lag], values[lag:])) < 5 / math.sqrt(MANY)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 8},
        {"seed": 7 + 2**32},  # the upper half of a seed counts
        {"counters": (1, 1, 2)},
        {"counters": (0, 2, 2)},
        {"counters": (0, 1, 3)},
        {"counters": (0, 2, 1)},  # and so does the order of the counters
        {"counters": (0, 1)},
    ],
    ids=str,
)
def test_whatever_differs_gives_different_numbers(other):
    one, another = draw(), draw(**other)
    assert (one == another).double().mean() < 0.001
    assert abs(correlation(one, another)) < 5 / math.sqrt(MANY)


def test_a_row_draws_the_same_in_any_batch():
    seeds, steps = torch.tensor([5, 6, 7, 8]), torch.tensor([1, 2, 3, 4])
    together = counter_uniform(seeds, (0, steps), (3, 5))
    for row in range(4):
        alone = counter_uniform(seeds[row : row + 1], (0, int(steps[row])), (3, 5))
        assert torch.equal(alone[0], together[row])


def test_numbers_are_these_on_every_machine():
    golden = GOLDEN["draw"]
    assert (draw(size=6).double() * 2**24).long().tolist() == golden


def test_derived_seeds_are_these_on_every_machine():
    assert [derive(0, 0), derive(0, 1), derive(1, 0)] == GOLDEN["derive"]


def test_derived_seeds_are_distinct_and_fit_a_tensor():
    derived = [derive(seed, index) for seed in range(100) for index in range(100)]
    assert len(set(derived)) == len(derived)
    assert all(0 <= value < 2**62 for value in derived)


def test_derived_seeds_may_be_derived_from_again():
    family = {derive(derive(0, index), child) for index in range(50) for child in range(50)}
    assert len(family) == 2500


def test_streams_have_numbers_of_their_own():
    assert len({stream_number(name) for name in ("gumbel.0", "gumbel.1", "rank.0", "rank.1", "remask")}) == 5


def test_uniform_depends_on_seed_stage_step_and_stream_and_fills_the_window():
    block = fresh(6).window(3, 9)
    cpu = torch.device("cpu")
    base = uniform(block, Clock.at(2, 9, 1, 1, cpu), "a")
    assert base.shape == (1, 6)
    assert torch.equal(base, uniform(block, Clock.at(2, 5, 1, 1, cpu), "a"))  # how many steps there are does not matter
    others = [
        uniform(fresh(6, seed=1).window(3, 9), Clock.at(2, 9, 1, 1, cpu), "a"),
        uniform(block, Clock.at(3, 9, 1, 1, cpu), "a"),
        uniform(block, Clock.at(2, 9, 0, 1, cpu), "a"),
        uniform(block, Clock.at(2, 9, 1, 1, cpu), "b"),
    ]
    assert all((base != other).all() for other in others)
    assert uniform(block, Clock.at(2, 9, 1, 1, cpu), "a", (2, 4)).shape == (1, 2, 4)


def test_gumbel_noise_has_its_mean_and_variance():
    noise = gumbel(draw()).double()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=5 * 1.2825 / math.sqrt(MANY))
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, rel=0.05)


GOLDEN = {
    "draw": [1327223, 9159348, 10829985, 12506204, 2973232, 5877826],
    "derive": [4073552104164651883, 1990071630548588925, 4407405937155712902],
}
