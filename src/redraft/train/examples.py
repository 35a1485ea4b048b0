"""From one record to tokens: plain text, or a prompt that is never masked and its response."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jinja2 import TemplateError

from redraft.decoding.notation import suggest
from redraft.models import Model
from redraft.train.sources import Columns, Record


class Dialogue(NamedTuple):
    prompt: str | list[dict]
    response: str


def understood(record: Record, columns: Columns) -> str | Dialogue:
    """What a record says, by the names of its columns: messages, then prompt and response, then text."""
    content = record.content
    if isinstance(content, str):
        return content
    if not isinstance(content, dict):
        raise ValueError(
            f"{record.where} is a {type(content).__name__}; a document is a string, or a record with 'text', with "
            "'prompt' and 'response', or with 'messages'."
        )
    asked = columns.text is not None or columns.prompt is not None or columns.response is not None
    if "messages" in content and not asked:
        return _conversation(record, content["messages"])
    prompt, response = columns.prompt or "prompt", columns.response or "response"
    if columns.text is None and (asked or {prompt, response} <= content.keys()):
        return Dialogue(_string(record, prompt), _string(record, response))
    return _string(record, columns.text or "text")


def _string(record: Record, column: str) -> str:
    have = record.content
    if column not in have:
        raise ValueError(
            f"{record.where} has no column {column!r}{suggest(column, have)}; it has "
            f"{', '.join(map(repr, have)) or 'none'}. Plain text is read from text_column (now {column!r} is needed), "
            "pairs from prompt_column and response_column, conversations from 'messages'."
        )
    if not isinstance(have[column], str):
        raise ValueError(f"{record.where}: {column!r} is {have[column]!r}, not a string.")
    return have[column]


def _conversation(record: Record, messages: Any) -> Dialogue:
    """The last message is the response; what went before it is the prompt."""
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError(f"{record.where}: 'messages' is not a list of objects with 'role' and 'content'.")
    if len(messages) < 2 or messages[-1].get("role") != "assistant" or not isinstance(messages[-1].get("content"), str):
        raise ValueError(
            f"{record.where}: 'messages' must end with a message whose role is 'assistant', after at least one other."
        )
    return Dialogue(messages[:-1], messages[-1]["content"])


class Sample(NamedTuple):
    tokens: np.ndarray  # int32
    prompt: int  # so many tokens at the start are never masked


class Encoder:
    """Tokens of documents and dialogues, as the model will meet them when it answers."""

    def __init__(self, model: Model, *, length: int, pad_loss: bool | int, chat: bool) -> None:
        self.model, self.length, self.pad_loss, self.chat = model, length, pad_loss, chat
        self.start = model.encode("", chat=False)  # what the tokenizer puts before a text, if anything
        self.eos = model.eos_ids[0]
        self.end = model.eos_ids[-1] if chat and model.template else self.eos  # a conversation's turn, or a text

    def _ids(self, where: str, prompt: str | list[dict], *, chat: bool) -> list[int]:
        parts = [prompt] if isinstance(prompt, str) else [part for message in prompt for part in message.values()]
        try:
            "".join(map(str, parts)).encode()
        except UnicodeEncodeError:  # JSON can say "\ud83d"
            raise ValueError(f"{where} holds half of a surrogate pair, which is no character.") from None
        try:
            ids = self.model.encode(prompt, chat=chat)
        except (ValueError, TemplateError) as error:  # a template may refuse an order of roles
            raise ValueError(f"{where}: {error}") from None
        if unknown := self.model.unknown_words(ids, prompt):
            raise ValueError(f"{where} has {unknown}")
        return ids

    def text(self, record: Record, text: str, *, continues: bool) -> np.ndarray:
        """A document, and end of text behind it; or a piece of one."""
        ids = self._ids(record.where, text, chat=False)
        ids = ids[len(self.start) :] if continues else ids
        return np.array([*ids, self.eos] if record.ends else ids, dtype=np.int32)

    def dialogue(self, record: Record, dialogue: Dialogue) -> tuple[Sample | None, bool]:
        """The sample, cut at the response's end if it is too long (then True); None if the prompt leaves no room.

        A response that was cut has no end: the model must not learn to stop there.
        """
        prompt = self._ids(record.where, dialogue.prompt, chat=self.chat)
        response = self._ids(record.where, dialogue.response, chat=False)[len(self.start) :]
        whole = [*prompt, *response, self.end]
        if len(prompt) >= self.length:
            return None, False
        return Sample(np.array(whole[: self.length], dtype=np.int32), len(prompt)), len(whole) > self.length

    def filled(self, sample: Sample) -> Sample:
        """With end-of-text tokens that are learned like the response: LLaDA's answers fill their canvas with them.

        How many depends on nothing but the sample and the options, never on what else is in a batch.
        """
        if not self.pad_loss:
            return sample
        have, width = len(sample.tokens), self.length
        if self.pad_loss is not True:  # of the response, for that is what a decoder's canvas is long
            width = min(width, sample.prompt - (sample.prompt - have) // self.pad_loss * self.pad_loss)
        return sample._replace(tokens=np.pad(sample.tokens, (0, width - have), constant_values=self.eos))
