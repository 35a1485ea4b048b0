"""`redraft eval`: a task, a model and a sampler to a folder with every item, its protocol and a summary.

Killed at any moment, the same command goes on, and started by torchrun or `accelerate launch` its processes share the
items; the file of items is the same in every case.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from redraft.commands.console import Meter, duration, err, loading, out, plain, progress, write
from redraft.commands.generate import default_steps, is_out_of_memory
from redraft.evals.watcher import Watcher

if TYPE_CHECKING:
    from redraft.decoding import Step
    from redraft.evals.presets import Preset
    from redraft.evals.run import Forecast, Graded
    from redraft.generation import Plan


def evaluate(
    task: Annotated[
        str,
        typer.Option("--task", "-t", help="words, algebra, code, gsm8k, gsm8k-answer-first, math500, humaneval, mbpp."),
    ],
    out_folder: Annotated[Path, typer.Option("--out", "-o", help="The folder of the run.")],
    model: Annotated[str, typer.Option("--model", "-m", help="A hub name, a folder, or 'bundled'.")] = "bundled",
    adapter: Annotated[str | None, typer.Option(help="A PEFT adapter: a hub name or a folder.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a model on the hub.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.  [default: the best there is]")] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights: auto, bfloat16, float32, float64.")] = "auto",
    sampler: Annotated[
        str,
        typer.Option(
            "--sampler", "-s", "--remasking", help="As 'd3im(t2t=False)' or './mine.py:mine'; see `redraft samplers`."
        ),
    ] = "d3im",
    preset: Annotated[
        str | None,
        typer.Option(help="paper, llada, llada-blocks: template, length, steps, block and EOS policy as published."),
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", "-l", "--gen-length", help="Tokens to write.  [default: the task's]")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", help="Steps in all.  [default: the preset's, or a quarter of --length]")
    ] = None,
    block: Annotated[
        int | None, typer.Option("--block", "--block-length", help="Write in blocks of so many tokens.")
    ] = None,
    steps_per_block: Annotated[int | None, typer.Option(help="Steps of each block, in place of --steps.")] = None,
    eos: Annotated[
        str | None,
        typer.Option(help="End tokens before the last step, as in `redraft generate`.  [default: the sampler's own]"),
    ] = None,
    overflow: Annotated[str, typer.Option(help="Too few candidates: strict keeps fewer, fill takes end tokens.")] = (
        "strict"
    ),
    temperature: Annotated[float, typer.Option(help="Of the noise on the choice of tokens.")] = 0.0,
    rank: Annotated[str, typer.Option(help="What counts as sure: probability, margin, entropy, random.")] = (
        "probability"
    ),
    guidance: Annotated[
        float, typer.Option("--guidance", "--cfg-scale", help="Classifier-free guidance; doubles the calls.")
    ] = 0.0,
    precision: Annotated[str, typer.Option(help="Of the ranking: float32, float64, bfloat16.")] = "float32",
    shots: Annotated[int | None, typer.Option(min=0, help="Worked examples.  [default: the task's]")] = None,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Put prompts into the chat template.  [default: the task's]")
    ] = None,
    filter: Annotated[
        str | None, typer.Option(help="Which of the task's filters says what is correct.  [default: its first]")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The task's items from a local file.")] = None,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    count: Annotated[int | None, typer.Option(min=1, help="Only the first items; --subset first-N.")] = None,
    subset: Annotated[str, typer.Option(help="all, first-200, drawn-200, drawn-200-seed-7.")] = "all",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Items decoded together.")] = 16,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Programs run at the same time.  [default: one a core]")
    ] = None,
    allow_weak_sandbox: Annotated[
        bool, typer.Option("--allow-weak-sandbox", help="Run the model's programs where little holds them.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Score a model and a sampler on a task, with everything that the score depends on."""
    from redraft.decoding import Reading
    from redraft.decoding.reading import Precision
    from redraft.evals.processes import processes
    from redraft.evals.protocol import protocol, subject
    from redraft.evals.records import check_free
    from redraft.evals.run import Evaluation
    from redraft.evals.score import score
    from redraft.evals.subsets import check_subset, items_of
    from redraft.evals.tasks import find
    from redraft.fast import Reuse
    from redraft.generation import Plan, check_prompts
    from redraft.models import load
    from redraft.models.devices import check_device
    from redraft.samplers import parse

    # Everything that can be refused is refused before the model is loaded.
    chosen, rule = find(task), parse(sampler, files=True)
    if count is not None and subset != "all":
        raise ValueError("give --count or --subset, not both: --count 200 is --subset first-200")
    subset = subset if count is None else f"first-{count}"
    check_subset(subset)
    if preset is not None:
        fixed = {
            "--length": length,
            "--block": block,
            "--steps-per-block": steps_per_block,
            "--eos": eos,
            "--chat": chat,
        }
        settings = published(preset, chosen.name, fixed)
        length, block, eos, chat = settings.length, settings.block, settings.eos, settings.chat
        steps = settings.steps if steps is None else steps
    length = chosen.length if length is None else length
    if steps is None and steps_per_block is None:
        steps = default_steps(length, block)
    if precision not in get_args(Precision):  # the reading calls it dtype, which here is that of the weights
        raise ValueError(f"--precision is one of {', '.join(get_args(Precision))}, not {precision!r}")
    words: dict[str, Any] = {"rank": rank, "eos": eos or rule.eos, "overflow": overflow, "dtype": precision}
    reading = Reading(temperature=temperature, guidance=guidance, **words)
    plan = Plan.of(rule, length=length, steps=steps, block=block, steps_per_block=steps_per_block, reading=reading)
    check_device(device)
    check_free(out_folder, overwrite=overwrite)
    held = sandbox_tier(allow_weak_sandbox) if chosen.runs_code else None
    items = items_of(chosen, subset, split=split, shots=shots, data=data)
    check_prompts([item.prompt for item in items])
    for note in plan.notes:
        err.print(f"[yellow]note:[/] {plain(note)}")
    with processes() as group:
        watcher = Live(chosen.name, len(items), plan, hidden=not group.first)
        try:
            with loading(model):
                network = load(model, adapter=adapter, revision=revision, device=group.device(device), dtype=dtype)
                network = network.merged() if adapter else network
            evaluation = Evaluation(network, chosen, items, plan, seed, batch_size, chat, filter, Reuse)
            card = {
                "subject": subject(evaluation, model=model, adapter=adapter, revision=revision),
                "protocol": protocol(
                    evaluation, split=split, subset=subset, shots=chosen.shots if shots is None else shots, sandbox=held
                ),
            }
            with watcher:
                summary = score(
                    evaluation, card, out_folder, group, overwrite=overwrite, workers=workers, watcher=watcher
                )
        except BaseException as stopped:
            if watcher.done:
                err.print(f"{watcher.done} of {len(items)} items are in {plain(str(out_folder))}; "
                          "the same command goes on from there")  # fmt: skip
            if is_out_of_memory(stopped):
                raise ValueError(
                    f"out of memory: try a --batch-size below {batch_size}, or a shorter --length"
                ) from None
            raise
    if not group.first:
        return
    if as_json:
        write(json.dumps(summary))
    else:
        show(chosen.name, summary)
    err.print(f"[dim]items, card and summary saved in {plain(str(out_folder))}[/]")


def published(preset: str, task: str, given: dict[str, object]) -> Preset:
    """A preset's settings. `given`: the options that it sets, none of which may have a value of its own."""
    from redraft.evals.presets import preset as named

    if twice := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"--preset {preset} sets {', '.join(given)}: leave out {' and '.join(twice)}, or the preset")
    return named(preset, task)


def sandbox_tier(allow_weak: bool) -> str:
    """What holds generated programs here, in words; refused where that is little, unless it is allowed."""
    from redraft.evals import sandbox

    held = sandbox.tier()
    if allow_weak:
        os.environ[sandbox.ALLOW_WEAK] = "1"  # for the graders, however deep
    elif not held.strong and not os.environ.get(sandbox.ALLOW_WEAK):
        raise ValueError(
            f"this task runs what the model writes, and this system holds programs only weakly ({held}): "
            "--allow-weak-sandbox if you trust the model, or install bubblewrap"
        )
    return str(held)


class Live(Watcher):
    """An estimate, then how far the run is and what share of the answers was right so far."""

    def __init__(self, task: str, items: int, plan: Plan, *, hidden: bool) -> None:
        self.task, self.items, self.hidden = task, items, hidden
        self.each = sum(stage.steps for stage in plan.sampler.stages(plan.length, plan.steps, plan.block))
        self.done = self.graded = self.correct = self.begun = 0
        self.seeds: object = None
        self.meter = Meter("", 0, None)
        self.stack = ExitStack()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *stopped: object) -> None:
        self.stack.close()

    def begin(self, forecast: Forecast, done: int) -> None:
        self.done = done
        before = f", {done:,} of them done already" if done else ""
        batches = "1 batch" if forecast.batches == 1 else f"{forecast.batches:,} batches"
        if not self.hidden:
            err.print(
                f"{self.task}: {self.items:,} items{before}; {batches} here, at most "
                f"{forecast.calls:,} calls of the model, about {duration(forecast.seconds)}"
            )
        self.meter = self.stack.enter_context(progress(self.task, self.each * forecast.batches, hidden=self.hidden))

    def step(self, step: Step) -> None:
        unneeded = 0
        if step.canvas.seeds is not self.seeds:  # another batch: what the last one's rows did not need is done too
            self.seeds, unneeded = step.canvas.seeds, self.each * self.begun - self.meter.done
            self.begun += 1
        self.meter.advance(1 + unneeded)

    def batch(self, graded: Graded) -> None:
        self.done += len(graded.records)
        self.graded += len(graded.records)
        self.correct += sum(record.correct for record in graded.records)
        self.meter.advance(0, f"{self.task}, {self.correct / self.graded:.1%} of {self.graded:,} right")


def show(task: str, summary: dict[str, Any]) -> None:
    from rich.table import Table

    def right(of: dict[str, Any]) -> str:
        low, high = of["interval"]
        return f"{of['accuracy']:.1%} right ({low:.1%} to {high:.1%}): {of['correct']:,} of {summary['items']:,} items"

    ends, changes, speed = summary["ends"], summary["changes"], summary["tokens_per_second"]
    facts = {
        task: right(summary),
        **{f"filter {name}": right(found) for name, found in summary["filters"].items()},
        **{
            f"verdict {name}": f"{count:,}, as {summary['examples'][name]}"
            for name, count in summary["verdicts"].items()
        },
        "an item": f"{summary['calls_per_item']:,.1f} calls, {summary['processed_per_item']:,.0f} tokens processed",
        "speed": "not measured" if speed is None else f"{speed:,.1f} new tokens a second of decoding (no end tokens)",
        "ends": f"at token {ends['mean_first']:.1f}; early {ends['early']:.1%}, never {ends['truncated']:.1%}",
        "changes": ", ".join(f"{count:.1f} {name}" for name, count in changes.items()),
    }
    table = Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        table.add_row(plain(name), plain(fact))
    out.print(table)
