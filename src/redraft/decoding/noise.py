"""Counter-based randomness: every number is a pure function of (row seed, counters, position), never of batch or order.

A generator object would tie a row's noise to whatever was drawn before it. Here a hash does: the same row gets the same
numbers alone, in a batch, on a CPU, on a GPU, and after a resume. The mixer is a 32-bit finaliser (xor-shift-multiply,
constants by Ettinger's "hash prospector" search), held in int64 because torch has no unsigned arithmetic.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Tensor

from redraft.shapes import Float, Int

_LOW = 0xFFFFFFFF
_HIGH = 0x9E3779B9  # any constant: 0 mixes to 0, and the upper half of a small seed is 0
_WEYL = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the usual additive constant


def _mix(x: Tensor) -> Tensor:
    """Scramble 32-bit values kept in int64; products may wrap, their low 32 bits are still right."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _LOW
    x = ((x ^ (x >> 15)) * 0xD35A2D97) & _LOW
    return x ^ (x >> 15)


def derive(seed: int, index: int) -> int:
    """The seed of item `index` under `seed`: a 62-bit splitmix step, so that neighbouring items share nothing."""
    z = (seed * 0xD1342543DE82EF95 + (index + 1) * _WEYL) & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (z ^ (z >> 31)) >> 2


def spread(low: Int[Tensor, " b"], high: Int[Tensor, " b"], first: int, count: int) -> Float[Tensor, "b n"]:
    """The numbers `first` to `first` + `count` of the sequences that begin with these two words."""
    index = torch.arange(first, first + count, device=low.device) & _LOW
    bits = _mix(_mix(index ^ low[:, None]) ^ high[:, None])
    # The smallest value is 2^-33 and exact; rounding to float32 could reach 1.0, hence the clamp.
    unit = ((bits.double() if bits.device.type != "mps" else bits.float()) + 0.5) * 2.0**-32
    return unit.float().clamp_max(1 - 2.0**-24)


def counter_uniform(
    seeds: Int[Tensor, " b"],
    counters: tuple[int | Tensor, ...],
    size: tuple[int, ...],
    first: int = 0,
    spread: Callable[..., Tensor] = spread,
) -> Tensor:
    """Uniforms strictly inside (0, 1), float32, shape [b, *size]; `counters` are integers, or [b] tensors of them.

    The numbers are those from index `first` on, which may be negative, of one endless sequence. `spread` may be
    replaced by a compiled one, for nearly all work is done there.
    """
    low, high = _mix(seeds & _LOW), _mix((seeds >> 32) & _LOW ^ _HIGH)
    for counter in counters:
        low = _mix((low + counter) & _LOW)
        high = _mix(high ^ low)
    return spread(low, high, first, int(torch.Size(size).numel())).view(len(seeds), *size)


def stream_number(stream: str) -> int:
    """A name for a stream of noise ("gumbel", "remask") as a counter."""
    return zlib.crc32(stream.encode())


def gumbel(unit: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Standard Gumbel noise. Its large values come from small uniforms, which float32 resolves (up to 22.9)."""
    return -torch.log(-torch.log1p(-unit))
