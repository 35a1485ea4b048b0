"""What is being written: the `Canvas` (prompt and response of every row), the `Block` (the window a sampler sees)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from redraft.shapes import Bool, Int

Memory = Any  # what a sampler keeps between steps: None, a tensor [b, ...], or tuples and dicts of them


@dataclass(frozen=True)
class Canvas:
    """Prompts, left-padded so that every answer starts at column `start`, and the response after it.

    The prompt is a range of columns, never a test for the mask id: a prompt that holds the mask's text stays a prompt.
    """

    tokens: Int[Tensor, "b n"]
    start: int
    mask_id: int
    seeds: Int[Tensor, " b"]
    attend: Bool[Tensor, "b n"] | None = None  # False on padding; None where nothing is padded
    pinned: Bool[Tensor, "b n"] | None = None  # response positions given by the caller, which no sampler may touch

    @classmethod
    def of(
        cls,
        prompts: Sequence[Sequence[int]],
        length: int,
        *,
        mask_id: int,
        pad_id: int,
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> Canvas:
        """A fresh canvas: prompts of any lengths, `length` masks after each."""
        assert len(prompts) == len(seeds), "one seed a prompt"
        start = max(map(len, prompts))
        tokens = torch.full((len(prompts), start + length), mask_id)
        attend = torch.ones_like(tokens, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            pad = start - len(prompt)
            tokens[row, :pad] = pad_id
            attend[row, :pad] = False
            tokens[row, pad:start] = torch.as_tensor(prompt, dtype=torch.int64)
        ragged = any(len(prompt) < start for prompt in prompts)
        return cls(
            tokens.to(device),
            start,
            mask_id,
            torch.tensor(list(seeds), dtype=torch.int64, device=device),
            attend.to(device) if ragged else None,
        )

    @property
    def length(self) -> int:
        return self.tokens.shape[1] - self.start

    @property
    def response(self) -> Int[Tensor, "b l"]:
        return self.tokens[:, self.start :]

    @property
    def positions(self) -> Int[Tensor, "b n"] | None:
        """Position ids that give a padded row the positions it has alone; None where nothing is padded."""
        return None if self.attend is None else (self.attend.cumsum(-1) - 1).clamp_min(0)

    @property
    def given(self) -> Bool[Tensor, "b n"]:
        """What guidance hides from its unconditional half: the prompt and whatever is pinned."""
        given = torch.zeros_like(self.tokens, dtype=torch.bool)
        given[:, : self.start] = True
        return given if self.pinned is None else given | self.pinned

    def window(self, start: int, stop: int, first: int | None = None) -> Block:
        """Columns `start` to `stop`; with `first`, what stands between it and `start` as well, padding never active."""
        first = start if first is None else first
        tokens, lead = self.tokens[:, first:stop], max(0, self.start - first)
        active = torch.ones_like(tokens, dtype=torch.bool)
        if self.pinned is not None:
            active = ~self.pinned[:, first:stop]
        if lead:  # a mask in the prompt is part of the prompt, not a hole to be filled
            there = tokens[:, :lead] != self.mask_id
            there = there if self.attend is None else there & self.attend[:, first : self.start]
            active = torch.cat([active[:, :lead] & there, active[:, lead:]], dim=-1)
        return Block(tokens, active, self.mask_id, self.seeds, own=start - first, lead=lead)

    def place(self, block: Block, start: int) -> Canvas:
        tokens = self.tokens.clone()
        tokens[:, start : start + block.tokens.shape[1]] = block.tokens
        return replace(self, tokens=tokens)

    def rows(self, index: Int[Tensor, " r"]) -> Canvas:
        attend = None if self.attend is None else self.attend[index]
        pinned = None if self.pinned is None else self.pinned[index]
        return replace(self, tokens=self.tokens[index], seeds=self.seeds[index], attend=attend, pinned=pinned)


@dataclass(frozen=True)
class Block:
    """A window of the canvas: all that a sampler sees and may write, so it cannot damage the rest."""

    tokens: Int[Tensor, "b w"]
    active: Bool[Tensor, "b w"]  # positions that may be written
    mask_id: int
    seeds: Int[Tensor, " b"]
    memory: Memory = None
    own: int = 0  # the stage's own columns begin here; before them, in a wider window, what it may revise as well
    lead: int = 0  # so many columns are the prompt's, only in windows of reach "canvas"

    @property
    def masked(self) -> Bool[Tensor, "b w"]:
        return self.active & (self.tokens == self.mask_id)

    @property
    def visible(self) -> Bool[Tensor, "b w"]:
        return self.active & (self.tokens != self.mask_id)

    def write(self, tokens: Int[Tensor, "b w"], memory: Memory = None) -> Block:
        """The block with `tokens` at its active positions; without `memory`, what was remembered stays."""
        memory = self.memory if memory is None else memory
        return replace(self, tokens=torch.where(self.active, tokens, self.tokens), memory=memory)

    def remember(self, memory: Memory) -> Block:
        return replace(self, memory=memory)

    def rows(self, index: Int[Tensor, " r"]) -> Block:
        memory = map_memory(lambda kept: kept[index], self.memory)
        return replace(
            self, tokens=self.tokens[index], active=self.active[index], seeds=self.seeds[index], memory=memory
        )

    def put_rows(self, index: Int[Tensor, " r"], rows: Block) -> Block:
        """The block with `rows` in place of the rows `index`; the others stay as they were."""
        assert (self.memory is None) == (rows.memory is None), "a sampler whose rows end early sets its memory in begin"
        memory = map_memory(lambda mine, theirs: mine.index_put((index,), theirs), self.memory, rows.memory)
        return replace(self, tokens=self.tokens.index_put((index,), rows.tokens), memory=memory)


def map_memory(function: Callable[..., Tensor], *memories: Memory) -> Memory:
    """Apply `function` to the tensors of one or more memories of the same structure."""
    first = memories[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return function(*memories)
    if isinstance(first, dict):
        return {key: map_memory(function, *(memory[key] for memory in memories)) for key in first}
    assert isinstance(first, tuple), f"a sampler's memory is tensors, or tuples and dicts of them, not {type(first)}"
    parts = [map_memory(function, *part) for part in zip(*memories, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
