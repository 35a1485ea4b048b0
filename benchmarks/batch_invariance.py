"""How often a prompt decodes otherwise alone than in a ragged batch, by arithmetic: the price of float32 and bfloat16.

    python benchmarks/batch_invariance.py [--model bundled] [--device cpu] [--rows 256]

Matrix products sum in another order for another batch size, so logits differ in their last bits, and a near-tie may
fall the other way. In float64 it does not happen (a test); here is how often it does elsewhere. Prints a table.
"""

from __future__ import annotations

import argparse

from redraft import generate, load
from redraft.decoding import Reading
from redraft.evals import sums

SAMPLERS = ("unmask", "d3im", "d3im(t2t=False)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=256)
    options = parser.parse_args()
    questions = [ragged(index) for index in range(options.rows)]
    print("| arithmetic | sampler | greedy: rows that differ | temperature 1: rows that differ |")
    print("|---|---|---|---|")
    for dtype in ("float64", "float32", "bfloat16"):
        model = load(options.model, device=options.device, dtype=dtype)
        for sampler in SAMPLERS:
            cells = []
            for temperature in (0.0, 1.0):
                reading = Reading(temperature=temperature)
                alone, together = (
                    generate(model, questions, sampler, length=24, steps=8, reading=reading, batch_size=size)
                    for size in (1, 64)
                )
                differing = sum(a.ids != b.ids for a, b in zip(alone, together, strict=True))
                cells.append(f"{differing} of {options.rows} ({differing / options.rows:.1%})")
            print(f"| {dtype} | `{sampler}` | {' | '.join(cells)} |", flush=True)


def ragged(index: int) -> str:
    """A question of 2 to 9 terms, so that a batch needs padding."""
    one = sums.problem(0, index, test=True).question
    return " ".join((one.removesuffix(" = ?") + " + " + one).split()[-2 * (2 + index % 8) - 1 :])


if __name__ == "__main__":
    main()
