"""Small models whose every logit is known in advance: exact, row-wise, and blind to padding.

`Chaos` hashes what it attends to in integer arithmetic: a row gives the same float64 logits in any batch, at any
padding, in any order of summation. One changed token changes every prediction, which exercises each channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from redraft.decoding import Canvas, Reading, Sampler, Step, derive, walk
from redraft.samplers import parse

VOCABULARY = 16
EOS = (12, 13)  # end-of-text, end-of-turn
PAD = EOS[0]  # as in LLaDA
MASK = 14  # not the last id, so that nothing can count on that
ORDINARY = range(12)
READING = Reading(eos_ids=EOS)
NO_EOS = replace(READING, eos="none")


FACTOR, SHIFTS = np.uint64(0x2545F4914F6CDD1D), [np.uint64(shift) for shift in (32, 29, 31)]


def scramble(x: np.ndarray) -> np.ndarray:
    """Spread uint64 values over all 64 bits; products wrap. numpy's, for it is quick with little arrays."""
    for shift in SHIFTS:
        x = (x ^ (x >> shift)) * FACTOR
    x = x.view(np.int64)
    return (x ^ (x >> 33)).view(np.uint64)


def words(x: Tensor | np.ndarray) -> np.ndarray:
    return np.asarray(x).view(np.uint64)


TOKENS = scramble(np.arange(1, VOCABULARY + 1, dtype=np.uint64))


@dataclass(frozen=True)
class Chaos:
    """Random logits in 0..`spread`, a function of all attended tokens and their positions."""

    seed: int = 0
    spread: float = 6.0
    preserve: float = 0.0  # added to the logit of the token that is there, if it is visible
    eos: float = 0.0  # added to the logits of both end tokens
    deaf: bool = False  # hear nothing: logits depend on the position alone

    def __call__(self, tokens, *, attend=None, positions=None, columns=slice(None), soft=None):
        rows, width = tokens.shape
        seed, places = np.uint64(self.seed), words(np.arange(width) if positions is None else positions)
        sound = np.broadcast_to(scramble(scramble(words(tokens) * np.uint64(1009) + places) + seed), (rows, width))
        if soft is not None:  # a mixture sounds like none of its parts, but one of a single part like that part
            ids, weights = soft[:2]
            where = np.broadcast_to(places, (rows, width))[:, columns, None]
            parts = scramble(scramble(words(ids) * np.uint64(1009) + where) + seed)
            shares = words((weights.double() * 2**20).round().long())
            sound = sound.copy()
            sound[:, columns] = np.where(weights == 1, parts, parts * shares).sum(-1)
        if attend is None:
            heard = sound.sum(-1, keepdims=True)
        else:
            attend = attend[:, None, :] if attend.ndim == 2 else attend
            heard = np.where(attend, sound[:, None, :], np.uint64(0)).sum(-1)
        state = scramble(places * np.uint64(65537) + seed + (np.uint64(0) if self.deaf else heard))
        bits = scramble(np.broadcast_to(state, (rows, width))[:, columns, None] + TOKENS)
        logits = torch.from_numpy(self.spread * ((bits.view(np.int64) >> 11) / 2**53 + 0.5))
        logits[..., list(EOS)] += self.eos
        if self.preserve:
            here = tokens[:, columns, None]
            logits += self.preserve * ((torch.arange(VOCABULARY) == here) & (here != MASK))
        return logits


@dataclass
class Script:
    """Given probabilities, call by call: `{token: p}` for each response position, the rest spread over other tokens."""

    calls: Sequence[Sequence[dict[int, float]]]
    start: int
    made: int = 0

    def __call__(self, tokens, *, columns=slice(None), **context):
        script, self.made = self.calls[self.made], self.made + 1
        logits = torch.zeros(len(tokens), tokens.shape[1], VOCABULARY, dtype=torch.float64)
        for position, given in enumerate(script):
            others = set(range(VOCABULARY)) - {MASK} - set(given)
            rest = (1 - sum(given.values())) / len(others)
            for token, p in [*given.items(), *dict.fromkeys(others, rest).items()]:
                logits[:, self.start + position, token] = math.log(p) if p > 0 else -torch.inf
            logits[:, self.start + position, MASK] = -torch.inf
        return logits[:, columns]


@dataclass
class Spy:
    """A model that remembers what it was asked."""

    model: Chaos = Chaos()
    asked: list[dict] = field(default_factory=list)

    def __call__(self, tokens, **context):
        self.asked.append({"tokens": tokens.clone(), **context})
        return self.model(tokens, **context)


def fresh(length: int, prompts: Sequence[Sequence[int]] = ((3, 1, 4),), seed: int = 0) -> Canvas:
    """A canvas of masks after some prompts."""
    seeds = [derive(seed, row) for row in range(len(prompts))]
    return Canvas.of(prompts, length, mask_id=MASK, pad_id=PAD, seeds=seeds)


def pin(canvas: Canvas, given: dict[tuple[int, int], int]) -> Canvas:
    """The canvas with `{(row, response position): token}` pinned."""
    tokens, pinned = canvas.tokens.clone(), torch.zeros_like(canvas.tokens, dtype=torch.bool)
    for (row, position), token in given.items():
        tokens[row, canvas.start + position] = token
        pinned[row, canvas.start + position] = True
    return replace(canvas, tokens=tokens, pinned=pinned)


def responses(steps: Sequence[Step]) -> list[list[list[int]]]:
    """The response after each step: [step][row][position]."""
    return [step.result.response.tolist() for step in steps]


def go(
    sampler: Sampler | str,
    model,
    length: int,
    steps: int,
    block: int | None = None,
    *,
    prompts: Sequence[Sequence[int]] = ((3, 1, 4),),
    reading: Reading = NO_EOS,
) -> list[Step]:
    """A whole walk."""
    sampler = parse(sampler) if isinstance(sampler, str) else sampler
    return list(walk(model, fresh(length, prompts), sampler, steps=steps, block=block, reading=reading))


def decode(*arguments, **options) -> list[list[list[int]]]:
    """The response after each step of a whole walk."""
    return responses(go(*arguments, **options))
