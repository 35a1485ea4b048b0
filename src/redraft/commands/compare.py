"""`redraft compare`: two runs on the same items, and whether their difference can be told from chance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from redraft.commands.console import err, out, plain, write


def compare(
    a: Annotated[Path, typer.Argument(help="The folder of a run of `redraft eval`.")],
    b: Annotated[Path, typer.Argument(help="The folder of another.")],
    force: Annotated[bool, typer.Option("--force", help="Compare runs of different protocols.")] = False,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object.")] = False,
) -> None:
    """Set two runs against each other, item by item."""
    from redraft.evals.compare import compare as compared
    from redraft.evals.records import read_run

    found = compared(read_run(a), read_run(b), force=force, seed=seed)
    pairs, (low, high) = found.pairs, found.interval
    if as_json:
        described: dict[str, Any] = {
            "items": pairs.n, "accuracies": found.accuracies, "intervals": found.intervals, **pairs._asdict(),
            "difference": pairs.difference, "difference_interval": found.interval, "mcnemar_p": found.p,
            "subject": found.subject, "protocol": found.protocol, "cautions": found.cautions,
        }  # fmt: skip
        write(json.dumps(described))
        return
    from rich.table import Table

    table = Table("", plain(str(a)), plain(str(b)))
    for name, values in found.subject.items():
        table.add_row(name, *(plain(str(value)) for value in values))
    ends = zip(found.accuracies, found.intervals, strict=True)
    table.add_row("right", *(f"{share:.1%} ({first:.1%} to {last:.1%})" for share, (first, last) in ends))
    table.add_row("right alone", f"{pairs.only_a:,}", f"{pairs.only_b:,}")
    out.print(table)
    out.print(
        f"difference {pairs.difference:+.1%} on {pairs.n:,} items, 95 % from {low:+.1%} to {high:+.1%} "
        f"(paired bootstrap); p = {found.p:.2g} (exact McNemar)"
    )
    for said in found.cautions:
        err.print(f"[yellow]note:[/] {plain(said)}")
