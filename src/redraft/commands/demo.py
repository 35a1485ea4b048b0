"""`redraft demo`: the paper's idea on a small model trained on the spot. To revise, it must learn to judge itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from redraft.commands.console import loading, out, progress

if TYPE_CHECKING:
    from redraft.decoding import Trajectory
    from redraft.evals.sums import Problem
    from redraft.models import Model
    from redraft.train.small import Progress

SAMPLERS = ("unmask", "d3im")
WATCHED = "d3im"
TOKENS_A_STEP = 2
SEED = 0
PAUSE = 0.5  # seconds between two drawings


def demo(
    steps: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Training steps: fewer make a worse model.  [default: 900]")
    ] = None,
    problems: Annotated[int, typer.Option(min=1, max=10_000, help="Problems in the table.")] = 200,
) -> None:
    """Train a small model on the spot, watch it learn to change its mind. No GPU, no download, about two minutes."""
    from redraft.evals import sums

    out.print("[bold]1.[/] A masked diffusion model learns to add up, from nothing, on this computer.")
    base = _train(steps)
    tests = [sums.problem(SEED, index, test=True) for index in range(problems)]

    out.print("\n[bold]2.[/] SCOPE shows a copy of it its own mistakes, and what should have stood there.")
    scope = _post_train(base, steps)

    shown = _telling(base, scope, tests[:50])
    out.print("\n[bold]3.[/] Both answer a problem with D3IM: at every step all positions are predicted anew,")
    out.print("   the surest are kept, and the rest is masked again, whatever stood there.\n")
    _watch(base, shown, "trained on masks alone")
    _watch(scope, shown, "after SCOPE")

    out.print(f"[bold]4.[/] {problems} problems that neither has seen, {TOKENS_A_STEP} tokens a step.\n")
    _compare({"masks alone": base, "after SCOPE": scope}, tests)
    out.print(EXPLAINED)


def _train(steps: int | None) -> Model:
    with loading("torch and transformers"):
        from redraft.train.small import STEPS, train, untrained

        model = untrained(SEED)
    parameters = sum(one.numel() for one in model.network.parameters())
    out.print(f"   {parameters:,} parameters, {_run(train(model, steps=steps or STEPS, seed=SEED), steps or STEPS)}")
    return model


def _post_train(base: Model, steps: int | None) -> Model:
    from redraft.train.small import POST_RECIPE, POST_STEPS, post_train

    model = replace(base, network=deepcopy(base.network))
    steps = min(steps or POST_STEPS, POST_STEPS)
    out.print(f"   {POST_RECIPE}, {_run(post_train(model, steps=steps, seed=SEED), steps)}")
    return model


def _run(training: Iterator[Progress], steps: int) -> str:
    """Train to the end; what it took, in words."""
    started, loss = time.monotonic(), float("nan")
    with progress("training", steps) as meter:
        for _, loss in training:
            meter.advance(what=f"training, loss {loss:.2f}")
    return f"{steps} steps in {time.monotonic() - started:.0f} seconds, last loss {loss:.2f}"


def _decode(model: Model, problems: list[Problem], sampler: str) -> tuple[list[str], Trajectory]:
    from redraft.decoding import Trajectory
    from redraft.evals import sums
    from redraft.generation import Plan, batches

    plan = Plan.of(sampler, length=sums.LENGTH, steps=sums.LENGTH // TOKENS_A_STEP)
    questions = [one.question for one in problems]
    (batch,) = batches(model, questions, length=sums.LENGTH, seed=SEED, batch_size=len(problems))
    trajectory = Trajectory.of(plan.walk(model, batch.canvas))
    return [model.decode(row) for row in trajectory.tokens[-1].tolist()], trajectory


def _telling(base: Model, scope: Model, problems: list[Problem]) -> Problem:
    """A problem that only the post-trained model gets right, after the most changes of mind; else the first of all."""
    from redraft.evals import sums

    before, _ = _decode(base, problems, WATCHED)
    after, trajectory = _decode(scope, problems, WATCHED)
    changes = trajectory.changes("overwrite").sum(1) + trajectory.changes("demotion").sum(1)
    telling = [
        row for row, one in enumerate(problems) if sums.grade(after[row], one) and not sums.grade(before[row], one)
    ]
    return problems[max(telling, key=lambda row: changes[row], default=0)]


def _watch(model: Model, problem: Problem, title: str) -> None:
    from redraft.evals import sums
    from redraft.generation import Plan, batches
    from redraft.terminal import watch

    plan = Plan.of(WATCHED, length=sums.LENGTH, steps=sums.LENGTH // TOKENS_A_STEP)
    (batch,) = batches(model, [problem.question], length=sums.LENGTH, seed=SEED)
    out.print(f"   {problem.question}   [dim]{title}[/]")
    if out.is_terminal:
        steps = plan.walk(model, batch.canvas)
        for _ in watch(steps, model.pieces, eos_ids=model.eos_ids, console=out, title=title, pause=PAUSE):
            pass
    (answer,), trajectory = _decode(model, [problem], WATCHED)
    counts, verdict = trajectory.counts(), "right" if sums.grade(answer, problem) else "wrong"
    if not out.is_terminal:
        out.print(f"   {answer}")
    out.print(f"   {verdict}; {counts['overwrite']} tokens overwritten, {counts['demotion']} masked again on the way\n")


def _compare(models: dict[str, Model], problems: list[Problem]) -> None:
    from rich.table import Table

    from redraft.evals import sums
    from redraft.evals.intervals import wilson

    table = Table("model", "sampler", "right", "95 % interval", "overwritten", "masked again")
    for column in table.columns[2:]:
        column.justify = "right"
    with progress("decoding", len(models) * len(SAMPLERS)) as meter:
        for name, model in models.items():
            for sampler in SAMPLERS:
                answers, trajectory = _decode(model, problems, sampler)
                correct = sum(sums.grade(answer, one) for answer, one in zip(answers, problems, strict=True))
                low, high = wilson(correct, len(problems))
                changes = (trajectory.changes(kind).sum() / len(problems) for kind in ("overwrite", "demotion"))
                share = f"{correct / len(problems):.0%}"
                table.add_row(name, sampler, share, f"{low:.0%} to {high:.0%}", *(f"{count:.1f}" for count in changes))
                meter.advance()
    out.print(table)
    out.print("(overwritten, masked again: tokens an answer)", style="dim")


EXPLAINED = """
unmask freezes a token once it is revealed; d3im may overwrite it or mask it
again. A model trained on masks alone was never asked about tokens that it can
see, and its word on them is worth little: compare its two rows. SCOPE asks it
about its own guesses: compare the two d3im rows. How far so few problems can
be trusted is what the intervals say; more in docs/results.md.

Next:
  redraft generate --watch --length 24 --sampler unmask "7 + 5 + 9 + 3 + 2 = ?"
  redraft samplers
  docs/adding-a-sampler.md"""
