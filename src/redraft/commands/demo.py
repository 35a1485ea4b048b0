"""`redraft demo`: the paper's idea on the model that ships with us, offline, in under two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redraft.commands.console import loading, out, plain, progress

if TYPE_CHECKING:
    from redraft.decoding import Trajectory
    from redraft.evals.run import Evaluation, Record
    from redraft.evals.task import Item
    from redraft.models import Model

SCOPE = "bundled-scope"
SAMPLERS = ("unmask", "d3im")
TOKENS_A_STEP = 4
SHOWN = 29  # the test problem that is drawn: chosen because it tells, so it is not in the table
BATCH = 12
PAUSE = 0.25  # seconds between two drawings


def demo(
    problems: Annotated[int, typer.Option(min=1, max=1000, help="Problems in the table.")] = 36,
    replay: Annotated[Path, typer.Option(help="Where the page that replays the drawn problem goes.")] = Path(
        "redraft-demo.html"
    ),
) -> None:
    """Watch a small model change its mind, beside one that cannot. No GPU, no download, under two minutes."""
    from redraft.evals.words import TASK
    from redraft.output import check_writable

    check_writable(replay)
    with loading("torch, transformers and the model"):
        from redraft.models import load
        from redraft.models.devices import best_device, quickest_dtype

        device = best_device()
        dtype = quickest_dtype(device)
        base = load("bundled", device=device, dtype=dtype)
        scope = load("bundled", adapter=SCOPE, device=device, dtype=dtype).merged()
    shown, tests = _items(problems)
    size = sum(one.numel() for one in base.network.parameters())
    out.print(f"A masked diffusion model of {size / 1e6:.1f} million parameters, of LLaDA's architecture, and the same")
    out.print(f"after SCOPE, which showed it its own mistakes. On {device}, in {dtype}.\n")

    out.print(f"[bold]1.[/] A problem that neither was trained on, {TOKENS_A_STEP} tokens a step:\n")
    out.print(f"   [italic]{plain(str(shown.prompt[-1]['content']))}[/]\n")  # type: ignore[index]
    runs = _watch(base, scope, shown, TASK.length)
    _judge(runs, TASK, shown)

    out.print(f"\n[bold]2.[/] {problems} more, {TASK.length} tokens in {TASK.length // TOKENS_A_STEP} steps:\n")
    _compare({"as trained": base, "after SCOPE": scope}, tests)

    from redraft.replay import save

    save(replay, list(runs.values()), titles=list(runs), heading="One problem, decoded twice")
    out.print(f"\n[bold]3.[/] Every step of the first problem, to click through: [bold]{plain(str(replay))}[/]")
    out.print(EXPLAINED)


def _items(problems: int) -> tuple[Item, list[Item]]:
    """The one that is drawn, and those of the table: the first others."""
    from redraft.evals.words import TASK

    items = TASK.items(count=max(problems, SHOWN) + 1)
    return items[SHOWN], [*items[:SHOWN], *items[SHOWN + 1 :]][:problems]


def _watch(base: Model, scope: Model, item: Item, length: int) -> dict[str, Trajectory]:
    """Both at once, where there is a terminal to draw on."""
    from redraft.decoding import Recorder
    from redraft.generation import Plan, batches
    from redraft.terminal import watch_together

    chosen = {"frozen: unmask": (base, "unmask"), "revising: SCOPE and d3im": (scope, "d3im")}
    walks, recorders = {}, {}
    for title, (model, sampler) in chosen.items():
        plan = Plan.of(sampler, length=length, steps=length // TOKENS_A_STEP)
        (batch,) = batches(model, [item.prompt], length=length)
        walks[title] = plan.walk(model, batch.canvas)
        about = {"model": model.name, "sampler": sampler, "rank": "probability", "prompts": [item.prompt]}
        recorders[title] = Recorder(eos_ids=model.eos_ids, about=about)
    for title, step in watch_together(walks, base.pieces, eos_ids=base.eos_ids, console=out, pause=PAUSE):
        recorders[title].add(step)
    return {title: recorder.trajectory().with_texts(base.pieces) for title, recorder in recorders.items()}


def _judge(runs: dict[str, Trajectory], task, item: Item) -> None:
    """What came out, and whether it is right."""
    for title, run in runs.items():
        ids = run.tokens[-1, 0, : run.first_eos(0)].tolist()
        text, counts = "".join(run.texts[token] for token in ids), run.counts()  # type: ignore[index]
        right = task.grade(text, item.gold).correct
        run.about["verdicts"] = ["right" if right else "wrong"]
        if not out.is_terminal:
            out.print(f"   {title}: {plain(text)}")
        verdict = "[bold green]right[/]" if right else "[bold red]wrong[/]"
        out.print(f"   {title}: {verdict}; {counts['overwrite']} tokens overwritten, {counts['demotion']} masked again")


def _compare(models: dict[str, Model], items: list[Item]) -> None:
    from rich.table import Table

    from redraft.evals.intervals import wilson

    table = Table("model", "sampler", "right", "95 % interval", "overwritten", "masked again")
    for column in table.columns[2:]:
        column.justify = "right"
    chosen = [(name, sampler) for name in models for sampler in SAMPLERS]
    with progress("decoding", len(chosen) * len(items)) as meter:
        for name, sampler in chosen:
            records: list[Record] = []
            for batch in _evaluation(models[name], sampler, items).run():
                records += batch.records
                meter.advance(len(batch.records))
            right = sum(record.correct for record in records)
            low, high = wilson(right, len(items))
            changes = (sum(getattr(one, kind) for one in records) / len(items) for kind in ("overwrites", "demotions"))
            interval = f"{low:.0%} to {high:.0%}"
            table.add_row(name, sampler, f"{right / len(items):.0%}", interval, *(f"{count:.1f}" for count in changes))
    out.print(table)
    out.print("(overwritten, masked again: tokens an answer)", style="dim")


def _evaluation(model: Model, sampler: str, items: list[Item]) -> Evaluation:
    from redraft.evals.run import Evaluation
    from redraft.evals.words import TASK
    from redraft.fast import Reuse
    from redraft.generation import Plan

    plan = Plan.of(sampler, length=TASK.length, steps=TASK.length // TOKENS_A_STEP)
    return Evaluation(model, TASK, items, plan, batch_size=BATCH, through=Reuse)


EXPLAINED = """
unmask freezes a token once it is revealed; d3im predicts every position anew at
every step, keeps the surest and masks the rest again, whatever stood there. That
helps only a model that can judge what it sees, and SCOPE teaches that. So few
problems leave wide intervals: docs/results.md has more of them.

Next:
  redraft generate --watch --length 128 --steps 32 --adapter bundled-scope \\
    "Mia has 12 apples. She buys 7 more apples. How many apples does Mia have now?"
  redraft sweep --task words --count 50 --adapter none,bundled-scope --out first
  redraft samplers"""
