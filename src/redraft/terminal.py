"""Decoding drawn live in a terminal: what was just revealed, overwritten or masked again, each in its colour."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from redraft.decoding import Step

REVEALED, OVERWRITTEN, DEMOTED, SETTLED = "bold green", "bold black on yellow", "bold red", ""
MASK = "·"  # a position not yet said; one that was just masked again is shown as ×
ROWS = 4  # drawn at most: more do not fit a terminal
LEGEND = ((REVEALED, "revealed"), (OVERWRITTEN, "overwritten"), (DEMOTED, "× masked again"), ("dim", f"{MASK} masked"))


def watch(
    steps: Iterable[Step],
    pieces: Callable[[list[int]], list[str]],
    *,
    eos_ids: tuple[int, ...],
    console: Console,
    title: str,
    rows: int = ROWS,
    pause: float = 0.0,
) -> Iterator[Step]:
    """Pass `steps` on while drawing the first `rows` rows of them; at least `pause` seconds between two drawings.

    Off a terminal they are only passed on. What does not fit the terminal is cut off until the last drawing, which
    stays.
    """
    if not console.is_terminal:
        yield from steps
        return
    picture = Picture(title, pieces, eos_ids, rows)
    with Live(console=console, auto_refresh=False) as live:
        for step in steps:
            started = time.monotonic()
            live.update(Group(picture.heading(step), legend(), *picture.body(step)), refresh=True)
            yield step
            time.sleep(max(0.0, pause - (time.monotonic() - started)))


def watch_together(
    walks: dict[str, Iterator[Step]],
    pieces: Callable[[list[int]], list[str]],
    *,
    eos_ids: tuple[int, ...],
    console: Console,
    pause: float = 0.0,
) -> Iterator[tuple[str, Step]]:
    """Several walks, each under its title, a step of each in turn; one that has ended stays as it is."""
    pictures = {title: Picture(title, pieces, eos_ids, 1) for title in walks}
    drawn: dict[str, list[Text | Rule]] = {}
    left = dict(walks)
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while left:
            started = time.monotonic()
            for title, steps in list(left.items()):
                if (step := next(steps, None)) is None:
                    del left[title]
                    continue
                if live:
                    drawn[title] = [pictures[title].heading(step), *pictures[title].body(step)]
                yield title, step
            if live:
                live.update(Group(legend(), *(part for parts in drawn.values() for part in parts)), refresh=True)
                time.sleep(max(0.0, pause - (time.monotonic() - started)))


class Picture:
    """What one walk looks like, and how often it has changed its mind."""

    def __init__(
        self, title: str, pieces: Callable[[list[int]], list[str]], eos_ids: tuple[int, ...], rows: int
    ) -> None:
        self.title, self.pieces, self.eos_ids, self.rows = title, pieces, eos_ids, rows
        self.tallies: dict[int, list[int]] = {}

    def heading(self, step: Step) -> Rule:
        text = Text(_heading(self.title, step), no_wrap=True, overflow="ellipsis")
        return Rule(text, style="dim", align="left")

    def body(self, step: Step) -> list[Text | Rule]:
        before = step.canvas.place(step.before, step.start).response.cpu().numpy()
        after = step.result.response.cpu().numpy()
        mask_id, parts = step.canvas.mask_id, []
        for row in range(min(self.rows, len(after))):
            tally = self.tallies.setdefault(row, [0, 0])
            stood = before[row] != mask_id
            tally[0] += int((stood & (before[row] != after[row]) & (after[row] != mask_id)).sum())
            tally[1] += int((stood & (after[row] == mask_id)).sum())
            parts.append(draw_row(before[row], after[row], self.pieces, mask_id=mask_id, eos_ids=self.eos_ids))
            parts.append(Text(f"{tally[0]} overwritten, {tally[1]} masked again so far", style="dim"))
        return parts


def draw_row(
    before: np.ndarray,
    after: np.ndarray,
    pieces: Callable[[list[int]], list[str]],
    *,
    mask_id: int,
    eos_ids: tuple[int, ...],
) -> Text:
    """One response, coloured by what this step did to it; the run of end tokens at its end is shown as one mark."""
    last = len(after)
    while last and after[last - 1] in eos_ids and before[last - 1] in eos_ids:
        last -= 1
    shown = pieces([int(token) for token in after[:last]])
    text = Text()
    for old, new, piece in zip(before[:last], after[:last], shown, strict=True):
        if new == mask_id:
            text.append("×" if old != mask_id else MASK, style=DEMOTED if old != mask_id else "dim")
        else:
            style = SETTLED if old == new else REVEALED if old == mask_id else OVERWRITTEN
            text.append("■" if new in eos_ids else _shown(piece), style=style)
    if last < len(after):
        text.append(" ■", style="dim")
    return text


def _shown(piece: str) -> str:
    """A model may write control characters; a terminal would obey them."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in piece)


def _heading(title: str, step: Step) -> str:
    tick, steps = int(step.clock.step.max()), int(step.clock.steps.max())
    block = f"block {step.stage + 1}, " if step.before.tokens.shape[1] < step.canvas.length else ""
    return f"{title}  {block}step {tick} of {steps}"


def legend() -> Text:
    text = Text()
    for style, word in LEGEND:
        text.append(word, style=style).append("  ")
    return text
