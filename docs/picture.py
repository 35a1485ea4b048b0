"""Draw docs/watch.svg, the README's picture, from a real decoding of the bundled model: `python docs/picture.py`."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.text import Text

from redraft import load
from redraft.generation import Plan, batches
from redraft.terminal import draw_row, legend

QUESTION = "Nora pays 8 dollars each for 5 books. She also buys a kite for 11 dollars. How many dollars does Nora pay?"
SAMPLER, ADAPTER = "d3im", "bundled-scope"
LENGTH, STEPS = 48, 16


def main() -> None:
    model = load("bundled", adapter=ADAPTER, device="cpu", dtype="float32")
    console = Console(record=True, width=120, file=io.StringIO(), highlight=False)
    console.print(
        f"$ redraft generate --watch --adapter {ADAPTER} -l {LENGTH} --steps {STEPS} -s {SAMPLER} \\", style="dim"
    )
    console.print(f'    "{QUESTION}"\n', style="dim", soft_wrap=True)
    (batch,) = batches(model, [QUESTION], length=LENGTH)
    for number, step in enumerate(Plan.of(SAMPLER, length=LENGTH, steps=STEPS).walk(model, batch.canvas), start=1):
        before = step.canvas.place(step.before, step.start).response[0].numpy()
        after = step.result.response[0].numpy()
        row = draw_row(before, after, model.pieces, mask_id=model.mask_id, eos_ids=model.eos_ids)
        console.print(Text(f"{number:2}  ", style="dim") + row)
    console.print()
    console.print(legend())
    console.save_svg(str(Path(__file__).with_name("watch.svg")), title="redraft")


if __name__ == "__main__":
    main()
