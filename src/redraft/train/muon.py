"""Muon (Jordan et al. 2024) for networks of many small matrices: those of one shape take their step together.

The update is `torch.optim.Muon`'s. One matrix at a time, its 40 small kernels for each of a small network's 56 matrices
take longer to launch than the network's own pass takes to run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import _foreach_add_ as add_  # pyright: ignore[reportPrivateImportUsage]: torch's own optimisers use these
from torch import _foreach_lerp as lerp  # pyright: ignore[reportPrivateImportUsage]
from torch import _foreach_lerp_ as lerp_  # pyright: ignore[reportPrivateImportUsage]
from torch import _foreach_mul_ as mul_  # pyright: ignore[reportPrivateImportUsage]


class Muon(torch.optim.Muon):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for one in group["params"]:
                if one.grad is not None:
                    shapes.setdefault(one.shape, []).append(one)
            for shape, alike in shapes.items():
                self._step_together(alike, group, rate=group["lr"] * 0.2 * max(shape) ** 0.5)

    def _step_together(self, alike: list[Tensor], group: dict[str, Any], *, rate: float) -> None:
        """`rate` makes the update as large as AdamW's (Liu et al. 2025, arXiv 2502.16982)."""
        gradients = [one.grad for one in alike if one.grad is not None]
        for one in alike:
            if "momentum_buffer" not in self.state[one]:
                self.state[one]["momentum_buffer"] = torch.zeros_like(one)
        averages = [self.state[one]["momentum_buffer"] for one in alike]
        lerp_(averages, gradients, 1 - group["momentum"])
        ahead = lerp(gradients, averages, group["momentum"])  # Nesterov's
        updates = orthogonal(torch.stack(list(ahead)), group["ns_coefficients"], group["ns_steps"], group["eps"])
        mul_(alike, 1 - group["lr"] * group["weight_decay"])
        add_(alike, list(updates.to(alike[0].dtype).unbind()), alpha=-rate)


def orthogonal(matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Each [m, n] matrix with its singular values near 1, by Newton and Schulz's iteration in bfloat16."""
    a, b, c = coefficients
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
