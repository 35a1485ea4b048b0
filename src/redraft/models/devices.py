"""Where a model can go on this computer."""

from __future__ import annotations

import time

import torch


def devices() -> list[str]:
    """All there are: cpu, cuda:0, cuda:1, ..., mps."""
    here = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return here + (["mps"] if torch.backends.mps.is_available() else [])


def best_device() -> str:
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(name: str | None) -> None:
    """Refuse a device that this computer does not have, naming those that it has.

    The first of a kind may be written with its number or without: processes that share work say `cpu:0`.
    """
    here = devices()
    if name is not None and not {name, f"{name}:0", name.removesuffix(":0")} & set(here):
        raise ValueError(f"device {name}: there is no such device here; there is {', '.join(here)}")


def quickest_dtype(device: str) -> str:
    """bfloat16 where it is quicker than float32: on GPUs, and on processors with instructions for it."""
    if device != "cpu":
        return "bfloat16"
    spent = {}
    for dtype in (torch.float32, torch.bfloat16):
        rows, weights = torch.ones(2048, 256, dtype=dtype), torch.ones(256, 640, dtype=dtype)
        torch.mm(rows, weights)
        started = time.perf_counter()
        for _ in range(3):
            torch.mm(rows, weights)
        spent[dtype] = time.perf_counter() - started
    return str(min(spent, key=lambda dtype: spent[dtype])).removeprefix("torch.")
