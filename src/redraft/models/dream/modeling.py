"""Dream: Qwen2.5 weights trained to look both ways, whose output at position i - 1 predicts the token at position i.

Ye et al. 2025, "Dream 7B", arXiv:2508.15487. The shift is undone here, once: like LLaDA's, this model's logits at
position i are about position i, and no sampler or loss needs to know. Tensor names are the published checkpoints'.

Differs from the reference: rotations are done in float32, which a bfloat16 model there does in bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import MaskedLMOutput

from redraft.models.dream.configuration import DreamConfig
from redraft.models.layers import RMSNorm, Tables, default_positions, key_choice, look_both_ways, rotary_tables
from redraft.models.rows import Rows
from redraft.shapes import Bool, Float, Int


class DreamAttention(nn.Module):
    """Queries, keys and values have biases, the way out has none."""

    def __init__(self, config: DreamConfig):
        super().__init__()
        self.head_size = config.head_size
        width, shared = config.hidden_size, config.num_key_value_heads * config.head_size
        self.q_proj = nn.Linear(width, width, bias=True)
        self.k_proj = nn.Linear(width, shared, bias=True)
        self.v_proj = nn.Linear(width, shared, bias=True)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Float[Tensor, "b n d"], tables: Tables, allowed: Bool[Tensor, "b 1 q k"] | None
    ) -> Float[Tensor, "b n d"]:
        seen = look_both_ways(self.q_proj(x), self.k_proj(x), self.v_proj(x), self.head_size, tables, allowed)
        return self.o_proj(seen)


class DreamMLP(nn.Module):
    def __init__(self, config: DreamConfig):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DreamBlock(GradientCheckpointingLayer):
    def __init__(self, config: DreamConfig):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DreamAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = DreamMLP(config)

    def forward(
        self, hidden: Float[Tensor, "b n d"], tables: Tables, allowed: Bool[Tensor, "b 1 q k"] | None
    ) -> Float[Tensor, "b n d"]:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), tables, allowed)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class DreamTrunk(nn.Module):
    """Holds the parts under the name that the checkpoint gives them, ``model``."""

    def __init__(self, config: DreamConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DreamBlock(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class DreamForMaskedLM(PreTrainedModel):
    """Tokens with holes in, logits for every wanted position out."""

    config_class = DreamConfig
    config: DreamConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DreamBlock"]
    _supports_sdpa = True

    def __init__(self, config: DreamConfig):
        super().__init__(config)
        self.model = DreamTrunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.model.embed_tokens = value

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.lm_head = new_embeddings

    def forward(
        self,
        input_ids: Int[Tensor, "b n"] | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Int[Tensor, "r n"] | None = None,
        inputs_embeds: Float[Tensor, "b n d"] | None = None,
        columns: slice | Int[Tensor, "w"] = slice(None),
        return_dict: bool | None = None,
        rows: Rows | None = None,
    ) -> MaskedLMOutput | tuple[Tensor, ...]:
        """As LLaDA's: logits at `columns` or at `rows`, each about the token in that same column."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds.")
        hidden = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        positions = default_positions(hidden) if position_ids is None else position_ids
        tables = rotary_tables(positions, self.config.head_size, self.config.rope_theta, hidden.dtype)
        allowed = key_choice(attention_mask)
        for block in self.model.layers:
            hidden = block(hidden, tables, allowed)
        if rows is not None:
            left = rows.index - (rows.index % hidden.shape[1] > 0).long()  # as below
            wanted = self.model.norm(hidden.flatten(0, 1).index_select(0, left))
            return rows.through(self.lm_head, wanted, self.config.vocab_size)
        # Column i is read one to its left; column 0 has no left neighbour and keeps its own, which means nothing.
        sources = (torch.arange(hidden.shape[1], device=hidden.device)[columns] - 1).clamp(min=0)
        logits = self.lm_head(self.model.norm(hidden[:, sources]))
        return (logits,) if return_dict is False else MaskedLMOutput(logits=logits)
