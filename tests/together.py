"""Training runs of several processes, which `torchrun` starts; what came out is written where the test says.

torchrun --nproc_per_node 2 tests/together.py FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

from redraft.train import parallel
from training import TEXTS, make

FULL = {"lora": None, "recipe": "mdm", "lr": 1e-3}
STEERED = {"data": TEXTS, "recipe": "scope(error_rate=0.3, rounds=2, share='linear(0.1,0.8)')"}
# What is asked of both processes; alone, one process accumulates twice as often.
CASES: dict[str, dict[str, Any]] = {
    "copies": {"accumulate": 2},
    "copies, two rows": {"accumulate": 1, "batch": 2},
    "copies, steered": {"accumulate": 2, **STEERED},
    "copies, every parameter": {"accumulate": 2, **FULL},
    "sharded": {"accumulate": 2, "shard": True},
    "sharded, checkpointing": {"accumulate": 2, "shard": True, "gradient_checkpointing": True},
    "sharded, steered": {"accumulate": 2, "shard": True, **STEERED},
    "sharded, every parameter": {"accumulate": 2, "shard": True, **FULL},
}
INTERRUPTED = ("copies, steered", "sharded, steered", "sharded, every parameter")  # after a step, and gone on with


def alone(case: str) -> dict[str, Any]:
    options = {**CASES[case], "shard": False}
    return {**options, "accumulate": 2 * options["accumulate"]}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    accelerator = parallel.accelerator(device="cpu")
    for number, (case, options) in enumerate(CASES.items()):
        out = folder / str(number)
        run = make(accelerator=accelerator, out=out, dtype=torch.float64, **options)
        if case in INTERRUPTED:
            for record in run:
                if record["step"] == 3:  # a state was saved after step 2
                    break
            run = make(accelerator=accelerator, out=out, dtype=torch.float64, **options)
            assert run.step == 2
        list(run)
        result, weights = run.finish(), run.trained.weights()
        own = sum(
            (one.to_local() if isinstance(one, DTensor) else one).numel() for one in run.wrapped.parameters()
        ) / sum(one.numel() for one in run.wrapped.parameters())
        if run.main:
            save_file(weights, out / "trained.safetensors")
            said = {"world": run.world, "own": own, "records": run.log.records, "result": str(result)}
            (out / "said.json").write_text(json.dumps(said))
    accelerator.wait_for_everyone()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
