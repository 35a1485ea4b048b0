"""A training run as a process that tests kill. No pytest in here: a fork server loads it once for all lives."""

import os
from pathlib import Path

# What a run would load when it comes to it, loaded once, before lives are forked.
import accelerate.accelerator  # noqa: F401
import datasets  # noqa: F401
import matplotlib.backends.backend_agg  # noqa: F401
import peft  # noqa: F401
import torch

from training import make


def live(out: Path, data: str, options: dict) -> None:
    """One life: goes on from what is there, to the end if it is let."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    out.parent.mkdir(exist_ok=True)
    with (out.parent / "said.txt").open("a") as said:
        run = make(out=out, data=data, report=lambda text: print(text, file=said, flush=True), **options)
        for _ in run:
            pass
        run.finish()
