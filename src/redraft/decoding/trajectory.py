"""What happened: every reveal, overwrite and demotion of a decoding, recorded from its steps, saved and loaded.

A trajectory holds the response after every step, so any question can be asked of it later: which tokens changed, which
went back and forth (oscillations), where the text ended first.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from redraft.decoding.walk import Step

Kind = Literal["reveal", "overwrite", "demotion"]  # m2t, t2t, t2m
FORMAT = 1


class Event(NamedTuple):
    """One position changing at one step (0-based over the whole walk)."""

    row: int
    step: int
    position: int  # within the response
    kind: Kind
    old: int
    new: int


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The steps of one batch. Arrays: `s` steps, `b` rows, `l` response positions."""

    tokens: np.ndarray  # int32 [s + 1, b, l]: the response before the first step and after each
    confidence: np.ndarray  # float32 [s, b, l]: of each step's first prediction; NaN outside the window
    candidates: np.ndarray  # int32 [s, b, l]: what that prediction proposed; the mask id outside the window
    stage: np.ndarray  # int32 [s]
    tick: np.ndarray  # int32 [s]: the step within its stage, from 1
    window: np.ndarray  # int32 [s, 2]: response columns of the window
    calls: np.ndarray  # int32 [s, b]
    processed: np.ndarray  # int64 [s, b]: tokens through the model
    mask_id: int
    eos_ids: tuple[int, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)  # sampler, prompt, seed: whatever the recorder was told

    @classmethod
    def of(
        cls, steps: Iterable[Step], *, eos_ids: tuple[int, ...] = (), about: dict[str, Any] | None = None
    ) -> Trajectory:
        """Record a whole walk."""
        recorder = Recorder(eos_ids=eos_ids, about=about)
        for step in steps:
            recorder.add(step)
        return recorder.trajectory()

    def __len__(self) -> int:
        return len(self.tick)

    @property
    def rows(self) -> int:
        return self.tokens.shape[1]

    def events(self, row: int | None = None) -> Iterator[Event]:
        """Every change in order of step, row and position."""
        old, new = self.tokens[:-1], self.tokens[1:]
        for step, where, position in zip(*np.nonzero(old != new), strict=True):
            if row is None or where == row:
                pair = int(old[step, where, position]), int(new[step, where, position])
                yield Event(int(where), int(step), int(position), self._kind(*pair), *pair)

    def counts(self, row: int | None = None) -> dict[Kind, int]:
        """How many events of each kind."""
        found = Counter(event.kind for event in self.events(row))
        return {kind: found[kind] for kind in ("reveal", "overwrite", "demotion")}

    def changes(self, kind: Kind) -> np.ndarray:
        """How often each position had an event of this kind: int [b, l]."""
        old, new = self.tokens[:-1], self.tokens[1:]
        was, now = old != self.mask_id, new != self.mask_id
        hit = {"reveal": ~was & now, "overwrite": was & now & (old != new), "demotion": was & ~now}[kind]
        return hit.sum(0)

    def oscillations(self, row: int) -> list[int]:
        """Positions overwritten at least twice that returned to a token they had held before."""
        overwritten: dict[int, list[Event]] = {}
        for event in self.events(row):
            if event.kind == "overwrite":
                overwritten.setdefault(event.position, []).append(event)
        return sorted(position for position, events in overwritten.items() if _returns(events))

    def first_eos(self, row: int) -> int:
        """The first position that holds an end token in the finished response; its length if none does."""
        ends = np.isin(self.tokens[-1, row], self.eos_ids)
        return int(ends.argmax()) if ends.any() else len(ends)

    def with_texts(self, pieces: Callable[[list[int]], list[str]]) -> Trajectory:
        """The same, with the text of every token in it (`Model.pieces`): readable without the model's tokenizer."""
        ids = np.unique(self.tokens).tolist()
        return replace(self, about={**self.about, "texts": dict(zip(map(str, ids), pieces(ids), strict=True))})

    @property
    def texts(self) -> dict[int, str] | None:
        """How its tokens are spelled, if it was told."""
        texts = self.about.get("texts")
        return None if texts is None else {int(token): text for token, text in texts.items()}

    def save(self, path: str | Path) -> None:
        """Write to an .npz without pickles, in one move: a file of that name is never half a trajectory."""
        about = {"format": FORMAT, "mask_id": self.mask_id, "eos_ids": list(self.eos_ids), "about": self.about}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        path = Path(path)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with partial.open("wb") as file:
                np.savez_compressed(file, header=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | Path) -> Trajectory:
        try:
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                header = json.loads(file["header"].tobytes())
                form = header["format"]
                arrays = {name: file[name] for name in _ARRAYS} if form == FORMAT else {}
        except FileNotFoundError:
            raise
        except Exception as broken:  # zip, json and numpy each have errors of their own for a damaged file
            raise ValueError(f"{path} is not a trajectory, or is damaged: {broken}") from None
        if form != FORMAT:
            raise ValueError(f"{path} is a trajectory of format {form}; this version reads format {FORMAT}")
        return cls(**arrays, mask_id=header["mask_id"], eos_ids=tuple(header["eos_ids"]), about=header["about"])

    def _kind(self, old: int, new: int) -> Kind:
        return "reveal" if old == self.mask_id else "demotion" if new == self.mask_id else "overwrite"


_ARRAYS = ("tokens", "confidence", "candidates", "stage", "tick", "window", "calls", "processed")


def _returns(events: list[Event]) -> bool:
    held = {events[0].old}
    for event in events:
        if event.new in held:
            return True
        held.add(event.new)
    return False


class Recorder:
    """Collects steps as they pass, for callers who also draw them."""

    def __init__(self, *, eos_ids: tuple[int, ...] = (), about: dict[str, Any] | None = None) -> None:
        self.eos_ids, self.about = eos_ids, about or {}
        self._kept: dict[str, list[Any]] = {name: [] for name in _ARRAYS}
        self._mask_id: int | None = None

    def add(self, step: Step) -> None:
        canvas, kept = step.canvas, self._kept
        if self._mask_id is None:
            self._mask_id = canvas.mask_id
            kept["tokens"].append(_int32(canvas.place(step.before, step.start).response))
        tokens = _int32(step.result.response)
        confidence = np.full(tokens.shape, np.nan, dtype=np.float32)
        candidates = np.full(tokens.shape, canvas.mask_id, dtype=np.int32)
        rows = step.rows.cpu().numpy()
        start, lead = step.start - canvas.start, step.before.lead
        window = slice(start + lead, start + step.before.tokens.shape[1])
        if step.predictions:
            confidence[rows, window] = step.predictions[0].confidence[:, lead:].float().cpu().numpy()
            candidates[rows, window] = _int32(step.predictions[0].tokens[:, lead:])
        calls = np.zeros(len(tokens), dtype=np.int32)
        processed = np.zeros(len(tokens), dtype=np.int64)
        calls[rows], processed[rows] = step.each.cpu().numpy(), step.processed.cpu().numpy()
        values = (tokens, confidence, candidates, step.stage, int(step.clock.step.max()))
        for name, value in zip(_ARRAYS, (*values, (window.start, window.stop), calls, processed), strict=True):
            kept[name].append(value)

    def trajectory(self) -> Trajectory:
        if self._mask_id is None:
            raise ValueError("nothing was recorded: the walk took no step")
        kinds = {"stage": np.int32, "tick": np.int32, "window": np.int32}
        arrays = {name: np.asarray(values, dtype=kinds.get(name)) for name, values in self._kept.items()}
        return Trajectory(**arrays, mask_id=self._mask_id, eos_ids=self.eos_ids, about=self.about)


def _int32(tokens: Any) -> np.ndarray:
    return tokens.cpu().numpy().astype(np.int32)
