"""Compiling what training repeats most: the blocks of the network, and the noise of its guesses.

Every block runs the same few kernels, so they are compiled once for all. Fused, norms, rotations and gates need neither
the time nor the memory of their float32 copies; the noise, one number for each position and token, is 20 passes over
memory in eager mode and one here. What comes out differs from eager mode by rounding only.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from redraft.decoding.noise import counter_uniform, spread
from redraft.train.ask import innermost

# With and without gradients, masks and a first layer's inputs, of one length and of any: a dozen graphs are legitimate,
# and past the limit (8, as torch has it) blocks would silently run as if they were not compiled.
GRAPHS = 32
LARGE = 500_000_000  # parameters


def can_compile(device: torch.device) -> bool:
    """Whether torch has here what it compiles with: a C compiler, and Triton on a GPU."""
    from torch.utils._triton import has_triton

    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and (device.type == "cpu" or (device.type == "cuda" and has_triton()))


def pays(device: torch.device, parameters: int) -> bool:
    """Whether a run that says nothing is compiled: a minute's work that a small model would not win back."""
    return device.type == "cuda" and parameters > LARGE and can_compile(device)


def blocks_of(network: Any) -> list[nn.Module]:
    """The layers of a network, whatever is wrapped round it or put into it."""
    names = getattr(innermost(network), "_no_split_modules", None) or ()
    return [module for module in network.modules() if type(module).__name__ in names]


def compile_blocks(network: Any, *, backend: str = "inductor", dynamic: bool | None = None) -> None:
    """In place and without a trace in the parameters' names; nothing is compiled before it is first called.

    `dynamic`: for rows of any length from the first on. Otherwise the second length that comes is compiled for all.
    """
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, GRAPHS)
    for block in blocks_of(network):
        block.compile(backend=backend, dynamic=dynamic)


def uncompile_blocks(network: Any) -> None:
    for block in blocks_of(network):
        block._compiled_call_impl = None


def is_compiled(network: Any) -> bool:
    inside = innermost(network)
    return isinstance(inside, nn.Module) and any(block._compiled_call_impl is not None for block in blocks_of(inside))


def uniform_for(network: Any) -> Callable[..., Tensor]:
    """`counter_uniform`, and where the network is compiled, the same numbers from one kernel."""
    return partial(counter_uniform, spread=_fused_spread()) if is_compiled(network) else counter_uniform


@cache
def _fused_spread() -> Callable[..., Tensor]:
    return torch.compile(spread)
