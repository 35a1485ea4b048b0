"""How often a prompt decodes otherwise alone than in a ragged batch, by arithmetic: the price of float32 and bfloat16.

    python benchmarks/batch_invariance.py [--model bundled] [--device cpu] [--rows 64] [--dtypes float32,bfloat16]

Matrix products sum in another order for another batch size, so logits differ in their last bits, and a near-tie may
fall the other way. In float64 it does not happen (a test); here is how often it does elsewhere. Prints a table.
"""

from __future__ import annotations

import argparse

from redraft import generate, load
from redraft.decoding import Reading
from redraft.evals.words import TASK

SAMPLERS = ("unmask", "d3im", "d3im(t2t=False)")
EXAMPLES = 4  # prompts have 0 to 3 worked examples, so that a batch needs padding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--dtypes", default="float64,float32,bfloat16")
    options = parser.parse_args()
    asked = [TASK.items(count=options.rows, shots=shots) for shots in range(EXAMPLES)]
    prompts = [asked[row % EXAMPLES][row].prompt for row in range(options.rows)]
    print("| arithmetic | sampler | greedy: rows that differ | temperature 1: rows that differ |")
    print("|---|---|---|---|")
    for dtype in options.dtypes.split(","):
        model = load(options.model, device=options.device, dtype=dtype)
        for sampler in SAMPLERS:
            cells = []
            for temperature in (0.0, 1.0):
                reading = Reading(temperature=temperature)
                alone, together = (
                    generate(model, prompts, sampler, length=24, steps=8, reading=reading, batch_size=size)
                    for size in (1, 64)
                )
                differing = sum(a.ids != b.ids for a, b in zip(alone, together, strict=True))
                cells.append(f"{differing} of {options.rows} ({differing / options.rows:.1%})")
            print(f"| {dtype} | `{sampler}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
