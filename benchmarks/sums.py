"""Samplers on the bundled model's running sums: accuracy with intervals, and tokens changed, at several step budgets.

    python benchmarks/sums.py [--model bundled] [--adapter FOLDER] [--problems 1000]

Prints a Markdown table; on two CPU cores it takes about a minute.
"""

from __future__ import annotations

import argparse

from redraft import Trajectory, load
from redraft.evals import sums
from redraft.evals.intervals import wilson
from redraft.generation import Plan, batches

SAMPLERS = ("unmask", "d3im(t2t=False)", "d3im(t2m=False)", "d3im")
BUDGETS = (24, 12, 6, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--adapter")
    parser.add_argument("--problems", type=int, default=1000)
    options = parser.parse_args()
    model = load(options.model, adapter=options.adapter, device="cpu")
    problems = [sums.problem(0, index, test=True) for index in range(options.problems)]
    questions = [one.question for one in problems]
    print(f"| sampler | {' | '.join(f'{steps} steps' for steps in BUDGETS)} | overwritten, masked again at 12 steps |")
    print("|---" * (len(BUDGETS) + 2) + "|")
    for sampler in SAMPLERS:
        cells, changes = [], ""
        for steps in BUDGETS:
            plan = Plan.of(sampler, length=sums.LENGTH, steps=steps)
            correct, counts = 0, {"overwrite": 0, "demotion": 0}
            for batch in batches(model, questions, length=sums.LENGTH, batch_size=250):
                trajectory = Trajectory.of(plan.walk(model, batch.canvas))
                for row, index in enumerate(batch.indices):
                    correct += sums.grade(model.decode(trajectory.tokens[-1, row]), problems[index])
                for kind in counts:
                    counts[kind] += int(trajectory.changes(kind).sum())
            low, high = wilson(correct, len(problems))
            cells.append(f"{correct / len(problems):.1%} ({low:.1%} to {high:.1%})")
            if steps == 12:
                changes = ", ".join(f"{count / len(problems):.1f}" for count in counts.values())
        print(f"| `{sampler}` | {' | '.join(cells)} | {changes} |", flush=True)


if __name__ == "__main__":
    main()
