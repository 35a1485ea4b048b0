"""How long the model that ships takes: one answer, and a hundred in batches, at four tokens a step.

    python benchmarks/bundled_speed.py [--answers 100] [--device cpu]

Wall-clock seconds of whole answers with SCOPE and D3IM, the model loaded and merged before; `fast.Reuse` as the
commands have it. Prints a table.
"""

from __future__ import annotations

import argparse
import time

from redraft.evals.run import Evaluation
from redraft.evals.words import TASK
from redraft.fast import Reuse
from redraft.generation import Plan
from redraft.models import load
from redraft.models.devices import best_device, quickest_dtype

BATCH = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--device", default=best_device())
    options = parser.parse_args()
    chosen = quickest_dtype(options.device)
    plan = Plan.of("d3im", length=TASK.length, steps=TASK.length // 4)
    items = TASK.items(count=options.answers)
    print(f"| arithmetic | one answer, s | {options.answers} answers in batches of {BATCH}, s |")
    print("|---|---|---|")
    for dtype in dict.fromkeys((chosen, "float32")):
        model = load("bundled", adapter="bundled-scope", device=options.device, dtype=dtype).merged()
        seconds = []
        for some in (items[:1], items[:1], items):  # the first is to warm up
            started = time.perf_counter()
            list(Evaluation(model, TASK, some, plan, batch_size=BATCH, through=Reuse).run())
            seconds.append(time.perf_counter() - started)
        mark = " (the quickest here)" if dtype == chosen else ""
        print(f"| {dtype}{mark} | {seconds[1]:.2f} | {seconds[2]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
