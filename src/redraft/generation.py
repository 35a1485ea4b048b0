"""From prompts to answers: where a model, a sampler and a reading meet.

`generate` is the whole of it for most users; `Plan` and `batches` are its parts, for callers who watch or record steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from redraft.decoding import Canvas, Denoiser, Reading, Sampler, Step, derive, walk
from redraft.samplers import parse

if TYPE_CHECKING:
    from redraft.models import Model

Prompt = str | list[dict[str, str]]  # plain text, or chat messages with "role" and "content"
MOST = 1_000_000  # tokens or steps: no model reads more, nobody waits longer, and plans of them fill the memory


@dataclass(frozen=True)
class Plan:
    """How to decode: everything but the model and the prompts. Checked when it is made, before anything is loaded."""

    sampler: Sampler
    length: int
    steps: int
    block: int | None = None
    reading: Reading = Reading()

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("steps", self.steps)):
            if value > MOST:
                raise ValueError(f"{name} is at most {MOST:,}, not {value:,}")
        self.sampler.stages(self.length, self.steps, self.block)

    @classmethod
    def of(
        cls,
        sampler: str | Sampler = "d3im",
        *,
        length: int,
        steps: int | None = None,
        block: int | None = None,
        steps_per_block: int | None = None,
        reading: Reading | None = None,
    ) -> Plan:
        """A plan from what a user says: steps for the whole response, or for each block."""
        rule = parse(sampler) if isinstance(sampler, str) else sampler
        if (steps is None) == (steps_per_block is None):
            raise ValueError("give the number of steps once: for the whole response (steps) or for each block")
        if steps is None:
            assert steps_per_block is not None
            steps = steps_per_block * max(1, length // max(1, block or length))
        return cls(rule, length, steps, block, reading or Reading(eos=rule.eos))

    @property
    def notes(self) -> list[str]:
        """What is allowed but may not be what was meant."""
        stages = self.sampler.stages(self.length, self.steps, self.block)
        settled = {
            "temperature": all("temperature" in stage.reading for stage in stages),
            "rank": self.sampler.own_rank,
        }
        found = [
            f"{option} changes nothing here: {self.sampler!r} has a way of its own"
            for option, own in settled.items()
            if own and getattr(self.reading, option) != getattr(Reading(), option)
        ]
        window = self.block or self.length
        each = self.steps // (self.length // window)
        if each > window:
            found.append(
                f"{each} steps for {window} tokens: the schedule keeps fewer than one new token a step, "
                f"and the first steps may keep none ({self.sampler!r} revises, so this is allowed)"
            )
        return found

    def walk(
        self, model: Model, canvas: Canvas, *, after: Step | None = None, denoiser: Denoiser | None = None
    ) -> Iterator[Step]:
        """`denoiser`: a wrapper round the model that is asked in its place."""
        reading = self.reading if self.reading.eos_ids else replace(self.reading, eos_ids=model.eos_ids)
        denoiser = model if denoiser is None else denoiser
        return walk(denoiser, canvas, self.sampler, steps=self.steps, block=self.block, reading=reading, after=after)


@dataclass(frozen=True)
class Answer:
    """One finished response."""

    index: int
    prompt: Prompt
    text: str  # cut at the first end token
    ids: list[int]  # the whole response
    first_eos: int  # where the first end token stands; the response's length if there is none
    calls: int
    processed: int  # tokens that went through the model, padding not counted


class Batch(NamedTuple):
    indices: list[int]
    canvas: Canvas


def batches(
    model: Model,
    prompts: Sequence[Prompt],
    *,
    length: int,
    seed: int = 0,
    batch_size: int = 16,
    chat: bool = True,
) -> Iterator[Batch]:
    """Canvases for the prompts, in order. A prompt's seed comes from its place in the list, not from its batch."""
    if batch_size < 1:
        raise ValueError(f"batch_size is at least 1, not {batch_size}")
    encoded = encode_all(model, prompts, length=length, chat=chat)
    for first in range(0, len(prompts), batch_size):
        indices = list(range(first, min(first + batch_size, len(prompts))))
        yield Batch(
            indices,
            Canvas.of(
                [encoded[index] for index in indices],
                length,
                mask_id=model.mask_id,
                pad_id=model.pad_id,
                seeds=[derive(seed, index) for index in indices],
                device=model.device,
            ),
        )


def encode_all(model: Model, prompts: Sequence[Prompt], *, length: int, chat: bool) -> list[list[int]]:
    """Prompts as tokens, with those refused that the model cannot read."""
    check_prompts(prompts)
    encoded = []
    for index, prompt in enumerate(prompts):
        which = _which(index, prompts)
        ids = model.encode(prompt, chat=chat)
        if len(ids) + length > model.context:
            raise ValueError(
                f"{which} has {len(ids)} tokens, and {length} more are to be written, but {model.name} reads at most "
                f"{model.context}: shorten the prompt or the length"
            )
        if unknown := model.unknown_words(ids, prompt):
            raise ValueError(f"{which} has {unknown}")
        encoded.append(ids)
    return encoded


def check_prompts(prompts: Sequence[Prompt]) -> None:
    """What can be refused without a model."""
    if not prompts:
        raise ValueError("there is no prompt")
    for index, prompt in enumerate(prompts):
        text = prompt if isinstance(prompt, str) else " ".join(str(message.get("content", "")) for message in prompt)
        if not text.strip():
            raise ValueError(f"{_which(index, prompts)} is empty: write something for the model to answer")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{_which(index, prompts)} is not Unicode text: write it in UTF-8")


def _which(index: int, prompts: Sequence[Prompt]) -> str:
    return "the prompt" if len(prompts) == 1 else f"prompt {index + 1}"


class Tally:
    """What a batch has cost so far, and where it stands; enough to make answers of without keeping the steps."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.canvas = batch, batch.canvas
        self.calls = [0] * len(batch.indices)
        self.processed = [0] * len(batch.indices)

    def add(self, step: Step) -> None:
        self.canvas = step.result
        for row, calls, tokens in zip(step.rows.tolist(), step.each.tolist(), step.processed.tolist(), strict=True):
            self.calls[row] += calls
            self.processed[row] += tokens

    def answers(self, model: Model, prompts: Sequence[Prompt]) -> list[Answer]:
        found = []
        for row, index in enumerate(self.batch.indices):
            ids = self.canvas.response[row].tolist()
            end = next((place for place, token in enumerate(ids) if token in model.eos_ids), len(ids))
            text = model.decode(ids)
            found.append(Answer(index, prompts[index], text, ids, end, self.calls[row], self.processed[row]))
        return found


def generate(
    model: Model,
    prompts: Prompt | Sequence[Prompt],
    sampler: str | Sampler = "d3im",
    *,
    length: int,
    steps: int | None = None,
    block: int | None = None,
    steps_per_block: int | None = None,
    seed: int = 0,
    reading: Reading | None = None,
    batch_size: int = 16,
    chat: bool = True,
) -> list[Answer]:
    """Answer prompts: one text, one conversation (messages with role and content), or a list of either.

    `chat=False` continues plain text; `reading` sets temperature, EOS policy and the like.
    """
    prompts = _listed(prompts)
    plan = Plan.of(sampler, length=length, steps=steps, block=block, steps_per_block=steps_per_block, reading=reading)
    for note in plan.notes:
        warnings.warn(note, stacklevel=2)
    found: list[Answer] = []
    for batch in batches(model, prompts, length=length, seed=seed, batch_size=batch_size, chat=chat):
        tally = Tally(batch)
        for step in plan.walk(model, batch.canvas):
            tally.add(step)
        found += tally.answers(model, prompts)
    return found


def _listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of prompts, also if there is only one, or one conversation."""
    if isinstance(prompts, str):
        return [prompts]
    given: list[Any] = list(prompts)
    return [given] if given and isinstance(given[0], dict) else given
