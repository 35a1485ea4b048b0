"""`redraft train`: the paper's recipe with one command; killed at any moment, the same command goes on."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redraft.commands.console import duration, err, loading, out, plain, progress

if TYPE_CHECKING:
    from redraft.models import Model
    from redraft.train.data import Packed, Source
    from redraft.train.loop import Run
    from redraft.train.recipes import Recipe
    from redraft.train.settings import Settings

INTERRUPTED = 130
TRACKERS = ("tensorboard", "trackio", "wandb")
LENGTH = 1024  # of an example, where the model takes so much
FEW = 5_000_000  # parameters of a model that one thread is best for
# What a run writes into its folder, and --overwrite removes from it.
OURS = (
    "checkpoints",
    "adapter",
    "model",
    "log.jsonl",
    "curves.png",
    "README.md",
    "protocol.json",
    *TRACKERS,
    "redraft",
)


def train(
    model: Annotated[str, typer.Option("--model", "-m", help="A hub name, a folder, or 'bundled'.")],
    data: Annotated[
        str | None,
        typer.Option(help="hf:owner/name/config:split (streamed), a .jsonl, .parquet or .txt file, a folder."),
    ] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", "-o", help="The folder of the run.")] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="As 'scope(temperature=2.0)', 'mdm', 'xdlm(k1=0.1)'.")
    ] = "scope",
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 500,
    batch: Annotated[int, typer.Option(help="Examples of one forward pass, on each process.")] = 1,
    accumulate: Annotated[int, typer.Option(help="Forward passes of one optimiser step, on each process.")] = 4,
    length: Annotated[
        int | None,
        typer.Option("--length", "-l", help="Tokens of an example.  [default: 1024, or the model's context]"),
    ] = None,
    lr: Annotated[float, typer.Option(help="Learning rate, constant after the warm-up.")] = 1.5e-4,
    warmup: Annotated[int, typer.Option(help="Steps in which the learning rate rises.")] = 50,
    weight_decay: Annotated[float, typer.Option(help="Of AdamW.")] = 0.0,
    clip: Annotated[float, typer.Option(help="The longest gradient.")] = 1.0,
    adapter_preset: Annotated[
        str | None, typer.Option(help="Adapted modules: paper (q, k, v), qkvo, all.  [default: paper]")
    ] = None,
    targets: Annotated[str | None, typer.Option(help="Names of modules in place of a preset: q_proj,v_proj.")] = None,
    rank: Annotated[int, typer.Option(help="Of the adapter.")] = 64,
    alpha: Annotated[float, typer.Option(help="Of the adapter.")] = 128.0,
    dropout: Annotated[float, typer.Option(help="Of the adapter.")] = 0.0,
    full: Annotated[bool, typer.Option("--full", help="Train every parameter, without an adapter.")] = False,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, a third more time.")
    ] = False,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile", help="torch.compile the layers.  [default: large models, on one GPU each]"
        ),
    ] = None,
    shard: Annotated[
        bool, typer.Option("--shard", help="Cut the parameters over all processes (fully_shard).")
    ] = False,
    text_column: Annotated[str | None, typer.Option(help="Where the data has its text.")] = None,
    prompt_column: Annotated[str | None, typer.Option(help="Where the data has its prompts.")] = None,
    response_column: Annotated[str | None, typer.Option(help="Where the data has its responses.")] = None,
    shuffle: Annotated[
        int, typer.Option(help="Examples in the buffer that the next is drawn from; 1 keeps the order.")
    ] = (1024),
    pad_loss: Annotated[
        str,
        typer.Option(
            help="End tokens learnt after a response: true (up to --length), false, or N, filling it to multiples of N."
        ),
    ] = "true",
    chat: Annotated[bool, typer.Option(help="Put prompts into the chat template.")] = True,
    preview: Annotated[bool, typer.Option("--preview", help="Show a batch as the model sees it, and stop.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show memory, parameters, tokens and time, and stop.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="With --plan: the time from a few seconds' trial.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    save_every: Annotated[int, typer.Option(help="Steps between two saved states.")] = 50,
    keep: Annotated[int, typer.Option(help="Saved states that are kept.")] = 2,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Remove the run in --out and start anew.")] = False,
    report_to: Annotated[str | None, typer.Option(help=f"{', '.join(TRACKERS)}.  [default: nothing]")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, mps.  [default: the best there is]")] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights: auto, bfloat16, float32, float64.")] = "auto",
) -> None:
    """Post-train a model on its own mistakes (SCOPE), or with another recipe."""
    from redraft.models.adapters import Lora
    from redraft.models.devices import check_device
    from redraft.train.data import open_source
    from redraft.train.recipes import parse
    from redraft.train.settings import Settings

    # Everything that can be refused is refused before anything is loaded.
    rule = parse(recipe)
    names = tuple(filter(None, (name.strip() for name in targets.split(",")))) if targets is not None else None
    if full and names:
        raise ValueError("--full trains every parameter: leave out --targets")
    if names and adapter_preset:
        raise ValueError("--targets and --adapter-preset say the same thing in two ways: give one of them")
    if targets is not None and not names:
        raise ValueError("--targets names no module: write --targets q_proj,v_proj")
    lora = None if full else Lora(names or adapter_preset or "paper", rank, alpha, dropout)
    settings = Settings(
        steps=steps, batch=batch, accumulate=accumulate, length=LENGTH if length is None else length, lr=lr,
        warmup=warmup, weight_decay=weight_decay, clip=clip, seed=seed, save_every=save_every, keep=keep,
        gradient_checkpointing=gradient_checkpointing, compile=bool(compiled), lora=lora, shard=shard,
    )  # fmt: skip
    if measure and not plan:
        raise ValueError("--measure goes with --plan: it shows how long the run would take")
    asked = Asked(model, dtype, device, rule, settings, length is not None, compiled)
    if plan:
        return show_plan(asked, measure=measure)
    check_device(device)
    if data is None:
        raise ValueError("there is nothing to learn from: give --data, as --data texts.jsonl")
    check_tracker(report_to)
    source = open_source(data, text_column=text_column, prompt_column=prompt_column, response_column=response_column)
    stream = Stream(source, shuffle=shuffle, pad_loss=pads(pad_loss), chat=chat)
    if preview:
        return show_preview(asked, stream)
    if out_folder is None:
        raise ValueError("a run needs a folder: give --out, as --out runs/first")
    execute(asked, stream, out_folder, report_to=report_to, overwrite=overwrite)


@dataclass(frozen=True)
class Asked:
    """What the options say about the training itself."""

    model: str
    dtype: str
    device: str | None
    recipe: Recipe
    settings: Settings
    length_given: bool
    compiled: bool | None  # None: where it pays

    def load(self, device: Any) -> tuple[Model, Settings]:
        from redraft.models import load

        with loading(self.model):
            model = load(self.model, device=device, dtype=self.dtype)
        return model, self.fitted(model.context)

    def fitted(self, context: int) -> Settings:
        if self.settings.length <= context:
            return self.settings
        if self.length_given:
            raise ValueError(f"{self.model} was made for {context} tokens: --length {self.settings.length} is too long")
        return replace(self.settings, length=context)


@dataclass(frozen=True)
class Stream:
    """The data and how it becomes examples; opened once the model's tokenizer is there."""

    source: Source
    shuffle: int
    pad_loss: bool | int
    chat: bool

    def open(self, model: Model, settings: Settings) -> Packed:
        from redraft.train.data import Packed

        return Packed(
            self.source, model, length=settings.length, seed=settings.seed, shuffle=self.shuffle,
            pad_loss=self.pad_loss, chat=self.chat,
        )  # fmt: skip


def pads(said: str) -> bool | int:
    word = said.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    if word.isdigit() and int(word) > 0:
        return int(word)
    raise ValueError(f"--pad-loss is true, false or a number of tokens, not {said!r}")


def check_tracker(name: str | None) -> None:
    if name is None:
        return
    if name not in TRACKERS:
        raise ValueError(f"--report-to is one of {', '.join(TRACKERS)}, not {name!r}")
    if find_spec(name) is None and not (name == "tensorboard" and find_spec("tensorboardX")):
        raise ValueError(f"--report-to {name} needs a library that is not installed: pip install {name}")


# --- a run ---


def execute(asked: Asked, stream: Stream, folder: Path, *, report_to: str | None, overwrite: bool) -> None:
    from redraft.train import parallel
    from redraft.train.loop import Run

    if asked.device is not None and not asked.device.startswith("cpu") and "LOCAL_RANK" not in os.environ:
        os.environ["ACCELERATE_TORCH_DEVICE"] = asked.device
    accelerator = parallel.accelerator(device=asked.device, report_to=report_to, out=folder)
    out.quiet = err.quiet = not accelerator.is_main_process
    if prepare_folder(folder, overwrite=overwrite and accelerator.is_main_process):
        finished = read_protocol(folder)
        if finished is not None and not overwrite:
            return show_finished(asked, stream, folder, finished, accelerator.num_processes)
    accelerator.wait_for_everyone()
    model, settings = asked.load(accelerator.device)
    settings = replace(settings, compile=compiles(asked, model, accelerator))
    spare_threads(model)
    run = Run(
        model, stream.open(model, settings), asked.recipe, settings, out=folder, accelerator=accelerator,
        report=lambda said: err.print(f"[yellow]note:[/] {plain(said)}"),
    )  # fmt: skip
    describe(run)
    if report_to:
        accelerator.init_trackers("redraft", config=flat(run.identity()))
    with progress("training", settings.steps) as meter:
        meter.advance(run.step)
        for record in run:
            meter.advance(1, headline(record))
            if report_to:
                values = {key: value for key, value in record.items() if value is not None and key != "step"}
                accelerator.log(values, step=record["step"])
    if report_to:
        accelerator.end_training()
    if run.step < settings.steps:
        err.print(f"stopped after step {run.step} of {settings.steps}; the same command goes on from there")
        close(accelerator)
        raise typer.Exit(INTERRUPTED)
    result = run.finish()
    close(accelerator)
    if result is not None:
        last = run.log.records[-1]
        err.print(f"{settings.steps} steps, {headline(last)}; see {plain(str(folder / 'README.md'))}", style="dim")
        out.print(plain(str(result)))


def compiles(asked: Asked, model: Model, accelerator: Any) -> bool:
    from redraft.train import parallel
    from redraft.train.compiled import can_compile, pays

    device, spread = accelerator.device, parallel.kind(accelerator) in ("FSDP", "DEEPSPEED")
    if asked.compiled and spread:
        raise ValueError(
            f"compiled layers cannot be sharded, as {parallel.kind(accelerator)} does: leave out --compile"
        )
    if asked.compiled and not can_compile(device):
        raise ValueError(f"--compile needs a C compiler, and Triton on a GPU: on this {device.type} leave it out")
    if asked.compiled is not None:
        return asked.compiled
    return not (spread or asked.settings.shard) and pays(device, parameters_of(model))


def parameters_of(model: Model) -> int:
    return sum(one.numel() for one in model.network.parameters())


def spare_threads(model: Model) -> None:
    """Small matrices gain nothing from a second thread, and where other programs run it made them 40 times slower."""
    import torch

    if model.device.type == "cpu" and parameters_of(model) < FEW and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def close(accelerator: Any) -> None:
    """Without this, torch complains at the end of a run of several processes."""
    import torch.distributed

    accelerator.wait_for_everyone()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def headline(record: dict[str, Any]) -> str:
    from redraft.train.watch import headline

    return headline(record)


def describe(run: Run) -> None:
    """What is about to be trained, by what, on how many processes: the launchers that start only one do not say so."""
    settings = run.settings
    err.print(f"{plain(run.model.name)} on {count(run.world, 'process', 'es')}, {run.device.type}", style="dim")
    for line in run.audit.lines():
        err.print(f"  {plain(line)}", style="dim")
    rows = settings.rows(run.world)
    err.print(
        f"  {plain(repr(run.recipe))}: {settings.steps} steps of {rows} examples of up to {settings.length} tokens",
        style="dim",
    )


def count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}" + (plural if number > 1 else "")


def prepare_folder(folder: Path, *, overwrite: bool) -> bool:
    """Whether a run is in it already. A folder with other things in it is not written to."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file: give the name of a folder")
    if not folder.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as refused:
            raise ValueError(f"cannot make the folder {folder}: {refused.strerror}") from None
        return False
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if there and not {"checkpoints", "log.jsonl", "protocol.json"} & set(there):
        some = ", ".join(there[:3]) + (", ..." if len(there) > 3 else "")
        raise ValueError(f"{folder} holds other things ({some}) and no run: give a new folder as --out")
    if overwrite:
        for name in OURS:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return bool(there)


def read_protocol(folder: Path) -> dict[str, Any] | None:
    """That of a finished run: it is written last."""
    try:
        return json.loads((folder / "protocol.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise ValueError(f"{folder / 'protocol.json'} is damaged: --overwrite starts the run anew") from None


def show_finished(asked: Asked, stream: Stream, folder: Path, protocol: dict[str, Any], world: int) -> None:
    from redraft.train.loop import identity, refuse_other

    before = protocol["run"]
    settings = asked.settings if asked.length_given else replace(asked.settings, length=before["length"])
    now = identity(asked.model, stream.source.name, asked.recipe, settings, world, before["dtype"])
    refuse_other(before, now, folder)
    result = folder / ("adapter" if before["lora"] else "model")
    err.print(f"this run is finished ({protocol['finished']}); --overwrite starts it anew", style="dim")
    out.print(plain(str(result)))


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """As trackers take it."""
    return {key: value if isinstance(value, int | float | str) else json.dumps(value) for key, value in values.items()}


# --- looking before ---


def show_preview(asked: Asked, stream: Stream) -> None:
    """The first batch after masking and committing, by the model as it is."""
    from redraft.train.data import collate
    from redraft.train.preview import preview

    model, settings = asked.load(asked.device)
    batch = collate(stream.open(model, settings).take(settings.rows(1)), pad_id=model.pad_id).to(model.device)
    draft = asked.recipe.draft(
        model, batch, mask_id=model.mask_id, step=0, steps=settings.steps, seeds=batch.seeds(settings.seed)
    )
    preview(batch, draft, model.pieces, eos_ids=model.eos_ids, console=out)


def show_plan(asked: Asked, *, measure: bool) -> None:
    """Memory, parameters, tokens and time, with nothing loaded and nothing downloaded."""
    import torch
    from rich.table import Table

    from redraft.models.devices import check_device
    from redraft.train import plan as planning
    from redraft.train.loop import memory as peak_memory

    where = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if where.partition(":")[0] not in ("cpu", "cuda", "mps"):  # it need not be here: a plan may be for another machine
        raise ValueError(f"--device is cpu, cuda or mps, not {where!r}")
    config, stated = planning.shape_of(asked.model)
    dtype = stated if asked.dtype == "auto" else getattr(torch, asked.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"--dtype is auto, bfloat16, float32 or float64, not {asked.dtype!r}")
    settings = asked.fitted(config.context)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    plan = planning.make_plan(config, dtype, asked.recipe, settings, world=world)
    gpu = not where.startswith("cpu") or (asked.device is None and planning.is_large(plan))
    itself = 0 if gpu else peak_memory(torch.device("cpu"))  # Python and PyTorch, which a GPU's memory does not hold
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")

    def gib(size: int) -> str:
        return f"{size / 2**30:.1f} GiB" if size > 2**28 else f"{size / 2**20:.1f} MiB"

    memory = plan.memory
    own = plan.audit.total - (plan.audit.trainable if settings.lora else 0)
    table.add_row("model", f"{plain(asked.model)}, {own:,} parameters, {str(dtype).removeprefix('torch.')}")
    table.add_row("trained", f"{plan.audit.trainable:,} parameters" + (" of an adapter" if settings.lora else ""))
    for target, names in plan.audit.matched.items():
        table.add_row("", f"{target}: {count(len(names), 'module')}")
    table.add_row("recipe", plain(repr(asked.recipe)))
    table.add_row(
        "steps", f"{plan.steps} of {plan.rows} examples of {settings.length} tokens, on {count(world, 'process', 'es')}"
    )
    table.add_row("tokens", f"{plan.tokens:,}")
    table.add_row("peak memory", f"[bold]{gib(memory.peak + itself)}[/] a process")
    if itself:
        table.add_row("", f"Python and PyTorch {gib(itself)}, tensors {gib(memory.peak)}:")
    table.add_row("", f"weights {gib(memory.weights)}, gradients {gib(memory.gradients)}")
    table.add_row("", f"AdamW {gib(memory.averages)}, activations and logits {gib(memory.activations)}")
    if measure:
        check_device(where)
        seconds = planning.measure_rate(config, dtype, asked.recipe, settings, torch.device(where))
        whole = seconds * settings.accumulate * settings.steps
        table.add_row("time", f"[bold]{duration(whole)}[/] (measured on this {where}: {seconds:.3g} s a micro-batch)")
    else:
        fast, slow = planning.guess_seconds(plan, gpu=gpu)
        kind = "a large GPU" if gpu else "a CPU"
        table.add_row("time", f"{duration(fast)} to {duration(slow)} on {kind}: a guess; --measure tries it here")
    out.print(table)
