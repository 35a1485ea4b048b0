"""`redraft demo`: a small model trained on the spot, then watched as it freezes its mistakes or takes them back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from redraft.commands.console import loading, out, progress

if TYPE_CHECKING:
    from redraft.decoding import Trajectory
    from redraft.evals.sums import Problem
    from redraft.models import Model

WATCHED = "d3im(t2t=False)"
COMPARED = ("unmask", "d3im(t2t=False)", "d3im(t2m=False)", "d3im")
TRAINING_STEPS = 900
TOKENS_A_STEP = 2
SEED = 0
PAUSE = 0.6  # seconds between two drawings


def demo(
    steps: Annotated[int, typer.Option(min=1, max=100_000, help="Training steps: fewer make a worse model sooner.")] = (
        TRAINING_STEPS
    ),
    problems: Annotated[int, typer.Option(min=1, max=10_000, help="Problems in the table.")] = 200,
) -> None:
    """Train a small model on the spot, watch it change its mind, compare samplers. No GPU, no download."""
    from redraft.evals import sums

    out.print("[bold]1.[/] A masked diffusion model learns to add up, from nothing, on this computer.")
    model = _train(steps)
    tests = [sums.problem(SEED, index, test=True) for index in range(problems)]

    out.print("\n[bold]2.[/] It answers a problem. Every position is predicted at every step, the surest")
    out.print("   are kept, and a token that the model no longer stands by is masked again.\n")
    _watch(model, _eventful(model, tests[:50]))

    out.print(f"\n[bold]3.[/] {problems} problems it has never seen, {TOKENS_A_STEP} tokens a step, four samplers.\n")
    _compare(model, tests)
    out.print(EXPLAINED)


def _train(steps: int) -> Model:
    with loading("torch and transformers"):
        from redraft.train.small import train, untrained

        model = untrained(SEED)
    started, loss = time.monotonic(), float("nan")
    with progress("training", steps) as meter:
        for _, loss in train(model, steps=steps, seed=SEED):
            meter.advance(what=f"training, loss {loss:.2f}")
    parameters = sum(one.numel() for one in model.network.parameters())
    seconds = time.monotonic() - started
    out.print(f"   {parameters:,} parameters, {steps} training steps in {seconds:.0f} seconds, last loss {loss:.2f}")
    return model


def _decode(model: Model, problems: list[Problem], sampler: str) -> tuple[list[str], Trajectory]:
    from redraft.decoding import Trajectory
    from redraft.evals import sums
    from redraft.generation import Plan, batches

    plan = Plan.of(sampler, length=sums.LENGTH, steps=sums.LENGTH // TOKENS_A_STEP)
    questions = [one.question for one in problems]
    (batch,) = batches(model, questions, length=sums.LENGTH, seed=SEED, batch_size=len(problems))
    trajectory = Trajectory.of(plan.walk(model, batch.canvas))
    return [model.decode(row) for row in trajectory.tokens[-1].tolist()], trajectory


def _eventful(model: Model, problems: list[Problem]) -> Problem:
    """The problem answered rightly after the most changes of mind; the first of all if none was."""
    from redraft.evals import sums

    answers, trajectory = _decode(model, problems, WATCHED)
    right = [row for row, one in enumerate(problems) if sums.grade(answers[row], one)]
    demoted = trajectory.changes("demotion").sum(1)
    return problems[max(right, key=lambda row: demoted[row], default=0)]


def _watch(model: Model, problem: Problem) -> None:
    from redraft.evals import sums
    from redraft.generation import Plan, batches
    from redraft.terminal import watch

    plan = Plan.of(WATCHED, length=sums.LENGTH, steps=sums.LENGTH // TOKENS_A_STEP)
    (batch,) = batches(model, [problem.question], length=sums.LENGTH, seed=SEED)
    out.print(f"   {problem.question}")
    if out.is_terminal:
        steps = plan.walk(model, batch.canvas)
        for _ in watch(steps, model.pieces, eos_ids=model.eos_ids, console=out, title=WATCHED, pause=PAUSE):
            pass
    else:
        (answer,), trajectory = _decode(model, [problem], WATCHED)
        counts = trajectory.counts()
        out.print(f"   {answer}\n   ({counts['demotion']} tokens masked again on the way)")


def _compare(model: Model, problems: list[Problem]) -> None:
    from rich.table import Table

    from redraft.evals import sums
    from redraft.evals.intervals import wilson

    table = Table("sampler", "right", "95 % interval", "overwritten", "masked again")
    for column in table.columns[1:]:
        column.justify = "right"
    with progress("decoding", len(COMPARED)) as meter:
        for sampler in COMPARED:
            answers, trajectory = _decode(model, problems, sampler)
            correct = sum(sums.grade(answer, one) for answer, one in zip(answers, problems, strict=True))
            low, high = wilson(correct, len(problems))
            changes = (trajectory.changes(kind).sum() / len(problems) for kind in ("overwrite", "demotion"))
            share = f"{correct / len(problems):.0%}"
            table.add_row(sampler, share, f"{low:.0%} to {high:.0%}", *(f"{count:.1f}" for count in changes))
            meter.advance()
    out.print(table)
    out.print("(overwritten, masked again: tokens an answer)", style="dim")


EXPLAINED = """
unmask freezes a token once it is revealed. d3im(t2t=False) may mask it again,
d3im(t2m=False) may overwrite it, d3im may do both. A model trained on masks
alone was never asked about tokens that it can see, and its word on them is
worth little: overwriting hurts until a model has been post-trained on its own
mistakes.

Next:
  redraft generate --watch --length 24 --sampler unmask "7 + 5 + 9 + 3 + 2 = ?"
  redraft samplers
  docs/adding-a-sampler.md"""
