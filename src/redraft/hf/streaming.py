"""A streamer for programs: every draft and the final text, as they come, to be read in another thread."""

from __future__ import annotations

from queue import Queue
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer


class Draft(NamedTuple):
    """The responses of a batch at one moment; each replaces the one before."""

    texts: list[str]  # one for each row, cut at its first end token
    settled: list[str]  # the part of each text that no later step can change
    final: bool


class DraftStreamer(BaseStreamer):
    """Iterate over it while `generate(..., streamer=it)` runs in another thread.

    To print to a terminal, transformers' own ``TextDiffusionStreamer`` works as well.
    """

    def __init__(self, tokenizer: Any, model: Any, *, mask: str = "░", timeout: float | int | None = None) -> None:
        """`mask` stands for a token yet to be written; `timeout`, in seconds, is for the wait between two drafts."""
        self.tokenizer, self.mask, self.timeout = tokenizer, mask, timeout
        self.mask_id: int = model.config.mask_token_id
        known = model.generation_config.eos_token_id
        self.eos_ids = {model.config.eos_token_id, *(known if isinstance(known, list) else [known])}
        self.queue: Queue[Draft | None] = Queue()
        self.prompt = True  # what is put first
        self.settled: Tensor | None = None

    def put(self, value: Tensor) -> None:
        if self.prompt:
            self.prompt, self.settled = False, value[:, :0]
            return
        assert self.settled is not None
        self.settled = torch.cat([self.settled, value], dim=-1)
        self._say(self.settled, final=False)

    def put_draft(self, value: Tensor) -> None:
        assert self.settled is not None
        self._say(torch.cat([self.settled, value], dim=-1), final=False)

    def end(self) -> None:
        if self.settled is not None:
            self._say(self.settled, final=True)
        self.queue.put(None)
        self.prompt, self.settled = True, None

    def __iter__(self) -> DraftStreamer:
        return self

    def __next__(self) -> Draft:
        draft = self.queue.get(timeout=self.timeout)
        if draft is None:
            raise StopIteration
        return draft

    def _say(self, tokens: Tensor, *, final: bool) -> None:
        assert self.settled is not None
        texts, settled = ([self._text(row) for row in rows.tolist()] for rows in (tokens, self.settled))
        self.queue.put(Draft(texts, settled, final))

    def _text(self, ids: list[int]) -> str:
        ids = ids[: next((at for at, token in enumerate(ids) if token in self.eos_ids), len(ids))]
        text, run = "", []
        for token in [*ids, self.mask_id]:  # runs between masks are decoded whole: a character may be several tokens
            if token != self.mask_id:
                run.append(token)
                continue
            text += self.tokenizer.decode(run, skip_special_tokens=True) + self.mask
            run = []
        return text.removesuffix(self.mask)
