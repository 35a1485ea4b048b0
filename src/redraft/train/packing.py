"""The stream of training examples: packed, shuffled by a bounded buffer, and exact to resume after any of them.

The order is a function of (seed, data). An epoch's examples go through a buffer of `shuffle` of them, from which the
next is drawn; a new epoch draws anew. Nothing here knows of batches or processes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from redraft.decoding import derive
from redraft.models import Model
from redraft.train.examples import Encoder, Sample, understood
from redraft.train.sources import Place, Record, Source


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    tokens: np.ndarray  # int32
    prompt: int  # so many tokens at the start are never masked
    index: int  # the place in the stream, over all epochs


class State(NamedTuple):
    """Where a stream stands: what JSON holds, and arrays."""

    json: dict[str, Any]
    arrays: dict[str, np.ndarray]


class Packed(Iterator[Example]):
    """Examples of at most `length` tokens from a source.

    Plain text: documents are put end to end with end-of-text between them and cut into `length`; an epoch's rest that
    fills no example is dropped. Prompt and response: one example each; `pad_loss` fills it with end-of-text tokens that
    are learned too, up to `length` (True, as in LLaDA's fine-tuning), the response alone up to the next multiple of a
    number (the length that the model is to answer at), or not at all.
    `chat` puts prompts into the model's chat template. Data that ends is read again (`repeat`).
    """

    def __init__(
        self,
        source: Source,
        model: Model,
        *,
        length: int = 1024,
        seed: int = 0,
        shuffle: int = 1024,
        pad_loss: bool | int = True,
        chat: bool = True,
        repeat: bool = True,
    ) -> None:
        if length < 2 or shuffle < 1 or pad_loss < 0:
            raise ValueError(
                f"length is at least 2, shuffle at least 1 (the data's own order) and pad_loss true, false or a number "
                f"of tokens, not {length}, {shuffle} and {pad_loss!r}"
            )
        self.source, self.seed, self.shuffle, self.repeat = source, seed, shuffle, repeat
        self.length = length
        self.index = 0  # of the next example
        self.epoch = 0  # passes over the data that are complete
        # Since the beginning: documents read, those without text, responses cut, samples left out because their prompt
        # alone fills the length, and tokens at the ends of epochs that filled no example.
        self.counts = dict.fromkeys(("documents", "empty", "truncated", "refused", "dropped_tokens"), 0)
        self._encoder = Encoder(model, length=length, pad_loss=pad_loss, chat=chat)
        self._settings = {"length": length, "seed": seed, "shuffle": shuffle, "pad_loss": pad_loss, "chat": chat}
        self._begin()

    def _begin(self) -> None:
        self._place: Place | None = None  # in the source, behind the last document taken in
        self._records: Iterator[Record] | None = None
        self._tail = np.empty(0, np.int32)  # tokens that fill no example yet
        self._inside = False  # a document whose end is still to come
        self._ended = False
        self._drawn = 0  # examples given in this epoch
        self._buffer: list[Sample] = []

    def __next__(self) -> Example:
        self._fill()
        if not self._buffer:
            if not self._drawn:
                raise ValueError(self._nothing())
            if not self.repeat:
                raise StopIteration
            self.epoch += 1
            self._begin()
            self._fill()
        place = derive(derive(self.seed, self.epoch), self._drawn) % len(self._buffer)
        self._buffer[place], self._buffer[-1] = self._buffer[-1], self._buffer[place]
        sample = self._encoder.filled(self._buffer.pop())
        self._drawn, self.index = self._drawn + 1, self.index + 1
        return Example(sample.tokens, sample.prompt, self.index - 1)

    def take(self, count: int) -> list[Example]:
        """The next `count` examples; a ValueError where the data has fewer."""
        taken = [example for _, example in zip(range(count), self, strict=False)]  # not one more than asked
        if len(taken) < count:
            raise ValueError(
                f"{self.source.name} ended after {self.index} examples, {count - len(taken)} short of what was asked "
                "for: give more data, fewer steps, or let it repeat"
            )
        return taken

    def _nothing(self) -> str:
        counts = self.counts
        if counts["refused"]:
            return (
                f"{self.source.name} gives no example: the prompt alone of each of its {counts['refused']} samples "
                f"fills {self.length} tokens; raise the length"
            )
        return (
            f"{self.source.name} gives no example: its {counts['documents']} documents hold {counts['dropped_tokens']} "
            f"tokens, and one example is {self.length}; give more text or a smaller length"
        )

    def _fill(self) -> None:
        while not self._ended and len(self._buffer) < self.shuffle:
            sample = self._cut()
            if sample is None:
                self._ended = True
                self.counts["dropped_tokens"] += len(self._tail)
            else:
                self._buffer.append(sample)

    def _cut(self) -> Sample | None:
        """The next sample in the data's own order."""
        while len(self._tail) < self.length:
            try:
                self._records = self._records or self.source.reader.read(self._place)
                record = next(self._records, None)
                if record is None:
                    return None
                sample = self._take_in(record)
            except BaseException:
                self._records = None  # a generator that raised would look like the end of the data
                raise
            self._place = record.after
            self.counts["documents"] += record.ends
            if sample is not None:
                return sample
        chunk, self._tail = self._tail[: self.length], self._tail[self.length :]
        return Sample(chunk.copy(), 0)

    def _take_in(self, record: Record) -> Sample | None:
        content = understood(record, self.source.columns)
        if isinstance(content, str):
            if record.ends and not self._inside and not content.strip():
                self.counts["empty"] += 1
                return None
            ids = self._encoder.text(record, content, continues=self._inside)
            self._tail = np.concatenate([self._tail, ids])
            self._inside = not record.ends
            return None
        sample, truncated = self._encoder.dialogue(record, content)
        self.counts["truncated"] += truncated
        self.counts["refused"] += sample is None
        return sample

    def state_dict(self) -> State:
        """Everything that decides what comes next. At most `shuffle` examples, and the rest of one document."""
        json = {
            "settings": self._settings,
            "source": self.source.reader.identity,
            "place": self._place,
            "index": self.index,
            "epoch": self.epoch,
            "drawn": self._drawn,
            "inside": self._inside,
            "ended": self._ended,
            "counts": self.counts,
        }
        tokens = [sample.tokens for sample in self._buffer]
        arrays = {
            "tail": self._tail.copy(),
            "tokens": np.concatenate([*tokens, np.empty(0, np.int32)]),
            "lengths": np.array([len(part) for part in tokens], np.int64),
            "prompts": np.array([sample.prompt for sample in self._buffer], np.int64),
        }
        return State(copy.deepcopy(json), arrays)

    def load_state_dict(self, state: State) -> None:
        """Go on from `state_dict`, with the same data and the same settings; others are refused."""
        json, arrays = copy.deepcopy(state.json), state.arrays
        before = json["settings"]
        differing = [
            f"{key} was {before.get(key)}, now {now}"
            for key, now in self._settings.items()
            if repr(before.get(key)) != repr(now)  # True is 1 to Python, but not to pad_loss
        ]
        if differing:
            raise ValueError(f"this run cannot go on with other settings of its data: {'; '.join(differing)}")
        if json["source"] != self.source.reader.identity:
            raise ValueError(
                f"{self.source.name} is not the data that the interrupted run was reading (files were added, removed "
                "or changed, or another source was given): put it back, or start a new run"
            )
        self._begin()
        self.index, self.epoch, self.counts = json["index"], json["epoch"], json["counts"]
        self._place, self._drawn = json["place"], json["drawn"]
        self._inside, self._ended = json["inside"], json["ended"]
        self._tail = np.asarray(arrays["tail"]).astype(np.int32)
        ends = np.cumsum(np.asarray(arrays["lengths"]))
        parts = np.split(np.asarray(arrays["tokens"]).astype(np.int32), ends[:-1])
        # No lengths at all still make one empty part, hence not strict.
        self._buffer = [Sample(part, int(prompt)) for part, prompt in zip(parts, arrays["prompts"], strict=False)]
