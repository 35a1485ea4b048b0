"""Small training runs for tests. No pytest in here: `torchrun` starts it as a script too."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from redraft.models import Model
from redraft.models.adapters import Lora
from redraft.models.standin import random_llada
from redraft.train.data import Packed, open_source
from redraft.train.loop import Run
from redraft.train.recipes import parse
from redraft.train.settings import Settings

# Pairs of unequal lengths, so that batches are padded, and differently in every layout.
PAIRS = [{"prompt": "say it " * (1 + n % 3), "response": f"number {n} " * (1 + n % 5)} for n in range(40)]
TEXTS = [{"text": f"document {n}: " + "a river runs past the mill " * 6} for n in range(30)]
SMALL = Lora(rank=4, alpha=8)


def make(
    *,
    out: Path | None = None,
    data=PAIRS,
    model: Model | None = None,
    dtype: torch.dtype = torch.float32,
    recipe: str = "scope",
    accelerator=None,
    report=lambda said: None,
    **settings,
) -> Run:
    model = model or random_llada(dtype=dtype)
    chosen = {"steps": 4, "length": 64, "lr": 0.01, "warmup": 2, "save_every": 2, "seed": 5, "lora": SMALL, **settings}
    stream = Packed(open_source(data), model, length=chosen["length"], seed=5, shuffle=8, pad_loss=False, chat=False)
    return Run(model, stream, parse(recipe), Settings(**chosen), out=out, accelerator=accelerator, report=report)


def losses(run: Run) -> list[float]:
    return [record["loss"] for record in run.log.records]


def trained(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in run.trained.weights().items()}


def adapter(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter" / "adapter_model.safetensors")


def gap(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
