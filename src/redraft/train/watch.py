"""What is kept to look at: a log of one JSON line an optimiser step, curves, and a model card. All read `Record`s."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Record = dict[str, Any]  # one optimiser step, as `loop.Run` yields it

# What the paper reports of its own run (methods 3.4): where a curve starts, where it ends, or between what it stays.
STARTS = {"loss_wrong": 6.3, "loss_right": 0.8}
ENDS = {"loss_wrong": 1.5, "loss_right": 0.05}
HEALTHY_ERRORS = (0.20, 0.45)  # of the commits, at temperature 1.5; about 0.05 at 0


class Log:
    """Records in memory and, given a path, as lines of a file that a killed run leaves readable."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        self.records.append(record)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def flush(self) -> None:
        if self.path is not None and self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def truncate(self, step: int) -> None:
        """Forget what came after `step`: it is computed again. Half a line at the end goes too."""
        self.records = [record for record in read_log(self.path) if record["step"] <= step] if self.path else []
        if self.path is not None and self.path.exists():
            draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            try:
                draft.write_text("".join(json.dumps(record) + "\n" for record in self.records), encoding="utf-8")
                os.replace(draft, self.path)
            finally:
                draft.unlink(missing_ok=True)


def read_log(path: Path) -> list[Record]:
    """The whole lines of a log."""
    found: list[Record] = []
    if not path.exists():
        return found
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            record = json.loads(line)
            found.append({**record, "step": int(record["step"])})
        except (ValueError, KeyError, TypeError):
            break  # what stands behind a broken line is of no use either
    return found


def headline(record: Record) -> str:
    """The progress line: the loss, what self-conditioning does, and the speed."""
    said = [f"loss {record['loss']:.3f}"]
    if record["loss_wrong"] is not None:
        said.append(f"wrong commits {record['loss_wrong']:.2f}")
    if record["loss_right"] is not None:
        said.append(f"right {record['loss_right']:.2f}")
    if record["error_rate"] is not None and record["committed"]:
        said.append(f"errors {record['error_rate']:.0%}")
    return ", ".join([*said, f"{record['tokens_per_second']:,.0f} tokens/s"])


def smooth(values: list[float], share: float) -> list[float]:
    """An exponential average that starts unbiased."""
    total = weight = 0.0
    found = []
    for value in values:
        total, weight = share * total + (1 - share) * value, share * weight + (1 - share)
        found.append(total / weight)
    return found


def seen(records: list[Record], key: str) -> tuple[list[int], list[float]]:
    """The steps at which there was something to measure, and what: a curve ends where that ends."""
    found = [record for record in records if record[key] is not None]
    return [record["step"] for record in found], [record[key] for record in found]


def curves(records: list[Record], path: Path, *, title: str) -> bool:
    """A figure of the monitors, with the paper's values marked; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    share = 1 - 1 / (1 + len(records) / 20)  # a twentieth of the run is averaged, however long it is
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    FigureCanvasAgg(figure)  # no pyplot: it would look for a screen
    figure.suptitle(title)
    (losses, commits, errors), (norm, heat, speed) = figure.subplots(2, 3)

    def draw(axes: Any, key: str, colour: str, label: str = "") -> None:
        steps, values = seen(records, key)
        axes.plot(steps, values, ".", ms=2, alpha=0.35, color=colour)
        axes.plot(steps, smooth(values, share), color=colour, label=label)

    draw(losses, "loss_masked", "tab:gray", "masked")
    draw(losses, "loss", "tab:blue", "all")
    losses.set_title("loss")
    draw(commits, "loss_wrong", "tab:red", "wrong commits")
    draw(commits, "loss_right", "tab:green", "right commits")
    commits.set_title("loss on commits")
    for key, colour in (("loss_wrong", "tab:red"), ("loss_right", "tab:green")):
        if any(record[key] is not None for record in records):
            commits.axhline(STARTS[key], color=colour, lw=0.8, ls=":")
            commits.axhline(ENDS[key], color=colour, lw=0.8, ls="--")
    commits.plot([], [], color="black", lw=0.8, ls=":", label="paper, start")
    commits.plot([], [], color="black", lw=0.8, ls="--", label="paper, after 500 steps")
    draw(errors, "error_rate", "tab:orange", "error rate")
    errors.axhspan(*HEALTHY_ERRORS, color="tab:green", alpha=0.12, label="paper, at temperature 1.5")
    errors.set_title("wrong among commits")
    errors.set_ylim(0, 1)
    draw(norm, "grad_norm", "tab:purple")
    norm.set_title("gradient norm, before clipping")
    draw(heat, "temperature", "tab:brown")
    heat.set_title("temperature")
    heat.set_ylim(0, 1.2 * max([record["temperature"] or 0 for record in records], default=0) or 1)
    draw(speed, "tokens_per_second", "tab:cyan")
    speed.set_title("tokens per second")
    for axes in (losses, commits, errors):
        axes.legend(fontsize=7)
    for axes in (norm, heat, speed):
        axes.set_xlabel("optimiser step")
    draft = path.with_name(f".{path.stem}.{os.getpid()}.png")
    try:
        figure.savefig(draft, dpi=120)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return True


def model_card(protocol: dict[str, Any], records: list[Record], *, picture: bool) -> str:
    """A README.md for the result: what it is, how it was made, and the record that makes numbers comparable."""
    run = protocol["run"]
    lora = run["lora"]
    first, last = records[: max(1, len(records) // 10)], records[-max(1, len(records) // 10) :]
    kind = "LoRA adapter" if lora else "fully trained model"
    lines = [
        "---",
        f"base_model: {run['model']}",
        "library_name: peft" if lora else "library_name: redraft",
        "tags: [redraft, masked-diffusion, scope]",
        "---",
        "",
        f"# {run['recipe'].split('(')[0]} on {run['model']}",
        "",
        f"A {kind} for {run['model']}, made with `redraft train` {protocol['versions']['redraft']}.",
        "",
        "```sh",
        f"redraft generate --model {run['model']} --adapter adapter ..."
        if lora
        else "redraft generate --model model ...",
        "```",
        "",
        "## How it was made",
        "",
        "| | |",
        "|---|---|",
        f"| recipe | `{run['recipe']}` |",
        f"| data | `{run['data']}` |",
        f"| steps | {run['steps']} of {run['rows']} examples, {protocol['tokens']:,} tokens |",
        f"| sequence length | {run['length']} |",
        f"| learning rate | {_rate(run)} |",
        f"| trained | {protocol['trainable']:,} parameters{_adapter(lora)} |",
        f"| seed | {run['seed']} |",
        f"| time | {protocol['seconds']:.0f} s on {protocol['hardware']} |",
        "",
        "## What was seen",
        "",
        "| mean of | first tenth of the steps | last tenth |",
        "|---|---|---|",
    ]
    names = {"loss": "loss", "loss_wrong": "loss on wrong commits", "loss_right": "loss on right commits",
             "loss_masked": "loss on masks", "error_rate": "wrong among commits"}  # fmt: skip
    for key, name in names.items():
        lines.append(f"| {name} | {_mean(first, key)} | {_mean(last, key)} |")
    lines += ["", "![curves](curves.png)", ""] if picture else [""]
    lines += ["## Protocol", "", "```json", json.dumps(protocol, indent=1), "```", ""]
    return "\n".join(lines)


def _rate(run: dict[str, Any]) -> str:
    if run["warmup"] < run["steps"]:
        return f"{run['lr']:g}, constant after {run['warmup']} steps"
    return f"rising to {run['lr'] * run['steps'] / run['warmup']:g}, for the warm-up takes {run['warmup']} steps"


def _adapter(lora: dict[str, Any] | None) -> str:
    if lora is None:
        return ""
    targets = lora["targets"] if isinstance(lora["targets"], str) else ", ".join(lora["targets"])
    return f": LoRA on {targets}, rank {lora['rank']}, alpha {lora['alpha']:g}, dropout {lora['dropout']:g}"


def _mean(records: list[Record], key: str) -> str:
    values = [record[key] for record in records if record[key] is not None]
    return f"{sum(values) / len(values):.3f}" if values else "-"
