"""Between text and ids: opening tokenizers, and encoding text that nobody can smuggle special tokens through.

A tokenizer turns the *text* ``<|mdm_mask|>`` into the mask's id, so a prompt that mentions it would grow a hole, and
one that mentions ``<|eot_id|>`` would end its own turn. Cutting every such text after its first character stops both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def open_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a folder: tokenizer.json, or Qwen2's vocab.json and merges.txt (as Dream's are)."""
    if (folder / "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast as kind

        source = "tokenizer.json"
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        from transformers import Qwen2Tokenizer as kind

        source = "vocab.json"
    else:
        raise ValueError(
            f"{folder} holds no tokenizer: tokenizer.json is missing (or vocab.json with merges.txt). "
            "Copy the tokenizer files of the model that these weights came from."
        )
    try:
        return kind.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the Rust library raises bare Exception
        raise ValueError(f"{folder / source} cannot be read as a tokenizer: {error}.") from error


def control_texts(tokenizer: Any, ids: Iterable[int]) -> dict[int, str]:
    """Id and text of every token with a meaning beyond text: those flagged special, and `ids` whatever their flags."""
    texts = {i: token.content for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    texts.update((i, tokenizer.convert_ids_to_tokens(i)) for i in ids if i not in texts)
    return {i: text for i, text in texts.items() if text}


class Guard:
    """Marks where text must be cut so that it cannot be read as a control token."""

    def __init__(self, controls: Iterable[str]):
        longest_first = sorted(controls, key=len, reverse=True)
        # A lookahead finds overlapping texts too; cutting one must not leave the next.
        self.pattern = re.compile(f"(?=(?:{'|'.join(map(re.escape, longest_first))}))")

    def mark(self, text: str, cut: str) -> str:
        starts = {match.start() for match in self.pattern.finditer(text)}
        return "".join(c + cut if i in starts else c for i, c in enumerate(text)) if starts else text


def unused_character(text: str) -> str:
    """A private-use character that `text` does not contain."""
    return next(c for c in map(chr, range(0xE000, 0xF900)) if c not in text)


def pieces(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """The text of each token by itself, for drawing; a space before a word is part of its piece."""
    return [_piece(tokenizer, word) for word in tokenizer.convert_ids_to_tokens([int(i) for i in ids])]


def _piece(tokenizer: Any, word: str | None) -> str:
    """A decoder drops a space at the start of its text, so each token is decoded behind another one."""
    if word is None:  # an embedding row that no token has
        return "?"
    anchor, backend = "0", tokenizer.backend_tokenizer
    if backend.decoder is None:  # no decoder: words joined by spaces
        return f"{word} "
    return backend.decoder.decode([anchor, word])[len(anchor) :]


def encode_pieces(tokenizer: Any, text: str, cut: str) -> list[int]:
    pieces = filter(None, text.split(cut))
    return [i for piece in pieces for i in tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"]]
