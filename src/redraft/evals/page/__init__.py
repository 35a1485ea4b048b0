"""The figure of a sweep as a page of its own, which can be asked: which run is this point, and what did it cost?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from redraft.evals.figure import COLOURS, MARKERS, limits, panels
from redraft.evals.rows import HEAD, Baseline, Row, cells, legend, said_of
from redraft.page import assemble, harmless

DARK = ("#5cb3e6", "#ff9a52", "#3fcf9f", "#ee8cc8", "#d8c24a", "#d0d0d0", "#b49cff", "#ff7b7b", "#6fd3e0")
assert len(DARK) == len(COLOURS)


def html(rows: Sequence[Row], protocols: dict[str, Any], baseline: Baseline, model: str) -> str:
    tasks = dict.fromkeys(row.task for row in rows)
    data = {
        "rows": [{**asdict(row), "against": row.against, "right": row.right, "pace": row.pace} for row in rows],
        "panels": panels(rows),
        "series": list(dict.fromkeys(row.series for row in rows)),
        "limits": {task: limits([row for row in rows if row.task == task]) for task in tasks},
        "light": COLOURS,
        "dark": DARK,
        "shapes": len(MARKERS),
    }
    return assemble(
        "redraft.evals.page",
        data=data,
        title=_text(f"Accuracy against calls, {model}"),
        protocols="".join(
            f"<dt>{_text(task)}</dt><dd>{_text(said_of(protocol))}</dd>" for task, protocol in protocols.items()
        ),
        legend=_text(legend(rows, baseline)),
        table=_table(rows),
    )


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in ("task", *HEAD))
    lines = ("".join(f"<td>{_text(cell)}</td>" for cell in (row.task, *cells(row))) for row in rows)
    return f"<thead><tr>{head}</tr></thead><tbody>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</tbody>"


def _text(text: str) -> str:
    return escape(harmless(text))
