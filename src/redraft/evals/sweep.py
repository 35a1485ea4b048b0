"""Every combination of tasks, adapters, samplers and steps under one protocol, each a run of its own.

A combination's folder is one of `redraft eval`: resumable, with its card, and what `redraft compare` reads.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redraft.decoding import Denoiser, Sampler
from redraft.evals.processes import Processes
from redraft.evals.protocol import Card, differing, protocol, subject, weights
from redraft.evals.records import ITEMS, begun, read_card
from redraft.evals.run import Evaluation, Forecast
from redraft.evals.score import score
from redraft.evals.task import Item, Task
from redraft.evals.watcher import SweepWatcher
from redraft.generation import Plan
from redraft.models import Model, load
from redraft.output import replace

SETTINGS, RUNS = "sweep.json", "runs"
MADE = RESULTS, TABLE, PAGE, PICTURE = ("results.jsonl", "table.md", "figure.html", "figure.png")
NONE = "none"  # the adapter of a model without one
SHARES = (16, 8, 4, 2, 1)  # tokens a step, where no steps are given


@dataclass(frozen=True)
class Combination:
    """One run of a sweep. `paced`: whether more steps would be another run; threshold decoders set their own pace."""

    task: str
    adapter: str
    plan: Plan
    paced: bool = True

    @property
    def sampler(self) -> Sampler:
        return self.plan.sampler

    @property
    def steps(self) -> int:
        return self.plan.steps

    @property
    def series(self) -> str:
        """What a figure joins by a line: a sampler over its steps, or over its options if it sets its own pace."""
        return repr(self.sampler) if self.paced else self.sampler.name

    @property
    def folder(self) -> Path:
        names = (self.task, self.adapter, repr(self.sampler), str(self.steps))
        return Path(RUNS, *map(file_name, names))

    def __str__(self) -> str:
        pace = f"{self.steps} step{'s' * (self.steps > 1)}" if self.paced else "its own pace"
        return f"{self.task}, {self.adapter}, {self.sampler!r}, {pace}"


def file_name(text: str) -> str:
    """A name for a folder that tells texts apart: a short hash stands for what no folder should be called."""
    plain = re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.") or "-"
    return (
        plain if plain == text and len(plain) <= 60 else f"{plain[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    )


def combine(
    tasks: Iterable[str],
    adapters: Sequence[str],
    samplers: Sequence[Sampler],
    steps: Callable[[str], Sequence[int]],
    plan: Callable[[str, Sampler, int], Plan],
) -> tuple[list[Combination], list[str]]:
    """All that can be run, and what cannot with the reason: a sampler that only reveals has no use for more steps than
    tokens. A sampler or a number of steps that fits nothing is refused. `steps` and `plan` are asked for each task."""
    found: list[Combination] = []
    fits: set[tuple[str, Sampler, int]] = set()
    reasons: dict[tuple[str, Sampler, int], str] = {}
    for task in tasks:
        plans: dict[Sampler, list[Plan]] = {sampler: [] for sampler in samplers}
        for sampler, own in plans.items():
            for count in steps(task):
                try:
                    own.append(plan(task, sampler, count))
                    fits.add((task, sampler, count))
                except ValueError as refused:
                    reasons[task, sampler, count] = str(refused)
            if own and not paced(own[0]):  # every number of steps would be the same walk
                own[:] = [plan(task, sampler, own[0].length)]
                reasons = {key: said for key, said in reasons.items() if key[:2] != (task, sampler)}
        for adapter in adapters:
            for own in plans.values():
                found += [Combination(task, adapter, one, paced(one)) for one in own]
    for which, name in ((1, "sampler"), (2, "number of steps")):
        for value in dict.fromkeys(key[which] for key in reasons):
            if not any(key[which] == value for key in fits):
                reason = next(said for key, said in reasons.items() if key[which] == value)
                raise ValueError(f"the {name} {value!r} fits nothing in this sweep: {reason}")
    left_out: dict[str, list[str]] = {}
    for (task, sampler, count), said in reasons.items():
        left_out.setdefault(f"{sampler!r} at {count} steps is left out: {said}", []).append(task)
    return found, [f"{', '.join(where)}: {said}" for said, where in left_out.items()]


def paced(plan: Plan) -> bool:
    """Whether the number of steps plays a part: threshold decoders set their own pace."""
    length, block = plan.length, plan.block
    fewest = length // (block or length)
    try:
        return plan.sampler.stages(length, length, block) != plan.sampler.stages(length, fewest, block)
    except ValueError:  # a number of steps it can be refused for plays a part
        return True


def default_steps(length: int, block: int | None) -> list[int]:
    """From 16 tokens a step to one, rounded up to what divides over the blocks."""
    blocks = max(1, length // block) if block and block > 0 else 1
    return list(dict.fromkeys(max(1, -(-length // (share * blocks))) * blocks for share in SHARES))


@dataclass(frozen=True)
class Questions:
    """A task's items and how they are asked."""

    task: Task
    items: Sequence[Item]
    chat: bool | None
    shots: int
    sandbox: str | None


@dataclass(frozen=True, eq=False)
class Sweep:
    """What all runs of a sweep share. `settings`: what a user asked for, without what may be added to later."""

    out: Path
    settings: dict[str, Any]
    questions: dict[str, Questions]
    model: str
    revision: str | None
    device: str | None
    dtype: str
    split: str
    subset: str
    seed: int
    batch_size: int
    workers: int | None
    overwrite: bool
    group: Processes
    through: Callable[[Model], Denoiser] | None = None  # what wraps the model where it is asked

    def todo(self, asked: Sequence[Combination]) -> list[Combination]:
        """What is not finished. Refused where the folder holds something else; nothing is written yet."""

        def left() -> list[int]:
            if not self.group.first:
                return []
            check_settings(self.out, self.settings, overwrite=self.overwrite)
            return [place for place, one in enumerate(asked) if self.overwrite or not self._finished(one)]

        return [asked[place] for place in self.group.gather(self.group.agree(left))[0]]

    def run(self, asked: Sequence[Combination], todo: Sequence[Combination], watcher: SweepWatcher) -> None:
        """All that is to do, adapter by adapter, so that each model is loaded once and no two are held."""
        for number, adapter in enumerate(dict.fromkeys(one.adapter for one in todo)):
            self._run(adapter, asked, todo, watcher, first=number == 0)

    def _run(
        self,
        adapter: str,
        asked: Sequence[Combination],
        todo: Sequence[Combination],
        watcher: SweepWatcher,
        *,
        first: bool,
    ) -> None:
        network = load(
            self.model, adapter=None if adapter == NONE else adapter, revision=self.revision, device=self.device,
            dtype=self.dtype,
        )  # fmt: skip
        if adapter != NONE:
            network = network.merged()  # an adapter beside each matrix takes longer
        mine = [one for one in asked if one.adapter == adapter]
        bases = {one.task: self._evaluation(network, one) for one in (todo if first else mine)}
        hashed = weights(network)
        cards = {one: self._card(bases[one.task], one, hashed) for one in mine if one.task in bases}
        finished = [one for one in (asked if first else mine) if one not in todo]
        self.group.agree(lambda: self._check(finished, cards))
        if first:
            watcher.announce(len(todo), *self._forecast(todo, bases))
            self.group.agree(self._settle)
        for one in mine:
            if one not in todo:
                continue
            evaluation = bases[one.task].under(one.plan)
            watcher.start(one, len(self._left(one, evaluation)))
            summary = score(
                evaluation, cards[one], self.out / one.folder, self.group, workers=self.workers, watcher=watcher,
                estimate=False,
            )  # fmt: skip
            watcher.finish(one, summary)

    def _settle(self) -> None:
        if self.group.first:
            settle(self.out, self.settings, overwrite=self.overwrite)

    def _evaluation(self, network: Model, one: Combination) -> Evaluation:
        asked = self.questions[one.task]
        whole = Evaluation(
            network, asked.task, asked.items, one.plan, self.seed, self.batch_size, asked.chat, through=self.through
        )
        len(whole.encoded)  # what the model cannot read is refused before anything is run
        return whole

    def _subject(self, one: Combination) -> dict[str, Any]:
        """What a card says of a run that can be told without the model."""
        file = {"sampler_file": one.sampler.source} if one.sampler.source else {}
        adapter = None if one.adapter == NONE else one.adapter
        return {
            "model": self.model, "revision": self.revision, "adapter": adapter, "sampler": repr(one.sampler),
            "steps": one.steps, **file,
        }  # fmt: skip

    def _card(self, base: Evaluation, one: Combination, hashed: str) -> Card:
        asked, known = self.questions[one.task], self._subject(one)
        evaluation = base.under(one.plan)
        return {
            "subject": subject(
                evaluation, model=self.model, adapter=known["adapter"], revision=self.revision, hashed=hashed
            ),
            "protocol": protocol(
                evaluation, split=self.split, subset=self.subset, shots=asked.shots, sandbox=asked.sandbox
            ),
        }

    def _finished(self, one: Combination) -> bool:
        """Whether its run is there; refused if it is one of another subject."""
        folder = self.out / one.folder
        if not (folder / ITEMS).is_file():
            return False
        known = {name: value for name, value in read_card(folder)["subject"].items() if name != "fingerprint"}
        same(folder, differing(known, self._subject(one)))
        return True

    def _check(self, finished: Sequence[Combination], cards: dict[Combination, Card]) -> None:
        """That finished runs are what would be run now: same weights, where these are loaded; same machine, packages
        and questions for all."""
        protocols = {one.task: card["protocol"] for one, card in cards.items()}
        for one in finished if self.group.first else ():
            folder = self.out / one.folder
            card = read_card(folder)
            if one.task in protocols:
                same(folder, differing(card["protocol"], protocols[one.task]))
            if one in cards:
                same(folder, differing(card["subject"], cards[one]["subject"]))

    def _left(self, one: Combination, evaluation: Evaluation) -> list[list[int]]:
        done = set() if self.overwrite else begun(self.out / one.folder)
        return evaluation.left(done, self.group.rank, self.group.world)

    def _forecast(self, todo: Sequence[Combination], bases: dict[str, Evaluation]) -> tuple[Forecast, int]:
        """What all will take, from a trial of each sampler on each task, and how many steps of batches at most."""
        batches = calls = steps = 0
        seconds, paces = 0.0, {}
        for one in todo:
            evaluation = bases[one.task].under(one.plan)
            left = self._left(one, evaluation)
            stages = one.sampler.stages(one.plan.length, one.steps, one.plan.block)
            trial = (one.task, one.sampler)
            if trial not in paces and left:
                found = evaluation.forecast(left)
                paces[trial] = found.seconds / found.calls
            own = len(left) * evaluation.calls
            batches, calls, steps = batches + len(left), calls + own, steps + len(left) * sum(s.steps for s in stages)
            seconds += own * paces.get(trial, 0.0)
        return Forecast(batches, calls, seconds), steps


# --- the folder ---


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold the folder of a sweep, and refuse one that another process holds. The lock ends with its process, however
    that ends."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: give --out the name of a folder")
    out.mkdir(parents=True, exist_ok=True)
    folder = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is at work in {out}: wait for it, or give another --out") from None
        try:
            yield
        finally:
            with suppress(OSError):  # a sweep that was refused leaves no empty folder
                out.rmdir()
    finally:
        os.close(folder)


def check_settings(out: Path, settings: dict[str, Any], *, overwrite: bool) -> None:
    """Refuse a folder that holds another sweep, or something else: runs of others are never mixed in."""
    path = out / SETTINGS
    if not path.exists() and (out / RUNS).exists():
        raise ValueError(f"{out} has a folder {RUNS} that is no sweep's: give another --out")
    if not path.exists() or overwrite:
        return
    try:
        before = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise ValueError(f"{path} is damaged: give another --out, or --overwrite to start anew") from None
    if between := differing(before, json.loads(json.dumps(settings))):
        said = "; ".join(f"{name} ({one!r} and {other!r})" for name, (one, other) in between.items())
        raise ValueError(
            f"{out} holds a sweep with other settings: {said}. Tasks, adapters, samplers and steps may be added; "
            "for the rest give another --out, or --overwrite to start anew"
        )


def settle(out: Path, settings: dict[str, Any], *, overwrite: bool) -> None:
    """Make the folder this sweep's."""
    path = out / SETTINGS
    if overwrite and path.exists():
        shutil.rmtree(out / RUNS, ignore_errors=True)
        for name in MADE:
            (out / name).unlink(missing_ok=True)
    if overwrite or not path.exists():
        replace(path, (json.dumps(settings, indent=1, ensure_ascii=False) + "\n").encode())


def same(folder: Path, between: dict[str, tuple[Any, Any]]) -> None:
    if between:
        said = "; ".join(f"{name} ({one!r}, now {other!r})" for name, (one, other) in between.items())
        raise ValueError(f"{folder} was run otherwise: {said}. Give another --out, or --overwrite to start anew")
