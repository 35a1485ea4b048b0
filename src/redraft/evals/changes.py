"""How often each row of a batch changed its mind, counted on the device from its responses after every step.

The same numbers as `Trajectory` gives, for batches of hundreds of rows, and without their confidences.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from redraft.shapes import Int


class Changes(NamedTuple):
    reveals: int
    overwrites: int
    demotions: int
    oscillations: int  # positions overwritten that came back to a token they had held


def count_changes(states: Int[Tensor, "s b l"], mask_id: int) -> list[Changes]:
    """`states`: the responses before the first step, then after each."""
    old, new = states[:-1], states[1:]
    was, now = old != mask_id, new != mask_id
    overwritten = was & now & (old != new)
    events = (~was & now, overwritten, was & ~now)
    counts = [event.sum((0, 2)) for event in events] + [_returned(old, new, overwritten).sum(-1)]
    return [Changes(*row) for row in torch.stack(counts, dim=-1).tolist()]


def _returned(old: Tensor, new: Tensor, overwritten: Tensor) -> Tensor:
    """Where the tokens that a position held, from its first overwrite on, are not all different: bool [b, l]."""
    first = overwritten.byte().argmax(0, keepdim=True)  # the first of equals
    began = old.gather(0, first)
    # Every step that overwrites nothing gets a number of its own, below those of tokens.
    filler = -torch.arange(1, len(new) + 1, device=new.device, dtype=new.dtype)[:, None, None]
    held = torch.cat([began, torch.where(overwritten, new, filler)]).sort(0).values
    return (held[1:] == held[:-1]).any(0)
