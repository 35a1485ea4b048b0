"""Decoding drawn live in a terminal: what was just revealed, overwritten or masked again, each in its colour."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

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
    tallies: dict[int, list[int]] = {}
    with Live(console=console, auto_refresh=False) as live:
        for step in steps:
            started = time.monotonic()
            before = step.canvas.place(step.before, step.start).response.cpu().numpy()
            after = step.result.response.cpu().numpy()
            heading = Text(_heading(title, step), no_wrap=True, overflow="ellipsis")
            parts: list[Text | Rule] = [Rule(heading, style="dim", align="left"), legend()]
            for row in range(min(rows, len(after))):
                tally = tallies.setdefault(row, [0, 0])
                mask_id = step.canvas.mask_id
                tally[0] += int(
                    ((before[row] != after[row]) & (before[row] != mask_id) & (after[row] != mask_id)).sum()
                )
                tally[1] += int(((before[row] != mask_id) & (after[row] == mask_id)).sum())
                parts.append(draw_row(before[row], after[row], pieces, mask_id=mask_id, eos_ids=eos_ids))
                parts.append(Text(f"{tally[0]} overwritten, {tally[1]} masked again so far", style="dim"))
            live.update(Group(*parts), refresh=True)
            yield step
            time.sleep(max(0.0, pause - (time.monotonic() - started)))


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
