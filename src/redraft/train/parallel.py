"""How a network is spread over processes, and how its numbers are put together again for saving.

Copies on each process (DDP) and Accelerate's FSDP and DeepSpeed plug-ins come from `Accelerator.prepare`; `shard` is
torch's own fully_shard, which also works between CPU processes, where Accelerate's plug-in does nothing, silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from redraft.train.compiled import blocks_of


def accelerator(*, device: str | None = None, report_to: str | None = None, out: Path | None = None) -> Any:
    """Accelerate with everything off that would change the numbers; what the launcher's environment says is kept."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin

    made = Accelerator(
        cpu=device is not None and device.startswith("cpu"),
        # The loop divides by the tokens of a whole step and says when gradients are exchanged. A plug-in, not the
        # plain number: that would be overruled by an environment variable that `accelerate launch` may set.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        # Our own autocast does it; DeepSpeed alone wants to be told, and keeps float32 copies itself.
        mixed_precision="bf16" if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" else "no",
        kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)],
        log_with=report_to,
        project_dir=out,
    )
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and kind(made) != "FSDP":
        raise ValueError(
            "Accelerate's FSDP does nothing on a CPU, and does not say so: start with "
            "`torchrun --nproc_per_node 2 ...` and give --shard"
        )
    return made


def kind(accelerator: Any) -> str:
    return str(accelerator.distributed_type.value)


def checkpoint_blocks(network: Any) -> None:
    """Keep only what goes into each block, and compute the rest again in the backward pass."""
    # transformers 5.17 has the second name only, later ones warn about it.
    enable = getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def shard(network: nn.Module, accelerator: Any) -> Any:
    """Every block's parameters, and the rest, cut over all processes; gathered when they are needed."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if accelerator.num_processes < 2:
        raise ValueError(
            "sharding needs several processes, and there is one: start with `torchrun --nproc_per_node 2 ...` "
            "(`accelerate launch --cpu` quietly starts one)"
        )
    if kind(accelerator) in ("FSDP", "DEEPSPEED"):
        raise ValueError(f"the launcher shards already ({kind(accelerator)}): leave out --shard")
    network.to(accelerator.device)
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for block in blocks_of(network):
        fully_shard(block, mesh=mesh)
    return fully_shard(network, mesh=mesh)


@contextmanager
def exchange(model: Any, accelerator: Any, *, now: bool) -> Iterator[None]:
    """Gradients of the backward pass inside go to the other processes, or wait for the step's last one."""
    accelerator.gradient_state._set_sync_gradients(now)  # what `Accelerator.accumulate` does; DeepSpeed reads it
    if hasattr(model, "set_requires_gradient_sync"):  # fully_shard
        model.set_requires_gradient_sync(now)
        yield
    elif now or not hasattr(model, "no_sync") or kind(accelerator) == "DEEPSPEED":
        yield
    else:
        with model.no_sync():
            yield


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that may be sharded, on the CPU. Every process must ask."""
    from torch.distributed.tensor import DTensor

    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


@torch.no_grad()
def put(tensor: Tensor, value: Tensor) -> None:
    """`value` into a tensor that may be sharded."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if isinstance(tensor, DTensor):
        part = distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)
        tensor.to_local().copy_(part.to_local())
    else:
        tensor.copy_(value)


class Trained:
    """The parameters that are trained, by name, and AdamW's two averages of each, gathered and put back."""

    AVERAGES = ("exp_avg", "exp_avg_sq")

    def __init__(self, network: nn.Module, optimizer: Any, accelerator: Any) -> None:
        self.parameters = {name: one for name, one in network.named_parameters() if one.requires_grad}
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        self.deepspeed = kind(accelerator) == "DEEPSPEED"

    def weights(self) -> dict[str, Tensor]:
        if self.deepspeed:
            from deepspeed.utils import safe_get_full_fp32_param  # type: ignore[import-not-found]

            return {name: safe_get_full_fp32_param(one).cpu() for name, one in self.parameters.items()}
        return {name: whole(one) for name, one in self.parameters.items()}

    def load_weights(self, saved: dict[str, Tensor]) -> None:
        for name, one in self.parameters.items():
            if self.deepspeed:
                from deepspeed.utils import safe_set_full_fp32_param  # type: ignore[import-not-found]

                safe_set_full_fp32_param(one, saved[name].to(one.device))
            put(one.data, saved[name].to(one.dtype))

    def averages(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, one in self.parameters.items():
            if self.deepspeed:
                from deepspeed.utils import safe_get_full_optimizer_state  # type: ignore[import-not-found]

                found |= {f"{name}/{key}": safe_get_full_optimizer_state(one, key).cpu() for key in self.AVERAGES}
            elif state := self.optimizer.state.get(one):
                found |= {f"{name}/{key}": whole(state[key]) for key in self.AVERAGES}
        return found

    def load_averages(self, saved: dict[str, Tensor], step: int) -> None:
        for name, one in self.parameters.items():
            if self.deepspeed:
                from deepspeed.utils import safe_set_full_optimizer_state  # type: ignore[import-not-found]

                for key in self.AVERAGES:
                    safe_set_full_optimizer_state(one, saved[f"{name}/{key}"].to(one.device), key)
                continue
            state = {key: torch.zeros_like(one, memory_format=torch.preserve_format) for key in self.AVERAGES}
            for key, tensor in state.items():
                put(tensor, saved[f"{name}/{key}"])
            fused = self.optimizer.param_groups[0]["fused"]
            counted = torch.tensor(float(step), dtype=torch.float32, device=one.device if fused else "cpu")
            self.optimizer.state[one] = {"step": counted, **state}
