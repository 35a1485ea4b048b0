"""What the paper watches while it trains, as sums and counts, so that micro-batches and processes simply add up."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Metrics:
    """Scalars without gradients. A supervised position is a wrong commit, a right commit, masked, or context."""

    loss: Tensor  # summed; the training loss is loss / count
    count: Tensor
    wrong_loss: Tensor  # summed cross-entropy of visible tokens that are not the truth
    wrong: Tensor  # and their number
    right_loss: Tensor
    right: Tensor
    masked_loss: Tensor
    masked: Tensor
    context_loss: Tensor  # visible truth that nobody committed: supervised only with focus=False
    context: Tensor
    rows: Tensor
    conditioned: Tensor  # rows that drew self-conditioning

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics.unpack(self.pack() + other.pack())

    def pack(self) -> Tensor:
        """One vector, to be summed over processes."""
        return torch.stack([getattr(self, field.name).float() for field in fields(self)])

    @classmethod
    def unpack(cls, packed: Tensor) -> Metrics:
        return cls(*packed.unbind())

    def summary(self) -> dict[str, float | None]:
        """Means for a log; None where there was nothing to average."""
        n = {field.name: value for field, value in zip(fields(self), self.pack().tolist(), strict=True)}

        def mean(total: str, count: float) -> float | None:
            return n[total] / count if count else None

        committed = n["wrong"] + n["right"]
        return {
            "loss": mean("loss", n["count"]),
            "loss_wrong": mean("wrong_loss", n["wrong"]),
            "loss_right": mean("right_loss", n["right"]),
            "loss_masked": mean("masked_loss", n["masked"]),
            "loss_context": mean("context_loss", n["context"]),
            "error_rate": mean("wrong", committed),
            "committed": committed,
            "masked": n["masked"],
            "rows": n["rows"],
            "self_conditioned": n["conditioned"],
        }


def measure(
    losses: Tensor,
    *,
    total: Tensor,
    count: float | int,
    wrong: Tensor,
    right: Tensor,
    masked: Tensor,
    rows: int,
    conditioned: Tensor | int = 0,
) -> Metrics:
    """`losses` and the three kinds, one entry a supervised position; what is of no kind is context."""
    losses, total = losses.detach(), total.detach()
    context = ~(wrong | right | masked)
    parts: list[Tensor] = []
    for kind in (wrong, right, masked, context):
        parts += [torch.where(kind, losses, 0).sum(), kind.sum()]
    numbers = [total, total.new_tensor(float(count)), *parts, total.new_tensor(float(rows))]
    return Metrics(*numbers, conditioned=torch.as_tensor(conditioned, device=total.device))
