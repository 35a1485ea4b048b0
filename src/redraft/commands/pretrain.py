"""`redraft pretrain`: a small masked diffusion model from nothing, on generated tasks and, if given, prose."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redraft.commands.console import err, loading, out, plain, progress

if TYPE_CHECKING:
    from redraft.models import Model
    from redraft.train.pool import Shelf
    from redraft.train.pretrain import Pretraining

LEARNT_FROM = 6_000_000  # characters of prose, and 20,000 conversations, that the tokenizer is learnt from
CONVERSATIONS = 20_000  # fewer where fewer are asked for
WIDTHS = {256: 0.8, 2048: 0.2}  # of prose rows, and their shares of the text: the longest is the model's context


def pretrain(
    out_folder: Annotated[Path, typer.Option("--out", "-o", help="The folder of the run.")],
    tasks: Annotated[
        str, typer.Option(help="Generated tasks, and sums to practise; one named twice comes up twice as often.")
    ] = ("words,algebra,code"),
    text: Annotated[
        Path | None, typer.Option(help="Prose: a .jsonl, .parquet or .txt file, or a folder of them.")
    ] = None,
    examples: Annotated[int, typer.Option(min=100, help="Generated conversations to learn from.")] = 200_000,
    first: Annotated[int, typer.Option(min=0, help="The first conversation: another run's count gives new ones.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps.  [default: 1000]")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, help="As many steps as fit, by a rate measured at the start; told at the end."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=256, help="Tokens of one forward pass.")] = 16384,
    accumulate: Annotated[int, typer.Option(min=1, help="Forward passes of one optimiser step.")] = 1,
    lr: Annotated[float, typer.Option(help="The highest learning rate.")] = 2e-3,
    warmup: Annotated[int, typer.Option(help="Steps in which it rises; then it falls to nothing.")] = 400,
    prose: Annotated[float, typer.Option(min=0, max=1, help="The share of forward passes on prose.")] = 0.2,
    shape: Annotated[str, typer.Option(help="bundled (6.8 million parameters) or tiny.")] = "bundled",
    vocabulary: Annotated[int, typer.Option(min=300, max=2000, help="Entries of the tokenizer.")] = 1536,
    init: Annotated[Path | None, typer.Option(help="Weights and tokenizer of an earlier run's model.")] = None,
    optimizer: Annotated[str, typer.Option(help="muon or adamw.")] = "muon",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    processes: Annotated[int | None, typer.Option(help="Writing examples.  [default: all cores]")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda.  [default: the best there is]")] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile the layers.  [default: on a GPU]")
    ] = None,
    stop_after: Annotated[float | None, typer.Option(help="Seconds; the same command goes on from there.")] = None,
) -> None:
    """Train a small model from scratch with the plain masked objective, or go on from another one's weights."""
    from redraft.train.pretrain import MEASURED, Pretraining

    if compiled is None:
        compiled = device == "cuda" or (device is None and _has_gpu())
    if steps is not None and minutes is not None:
        raise ValueError("--steps and --minutes say the same thing in two ways: give one of them")
    if minutes is not None and warmup < MEASURED[1]:
        raise ValueError(f"with --minutes the warm-up takes at least {MEASURED[1]} steps, not {warmup}")
    settings = Pretraining(
        steps=1000 if steps is None and minutes is None else steps, minutes=minutes, tokens=tokens,
        accumulate=accumulate, lr=lr, warmup=warmup, prose=prose, seed=seed, optimizer=optimizer, compile=compiled,
        stop_after=stop_after,
    )  # fmt: skip
    names = tuple(name.strip() for name in tasks.split(",") if name.strip())
    if text is not None and not text.exists():
        raise ValueError(f"there is no file or folder {text} to read prose from")
    model = _model(
        names, text, examples=min(examples, CONVERSATIONS), shape=shape, vocabulary=vocabulary, init=init, seed=seed,
        device=device,
    )  # fmt: skip
    parameters = sum(one.numel() for one in model.network.parameters())
    out.print(f"{parameters:,} parameters, {model.vocab_size} tokens, on {model.device}")
    if text is None:
        out.print("without --text the model learns from the generated tasks alone: it will know no other prose")
    out_folder.mkdir(parents=True, exist_ok=True)
    shelves = _shelves(
        model, names, text, examples=examples, first=first, processes=processes or os.cpu_count() or 1, out=out_folder
    )
    told = sum(shelf.tokens.size for shelf in shelves if not shelf.prose)
    read = sum(shelf.tokens.size for shelf in shelves if shelf.prose)
    out.print(f"{told:,} tokens of conversations, {read:,} of prose")
    asked = {
        "tasks": list(names),
        "text": text and str(text),
        "examples": examples,
        "first": first,
        "init": init and str(init),
    }
    _run(model, shelves, settings, out_folder, {**asked, "shape": shape, "parameters": parameters})


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _model(
    tasks: tuple[str, ...], text: Path | None, *, examples: int, shape: str, vocabulary: int, init: Path | None,
    seed: int, device: str | None,
) -> Model:  # fmt: skip
    with loading("torch and transformers"):
        from redraft.models import load
        from redraft.models.devices import best_device
        from redraft.train.shape import known, untrained
        from redraft.train.vocabulary import learn
    if init is not None:
        return load(init, device=device, dtype="float32", fingerprint=False)
    known(shape)
    tokenizer = learn(_learnt_from(tasks, examples, text), size=vocabulary)
    return untrained(shape, tokenizer, seed=seed, device=device or str(best_device()))


def _learnt_from(tasks: tuple[str, ...], examples: int, text: Path | None) -> Iterator[str]:
    from redraft.train.generated import Generated

    made = Generated(tasks)
    for number in range(examples):
        for message in made.messages(number):
            yield message["content"]
    read = 0
    for document in _documents(text):
        yield document
        if (read := read + len(document)) > LEARNT_FROM:
            break


def _documents(text: Path | None) -> Iterator[str]:
    """Prose, in the order of its files, in pieces that no chapter of a book fills alone."""
    from redraft.train.data import open_source
    from redraft.train.examples import understood

    if text is None:
        return
    source = open_source(text)
    for record in source.reader.read(None):
        content = understood(record, source.columns)
        yield content if isinstance(content, str) else content.response


def _shelves(
    model: Model, tasks: tuple[str, ...], text: Path | None, *, examples: int, first: int, processes: int, out: Path
) -> list[Shelf]:
    from redraft.train import pool

    file = out / "tokenizer.json"
    model.tokenizer.backend_tokenizer.save(str(file))
    with progress("writing examples", examples) as meter:
        shelves = pool.conversations(file, tasks, first, examples, processes=processes, watch=meter.advance)
    if text is not None:
        documents = list(_documents(text))
        start = 0
        for width, share in WIDTHS.items():
            stop = start + round(share * len(documents))
            part = documents[start:stop] if width < model.context else documents[start:]
            shelves.append(pool.prose(iter(part), model.tokenizer, width=width))
            start = stop
    return shelves


def _run(model: Model, shelves: list[Shelf], settings: Pretraining, folder: Path, identity: dict[str, Any]) -> None:
    from redraft.train.loop import hardware, versions
    from redraft.train.pretrain import Pretrain

    def report(said: str) -> None:
        err.print(plain(said))

    run = Pretrain(model, shelves, settings, identity=identity, out=folder, report=report)
    last = None
    with progress("pretraining", settings.steps or 0) as meter:
        meter.advance(run.step)
        for last in run:
            meter.total = run.steps or 0  # of so many minutes, it is known after a while
            said = f"pretraining, loss {last['loss']:.3f}, {last['tokens_per_second']:,.0f} tokens/s"
            meter.advance(last["step"] - meter.done, said)
    if run.steps is None or run.step < run.steps:
        out.print(f"stopped after step {run.step} of {run.steps}: the same command goes on from {folder}")
        return
    records = run.log.records
    protocol = {
        **identity, **asdict(settings), "steps": run.steps, "hardware": hardware(model.device), "versions": versions(),
        "seconds": last and sum(one.get("seconds", 0.0) for one in records), "loss": records[-1]["loss"],
    }  # fmt: skip
    run.result().save_pretrained(folder / "model")
    (folder / "protocol.json").write_text(json.dumps(protocol, indent=1) + "\n", encoding="utf-8")
    out.print(f"{folder / 'model'}: loss {records[-1]['loss']:.3f} after {run.steps} steps")
