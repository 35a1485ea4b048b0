"""Training data in batches: the next examples of a stream, padded on the right.

A row's tokens, and what of it may be masked, do not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from redraft.train.batch import Batch
from redraft.train.packing import Example, Packed, State
from redraft.train.sources import Source, open_source

__all__ = ["Example", "Packed", "Source", "State", "batches", "collate", "open_source"]


def collate(examples: Sequence[Example], *, pad_id: int) -> Batch:
    """One row an example; padding is neither seen nor ever masked. `attend` is None where nothing was padded."""
    rows, width = len(examples), max(len(example.tokens) for example in examples)
    tokens = torch.full((rows, width), pad_id, dtype=torch.long)
    eligible = torch.zeros(rows, width, dtype=torch.bool)
    attend = torch.zeros(rows, width, dtype=torch.bool)
    for row, example in enumerate(examples):
        end = len(example.tokens)
        tokens[row, :end] = torch.from_numpy(example.tokens)
        eligible[row, example.prompt : end] = True
        attend[row, :end] = True
    indices = torch.tensor([example.index for example in examples])
    return Batch(tokens, eligible, None if bool(attend.all()) else attend, indices)


def batches(stream: Packed, *, first: int, count: int, pad_id: int) -> Iterator[Batch]:
    """Batches of `count` examples without end, from the global index `first` on; a stream before it reads up to it."""
    if stream.index > first:
        raise ValueError(
            f"the stream stands at example {stream.index}, behind {first}: load its state, or open it anew"
        )
    stream.take(first - stream.index)
    while True:
        yield collate(stream.take(count), pad_id=pad_id)
