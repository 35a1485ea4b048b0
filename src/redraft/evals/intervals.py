"""How far a share measured on n items can be trusted."""

from __future__ import annotations

Z95 = 1.959964  # two-sided 95 %


def wilson(correct: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval for a proportion: honest at 0 and 1, where the usual one collapses."""
    if n == 0:
        return 0.0, 1.0
    share = correct / n
    middle = share + z * z / (2 * n)
    spread = z * ((share * (1 - share) + z * z / (4 * n)) / n) ** 0.5
    scale = 1 + z * z / n
    low, high = (middle - spread) / scale, (middle + spread) / scale
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # rounding may leave the share itself outside
