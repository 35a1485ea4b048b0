"""Stand-ins for tests, demos and benchmarks: a byte-level tokenizer and small networks with random weights.

The tokenizer is NOT LLaDA's. It has LLaDA's special tokens, their ids on request, and its chat template, but reads text
byte by byte: its token counts say nothing about LLaDA. Its ``redraft_standin`` field says so wherever it is saved.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import torch
from torch import nn

from redraft.models.families import FAMILIES
from redraft.models.model import Model

# The ids of the published LLaDA tokenizer.
LLADA_IDS = {
    "<|startoftext|>": 126080,
    "<|endoftext|>": 126081,
    "<|mdm_mask|>": 126336,
    "<|start_header_id|>": 126346,
    "<|end_header_id|>": 126347,
    "<|eot_id|>": 126348,
}
COMPACT_IDS = {text: 256 + rank for rank, text in enumerate(LLADA_IDS)}  # straight after the bytes: a small embedding
DREAM_IDS = {text: 256 + rank for rank, text in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"])}
Network = TypeVar("Network", bound=nn.Module)
NOTICE = "a byte-level stand-in made by redraft, not the tokenizer of any published model"


def standin_tokenizer(ids: dict[str, int] | None = None, family: str = "llada") -> Any:
    """A tokenizer with one token per byte and these special tokens; LLaDA's own ids unless `ids` are given."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = LLADA_IDS if ids is None else ids
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)} | ids, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ids])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|startoftext|>" if "<|startoftext|>" in ids else None,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        chat_template=FAMILIES[family].template,
        clean_up_tokenization_spaces=False,
        redraft_standin=NOTICE,
    )


def random_llada(
    seed: int = 0,
    *,
    d_model: int = 32,
    n_layers: int = 2,
    n_heads: int = 4,
    n_kv_heads: int | None = None,
    mlp_hidden_size: int = 64,
    max_sequence_length: int = 512,
    dtype: torch.dtype = torch.float32,
) -> Model:
    """A small LLaDA with random weights and the stand-in tokenizer."""
    from redraft.models.llada.configuration import LLaDAConfig
    from redraft.models.llada.modeling import LLaDAForMaskedLM

    config = LLaDAConfig(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        mlp_hidden_size=mlp_hidden_size,
        max_sequence_length=max_sequence_length,
        vocab_size=264,
        mask_token_id=COMPACT_IDS["<|mdm_mask|>"],
        eos_token_id=COMPACT_IDS["<|endoftext|>"],
        pad_token_id=COMPACT_IDS["<|endoftext|>"],
    )
    network: Any = seeded_weights(LLaDAForMaskedLM(config), seed)
    return Model.of(network.to(dtype).eval(), standin_tokenizer(COMPACT_IDS), name=f"random-llada-{seed}")


def random_dream(
    seed: int = 0,
    *,
    hidden_size: int = 32,
    num_hidden_layers: int = 2,
    num_attention_heads: int = 4,
    num_key_value_heads: int = 2,
    intermediate_size: int = 64,
    dtype: torch.dtype = torch.float32,
) -> Model:
    """A small Dream with random weights and a byte-level tokenizer with Dream's special tokens."""
    from redraft.models.dream.configuration import DreamConfig
    from redraft.models.dream.modeling import DreamForMaskedLM

    config = DreamConfig(
        vocab_size=264,
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        intermediate_size=intermediate_size,
        max_position_embeddings=512,
        mask_token_id=DREAM_IDS["<|mask|>"],
        eos_token_id=DREAM_IDS["<|endoftext|>"],
        pad_token_id=DREAM_IDS["<|endoftext|>"],
    )
    network: Any = seeded_weights(DreamForMaskedLM(config), seed)
    return Model.of(network.to(dtype).eval(), standin_tokenizer(DREAM_IDS, "Dream"), name=f"random-dream-{seed}")


@torch.no_grad()
def seeded_weights(network: Network, seed: int) -> Network:
    """Fills every parameter from (seed, its name): the same numbers whatever the order, the device or the library.

    Scaled so that logits are of order 1 and that norms and biases matter, which a fresh network's do not.
    """
    for name, parameter in network.named_parameters():
        source = torch.Generator().manual_seed(zlib.crc32(name.encode()) + seed)
        noise = torch.randn(parameter.shape, generator=source)
        if parameter.dim() > 1:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
        else:
            parameter.copy_(noise / 10 + (0 if name.endswith("bias") else 1))
    return network
