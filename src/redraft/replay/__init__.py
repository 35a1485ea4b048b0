"""A decoding as one HTML page: every step, and the history of every position; two of them side by side.

It is made from recorded trajectories that carry the texts of their tokens (`Trajectory.with_texts`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from redraft.decoding import Trajectory
from redraft.output import check_writable, replace
from redraft.page import assemble, harmless

MEASURED = "probability"  # confidences of another ranking are no percentages
UNKNOWN = -1


def page(runs: Sequence[Trajectory], *, titles: Sequence[str] = (), heading: str = "How the answer came about") -> str:
    """One or two runs of the same prompts. `titles` stand above them; unless given, what tells them apart does."""
    from redraft import __version__

    if not 1 <= len(runs) <= 2:
        raise ValueError(f"a replay shows one run or two, not {len(runs)}")
    if len(runs) == 2 and _prompts(runs[0]) != _prompts(runs[1]):
        raise ValueError("the two runs answer different prompts: a replay compares two answers to the same ones")
    names = list(titles) or _titles(runs)
    return assemble(
        "redraft.replay",
        data={"runs": [_run(run, name) for run, name in zip(runs, names, strict=True)]},
        title=escape(harmless(heading)),
        version=escape(__version__),
        plain="".join(
            f"<h2>{escape(harmless(name))}</h2><pre>{escape(harmless(_ended(run)))}</pre>"
            for name, run in zip(names, runs, strict=True)
        ),
    )


def save(path: str | Path, runs: Sequence[Trajectory], **options: Any) -> Path:
    """Write a page, in one move."""
    path = Path(path)
    check_writable(path)
    replace(path, page(runs, **options).encode())
    return path


def _titles(runs: Sequence[Trajectory]) -> list[str]:
    """The runs' models, or their samplers where one model made both."""
    for fact in ("model", "sampler"):
        names = [str(run.about.get(fact, "")) for run in runs]
        if all(names) and len(set(names)) == len(runs):
            return names
    return [f"run {place}" for place in range(1, len(runs) + 1)]


def _run(run: Trajectory, title: str) -> dict[str, Any]:
    about = run.about
    facts = [about.get("model"), about.get("sampler"), f"{len(run)} steps"]
    verdicts = about.get("verdicts") or [""] * run.rows
    return {
        "title": harmless(title),
        "about": ", ".join(str(fact) for fact in facts if fact and fact != title),
        "steps": len(run),
        "length": run.tokens.shape[2],
        "texts": {token: harmless(text) for token, text in _texts(run).items()},
        "mask": run.mask_id,
        "ends": list(run.eos_ids),
        "windows": run.window.tolist(),
        "rows": [_row(run, row, prompt, verdicts[row]) for row, prompt in enumerate(_prompts(run))],
    }


def _row(run: Trajectory, row: int, prompt: str, verdict: str) -> dict[str, Any]:
    """The first state, what changed at each step ([position, token, position, token, ...]), and percentages."""
    tokens = run.tokens[:, row]
    changes = []
    for old, new in pairwise(tokens):
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
