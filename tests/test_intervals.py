"""Wilson intervals against published values."""

import pytest

from redraft.evals.intervals import wilson


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
