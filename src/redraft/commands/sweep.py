"""`redraft sweep`: tasks, adapters, samplers and steps in every combination, as a table and a figure.

Killed at any moment, the same command goes on; asked for more samplers, steps, adapters or tasks, it runs only those.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args

import typer

from redraft.commands.console import Meter, duration, err, out, plain, progress, write
from redraft.commands.eval import published, sandbox_tier
from redraft.commands.generate import is_out_of_memory
from redraft.evals.watcher import SweepWatcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redraft.decoding import Reading, Sampler, Step
    from redraft.evals.rows import Baseline, Row
    from redraft.evals.run import Forecast
    from redraft.evals.sweep import Combination
    from redraft.generation import Plan

T = TypeVar("T")
WIDTH = 200  # of the printed table, whatever the terminal's: cells in lines of their own cannot be read


class Shape(NamedTuple):
    """What a preset may settle for a task; None where nothing is asked for."""

    length: Any  # int | None; the task's, where nothing is asked for
    block: int | None
    chat: bool | None
    eos: Any  # EosPolicy


def sweep(
    tasks: Annotated[
        str, typer.Option("--task", "--tasks", "-t", help="Tasks, separated by commas; see `redraft eval`.")
    ],
    out_folder: Annotated[Path, typer.Option("--out", "-o", help="The folder of the sweep.")],
    samplers: Annotated[
        str,
        typer.Option(
            "--samplers",
            "--sampler",
            "-s",
            help="Separated by semicolons or commas: 'unmask;d3im(t2t=False, t2m=False);./mine.py:mine(k=3)'.",
        ),
    ] = "unmask;d3im",
    steps: Annotated[
        str | None,
        typer.Option("--steps", help="Separated by commas.  [default: 16, 8, 4, 2 and 1 tokens a step]"),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="A hub name, a folder, or 'bundled'.")] = "bundled",
    adapters: Annotated[
        str,
        typer.Option("--adapter", "--adapters", help="Hub names or folders, separated by commas; 'none' is none."),
    ] = "none",
    baseline: Annotated[
        str | None, typer.Option(help="The sampler that others are set against.  [default: the first]")
    ] = None,
    baseline_adapter: Annotated[
        str | None, typer.Option(help="The adapter of the baseline.  [default: the first]")
    ] = None,
    baseline_steps: Annotated[
        int | None, typer.Option(min=1, help="The steps of the baseline.  [default: as many as the row's own]")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a model on the hub.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.  [default: the best there is]")] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights: auto, bfloat16, float32, float64.")] = "auto",
    preset: Annotated[
        str | None, typer.Option(help="paper, llada, llada-blocks: template, length, block, EOS policy as published.")
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", "-l", "--gen-length", help="Tokens to write.  [default: the task's]")
    ] = None,
    block: Annotated[
        int | None, typer.Option("--block", "--block-length", help="Write in blocks of so many tokens.")
    ] = None,
    eos: Annotated[
        str | None,
        typer.Option(help="End tokens before the last step, one policy for all.  [default: confidence]"),
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
    data: Annotated[Path | None, typer.Option(help="The items of a single task from a local file.")] = None,
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the sweep in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON lines.")] = False,
) -> None:
    """Compare samplers, steps and adapters on tasks, all under one protocol.

    --out then holds results.jsonl, a table with paired intervals (table.md), and accuracy against calls as a picture
    (figure.png) and as a page for a browser (figure.html): of all that the last command asked for.

    Each combination is a run of its own in --out, as `redraft eval` makes one. Stopped or killed at any moment, the
    same command goes on. Asked for more samplers, steps, adapters or tasks, it runs only what is new.
    """
    from redraft.decoding import Reading
    from redraft.decoding.notation import listed
    from redraft.decoding.reading import Precision
    from redraft.evals.processes import processes
    from redraft.evals.rows import Baseline, jsonl, results
    from redraft.evals.subsets import check_subset, items_of
    from redraft.evals.sweep import NONE, PICTURE, Questions, Sweep, alone, combine, default_steps
    from redraft.evals.tasks import find
    from redraft.fast import Reuse
    from redraft.generation import Plan, check_prompts
    from redraft.models.adapters import check_adapter
    from redraft.models.devices import check_device
    from redraft.samplers import parse

    # Everything that can be refused is refused before a model is loaded.
    chosen = {task.name: task for task in map(find, listed(tasks))}
    rules = list(dict.fromkeys(parse(text, files=True) for text in listed(samplers)))
    names = list(dict.fromkeys(listed(adapters)))
    counts = None if steps is None else numbers(steps)
    if count is not None and subset != "all":
        raise ValueError("give --count or --subset, not both: --count 200 is --subset first-200")
    subset = subset if count is None else f"first-{count}"
    check_subset(subset)
    if data is not None and len(chosen) > 1:
        raise ValueError(f"--data is one task's file, and there are {len(chosen)} tasks: sweep each on its own")
    if precision not in get_args(Precision):  # the reading calls it dtype, which here is that of the weights
        raise ValueError(f"--precision is one of {', '.join(get_args(Precision))}, not {precision!r}")
    words: dict[str, Any] = {
        "temperature": temperature, "rank": rank, "guidance": guidance, "overflow": overflow, "dtype": precision,
    }  # fmt: skip
    shapes, readings = {}, {}
    for name, task in chosen.items():
        shape = Shape(length, block, chat, eos)
        if preset is not None:
            settled = published(preset, name, {f"--{option}": value for option, value in shape._asdict().items()})
            shape = Shape(settled.length, settled.block, settled.chat, settled.eos)
        shapes[name] = shape if shape.length is not None else shape._replace(length=task.length)
        readings[name] = Reading(eos=shape.eos or "confidence", **words)

    def plan(task: str, rule: Sampler, steps: int) -> Plan:
        length, block = shapes[task][:2]
        return Plan.of(rule, length=length, steps=steps, block=block, reading=readings[task])

    asked, left_out = combine(chosen, names, rules, lambda task: counts or default_steps(*shapes[task][:2]), plan)
    against = Baseline(
        one_of("--baseline", rules, rules[0] if baseline is None else parse(baseline, files=True)),
        one_of("--baseline-adapter", names, names[0] if baseline_adapter is None else baseline_adapter),
        baseline_steps and one_of("--baseline-steps", [one.steps for one in asked if one.paced], baseline_steps),
    )
    check_device(device)
    for name in names:
        if name != NONE:
            check_adapter(name)
    questions = {}
    for name, task in chosen.items():
        held = sandbox_tier(allow_weak_sandbox) if task.runs_code else None
        own = items_of(task, subset, split=split, shots=shots, data=data)
        check_prompts([item.prompt for item in own])
        questions[name] = Questions(task, own, shapes[name].chat, task.shots if shots is None else shots, held)
    settings = {
        "model": model, "revision": revision, "device": device, "dtype": dtype, "preset": preset, "length": length,
        "block": block, "eos": eos, "overflow": overflow, "temperature": temperature, "rank": rank,
        "guidance": guidance, "precision": precision, "shots": shots, "chat": chat,
        "data": None if data is None else str(data), "split": split, "subset": subset, "seed": seed,
        "batch_size": batch_size,
    }  # fmt: skip
    notes = [*left_out, *other_policies(rules, readings.values())]
    notes += dict.fromkeys(note for one in asked for note in one.plan.notes)
    if not find_spec("matplotlib"):
        notes.append(f"there will be no {PICTURE} without matplotlib: pip install 'redraft[plots]'")
    with processes() as group, ExitStack() as stack:
        whole = Sweep(
            out=out_folder, settings=settings, questions=questions, model=model, revision=revision,
            device=group.device(device), dtype=dtype, split=split, subset=subset, seed=seed, batch_size=batch_size,
            workers=workers, overwrite=overwrite, group=group, through=Reuse,
        )  # fmt: skip
        group.agree(lambda: stack.enter_context(alone(out_folder)) if group.first else None)
        todo = whole.todo(asked)
        for note in notes if group.first else []:
            err.print(f"[yellow]note:[/] {plain(note)}")
        watcher = Live(asked, len(asked) - len(todo), hidden=not group.first)
        try:
            with watcher:
                whole.run(asked, todo, watcher)
        except BaseException as stopped:
            if group.first and watcher.announced:
                err.print(f"{watcher.finished} of {len(asked)} runs are finished in {plain(str(out_folder))}; "
                          "the same command goes on from there")  # fmt: skip
            if is_out_of_memory(stopped):
                raise ValueError(
                    f"out of memory: try a --batch-size below {batch_size} with another --out, or a shorter --length"
                ) from None
            raise
        if not group.first:
            return
        rows, protocols = results(out_folder, asked, against)
        written = save(out_folder, rows, protocols, against, model)
    if as_json:
        write(jsonl(rows).rstrip("\n"))
    else:
        show(rows, against)
    err.print(f"[dim]saved in {plain(str(out_folder))}: {', '.join(written)}, and every run[/]")


def numbers(text: str) -> list[int]:
    from redraft.decoding.notation import listed

    found = listed(text)
    if wrong := [word for word in found if not (word.isascii() and word.isdigit() and int(word) > 0)]:
        raise ValueError(f"--steps are whole numbers of at least 1, separated by commas, not {wrong[0]!r}")
    return list(dict.fromkeys(map(int, found)))


def one_of(option: str, known: Sequence[T], value: T) -> T:
    if value not in known:
        there = ", ".join(dict.fromkeys(map(str, known))) or "none that plays a part"
        raise ValueError(f"{option} {value!s} is not in this sweep; there are: {there}")
    return value


def other_policies(rules: Sequence[Sampler], readings: Iterable[Reading]) -> list[str]:
    """Samplers that are meant for another EOS policy than the one that all rows have."""
    policies = {reading.eos for reading in readings}
    others = [repr(rule) for rule in rules if policies - {rule.eos} and rule.eos == "none"]
    if not others:
        return []
    return [
        f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} meant for the EOS policy none; every row here has "
        f"{' or '.join(sorted(policies))}, so that rows can be compared (--eos sets it)"
    ]


class Live(SweepWatcher):
    """An estimate, a bar over the steps of all runs, and a line for each run that is finished."""

    def __init__(self, asked: Sequence[Combination], finished: int, *, hidden: bool) -> None:
        self.runs, self.finished, self.hidden = len(asked), finished, hidden
        self.announced = False
        self.each = self.batch_end = self.run_end = 0  # steps: of a batch; where this batch and this run end
        self.now = ""
        self.seeds: object = None
        self.meter = Meter("", 0, None)
        self.stack = ExitStack()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *stopped: object) -> None:
        self.stack.close()

    def announce(self, runs: int, forecast: Forecast, steps: int) -> None:
        self.announced = True
        before = f", {self.finished:,} of them finished already" if self.finished else ""
        if not self.hidden:
            err.print(
                f"{self.runs:,} runs{before}; {forecast.batches:,} batches here, at most {forecast.calls:,} calls of "
                f"the model, about {duration(forecast.seconds)}"
            )
        self.meter = self.stack.enter_context(progress("sweep", steps, hidden=self.hidden))

    def start(self, combination: Combination, batches: int) -> None:
        self.now = str(combination)
        plan = combination.plan
        self.each = sum(stage.steps for stage in plan.sampler.stages(plan.length, plan.steps, plan.block))
        self.batch_end, self.run_end = self.run_end, self.run_end + self.each * batches

    def step(self, step: Step) -> None:
        unneeded = 0
        if step.canvas.seeds is not self.seeds:  # another batch: what the last one's rows did not need is done too
            self.seeds, unneeded = step.canvas.seeds, self.batch_end - self.meter.done
            self.batch_end += self.each
        self.meter.advance(1 + unneeded, self.now)

    def finish(self, combination: Combination, summary: dict[str, Any]) -> None:
        self.finished += 1
        self.meter.advance(self.run_end - self.meter.done)
        if not self.hidden:
            low, high = summary["interval"]
            with self.meter.aside():
                err.print(
                    f"[dim]{self.finished} of {self.runs}:[/] {plain(str(combination))}: {summary['accuracy']:.1%} "
                    f"right ({low:.1%} to {high:.1%}), {summary['calls_per_item']:.1f} calls an item"
                )


def save(out: Path, rows: list[Row], protocols: dict[str, Any], against: Baseline, model: str) -> list[str]:
    """Everything that is made of the runs."""
    from redraft.evals import figure, page
    from redraft.evals.rows import jsonl, markdown
    from redraft.evals.sweep import PAGE, PICTURE, RESULTS, TABLE
    from redraft.output import replace

    contents = {
        RESULTS: jsonl(rows).encode(),
        TABLE: markdown(rows, protocols, against, model).encode(),
        PAGE: page.html(rows, protocols, against, model).encode(),
    }
    if find_spec("matplotlib"):
        contents[PICTURE] = figure.png(rows, protocols, model)
    for name, content in contents.items():
        replace(out / name, content)
    return list(contents)


def show(rows: list[Row], against: Baseline) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from redraft.evals.rows import HEAD, cells, legend

    wide = Console(file=out.file, width=max(WIDTH, out.width), highlight=False, emoji=False)
    first = 0 if len({row.adapter for row in rows}) > 1 else 1  # one adapter needs no column
    for task in dict.fromkeys(row.task for row in rows):
        table = Table(title=plain(task), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for name in HEAD[first:]:
            table.add_column(name, justify="left" if name in HEAD[:2] else "right", no_wrap=True)
        own = [row for row in rows if row.task == task]
        for row, after in zip(own, [*own[1:], None], strict=True):
            ends = after is not None and (after.adapter, after.series) != (row.adapter, row.series)
            table.add_row(*map(plain, cells(row)[first:]), end_section=ends)
        wide.print(table)
    err.print(f"[dim]{plain(legend(rows, against))}[/]")
