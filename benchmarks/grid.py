"""Every combination of adapters, samplers, steps and tasks on one model: evidence for the model card's tables.

    python benchmarks/grid.py --model bundled --adapters none,bundled-scope --samplers unmask,d3im --steps 8,16,32 \\
        --tasks words,algebra,code --count 1000 --out grid.jsonl.gz

Writes one line an item and combination. `benchmarks/tables.py` makes tables with paired intervals of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from dataclasses import asdict

import torch

from redraft.evals.run import evaluate
from redraft.evals.tasks import find
from redraft.generation import Plan
from redraft.models import Model, load

KEPT = (
    "index", "correct", "verdict", "response", "first_eos", "calls", "processed", "reveals", "overwrites", "demotions",
    "oscillations",
)  # fmt: skip


def main() -> None:
    options = arguments()
    with gzip.open(options.out, "wt", encoding="utf-8") as file:
        for adapter in options.adapters.split(","):
            model = opened(options.model, adapter, options.dtype)
            for name in options.tasks.split(","):
                task = find(name)
                items = task.items(options.split, count=options.count, shots=options.shots)
                for sampler in options.samplers.split(";"):
                    for steps in map(int, options.steps.split(",")):
                        started = time.perf_counter()
                        plan = Plan.of(sampler, length=task.length, steps=steps)
                        records = evaluate(model, task, items, plan, seed=options.seed, batch_size=options.batch)
                        share = sum(record.correct for record in records) / len(records)
                        changed = sum(record.overwrites for record in records) / len(records)
                        calls = sum(record.calls for record in records) / len(records)
                        seconds = time.perf_counter() - started
                        print(
                            f"{adapter:<28} {name:<8} {sampler:<20} {steps:>4} {share:7.1%} {calls:6.1f} calls "
                            f"{changed:6.1f} overwritten {seconds:6.1f} s",
                            flush=True,
                        )
                        where = {"adapter": adapter, "task": name, "sampler": sampler, "steps": steps}
                        for record in records:
                            said = asdict(record)
                            file.write(json.dumps({**where, **{key: said[key] for key in KEPT}}) + "\n")


def opened(name: str, adapter: str, dtype: str) -> Model:
    model = load(name, adapter=None if adapter == "none" else adapter, dtype=dtype)
    return model if adapter == "none" else model.merged()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--adapters", default="none,bundled-scope")
    parser.add_argument("--samplers", default="unmask;d3im", help="separated by semicolons")
    parser.add_argument("--steps", default="8,16,32,64,128")
    parser.add_argument("--tasks", default="words,algebra,code")
    parser.add_argument("--split", default="test")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--dtype", default="float32" if not torch.cuda.is_available() else "bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
