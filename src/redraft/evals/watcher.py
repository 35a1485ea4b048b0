"""Who hears of an evaluation as it goes. No torch here: commands draw with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.decoding import Step
    from redraft.evals.run import Forecast, Graded


class Watcher:
    """This one says nothing."""

    def begin(self, forecast: Forecast, done: int) -> None:
        """Before the first batch: what this process has to do, and how many items are done already."""

    def step(self, step: Step) -> None:
        pass

    def batch(self, graded: Graded) -> None:
        """Once its items are on disk."""
