"""A batch while `generate` writes it: what is settled, what the streamer has seen, who has stopped, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteriaList
from transformers.utils.generic import ModelOutput

from redraft.decoding import Canvas, Stage, Step
from redraft.generation import Batch, Tally
from redraft.models import Model
from redraft.shapes import Bool, Float, Int


@dataclass
class RedraftGenerationOutput(ModelOutput):
    """What `generate` returns; rows are those of `input_ids`."""

    sequences: Int[Tensor, "b n"] | None = None  # prompts as they were given, and the responses
    tokens_per_forward: Float[Tensor, " b"] | None = None  # tokens before the first end token, by denoiser calls
    calls: Int[Tensor, " b"] | None = None  # denoiser calls of each row
    processed: Int[Tensor, " b"] | None = None  # tokens that went through the model, padding not counted
    first_eos: Int[Tensor, " b"] | None = None  # where in the response the first end token stands; its length if none
    history: tuple[Int[Tensor, "b l"], ...] | None = None  # with output_history, the response after every step


class Answering:
    """A batch while it is written: what is settled, what the streamer has seen, who has stopped."""

    def __init__(
        self,
        model: Model,
        canvas: Canvas,
        settled: list[int],
        streamer: Any,
        criteria: Sequence[Callable[..., Tensor]],
        chosen: dict[str, Any],
    ) -> None:
        self.model, self.canvas, self.settled, self.streamer, self.chosen = model, canvas, settled, streamer, chosen
        self.criteria = StoppingCriteriaList(criteria)
        self.drafts = getattr(streamer, "put_draft", None)
        if self.drafts and getattr(streamer, "_takes_logits", False):
            raise ValueError(
                "this streamer asks for the logits of drafts, which are not kept: use one that takes tokens"
            )
        rows = len(canvas.tokens)
        self.tally = Tally(Batch(list(range(rows)), canvas))
        self.stopped = torch.zeros(rows, dtype=torch.bool, device=canvas.tokens.device)
        self.ends = torch.full((rows,), canvas.length)  # where each row stops
        self.costs: dict[int, tuple[int, int]] = {}  # calls and tokens of the rows that stopped
        self.stage, self.upto = 0, 0
        self.history: list[Tensor] = []

    @property
    def response(self) -> Int[Tensor, "b l"]:
        """As it is handed out: after the end of a row that stopped, and on wish after its end token, padding."""
        response = self.tally.canvas.response.clone()
        columns = torch.arange(response.shape[1], device=response.device)
        after = columns >= self.ends.to(response.device)[:, None]
        if self.chosen["pad_after_eos"]:
            after = after | (columns > first_end(response, self.model.eos_ids)[:, None])
        return response.masked_fill(after, self.model.pad_id)

    def turn(self, stage: int) -> bool:
        """On to this stage: what no later one can change is settled. True if every row has stopped."""
        if stage > self.stage:
            self.settle(self.settled[stage - 1])
            self.stage = stage
        return bool(self.criteria) and bool(self.stopped.all())

    def settle(self, upto: int) -> None:
        if upto <= self.upto or bool(self.stopped.all()):
            return
        if self.streamer is not None:
            self.streamer.put(self.response[:, self.upto : upto].cpu())
        fresh, self.upto = upto - self.upto, upto
        if self.criteria:
            tokens = self.tally.canvas.tokens[:, : self.canvas.start + upto]
            now = self.criteria(tokens, None, new_token_length=fresh).to(self.stopped.device) & ~self.stopped  # type: ignore[arg-type]
            for row in now.nonzero().flatten().tolist():
                self.ends[row] = upto
                self.costs[row] = (self.tally.calls[row], self.tally.processed[row])
            self.stopped = self.stopped | now

    def add(self, step: Step, stop: int) -> None:
        self.tally.add(step)
        if self.drafts:
            self.drafts(value=self.response[:, self.upto : stop].cpu())
        if self.chosen["output_history"]:
            self.history.append(self.response.cpu())

    def output(self, input_ids: Tensor, attend: Bool[Tensor, "b n"]) -> RedraftGenerationOutput | Tensor:
        response = self.response[:, : self.upto].to(input_ids.device)
        written = self.tally.canvas.tokens[:, : self.canvas.start].to(input_ids.device)  # by some samplers, on wish
        prompt = input_ids.clone()
        prompt[:, prompt.shape[1] - self.canvas.start :] = written
        sequences = torch.cat([torch.where(attend.to(input_ids.device), prompt, input_ids), response], dim=-1)
        if not self.chosen["return_dict_in_generate"]:
            return sequences
        costs = [
            self.costs.get(row, cost)
            for row, cost in enumerate(zip(self.tally.calls, self.tally.processed, strict=True))
        ]
        calls, processed = torch.tensor(costs).T
        first = torch.minimum(first_end(response, self.model.eos_ids).cpu(), self.ends)
        return RedraftGenerationOutput(
            sequences=sequences,
            tokens_per_forward=first / calls,
            calls=calls,
            processed=processed,
            first_eos=first,
            history=tuple(self.history) if self.chosen["output_history"] else None,
        )


def settled_columns(stages: Sequence[Stage], length: int) -> list[int]:
    """After each stage, how much of the response no later stage can write to."""
    found, bound = [], length
    for stage in reversed(stages):
        found.append(bound)
        bound = min(bound, stage.start if stage.window == "block" else 0)
    return found[::-1]


def first_end(response: Int[Tensor, "b l"], eos_ids: tuple[int, ...]) -> Int[Tensor, " b"]:
    """The column of each row's first end token, or the length."""
    hit = torch.isin(response, torch.tensor(eos_ids, device=response.device))
    return torch.where(hit.any(-1), hit.int().argmax(-1), response.shape[1])
