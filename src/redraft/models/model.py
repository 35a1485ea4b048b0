"""A model: a network that fills holes, its tokenizer, and the ids that the two agree on."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from torch import Tensor

from redraft.models.families import FAMILIES
from redraft.models.progress import bars_if_large
from redraft.models.tokens import Guard, control_texts, encode_pieces, pieces, unused_character
from redraft.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Model:
    """Callable as a denoiser: tokens in, logits out, no gradients. `network` is a ``PreTrainedModel``, or PEFT's."""

    network: Any
    tokenizer: Any
    mask_id: int
    eos_ids: tuple[int, ...]  # end of text first, then end of turn
    pad_id: int
    context: int  # the longest sequence it was trained on, in tokens
    name: str
    family: str

    @classmethod
    def of(cls, network: Any, tokenizer: Any, name: str) -> Model:
        """Reads the ids from the network's config, and end of turn from the tokenizer."""
        config = network.config
        largest = max(tokenizer.get_vocab().values())
        if largest >= (rows := network.get_input_embeddings().weight.shape[0]):
            raise ValueError(
                f"{name}: the tokenizer has token {largest}, but the model only {rows} embeddings; they differ."
            )
        family = FAMILIES[config.model_type]
        turn_end = tokenizer.get_vocab().get(family.turn_end)
        return cls(
            network=network,
            tokenizer=tokenizer,
            mask_id=config.mask_token_id,
            eos_ids=(config.eos_token_id,) if turn_end is None else (config.eos_token_id, turn_end),
            pad_id=config.pad_token_id,
            context=config.context,
            name=name,
            family=family.name,
        )

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {self.family}, {self.dtype} on {self.device})"

    @property
    def device(self) -> torch.device:
        """Where tokens go in. Weights that accelerate keeps elsewhere are called in by its hook."""
        embedding = self.network.get_input_embeddings()
        if embedding.weight.is_meta:
            return torch.device(embedding._hf_hook.execution_device)
        return embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.get_input_embeddings().weight.dtype

    @property
    def vocab_size(self) -> int:
        """The width of the logits; a few of the last rows belong to no token."""
        return self.network.get_output_embeddings().weight.shape[0]

    @torch.no_grad()
    def __call__(
        self,
        tokens: Int[Tensor, "b n"],
        *,
        attend: Bool[Tensor, "b n"] | Bool[Tensor, "b n n"] | None = None,
        positions: Int[Tensor, "r n"] | None = None,
        columns: slice | Int[Tensor, "w"] = slice(None),
        soft: tuple[Int[Tensor, "b w k"], Float[Tensor, "b w k"]]
        | tuple[Int[Tensor, "b w k"], Float[Tensor, "b w k"], bool]
        | None = None,
    ) -> Float[Tensor, "b w v"]:
        """Logits at `columns`. `attend`: keys that may be seen, or (query, key) pairs; None is everything.

        `soft` = (ids, weights) puts weighted mixtures of embeddings in the place of the tokens at `columns`; with a
        third part, True, each is brought to the length that its parts have on average.
        """
        device = self.device
        tokens = tokens.to(device)
        where = columns if isinstance(columns, slice) else columns.to(device)
        content = {"input_ids": tokens}
        if soft is not None:
            ids, weights = (part.to(device) for part in soft[:2])
            content = {"inputs_embeds": self._mix(tokens, where, ids, weights, keep_length=soft[2:] == (True,))}
        output = self.network(
            **content,
            attention_mask=None if attend is None else attend.to(device),
            position_ids=None if positions is None else positions.to(device),
            columns=where,
        )
        return output.logits

    def _mix(
        self,
        tokens: Int[Tensor, "b n"],
        columns: slice | Int[Tensor, "w"],
        ids: Int[Tensor, "b w k"],
        weights: Float[Tensor, "b w k"],
        *,
        keep_length: bool,
    ) -> Float[Tensor, "b n d"]:
        embed = self.network.get_input_embeddings()
        hidden = embed(tokens)
        wide = torch.promote_types(hidden.dtype, torch.float32)  # a bfloat16 sum of many small weights drifts
        choices, weights = embed(ids).to(wide), weights.to(wide)
        mixed = torch.einsum("bwk,bwkd->bwd", weights, choices)
        if keep_length:
            lengths = (weights * choices.norm(dim=-1)).sum(-1, keepdim=True)
            mixed = mixed * (lengths / mixed.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(wide).tiny))
        hidden[:, columns] = mixed.to(hidden.dtype)
        return hidden

    @cached_property
    def _controls(self) -> dict[int, str]:
        return control_texts(self.tokenizer, {self.mask_id, self.pad_id, *self.eos_ids})

    @cached_property
    def _guard(self) -> Guard:
        return Guard(self._controls.values())

    @property
    def template(self) -> str | None:
        """The chat template: the tokenizer's own, for that is what the checkpoint was trained with; else the family's,
        if the tokenizer has the special tokens it needs; else none."""
        if self.tokenizer.chat_template:
            return self.tokenizer.chat_template
        family = FAMILIES[self.family]
        return family.template if set(family.marks) <= self.tokenizer.get_vocab().keys() else None

    def encode(self, prompt: str | list[dict], *, chat: bool = True) -> list[int]:
        """Ids of a prompt: a string (one user turn) or messages with role and content, up to the assistant's header.

        Without `chat`, or without a template, a string is encoded as it is, after a start token only if the tokenizer
        itself would put one there. The text of a special token in the prompt stays text: it never becomes its id.
        """
        if isinstance(prompt, str) and not (chat and self.template):
            cut = unused_character(prompt)
            start = self.tokenizer("")["input_ids"][:1]
            start = start if start == [self.tokenizer.bos_token_id] else []
            return start + self._checked(self._guard.mark(prompt, cut), cut)
        if not chat or not self.template:
            lacking = "its chat template, which is switched off" if self.template else "a chat template, and has none"
            raise ValueError(f"to read a conversation, {self.name} needs {lacking}: give it plain text.")
        return self._encode_chat([{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt)

    def _encode_chat(self, messages: list[dict]) -> list[int]:
        if not messages:
            raise ValueError("A conversation needs at least one message.")
        for message in messages:
            if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
                raise ValueError(f"A message needs a role and a content, both strings, not {message!r}.")
        cut = unused_character(
            "".join(message["role"] + message["content"] for message in messages) + str(self.template)
        )
        marked = [
            {"role": self._guard.mark(message["role"], cut), "content": self._guard.mark(message["content"], cut)}
            for message in messages
        ]
        for message in marked:
            self._checked(message["role"] + cut + message["content"], cut)
        rendered = self.tokenizer.apply_chat_template(
            marked, chat_template=self.template, tokenize=False, add_generation_prompt=True
        )
        return encode_pieces(self.tokenizer, rendered, cut)

    def _checked(self, marked: str, cut: str) -> list[int]:
        """Ids of ordinary text. A tokenizer that rewrites text could still make a special token of it: refused."""
        ids = encode_pieces(self.tokenizer, marked, cut)
        unknown = {self.tokenizer.unk_token_id} - {self.mask_id, self.pad_id, *self.eos_ids}  # means nothing but itself
        if smuggled := (self._controls.keys() - unknown) & set(ids):
            texts = ", ".join(self._controls[i] for i in sorted(smuggled))
            raise ValueError(
                f"{self.name}: this tokenizer reads part of the prompt as {texts}; take that out of the prompt."
            )
        return ids

    def unknown_words(self, ids: list[int], prompt: str | list[dict]) -> str | None:
        """What of a prompt that became `ids` a tokenizer of whole words lacks, and what it has; None if it has all."""
        unknown = self.tokenizer.unk_token_id  # None, or a token with another meaning, where any text can be spelt
        if unknown in (None, self.mask_id, self.pad_id, *self.eos_ids) or unknown not in ids:
            return None
        text = prompt if isinstance(prompt, str) else " ".join(message["content"] for message in prompt)
        words = [word for word in dict.fromkeys(text.split()) if unknown in self.encode(word)]
        vocabulary = self.tokenizer.get_vocab()
        known = [word for word in sorted(vocabulary, key=vocabulary.get) if vocabulary[word] not in self._controls]
        listed = ", ".join(map(repr, words[:5])) + (", ..." if len(words) > 5 else "")
        return f"words that {self.name} does not know: {listed}; it knows {len(known)}, such as {' '.join(known[:12])}"

    def decode(self, ids: Iterable[int] | Tensor, *, trim: bool = True) -> str:
        """Text of an answer, without special tokens; `trim` ends it at the first end of text or of turn."""
        ids = [int(i) for i in ids]
        if trim:
            ids = ids[: next((at for at, i in enumerate(ids) if i in self.eos_ids), len(ids))]
        words = [i for i in ids if i not in self._controls]
        return self.tokenizer.decode(words, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The text of each token by itself, for drawing; a space before a word is part of its piece."""
        return pieces(self.tokenizer, ids)

    def merged(self) -> Model:
        """The same model with its adapter added into the weights."""
        if not hasattr(self.network, "merge_and_unload"):
            raise ValueError(f"{self.name} carries no adapter.")
        return replace(self, network=self.network.merge_and_unload())

    def save_pretrained(self, folder: str | Path, *, max_shard_size: str = "5GB") -> Path:
        """Weights, config, tokenizer and a fingerprint, as a folder that `load` opens.

        Written beside its place and then renamed: a folder under this name is whole or not there.
        """
        from redraft.models.fingerprint import save_fingerprint

        folder = Path(folder).expanduser()
        if hasattr(self.network, "merge_and_unload"):
            raise ValueError(
                f"{self.name} carries an adapter: save `model.merged()`, or the adapter alone with "
                "`model.network.save_pretrained(folder)`."
            )
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} is already there; give another name or remove it first.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = folder.with_name(f".{folder.name}-{token_hex(4)}")
        draft.mkdir()
        try:
            with bars_if_large({name: tuple(tensor.shape) for name, tensor in self.network.named_parameters()}):
                self.network.save_pretrained(draft, max_shard_size=max_shard_size)
            self.tokenizer.save_pretrained(draft)
            save_fingerprint(self, draft)
            draft.replace(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return folder
