"""Examples for pretraining a small model, tokenised once by several processes and then kept whole on the device.

A small model on a GPU learns from more examples a second than one process can write and tokenise, and a masked model
learns from the same text again and again, behind other masks. Rows of about one length lie on one shelf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redraft.train.generated import Generated

RESPONSE = 128  # tokens of every answer, end-of-text behind it
STEP = 32  # prompts are padded, on the left, to a multiple of this
CHUNK = 2000  # conversations a worker makes at a time


@dataclass(frozen=True)
class Shelf:
    """Rows of one width: padding, a prompt that ends where the response begins, the response."""

    tokens: Any  # [rows, width] integers; a numpy array, or a tensor once it is on its device
    lead: Any  # [rows], columns of padding
    start: int  # the response's first column

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: Any) -> Shelf:
        import torch

        def put(array: np.ndarray) -> Any:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        return replace(self, tokens=put(self.tokens), lead=put(self.lead))


class Marks(NamedTuple):
    """The special tokens of a conversation, and what stands for each role."""

    start: int
    header: int
    header_end: int
    turn_end: int
    end: int
    pad: int

    @classmethod
    def of(cls, ids: dict[str, int]) -> Marks:
        from redraft.models.families import FAMILIES
        from redraft.train.vocabulary import END, PAD

        start, header, header_end, turn_end = (ids[mark] for mark in FAMILIES["llada"].marks)
        return cls(start, header, header_end, turn_end, ids[END], ids[PAD])


def conversations(
    tokenizer: Path, tasks: tuple[str, ...], first: int, count: int, *, processes: int, watch: Callable[[int], None]
) -> list[Shelf]:
    """Shelves of the training conversations `first` to `first + count`, the same for any number of processes."""
    jobs = [(tokenizer, tasks, first + done, min(CHUNK, count - done)) for done in range(0, count, CHUNK)]
    rows: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for made in _each(jobs, processes):
        for start, part in made.items():
            rows.setdefault(start, []).append(part)
        watch(CHUNK)
    shelves = []
    for start, parts in sorted(rows.items()):
        tokens, lead = (np.concatenate(column) for column in zip(*parts, strict=True))
        shelves.append(Shelf(tokens, lead, start))
    return shelves


def _each(jobs: list[Any], processes: int) -> Iterator[dict[int, tuple[np.ndarray, np.ndarray]]]:
    if processes < 2:
        yield from map(_make, jobs)
        return
    from multiprocessing import get_context

    with get_context("forkserver").Pool(processes) as pool:
        yield from pool.imap(_make, jobs)


def _make(job: tuple[Path, tuple[str, ...], int, int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """One worker's conversations, by where the response begins."""
    from tokenizers import Tokenizer

    path, tasks, first, count = job
    tokenizer = Tokenizer.from_file(str(path))
    marks = Marks.of(tokenizer.get_vocab())
    found: dict[int, list[tuple[list[int], int]]] = {}
    for messages in map(Generated(tasks).messages, range(first, first + count)):
        prompt, answer = encoded(messages, tokenizer, marks)
        start = -(-len(prompt) // STEP) * STEP
        fill = RESPONSE - len(answer) - 1
        if fill < 0:  # with another vocabulary, perhaps
            continue
        lead = start - len(prompt)
        row = [marks.pad] * lead + prompt + answer + [marks.turn_end] + [marks.end] * fill
        found.setdefault(start, []).append((row, lead))
    return {
        start: (np.array([row for row, _ in rows], np.int16), np.array([lead for _, lead in rows], np.int16))
        for start, rows in found.items()
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
    return Shelf(flat[: rows * width].reshape(rows, width), np.zeros(rows, np.int16), 0)
