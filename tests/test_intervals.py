"""Wilson intervals against published values; tests and intervals of paired differences against counting by hand."""

import numpy as np
import pytest

from redraft.evals.intervals import Pairs, bootstrap, caution, mcnemar, needed, wilson


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"),
    [  # Newcombe 1998, Statistics in Medicine 17, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 1 - 0.1170, 1.0),  # by symmetry with 0 of 29
    ],
)
def test_published_intervals(correct, n, low, high):
    assert wilson(correct, n) == pytest.approx((low, high), abs=5e-5)


def test_intervals_hold_the_share_and_shrink():
    for correct in range(11):
        low, high = wilson(correct, 10)
        assert 0 <= low <= correct / 10 <= high <= 1
        assert wilson(10 - correct, 10) == pytest.approx((1 - high, 1 - low))
        narrow = wilson(100 * correct, 1000)
        assert narrow[1] - narrow[0] < high - low
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(5, 10, z=1.0)[0] > wilson(5, 10)[0]


# --- two runs on the same items ---


def test_pairs_are_counted():
    pairs = Pairs.of([True, True, False, False, False], [True, False, True, True, False])
    assert pairs == (1, 1, 2, 1)
    assert pairs.difference == pytest.approx(0.2)
    with pytest.raises(ValueError, match="zip"):
        Pairs.of([True], [])


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"), [(0, 6, 2 / 64), (9, 1, 22 / 1024), (3, 3, 1.0), (0, 0, 1.0), (2, 3, 1.0)]
)
def test_mcnemar_is_a_sign_test_of_the_pairs_that_differ(only_a, only_b, p):
    for neither in (0, 100):
        assert mcnemar(Pairs(5, only_a, only_b, neither)) == pytest.approx(p)


def test_bootstrap_is_what_drawing_items_gives():
    pairs = Pairs(40, 7, 23, 30)
    each = np.repeat([0, -1, 1, 0], pairs)
    rng = np.random.default_rng(1)
    drawn = [rng.choice(each, len(each)).mean() for _ in range(10_000)]
    assert bootstrap(pairs) == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.011)
    assert bootstrap(pairs, seed=3) == bootstrap(pairs, seed=3)
    assert bootstrap(Pairs(50, 0, 0, 50)) == (0, 0)


def test_nothing_measured_is_nothing_known():
    assert bootstrap(Pairs(0, 0, 0, 0)) == (-1, 1)
    assert mcnemar(Pairs(0, 0, 0, 0)) == 1


def test_as_many_items_as_are_said_to_be_needed_are_enough_and_not_many_more():
    pairs = Pairs(50, 7, 13, 30)  # a difference of 6 points that 100 items cannot show
    rng = np.random.default_rng(0)

    def power(n):
        draws = rng.multinomial(n, np.array(pairs) / 100, size=400)
        return np.mean([mcnemar(Pairs(*map(int, counts))) < 0.05 for counts in draws])

    enough = needed(pairs)
    assert 0.7 < power(enough) < 0.9
    assert power(enough // 2) < 0.6
    assert needed(Pairs(50, 10, 10, 30)) is None


def test_too_few_items_are_said_to_be_too_few():
    assert caution(Pairs(500, 50, 90, 360)) is None
    said = caution(Pairs(5, 10, 13, 22))
    assert said is not None
    assert "50 items do not show a difference" in said
    assert f"about {needed(Pairs(5, 10, 13, 22)):,} items" in said
