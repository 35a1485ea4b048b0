"""The figure of a sweep as a page of its own: one file without a script, style or font from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from redraft.evals.figure import COLOURS, MARKERS, limits, panels
from redraft.evals.rows import HEAD, Baseline, Row, cells, legend, said_of

DARK = ("#5cb3e6", "#ff9a52", "#3fcf9f", "#ee8cc8", "#d8c24a", "#d0d0d0", "#b49cff", "#ff7b7b", "#6fd3e0")
assert len(DARK) == len(COLOURS)


def html(rows: Sequence[Row], protocols: dict[str, Any], baseline: Baseline, model: str) -> str:
    template = files("redraft.evals").joinpath("page.html").read_text(encoding="utf-8")
    grid = panels(rows)
    tasks = list(dict.fromkeys(row.task for row in rows))
    data = {
        "rows": [{**asdict(row), "against": row.against, "right": row.right, "pace": row.pace} for row in rows],
        "panels": grid,
        "series": list(dict.fromkeys(row.series for row in rows)),
        "limits": {task: limits([row for row in rows if row.task == task]) for task in tasks},
        "light": COLOURS,
        "dark": DARK,
        "shapes": len(MARKERS),
    }
    parts = {
        "%TITLE%": escape(f"Accuracy against calls, {model}"),
        "%COLUMNS%": str(len(grid[0])),
        "%PROTOCOLS%": "".join(
            f"<dt>{escape(task)}</dt><dd>{escape(said_of(protocol))}</dd>" for task, protocol in protocols.items()
        ),
        "%LEGEND%": escape(legend(rows, baseline)),
        "%TABLE%": table(rows),
        "%DATA%": for_script(data),
    }
    for mark, text in parts.items():  # the data last: what is in it is not looked into again
        template = template.replace(mark, text)
    return template


def for_script(data: Any) -> str:
    """JSON that nothing in it can end: a sampler's or an adapter's name may hold anything."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def table(rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("task", *HEAD))
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in (row.task, *cells(row))) for row in rows)
    return f"<thead><tr>{head}</tr></thead><tbody>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</tbody>"
