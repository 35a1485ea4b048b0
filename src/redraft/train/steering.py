"""Steering the temperature so that a given share of the commits is wrong: `scope(error_rate=0.3)`.

A model that improves makes fewer errors at the same temperature, so a fixed one teaches less and less correction.
"""

from __future__ import annotations

from typing import NamedTuple

GAIN = 0.3  # of temperature, per unit of error rate, per optimiser step: some ten steps to settle
SMOOTHING = 0.9  # of the error rate that is logged
HOTTEST = 4.0  # beyond it, on a vocabulary of 126,464, guesses are noise


class Steering(NamedTuple):
    """Held, logged and saved by the loop; JSON takes it as it is."""

    temperature: float
    error: float | None = None  # the smoothed error rate; None before the first commits


def steer(state: Steering, observed: float | None, target: float) -> Steering:
    """The state after an optimiser step in which the share `observed` of all commits was wrong (None: no commits).

    `observed` comes from counts summed over the step's micro-batches and processes, so layouts agree. The temperature
    follows the raw share: summing its deviations smooths enough, and a smoothed one lags, which makes it swing.
    """
    if observed is None:
        return state
    error = observed if state.error is None else SMOOTHING * state.error + (1 - SMOOTHING) * observed
    temperature = min(max(state.temperature + GAIN * (target - observed), 0.0), HOTTEST)
    return Steering(temperature, error)
