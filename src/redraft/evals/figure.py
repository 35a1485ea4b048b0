"""Accuracy against calls as a picture: a panel for each task and adapter, a line for each sampler, Wilson intervals.

Calls and not steps: samplers that ask the model twice a step, or stop early, are compared at what they cost.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from redraft.evals.rows import Row
from redraft.page import harmless

# Told apart by people who see colours otherwise too (after Okabe and Ito), and by shape; then shapes begin anew.
COLOURS = ("#0072b2", "#d55e00", "#008a64", "#b5478d", "#7d6a00", "#3a3a3a", "#6f4fc4", "#c2272d", "#2f8f9d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH, HEIGHT, DPI = 4.7, 3.5, 160  # inches of a panel
LONGEST = 60  # letters of its title


def look(number: int) -> dict[str, Any]:
    """A line of its own for each series: where colours begin anew, lines are dashed."""
    style = "-" if number // len(COLOURS) % 2 == 0 else (0, (4, 2))
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "linestyle": style}


def panels(rows: Sequence[Row]) -> list[list[tuple[str, str]]]:
    """Tasks and adapters in lines: adapters side by side, or tasks where there is one adapter."""
    tasks, adapters = (list(dict.fromkeys(names)) for names in ([r.task for r in rows], [r.adapter for r in rows]))
    if len(adapters) == 1:
        whole = [(task, adapters[0]) for task in tasks]
        return [whole[first : first + 3] for first in range(0, len(whole), 3)]
    return [[(task, adapter) for adapter in adapters] for task in tasks]


def limits(rows: Sequence[Row]) -> tuple[int, int]:
    """Of the accuracies in per cent, room for their intervals, in steps of five."""
    low, high = min(row.interval[0] for row in rows), max(row.interval[1] for row in rows)
    return max(0, math.floor(20 * low - 0.2) * 5), min(100, math.ceil(20 * high + 0.2) * 5)


def png(rows: Sequence[Row], protocols: dict[str, Any], model: str) -> bytes:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    grid, names = panels(rows), list(dict.fromkeys(row.series for row in rows))
    plain: dict[Any, Any] = {**matplotlib.rcParamsDefault, "text.parse_math": False}  # names may hold dollars
    with matplotlib.rc_context(plain):
        columns = min(len(names), max(2, int(WIDTH * len(grid[0]) / 1.9)))
        below = 0.22 * math.ceil(len(names) / columns) + 0.15
        size = (WIDTH * len(grid[0]), HEIGHT * len(grid) + below + 0.5)
        picture = Figure(size, dpi=DPI, facecolor="white")
        FigureCanvasAgg(picture)
        axes = picture.subplots(len(grid), len(grid[0]), squeeze=False)
        for line, row_of_axes in zip(grid, axes, strict=True):
            for place, axis in enumerate(row_of_axes):
                axis.set_visible(place < len(line))
                if place < len(line):
                    _panel(axis, *line[place], rows, protocols, names, first=place == 0)
        picture.suptitle(
            harmless(f"Accuracy against calls, {model}"),
            x=0.12 / size[0],
            y=1 - 0.12 / size[1],
            ha="left",
            va="top",
            fontsize=12,
            fontweight="bold",
        )
        handles = [_handle(number) for number in range(len(names))]
        picture.legend(
            handles, names, loc="lower center", ncols=columns, frameon=False, fontsize=9, handlelength=2.4,
            bbox_to_anchor=(0.5, 0.0),
        )  # fmt: skip
        height = size[1]
        picture.subplots_adjust(
            left=0.62 / size[0], right=1 - 0.15 / size[0], bottom=(below + 0.5) / height, top=1 - 0.68 / height,
            wspace=0.18, hspace=0.34,
        )  # fmt: skip
        buffer = io.BytesIO()
        picture.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _handle(number: int) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **look(number), markersize=5.5, linewidth=1.6)


def _panel(
    axis: Any, task: str, adapter: str, rows: Sequence[Row], protocols: dict[str, Any], names: list[str], *, first: bool
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    alike = [row for row in rows if row.task == task]
    for number, name in enumerate(names):
        line = sorted(
            (row for row in alike if row.adapter == adapter and row.series == name), key=lambda row: row.calls
        )
        if not line:
            continue
        calls, shares = [row.calls for row in line], [100 * row.accuracy for row in line]
        for row in line:
            low, high = row.interval
            axis.plot(
                [row.calls] * 2,
                [100 * low, 100 * high],
                color=look(number)["color"],
                alpha=0.35,
                linewidth=2.2,
                zorder=2,
            )
        axis.plot(
            calls, shares, **look(number), markersize=5.5, linewidth=1.6, markeredgecolor="white", markeredgewidth=0.6,
            zorder=3,
        )  # fmt: skip
    most, least = max(row.calls for row in alike), min(row.calls for row in alike)
    axis.set_xscale("log", base=2)
    axis.set_xlim(least / 1.25, most * 1.25)
    axis.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(21) if least / 1.25 <= 2**k <= most * 1.25]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_ylim(*limits(alike))
    axis.set_title(
        _short(f"{task}, {_adapter(adapter)}, {protocols[task]['items']:,} items"), fontsize=10.5, loc="left"
    )
    axis.set_xlabel("calls of the model for an item", fontsize=9)
    if first:
        axis.set_ylabel("right, % (Wilson 95 %)", fontsize=9)
    axis.tick_params(labelsize=8.5, length=0)
    axis.grid(color="#e4e4e4", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)


def _adapter(name: str) -> str:
    return "no adapter" if name == "none" else name


def _short(title: str) -> str:
    """A title that fits over its panel: of a long path, the end tells more."""
    title = harmless(title)
    return title if len(title) <= LONGEST else f"{title[: LONGEST // 4]} … {title[-LONGEST * 3 // 4 :]}"
