"""A decoding as one HTML page: every step, and the history of every position; two of them side by side.

The page is whole in itself and asks nothing of a network. It is made from recorded trajectories that carry the texts of
their tokens (`Trajectory.with_texts`).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from redraft.decoding import Trajectory
from redraft.output import check_writable, replace

MEASURED = "probability"  # confidences of another ranking are no percentages
UNKNOWN = -1


def page(runs: Sequence[Trajectory], *, titles: Sequence[str] = (), heading: str = "How the answer came about") -> str:
    """One or two runs of the same prompts. `titles` stand above them; unless given, the name of each model does."""
    from redraft import __version__

    if not 1 <= len(runs) <= 2:
        raise ValueError(f"a replay shows one run or two, not {len(runs)}")
    if len(runs) == 2 and _prompts(runs[0]) != _prompts(runs[1]):
        raise ValueError("the two runs answer different prompts: a replay compares two answers to the same ones")
    names = list(titles) or [str(run.about.get("model", "")) or f"run {place}" for place, run in enumerate(runs, 1)]
    data = {
        "texts": {token: _harmless(text) for run in runs for token, text in _texts(run).items()},
        "runs": [_run(run, name) for run, name in zip(runs, names, strict=True)],
    }
    style, script = _part("page.css"), _part("page.js")
    parts = {
        "title": html.escape(heading),
        "version": html.escape(__version__),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "plain": "".join(f"<h2>{html.escape(n)}</h2><pre>{html.escape(_ended(r))}</pre>" for n, r in zip(names, runs)),
        "data": _json(data),
    }
    return re.sub("|".join(f"%{name}%" for name in parts), lambda found: parts[found[0].strip("%")], _part("page.html"))


def save(path: str | Path, runs: Sequence[Trajectory], **options: Any) -> Path:
    """Write a page, in one move."""
    path = Path(path)
    check_writable(path)
    replace(path, page(runs, **options).encode())
    return path


def _run(run: Trajectory, title: str) -> dict[str, Any]:
    about = run.about
    facts = [about.get("sampler"), f"{len(run)} steps", about.get("model") if title != about.get("model") else None]
    verdicts = about.get("verdicts") or [""] * run.rows
    return {
        "title": title,
        "about": ", ".join(str(fact) for fact in facts if fact),
        "steps": len(run),
        "length": run.tokens.shape[2],
        "mask": run.mask_id,
        "ends": list(run.eos_ids),
        "windows": run.window.tolist(),
        "rows": [_row(run, row, prompt, verdicts[row]) for row, prompt in enumerate(_prompts(run))],
    }


def _row(run: Trajectory, row: int, prompt: str, verdict: str) -> dict[str, Any]:
    """The first state, what changed at each step ([position, token, position, token, ...]), and percentages."""
    tokens = run.tokens[:, row]
    changes = []
    for old, new in zip(tokens[:-1], tokens[1:], strict=True):
        (places,) = np.nonzero(old != new)
        changes.append(np.stack([places, new[places]], axis=1).ravel().tolist())
    known = ~np.isnan(run.confidence[:, row]) & (run.about.get("rank", MEASURED) == MEASURED)
    percents = np.exp(np.where(known, run.confidence[:, row], -math.inf)) * 100
    confidence = np.where(known, percents.clip(0, 100).round(), UNKNOWN).astype(int).tolist()
    return {
        "prompt": prompt, "verdict": verdict, "start": tokens[0].tolist(), "changes": changes, "confidence": confidence
    }  # fmt: skip


def _prompts(run: Trajectory) -> list[str]:
    """What each row was asked; of a conversation, everything that was said."""
    given = run.about.get("prompts") or [""] * run.rows
    return [
        prompt if isinstance(prompt, str) else "\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)
        for prompt in given
    ]


def _texts(run: Trajectory) -> dict[int, str]:
    if run.texts is None:
        raise ValueError("this trajectory does not say how its tokens are spelled: record it anew, or name its model")
    return run.texts


def _ended(run: Trajectory) -> str:
    """The last state in plain text, for readers without scripts."""
    texts = {**_texts(run), run.mask_id: "·", **dict.fromkeys(run.eos_ids, "")}
    return "\n\n".join("".join(texts[int(token)] for token in row) for row in run.tokens[-1])


def _harmless(text: str) -> str:
    """A model may write characters that change how what stands beside them is drawn."""
    return "".join(letter if letter.isprintable() or letter in " \n\t" else "\ufffd" for letter in text)


def _json(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _hash(content: str) -> str:
    """The name under which the page's policy admits this content, and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _part(name: str) -> str:
    return (files("redraft.replay") / name).read_text(encoding="utf-8")
