"""The parts that LLaDA and Dream share: RMS norm, rotary positions, attention that looks both ways.

RMS norm: Zhang and Sennrich 2019, arXiv:1910.07467. Rotary positions: Su et al. 2021, arXiv:2104.09864.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.shapes import Bool, Float, Int

Tables = tuple[Tensor, Tensor]  # cosines and sines, each [rows, 1, positions, head size]


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Norms and rotations in bfloat16 would lose digits; a float64 model keeps all of its own."""
    return torch.promote_types(dtype, torch.float32)


class RMSNorm(nn.Module):
    """x / rms(x), rounded to the input's dtype and only then multiplied by the weight, as the checkpoints expect."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        wide = hidden.to(at_least_float32(hidden.dtype))
        unit = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * unit.to(hidden.dtype)


def rotary_tables(positions: Int[Tensor, "r n"], head_size: int, theta: float, dtype: torch.dtype) -> Tables:
    """Angles for these positions.

    Computed in every forward pass (about 0.01 % of it at 8B): a table kept as a non-persistent buffer comes back
    uninitialised from ``from_pretrained``, without a word.
    """
    wide = at_least_float32(dtype)
    exponents = torch.arange(0, head_size, 2, device=positions.device, dtype=wide) / head_size
    angles = positions[:, None, :, None].to(wide) * (1.0 / theta**exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(heads: Float[Tensor, "b h n s"], tables: Tables) -> Float[Tensor, "b h n s"]:
    """Each head's first half turns against its second half."""
    cos, sin = tables
    wide = heads.to(cos.dtype)
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(heads.dtype)


def key_choice(
    attention_mask: Tensor | None,
) -> Bool[Tensor, "b 1 q k"] | None:
    """Which keys a query may look at, from [b, n] (keys), [b, q, k] or [b, 1, q, k] (query, key); None is all of them.

    A query that may look at nothing (a padding row) looks at everything instead: its output is never read, but a NaN
    there would reach every other position through the next layer's values.
    """
    if attention_mask is None:
        return None
    if attention_mask.is_floating_point():
        raise ValueError("attention_mask must be bool or 0/1 integers (1 = may be looked at), not floating point.")
    allowed = attention_mask.bool()
    if allowed.dim() == 2:
        allowed = allowed[:, None, None, :]
    elif allowed.dim() == 3:
        allowed = allowed[:, None]
    elif allowed.dim() != 4 or allowed.shape[1] != 1:
        raise ValueError(f"attention_mask must be [b, n], [b, q, k] or [b, 1, q, k], not {list(attention_mask.shape)}.")
    return allowed | ~allowed.any(-1, keepdim=True)


def look_both_ways(
    queries: Float[Tensor, "b n d"],
    keys: Float[Tensor, "b n e"],
    values: Float[Tensor, "b n e"],
    head_size: int,
    tables: Tables,
    allowed: Bool[Tensor, "b 1 q k"] | None,
) -> Float[Tensor, "b n d"]:
    """Attention without a causal mask; several query heads may share one key-value head (grouped queries)."""
    q, k, v = (flat.unflatten(-1, (-1, head_size)).transpose(1, 2) for flat in (queries, keys, values))
    q, k = rotate(q, tables), rotate(k, tables)
    if (shared := q.shape[1] // k.shape[1]) > 1:
        k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    return mixed.transpose(1, 2).flatten(-2)


def default_positions(hidden: Float[Tensor, "b n d"]) -> Int[Tensor, "1 n"]:
    """0 .. n-1 for every row: under left padding only differences of positions matter."""
    return torch.arange(hidden.shape[1], device=hidden.device)[None]
