"""LLaDA: a Llama-shaped transformer that looks both ways and predicts the token at each position itself (no shift).

Nie et al. 2025, "Large Language Diffusion Models", arXiv:2502.09992. Tensor names are the published checkpoints', so
their safetensors files open as they are; none of their code is used or run.

Differs from the reference: a mask may say for every query which keys it sees; positions can be given; logits are
computed for the wanted columns only; dropout, biases and weight tying (all off in every published file) are not built.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import MaskedLMOutput

from redraft.models.layers import RMSNorm, Tables, default_positions, key_choice, look_both_ways, rotary_tables
from redraft.models.llada.configuration import LLaDAConfig
from redraft.models.rows import Rows
from redraft.shapes import Bool, Float, Int


class LLaDABlock(GradientCheckpointingLayer):
    """One layer, in the checkpoint's names: ff_proj is the gate (it gets the SiLU), ff_out the way back down."""

    def __init__(self, config: LLaDAConfig):
        super().__init__()
        self.head_size = config.head_size
        width, inner = config.d_model, config.mlp_hidden_size
        shared, bias = config.n_kv_heads * config.head_size, config.include_qkv_bias
        self.attn_norm = RMSNorm(width, config.rms_norm_eps)
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.k_proj = nn.Linear(width, shared, bias=bias)
        self.v_proj = nn.Linear(width, shared, bias=bias)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.ff_norm = RMSNorm(width, config.rms_norm_eps)
        self.ff_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.ff_out = nn.Linear(inner, width, bias=False)

    def forward(
        self, hidden: Float[Tensor, "b n d"], tables: Tables, allowed: Bool[Tensor, "b 1 q k"] | None
    ) -> Float[Tensor, "b n d"]:
        x = self.attn_norm(hidden)
        seen = look_both_ways(self.q_proj(x), self.k_proj(x), self.v_proj(x), self.head_size, tables, allowed)
        hidden = hidden + self.attn_out(seen)
        x = self.ff_norm(hidden)
        return hidden + self.ff_out(F.silu(self.ff_proj(x)) * self.up_proj(x))


class LLaDATransformer(nn.Module):
    def __init__(self, config: LLaDAConfig):
        super().__init__()
        self.wte = nn.Embedding(config.embedding_size, config.d_model)
        self.blocks = nn.ModuleList(LLaDABlock(config) for _ in range(config.n_layers))
        self.ln_f = RMSNorm(config.d_model, config.rms_norm_eps)
        self.ff_out = nn.Linear(config.d_model, config.embedding_size, bias=False)  # the head; layers have their own


class LLaDATrunk(nn.Module):
    """Only there for the checkpoint's names, which all begin with ``model.transformer``."""

    def __init__(self, config: LLaDAConfig):
        super().__init__()
        self.transformer = LLaDATransformer(config)


class LLaDAForMaskedLM(PreTrainedModel):
    """Tokens with holes in, logits for every wanted position out."""

    config_class = LLaDAConfig
    config: LLaDAConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["LLaDABlock"]
    _supports_sdpa = True

    def __init__(self, config: LLaDAConfig):
        super().__init__(config)
        self.model = LLaDATrunk(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.transformer.wte

    def set_input_embeddings(self, value: Any) -> None:
        self.model.transformer.wte = value

    def get_output_embeddings(self) -> nn.Module:
        return self.model.transformer.ff_out

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.model.transformer.ff_out = new_embeddings

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
        """`attention_mask`: None, [b, n], [b, q, k] or [b, 1, q, k], true where looking is allowed.

        `columns` says at which positions logits are wanted: the head is 7 % of an 8B pass, and its output large.
        With `rows`, no logits come back but what `rows.read` makes of those at the positions it names.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds.")
        parts = self.model.transformer
        hidden = parts.wte(input_ids) if inputs_embeds is None else inputs_embeds
        positions = default_positions(hidden) if position_ids is None else position_ids
        tables = rotary_tables(positions, self.config.head_size, self.config.rope_theta, hidden.dtype)
        allowed = key_choice(attention_mask)
        for block in parts.blocks:
            hidden = block(hidden, tables, allowed)
        if rows is not None:
            wanted = parts.ln_f(hidden.flatten(0, 1).index_select(0, rows.index))
            return rows.through(parts.ff_out, wanted, self.config.embedding_size)
        logits = parts.ff_out(parts.ln_f(hidden[:, columns]))
        return (logits,) if return_dict is False else MaskedLMOutput(logits=logits)
