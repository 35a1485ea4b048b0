"""Who hears of an evaluation as it goes. No torch here: commands draw with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redraft.decoding import Step
    from redraft.evals.run import Forecast, Graded
    from redraft.evals.sweep import Combination


class Watcher:
    """This one says nothing."""

    def begin(self, forecast: Forecast, done: int) -> None:
        """Before the first batch: what this process has to do, and how many items are done already."""

    def step(self, step: Step) -> None:
        pass

    def batch(self, graded: Graded) -> None:
        """Once its items are on disk."""


class SweepWatcher(Watcher):
    """Who hears of many evaluations, one after the other."""

    def announce(self, runs: int, forecast: Forecast, steps: int) -> None:
        """Before the first: how many are to be done, what they will take, and how many steps of batches at most."""

    def start(self, combination: Combination, batches: int) -> None:
        """Before each: so many batches of it are left."""

    def finish(self, combination: Combination, summary: dict[str, Any]) -> None:
        """After each, once it is on disk."""
