"""`redraft replay`: a recorded decoding as one HTML page, or two of them side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redraft.commands.console import err, plain

if TYPE_CHECKING:
    from redraft.decoding import Trajectory


def replay(
    run: Annotated[Path, typer.Argument(help="A trajectory, from `redraft generate --trajectory run.npz`.")],
    other: Annotated[Path | None, typer.Argument(help="Another of the same prompts, to stand beside it.")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write.  [default: RUN with .html]")
    ] = None,
    title: Annotated[
        list[str] | None,
        typer.Option(help="What stands above a run; give it once for each.  [default: its model or sampler]"),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Whose tokenizer spells recordings that lack their texts.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page.")] = False,
) -> None:
    """Write a page that shows every step of a recorded decoding. It needs no network."""
    from redraft.output import check_writable
    from redraft.replay import save

    paths = [run, other] if other else [run]
    page = out_file or run.with_suffix(".html")
    check_writable(page)
    if page.exists() and not overwrite:
        raise ValueError(f"{page} exists: give another --out, or --overwrite to replace it")
    if title and len(title) != len(paths):
        raise ValueError(f"give --title once for each run: {len(paths)}, not {len(title)}")
    runs = [_read(path, model) for path in paths]
    save(page, runs, titles=title or ())
    err.print(f"[dim]{plain(str(page))}: open it in a browser[/]")


def _read(path: Path, model: str | None) -> Trajectory:
    from redraft.decoding import Trajectory

    run = Trajectory.load(path)
    if run.texts is not None:
        return run
    if model is None:
        raise ValueError(f"{path} does not say how its tokens are spelled: name its model with --model")
    from redraft.models.folders import resolve
    from redraft.models.tokens import open_tokenizer, pieces

    tokenizer = open_tokenizer(resolve(model))
    return run.with_texts(lambda ids: pieces(tokenizer, ids))
