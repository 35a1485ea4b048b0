"""Items in, graded records out: batches of prompts of like length, decoded one after the other, graded as they finish.

    records = evaluate(model, task, task.items(count=200), Plan.of("d3im", length=64, steps=16))

The batches are formed from the whole list of items before any is skipped or given to another process, and an item's
seed comes from its place in the list: neither an interruption nor the number of processes can change an answer.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from os import cpu_count
from typing import TYPE_CHECKING, NamedTuple

import torch

from redraft.decoding import Canvas, Denoiser, Step, derive
from redraft.evals.changes import Changes, count_changes
from redraft.evals.task import Grade, Item, Task
from redraft.generation import Answer, Batch, Plan, Prompt, Tally, encode_all

if TYPE_CHECKING:
    from redraft.models import Model

BATCH_SIZE = 32


@dataclass(frozen=True)
class Record:
    """What became of one item: all that any number about it can be computed from."""

    index: int
    id: str
    correct: bool
    verdict: str
    extracted: str | None
    filters: dict[str, bool]  # whether it is correct under each of the task's filters; empty where it has none
    response: str  # cut at the first end token and at the first of the task's stop strings
    ids: list[int]  # the whole response
    prompt_hash: str  # of what was asked, before any template
    prompt_tokens: int
    first_eos: int  # where the first end token stands, and so the number of new tokens; the length if there is none
    calls: int
    processed: int  # tokens that went through the model, padding not counted
    reveals: int
    overwrites: int
    demotions: int
    oscillations: int


class Graded(NamedTuple):
    """A finished batch."""

    records: list[Record]
    seconds: float  # of decoding


class Forecast(NamedTuple):
    batches: int
    calls: int  # at most
    seconds: float  # if every batch takes as long as its tokens say


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model, a plan and the items of a task. `filter`: which of the task's filters says what is correct."""

    model: Model
    task: Task
    items: Sequence[Item]
    plan: Plan
    seed: int = 0
    batch_size: int = BATCH_SIZE
    chat: bool | None = None  # whether prompts go through the chat template; None is as the task says
    filter: str | None = None  # None is the task's first
    through: Callable[[Model], Denoiser] | None = None  # what wraps the model where it is asked

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"the batch size is at least 1, not {self.batch_size}")
        if self.filter is not None and self.filter not in self.task.filters:
            have = f"it has {', '.join(self.task.filters)}" if self.task.filters else "it has none"
            raise ValueError(f"the task {self.task.name!r} has no filter {self.filter!r}: {have}")

    @cached_property
    def encoded(self) -> list[list[int]]:
        chat = self.task.chat if self.chat is None else self.chat
        return encode_all(self.model, self.prompts, length=self.plan.length, chat=chat)

    def under(self, plan: Plan) -> Evaluation:
        """The same items under another plan. What is encoded need not be encoded again."""
        other = replace(self, plan=plan)
        if plan.length == self.plan.length:
            vars(other)["encoded"] = self.encoded
        return other

    @property
    def prompts(self) -> list[Prompt]:
        return [item.prompt for item in self.items]

    @cached_property
    def batches(self) -> list[list[int]]:
        """Places in the list of items."""
        return buckets(self.encoded, self.batch_size)

    def left(self, done: Collection[int], rank: int = 0, world: int = 1) -> list[list[int]]:
        """The batches that are not all done, or every world-th of them; where an item is missing, all are decoded."""
        return [batch for batch in self.batches if any(index not in done for index in batch)][rank::world]

    def canvas(self, batch: list[int]) -> Canvas:
        return Canvas.of(
            [self.encoded[index] for index in batch],
            self.plan.length,
            mask_id=self.model.mask_id,
            pad_id=self.model.pad_id,
            seeds=[derive(self.seed, index) for index in batch],
            device=self.model.device,
        )

    @property
    def calls(self) -> int:
        """Of the model for a batch, at most."""
        plan = self.plan
        return plan.sampler.calls(plan.length, plan.steps, plan.block) * (2 if plan.reading.guidance > 0 else 1)

    def forecast(self, batches: list[list[int]]) -> Forecast:
        """What some batches will take, from the second of two trials of the first one's first step."""
        plan, model = self.plan, self.model
        if not batches:
            return Forecast(0, 0, 0.0)
        calls = self.calls
        canvas, spent = self.canvas(batches[0]), []
        for _ in range(2):
            started = time.perf_counter()
            step = next(plan.walk(model, canvas))
            step.after.tokens.sum().item()  # what runs on a GPU has then been run
            spent.append((time.perf_counter() - started) / step.calls)
        sizes = [len(batch) * (len(self.encoded[batch[0]]) + plan.length) for batch in batches]
        return Forecast(len(batches), calls * sum(map(len, batches)), calls * spent[1] * sum(sizes) / sizes[0])

    def run(
        self,
        batches: list[list[int]] | None = None,
        *,
        workers: int | None = None,
        watch: Callable[[Step], None] = lambda step: None,
    ) -> Iterator[Graded]:
        """Decode some batches, or all, and grade them meanwhile; where the task runs code, `workers` at a time (one a
        processor). `watch` is shown every step.
        """
        threads = (workers or cpu_count() or 1) if self.task.runs_code else 1
        denoiser = None if self.through is None else self.through(self.model)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="grade")
        waiting: deque[Waiting] = deque()
        try:
            for batch in self.batches if batches is None else batches:
                started = time.perf_counter()
                canvas = self.canvas(batch)
                tally, states = Tally(Batch(batch, canvas)), [canvas.response.int()]
                for step in self.plan.walk(self.model, canvas, denoiser=denoiser):
                    tally.add(step)
                    states.append(tally.canvas.response.int())
                    watch(step)
                    while waiting and waiting[0].done:  # written before the next batch is through
                        yield self._graded(waiting.popleft())
                answers = tally.answers(self.model, self.prompts)
                changes = count_changes(torch.stack(states), self.model.mask_id)
                seconds = time.perf_counter() - started
                texts = [cut(answer.text, self.task.until) for answer in answers]
                grades = [
                    pool.submit(self._grade, text, self.items[index].gold)
                    for index, text in zip(batch, texts, strict=True)
                ]
                waiting.append(Waiting(answers, texts, changes, grades, seconds))
            while waiting:
                yield self._graded(waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _grade(self, response: str, gold: object) -> dict[str | None, Grade]:
        return {
            name: self.task.grade(response, gold, **({} if name is None else {"filter": name}))
            for name in self.task.filters or (None,)
        }

    def _graded(self, batch: Waiting) -> Graded:
        chosen = self.filter or next(iter(self.task.filters), None)
        records = []
        for answer, text, changes, future in zip(batch.answers, batch.texts, batch.changes, batch.grades, strict=True):
            grades, index = future.result(), answer.index
            grade = grades[chosen]
            records.append(
                Record(
                    index=index,
                    id=self.items[index].id,
                    correct=grade.correct,
                    verdict=grade.verdict,
                    extracted=grade.extracted,
                    filters={name: one.correct for name, one in grades.items() if name is not None},
                    response=text,
                    ids=answer.ids,
                    prompt_hash=hash_of(answer.prompt),
                    prompt_tokens=len(self.encoded[index]),
                    first_eos=answer.first_eos,
                    calls=answer.calls,
                    processed=answer.processed,
                    **changes._asdict(),
                )
            )
        return Graded(records, batch.seconds)


class Waiting(NamedTuple):
    """A decoded batch whose grades are on their way."""

    answers: list[Answer]
    texts: list[str]
    changes: list[Changes]
    grades: list[Future[dict[str | None, Grade]]]
    seconds: float

    @property
    def done(self) -> bool:
        return all(future.done() for future in self.grades)


def evaluate(
    model: Model,
    task: Task,
    items: Sequence[Item],
    plan: Plan,
    *,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
    chat: bool | None = None,
    filter: str | None = None,
    workers: int | None = None,
) -> list[Record]:
    """The records of some items, in their order."""
    whole = Evaluation(model, task, items, plan, seed, batch_size, chat, filter)
    found = [record for batch in whole.run(workers=workers) for record in batch.records]
    return sorted(found, key=lambda record: record.index)


def buckets(encoded: Sequence[Sequence[int]], batch_size: int) -> list[list[int]]:
    """Batches of prompts of like length, the longest first: what does not fit is noticed at once."""
    order = sorted(range(len(encoded)), key=lambda index: (-len(encoded[index]), index))
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def cut(text: str, until: Sequence[str]) -> str:
    """Text up to the first of some stop strings."""
    return text[: min((place for stop in until if (place := text.find(stop)) >= 0), default=len(text))]


def hash_of(thing: object) -> str:
    """Sixteen digits that only equal JSON has."""
    spelt = json.dumps(thing, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(spelt.encode("utf-8", "surrogatepass")).hexdigest()[:16]
