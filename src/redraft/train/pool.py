"""Examples for pretraining a small model, tokenised once by several processes and then kept whole on the device.

A small model on a GPU learns from more examples a second than one process can write and tokenise, and a masked model
learns from the same text again and again, behind other masks. Rows of one width lie on one shelf. A conversation
reaches its width by the ends of text behind it, never by padding before it: rows without any need no attention mask.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redraft.train.generated import Generated

RESPONSE = 128  # tokens of an answer, end-of-text behind it
WHOLE = 0.3  # of the answers have so many or a few more; the others end sooner, since ends of text are soon learnt
STEP = 32  # widths are multiples of this
CHUNK = 2000  # conversations a worker makes at a time


@dataclass(frozen=True)
class Shelf:
    """Rows of one width: a prompt, if there is one, and a response, which is what is learnt."""

    tokens: Any  # [rows, width] integers; a numpy array, or a tensor once it is on its device
    start: Any  # [rows], the response's first column
    prose: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: Any) -> Shelf:
        import torch

        def put(array: np.ndarray) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        return replace(self, tokens=put(self.tokens), start=put(self.start))


class Marks(NamedTuple):
    """The special tokens of a conversation, and what stands for each role."""

    start: int
    header: int
    header_end: int
    turn_end: int
    end: int

    @classmethod
    def of(cls, ids: dict[str, int]) -> Marks:
        from redraft.models.families import FAMILIES
        from redraft.train.vocabulary import END

        start, header, header_end, turn_end = (ids[mark] for mark in FAMILIES["llada"].marks)
        return cls(start, header, header_end, turn_end, ids[END])


def conversations(
    tokenizer: Path, tasks: tuple[str, ...], first: int, count: int, *, processes: int, watch: Callable[[int], None]
) -> list[Shelf]:
    """Shelves of the training conversations `first` to `first + count`, the same for any number of processes."""
    jobs = [(tokenizer, tasks, first + done, min(CHUNK, count - done)) for done in range(0, count, CHUNK)]
    rows: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for made in _each(jobs, processes):
        for width, part in made.items():
            rows.setdefault(width, []).append(part)
        watch(CHUNK)
    return [
        Shelf(np.concatenate([tokens for tokens, _ in parts]), np.concatenate([start for _, start in parts]))
        for _, parts in sorted(rows.items())
    ]


def _each(jobs: list[Any], processes: int) -> Iterator[dict[int, tuple[np.ndarray, np.ndarray]]]:
    if processes < 2:
        yield from map(_make, jobs)
        return
    from multiprocessing import get_context

    with get_context("forkserver").Pool(processes) as pool:
        yield from pool.imap(_make, jobs)


def _make(job: tuple[Path, tuple[str, ...], int, int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """One worker's conversations, by their width."""
    from tokenizers import Tokenizer

    path, tasks, first, count = job
    tokenizer = Tokenizer.from_file(str(path))
    marks = Marks.of(tokenizer.get_vocab())
    made = Generated(tasks)
    found: dict[int, list[tuple[list[int], int]]] = {}
    for number in range(first, first + count):
        prompt, answer = encoded(made.messages(number), tokenizer, marks)
        if len(answer) >= RESPONSE:  # with another vocabulary, perhaps
            continue
        row = [*prompt, *answer, marks.turn_end]
        least = len(prompt) + RESPONSE if random.Random(f"whole {number}").random() < WHOLE else len(row)
        width = -(-least // STEP) * STEP
        found.setdefault(width, []).append((row + [marks.end] * (width - len(row)), len(prompt)))
    return {
        width: (np.array([row for row, _ in rows], np.int16), np.array([start for _, start in rows], np.int16))
        for width, rows in found.items()
    }


def encoded(messages: list[dict[str, str]], tokenizer: Any, marks: Marks) -> tuple[list[int], list[int]]:
    """Ids of a prompt, as `Model.encode` has them, and of the answer; without the template's engine, which is slow."""
    *turns, last = messages
    texts = [*(f"\n\n{turn['content'].strip()}" for turn in turns), last["content"], "\n\n"]
    roles = [turn["role"] for turn in turns] + ["assistant"]
    ids = [one.ids for one in tokenizer.encode_batch([*texts, *roles], add_special_tokens=False)]
    contents, (answer, gap), names = ids[: len(turns)], ids[len(turns) : len(texts)], ids[len(texts) :]
    prompt = [marks.start]
    for name, content in zip(names, contents, strict=False):
        prompt += [marks.header, *name, marks.header_end, *content, marks.turn_end]
    return [*prompt, marks.header, *names[-1], marks.header_end, *gap], answer


def prose(texts: Iterator[str], tokenizer: Any, *, width: int, most: int | None = None) -> Shelf:
    """Documents end to end, end-of-text between them, cut into rows that are response from the first column on."""
    from redraft.train.vocabulary import END

    end = tokenizer.get_vocab()[END]
    backend = tokenizer.backend_tokenizer
    ids: list[np.ndarray] = []
    while batch := list(islice(texts, 64)):
        ids += [np.array([*one.ids, end], np.int16) for one in backend.encode_batch(batch, add_special_tokens=False)]
    flat = np.concatenate([*ids, np.empty(0, np.int16)])
    rows = len(flat) // width if most is None else min(most, len(flat) // width)
    if not rows:
        raise ValueError(f"the text holds {len(flat)} tokens, fewer than one row of {width}: give more text")
    return Shelf(flat[: rows * width].reshape(rows, width), np.zeros(rows, np.int16), prose=True)
