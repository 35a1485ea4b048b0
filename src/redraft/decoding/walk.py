"""The one loop. `walk` carries a canvas through a sampler's stages and yields every step it takes.

Terminal, viewer, server and diagnostics all read the same `Step`s; a walk can go on from any of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from redraft.decoding.canvas import Block, Canvas, Memory
from redraft.decoding.clock import Clock
from redraft.decoding.noise import counter_uniform, stream_number
from redraft.decoding.reading import Prediction, Reading, predict
from redraft.decoding.sampler import Sampler, Stage
from redraft.shapes import Bool, Float, Int

# Token ids and their weights, in place of hard tokens; with True, mixtures as long as their parts are on average.
Soft = tuple[Int[Tensor, "b w k"], Float[Tensor, "b w k"]] | tuple[Int[Tensor, "b w k"], Float[Tensor, "b w k"], bool]


@runtime_checkable
class Denoiser(Protocol):
    """Any model: tokens in, logits of the wanted columns out."""

    def __call__(
        self,
        tokens: Int[Tensor, "b n"],
        *,
        attend: Tensor | None = None,  # bool: [b, n] (which keys exist) or [b, n, n] (query, key)
        positions: Int[Tensor, "b n"] | None = None,
        columns: slice = slice(None),
    ) -> Float[Tensor, "b w v"]: ...


class SoftDenoiser(Protocol):
    """A model that also takes mixtures of tokens at `columns`; only samplers with soft inputs need one."""

    def __call__(
        self,
        tokens: Int[Tensor, "b n"],
        *,
        attend: Tensor | None = None,
        positions: Int[Tensor, "b n"] | None = None,
        columns: slice = slice(None),
        soft: Soft | None = None,
    ) -> Float[Tensor, "b w v"]: ...


class Step(NamedTuple):
    """One step of a walk, and everything needed to go on from it."""

    stage: int
    clock: Clock
    start: int  # the window's first column
    canvas: Canvas  # before this stage: the window of `before` and `after` lies on it
    before: Block
    predictions: tuple[Prediction, ...]  # of the rows in `rows`, logits forgotten
    after: Block
    rows: Int[Tensor, " r"]  # the rows that took this step; the others had finished
    calls: int  # denoiser calls, of the row that needed most
    each: Int[Tensor, " r"]  # of each of those rows
    processed: Int[Tensor, " r"]  # tokens that went through the model for each of them, padding not counted

    @property
    def result(self) -> Canvas:
        """The whole canvas after this step."""
        return self.canvas.place(self.after, self.start)


def walk(
    denoiser: Denoiser,
    canvas: Canvas,
    sampler: Sampler,
    *,
    steps: int,
    block: int | None = None,
    reading: Reading | None = None,
    after: Step | None = None,
    max_calls: int | None = None,
) -> Iterator[Step]:
    """Decode `canvas`, yielding each step; the last step's `result` is the answer.

    `after` goes on from a step of an earlier walk with the same arguments, edited or not. `max_calls` stops once a row
    has had so many denoiser calls, to be gone on from later. After a stage's last step whatever is still masked takes
    its last prediction (the paper's final-step accept), so no sampler need see to that.
    """
    reading = Reading(eos=sampler.eos) if reading is None else reading
    first, spent = 0, 0
    if after is not None:
        canvas, first = after.canvas, after.stage
    plan = sampler.stages(canvas.length, steps, block)
    memory: Memory = None
    for number in range(first, len(plan)):
        stage = plan[number]
        own = canvas.start + stage.start
        start = {"block": own, "response": canvas.start, "canvas": 0}[stage.window]
        if after is not None and number == after.stage:
            now, taken = after.after, int(after.clock.step.max())
        else:
            now, taken = stage.rule.begin(canvas.window(own, canvas.start + stage.stop, start).remember(memory)), 0
        for tick in range(taken + 1, stage.steps + 1):
            live = _unfinished(stage.rule, now, canvas)
            if len(live) == 0:
                break
            clock = Clock.at(tick, stage.steps, number, len(now.tokens), now.tokens.device)
            step = _take(denoiser, canvas, stage, start, now, clock, live, reading, last=tick == stage.steps)
            now = step.after
            yield step
            spent += step.calls
            if max_calls is not None and spent >= max_calls:
                return
        canvas, memory = canvas.place(now, start), now.memory


def _unfinished(rule: Sampler, block: Block, canvas: Canvas) -> Int[Tensor, " r"]:
    """The rows that still need steps in this stage."""
    done = rule.done(block)
    if done is None and canvas.pinned is None:
        return torch.arange(len(block.tokens), device=block.tokens.device)
    idle = ~block.active[:, block.own :].any(-1)
    return (~(idle if done is None else idle | done)).nonzero().squeeze(-1)


def _take(
    denoiser: Denoiser,
    canvas: Canvas,
    stage: Stage,
    start: int,
    now: Block,
    clock: Clock,
    live: Int[Tensor, " r"],
    reading: Reading,
    last: bool,
) -> Step:
    whole = len(live) == len(now.tokens)
    block, seen, ticks = (now, canvas, clock) if whole else (now.rows(live), canvas.rows(live), clock.rows(live))
    denoise = Denoise(denoiser, seen, block, ticks, start, replace(reading, **stage.reading))
    stepped = stage.rule.step(denoise, block, ticks)
    if last:
        assert denoise.predictions, f"{stage.rule!r} took its last step without a prediction"
        stepped = stepped.write(torch.where(stepped.masked, denoise.predictions[-1].tokens, stepped.tokens))
    after = stepped if whole else now.put_rows(live, stepped)
    predictions = tuple(prediction.forget() for prediction in denoise.predictions)
    costs = (denoise.calls, denoise.each, denoise.processed)
    return Step(clock.stage, clock, start, canvas, now, predictions, after, live, *costs)


class Denoise:
    """The model as a step sees it: the window's tokens in, a `Prediction` out, every call metered.

    It puts the window in its context, applies guidance and the reading, and keeps what it predicted for the record.
    """

    def __init__(
        self, denoiser: Denoiser, canvas: Canvas, block: Block, clock: Clock, start: int, reading: Reading
    ) -> None:
        self.denoiser, self.canvas, self.block, self.clock, self.reading = denoiser, canvas, block, clock, reading
        self.columns = slice(start, start + block.tokens.shape[1])
        self.predictions: list[Prediction] = []
        self.calls = 0
        self.each, self.processed = torch.zeros_like(block.seeds), torch.zeros_like(block.seeds)

    def __call__(self, tokens: Int[Tensor, "b w"], *, prefix: bool = False, soft: Soft | None = None) -> Prediction:
        """Predict the window given `tokens` in it. `prefix`: nothing right of the window is seen. `soft`: mixtures of
        tokens in place of the window's embeddings."""
        canvas = self.canvas.place(replace(self.block, tokens=tokens), self.columns.start)
        reach = slice(None, self.columns.stop if prefix else None)
        attend, positions = (None if whole is None else whole[:, reach] for whole in (canvas.attend, canvas.positions))
        context = {"attend": attend, "positions": positions, "columns": self.columns, "soft": soft}
        return self.read(self.look(canvas.tokens[:, reach], given=canvas.given[:, reach], **context))

    def read(self, logits: Float[Tensor, "b w v"], *, aside: bool = False) -> Prediction:
        """Logits of the window as a `Prediction`, kept for the record unless it is an `aside` (a shadow's, say)."""
        final, mask_id = self.clock.final, self.block.mask_id
        noise = partial(self._noise, len(self.predictions))
        prediction = predict(logits, self.reading, mask_id=mask_id, final=final, noise=noise)
        if not aside:
            self.predictions.append(prediction)
        return prediction

    def _noise(self, call: int, stream: str, size: tuple[int, ...]) -> Tensor:
        return uniform(self.block, self.clock, f"{stream}.{call}", size)

    @torch.no_grad()
    def look(
        self,
        tokens: Int[Tensor, "b m"],
        *,
        attend: Bool[Tensor, "b m"] | Bool[Tensor, "b m m"] | None = None,
        positions: Int[Tensor, "b m"] | None = None,
        columns: slice = slice(None),
        soft: Soft | None = None,
        given: Bool[Tensor, "b m"] | None = None,
        live: Bool[Tensor, " b"] | None = None,
    ) -> Float[Tensor, "b c v"]:
        """Logits of any sequence under any attention: for shadow blocks and auxiliary passes. Metered too.

        Raw, unless it is said what guidance is to hide: `given`. Rows that are not `live` cost nothing; theirs are 0.
        """
        if given is not None and self.reading.guidance > 0:  # LLaDA's guidance: what the prompt adds, exaggerated
            context = {"attend": attend, "positions": positions, "columns": columns, "soft": soft, "live": live}
            clear = self.look(tokens, **context)
            blind = self.look(torch.where(given, self.block.mask_id, tokens), **context)
            return blind + (self.reading.guidance + 1) * (clear - blind)
        if live is not None and not live.all():
            assert soft is None, "soft inputs are those of all rows"
            rows = live.nonzero().squeeze(-1)
            attend, positions = (one if one is None else one[rows] for one in (attend, positions))
            logits = self._ask(tokens[rows], rows, attend=attend, positions=positions, columns=columns)
            return logits.new_zeros(len(live), *logits.shape[1:]).index_copy(0, rows, logits)
        rows = torch.arange(len(tokens), device=tokens.device)
        return self._ask(tokens, rows, attend=attend, positions=positions, columns=columns, soft=soft)

    def _ask(
        self, tokens: Tensor, rows: Tensor, *, attend: Tensor | None, soft: Soft | None = None, **context: Any
    ) -> Tensor:
        """The denoiser's answer for some rows, and what it cost them."""
        self.calls += 1
        self.each = self.each.index_add(0, rows, torch.ones_like(rows))
        # what no query sees is padding
        seen = None if attend is None else (attend if attend.ndim == 2 else attend.any(1)).sum(-1)
        self.processed = self.processed.index_add(
            0, rows, torch.full_like(rows, tokens.shape[1]) if seen is None else seen
        )
        if soft is None:
            return self.denoiser(tokens, attend=attend, **context)
        return cast(SoftDenoiser, self.denoiser)(tokens, attend=attend, soft=soft, **context)


def uniform(block: Block, clock: Clock, stream: str, size: tuple[int, ...] | None = None) -> Float[Tensor, "b ..."]:
    """Noise from (row seed, stage, step, stream): a row alone draws what it draws in any batch. Size: the window's.

    A window's noise is counted from the response's first column, so that a longer prompt beside it changes nothing.
    """
    width = block.tokens.shape[1]
    size = (width,) if size is None else size
    before = block.lead * math.prod(size[1:]) if size[:1] == (width,) else 0
    counters = (clock.stage, clock.step.squeeze(-1), stream_number(stream))
    return counter_uniform(block.seeds, counters, size, first=-before)
