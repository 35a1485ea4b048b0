"""`--preview`: a training batch as the model sees it after masking and committing, in colour.

Where the terminal has no colours, commits stand in brackets. A wrong commit is followed by what should be there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from rich.console import Console, Group
from rich.text import Text
from torch import Tensor

from redraft.train.batch import Batch, Draft

PROMPT, GIVEN, MASKED, RIGHT, WRONG, TRUTH = "dim italic", "", "dim", "bold green", "bold white on red", "dim red"
MASK, END = "·", "■"


def preview(
    batch: Batch,
    draft: Draft,
    pieces: Callable[[list[int]], list[str]],
    *,
    eos_ids: tuple[int, ...],
    console: Console,
    rows: int = 4,
    width: int = 400,
) -> None:
    """Print the first `rows` rows, `width` tokens of each, and what the colours mean."""
    colour = console.color_system is not None and not console.no_color
    for row in range(min(rows, len(batch.tokens))):
        drawn = draw_row(batch, draft, row, pieces, eos_ids=eos_ids, width=width, colour=colour)
        console.print(drawn, soft_wrap=False, highlight=False)
    if rows < len(batch.tokens):
        console.print(Text(f"and {len(batch.tokens) - rows} more rows", style="dim"))
    console.print(legend(colour))


def draw_row(
    batch: Batch,
    draft: Draft,
    row: int,
    pieces: Callable[[list[int]], list[str]],
    *,
    eos_ids: tuple[int, ...],
    width: int = 400,
    colour: bool = True,
) -> Group:
    """One row under a line that counts what is in it. Padding is not shown."""

    def part(of: Tensor) -> np.ndarray:
        return of[row].cpu().numpy()

    true, eligible = part(batch.tokens), part(batch.eligible)
    seen, committed, masked, wrong = map(part, (draft.tokens, draft.committed, draft.masked, draft.wrong))
    real = np.ones_like(eligible) if batch.attend is None else part(batch.attend)
    given = real & eligible & ~committed & ~masked
    shown = np.flatnonzero(real)[:width]
    words = pieces([int(token) for token in seen[shown]])
    truths = pieces([int(token) for token in true[shown]])

    text = Text()
    for at, word, truth in zip(shown, words, truths, strict=True):
        word = END if seen[at] in eos_ids else printable(word)
        if masked[at]:
            text.append(MASK, style=MASKED)
        elif wrong[at]:
            truth = END if true[at] in eos_ids else printable(truth)
            text.append(word if colour else f"[{word}≠{truth}]", style=WRONG)
            text.append(truth if colour else "", style=TRUTH)
        elif committed[at]:
            text.append(word if colour else f"[{word}]", style=RIGHT)
        else:
            text.append(word, style=GIVEN if eligible[at] else PROMPT)
    if (more := int(real.sum()) - len(shown)) > 0:
        text.append(f" … {more} more tokens", style="dim")

    prompt, padding = int((real & ~eligible).sum()), int((~real).sum())
    counts = [
        f"{prompt} prompt" if prompt else "",
        f"{given.sum()} given",
        f"{masked.sum()} masked",
        f"{committed.sum()} committed, {wrong.sum()} of them wrong",
        f"{padding} padding" if padding else "",
    ]
    heading = f"example {int(batch.indices[row])}: {', '.join(filter(None, counts))}"
    return Group(Text(heading, style="bold"), text)


def printable(piece: str) -> str:
    """On one line, and with nothing in it that a terminal would obey."""
    piece = piece.replace("\n", "⏎").replace("\t", " ")
    return "".join(character if character.isprintable() else "�" for character in piece)


def legend(colour: bool = True) -> Text:
    text = Text()
    entries = (
        (PROMPT, "prompt, never masked"),
        (GIVEN, "given"),
        (MASKED, f"{MASK} masked"),
        (RIGHT, "committed right" if colour else "[committed right]"),
        (WRONG, "committed wrong" if colour else "[committed wrong≠truth]"),
        *(((TRUTH, "truth behind it"),) if colour else ()),
        ("", f"{END} end of text or of turn"),
    )
    for style, words in entries:
        text.append(words, style=style).append("  ")
    return text
