"""A subword tokenizer for small models: byte-level BPE with at most one digit a token, and LLaDA's special tokens.

Sennrich et al. 2016, arXiv 1508.07909. It can spell any text, since every byte is a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redraft.models.families import FAMILIES

SIZE = 1536
END, PAD, MASK = "<|endoftext|>", "<|padding|>", "<|mdm_mask|>"
SPECIAL = (END, PAD, MASK, *FAMILIES["llada"].marks)
# A digit, a word or a sign, each with a space before it if there is one; a run's last space goes with what follows.
PIECES = r" ?\d| ?[A-Za-z]+| ?[^\sA-Za-z\d]+|\s+(?!\S)|\s+"


def learn(texts: Iterable[str], *, size: int = SIZE) -> Any:
    """A tokenizer learnt from `texts`; special tokens come first."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=FAMILIES["llada"].marks[0],
        eos_token=END,
        pad_token=PAD,
        mask_token=MASK,
        chat_template=FAMILIES["llada"].template,
        clean_up_tokenization_spaces=False,
    )
