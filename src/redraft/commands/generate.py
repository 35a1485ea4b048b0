"""`redraft generate`: answer prompts from the command line, a file or stdin; watch, record and save what happens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from redraft.commands.console import err, loading, out, plain, progress, write

if TYPE_CHECKING:
    from redraft.decoding import Recorder, Step
    from redraft.generation import Answer, Batch, Plan, Prompt
    from redraft.models import Model

# Seconds. A small model decodes faster than anyone can watch: a drawing stays for a while, all of them not for long.
SLOWEST_DRAWING, LONGEST_DELAY = 0.3, 6.0


def generate(
    prompt: Annotated[
        list[str] | None, typer.Argument(help="Prompts. With none, and no --prompts, lines are read from stdin.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A file: one prompt a line, or .jsonl with 'prompt' or 'messages' in each.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="A hub name, a folder, or 'bundled'.")] = "bundled",
    adapter: Annotated[str | None, typer.Option(help="A PEFT adapter: a hub name or a folder.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a model on the hub.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.  [default: the best there is]")] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights: auto, bfloat16, float32, float64.")] = "auto",
    chat: Annotated[bool, typer.Option(help="Put prompts into the chat template.")] = True,
    sampler: Annotated[
        str,
        typer.Option(
            "--sampler", "-s", "--remasking", help="As 'd3im(t2t=False)' or './mine.py:mine'; see `redraft samplers`."
        ),
    ] = "d3im",
    length: Annotated[
        int, typer.Option("--length", "-l", "--gen-length", "--max-new-tokens", help="Tokens to write.")
    ] = 128,
    steps: Annotated[
        int | None, typer.Option("--steps", "--diffusion-steps", help="Steps in all.  [default: a quarter of --length]")
    ] = None,
    block: Annotated[
        int | None, typer.Option("--block", "--block-length", "--block-size", help="Write in blocks of so many tokens.")
    ] = None,
    steps_per_block: Annotated[int | None, typer.Option(help="Steps of each block, in place of --steps.")] = None,
    eos: Annotated[
        str | None,
        typer.Option(
            help="End tokens before the last step: none, confidence, logit_nonfinal, logit_all, llada_confidence, "
            "llada_logits, llada_both.  [default: the sampler's own]"
        ),
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
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts decoded together.")] = 16,
    out_file: Annotated[Path | None, typer.Option("--out", "-o", help="Save the answers to a .jsonl file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out and --trajectory.")] = False,
    trajectory: Annotated[Path | None, typer.Option(help="Save every change to an .npz file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON lines.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Draw the text as it is written and revised.")] = False,
) -> None:
    """Answer prompts."""
    from redraft.decoding import Reading
    from redraft.decoding.reading import Precision
    from redraft.generation import Plan, batches, check_prompts
    from redraft.models import load
    from redraft.models.devices import check_device
    from redraft.output import AnswerFile, check_writable
    from redraft.samplers import parse

    # Everything that can be refused is refused before the model is loaded.
    rule = parse(sampler, files=True)
    if precision not in get_args(Precision):  # the reading calls it dtype, which here is that of the weights
        raise ValueError(f"--precision is one of {', '.join(get_args(Precision))}, not {precision!r}")
    words: dict[str, Any] = {"rank": rank, "eos": eos or rule.eos, "overflow": overflow, "dtype": precision}
    reading = Reading(temperature=temperature, guidance=guidance, **words)
    if steps is None and steps_per_block is None:
        steps = default_steps(length, block)
    plan = Plan.of(rule, length=length, steps=steps, block=block, steps_per_block=steps_per_block, reading=reading)
    asked = read_prompts(prompt or [], prompts)
    check_prompts(asked)
    if trajectory is not None:
        check_writable(trajectory)
        if out_file is not None and trajectory.absolute() == out_file.absolute():
            raise ValueError(f"--out and --trajectory are both {trajectory}: give them different names")
        if trajectory.exists() and not overwrite:
            raise ValueError(f"{trajectory} exists: give another --trajectory, or --overwrite to replace it")
        if len(asked) > batch_size:
            raise ValueError(f"a trajectory records one batch: {len(asked)} prompts need --batch-size {len(asked)}")
    check_device(device)
    for note in plan.notes:
        err.print(f"[yellow]note:[/] {plain(note)}")
    settings = {
        "model": model, "adapter": adapter, "revision": revision, "dtype": dtype, "chat": chat, "seed": seed,
        "sampler": repr(rule), "length": length, "steps": plan.steps, "block": block, "batch_size": batch_size,
        "reading": {key: value for key, value in asdict(reading).items() if key != "eos_ids"}, "prompts": asked,
        **({"sampler_file": rule.source} if rule.source else {}),
    }  # fmt: skip
    saved = AnswerFile(out_file, settings, overwrite=overwrite) if out_file else None
    try:
        with loading(model):
            network = load(model, adapter=adapter, revision=revision, device=device, dtype=dtype)
            network = network.merged() if adapter else network
        session = Session(network, plan, asked, trajectory, watching=watch and out.is_terminal)
        todo = list(batches(network, asked, length=length, seed=seed, batch_size=batch_size, chat=chat))
        for answer, drawn in session.run(todo, done=saved.finished if saved else {}):
            record = asdict(answer)
            if saved:
                saved.add(record)
            show(answer, record, as_json=as_json, many=len(asked) > 1, quiet=drawn)
        if saved:
            saved.finish()
            err.print(f"[dim]answers saved in {plain(str(saved.path))}[/]")
        if trajectory:
            err.print(f"[dim]trajectory saved in {plain(str(trajectory))}; `redraft replay` makes a page of it[/]")
    except BaseException as stopped:
        if saved and saved.finished:
            err.print(f"{len(saved.finished)} of {len(asked)} answers are in {plain(str(saved.part))}; "
                      "the same command goes on from there")  # fmt: skip
        elif isinstance(stopped, KeyboardInterrupt):
            hint = "the same command starts anew" if saved else "a run with --out x.jsonl can be gone on with"
            err.print(f"no answer was finished; {hint}")
        if is_out_of_memory(stopped):
            raise ValueError(f"out of memory: try a --batch-size below {batch_size}, or a shorter --length") from None
        raise
    finally:
        if saved:
            saved.close()


def is_out_of_memory(stopped: BaseException) -> bool:
    """Accelerators have an exception for it; a CPU's allocator only has words."""
    import torch

    return isinstance(stopped, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(stopped)


def default_steps(length: int, block: int | None) -> int:
    """Four tokens a step, as the paper's main setting has it, rounded up to what divides over the blocks."""
    blocks = max(1, length // block) if block and block > 0 else 1
    return max(1, -(-length // (4 * blocks))) * blocks


def read_prompts(given: list[str], file: Path | None) -> list[Prompt]:
    """Prompts from wherever they come; a file named .jsonl holds objects, any other holds a prompt a line."""
    if given and file:
        raise ValueError("give prompts as arguments or with --prompts, not both")
    if given and given != ["-"]:
        return list(given)
    if file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise ValueError('there is no prompt: write one, as in `redraft generate "7 + 5 = ?"`, or use --prompts')
    source = str(file or "stdin")
    try:
        text = file.read_text(encoding="utf-8-sig") if file else sys.stdin.read()
    except IsADirectoryError:
        raise ValueError(f"{source} is a folder: --prompts takes a file") from None
    except UnicodeDecodeError as wrong:
        raise ValueError(f"{source} is not UTF-8 text (byte {wrong.start}): save it as UTF-8") from None
    # Not splitlines: that also cuts at characters which may stand inside a JSON string.
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise ValueError(f"{source} holds no prompt: write one a line")
    if file is None or file.suffix not in (".jsonl", ".json"):
        return [line for _, line in lines]
    return [_from_json(line, f"{source}, line {number}") for number, line in lines]


def _from_json(line: str, where: str) -> Prompt:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as wrong:
        raise ValueError(f"{where} is not JSON ({wrong.msg}): a .jsonl file holds one whole object a line") from None
    if isinstance(record, str):
        return record
    if isinstance(record, dict) and isinstance(record.get("prompt"), str):
        return record["prompt"]
    messages = record.get("messages") if isinstance(record, dict) else None
    if isinstance(messages, list) and messages and all(_is_message(message) for message in messages):
        return messages
    raise ValueError(f'{where} has neither "prompt" (text) nor "messages" (a list of "role" and "content")')


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))


class Session:
    """One run: batches in, answers out, drawn and recorded on the way."""

    def __init__(
        self, model: Model, plan: Plan, prompts: list[Prompt], trajectory: Path | None, *, watching: bool
    ) -> None:
        self.model, self.plan, self.prompts, self.trajectory = model, plan, prompts, trajectory
        self.watching = watching

    def run(self, todo: list[Batch], done: dict[int, Any]) -> Iterator[tuple[Answer, bool]]:
        """Answers that are not `done`, a batch at a time, and whether each has been drawn."""
        from redraft.generation import Tally
        from redraft.terminal import ROWS

        left = [batch for batch in todo if any(index not in done for index in batch.indices)]
        stages = self.plan.sampler.stages(self.plan.length, self.plan.steps, self.plan.block)
        each = sum(stage.steps for stage in stages)
        with progress("steps", each * len(left), hidden=self.watching) as meter:
            for number, batch in enumerate(left, start=1):
                tally, recorder = Tally(batch), self._recorder()
                for step in self._steps(batch):
                    tally.add(step)
                    if recorder:
                        recorder.add(step)
                    meter.advance()
                meter.advance(each * number - meter.done)  # what rows that ended early did not need
                if recorder and self.trajectory:
                    recorder.trajectory().with_texts(self.model.pieces).save(self.trajectory)
                with meter.aside():
                    for row, answer in enumerate(tally.answers(self.model, self.prompts)):
                        yield answer, self.watching and row < ROWS

    def _steps(self, batch: Batch) -> Iterator[Step]:
        steps = self.plan.walk(self.model, batch.canvas)
        if not self.watching:
            return steps
        from redraft.terminal import watch

        return watch(
            steps,
            self.model.pieces,
            eos_ids=self.model.eos_ids,
            console=out,
            title=f"{self.model.name}  {self.plan.sampler!r}",
            pause=min(SLOWEST_DRAWING, LONGEST_DELAY / self.plan.steps),
        )

    def _recorder(self) -> Recorder | None:
        from redraft.decoding import Recorder

        if self.trajectory is None:
            return None
        about = {
            "model": self.model.name,
            "sampler": repr(self.plan.sampler),
            "rank": self.plan.reading.rank,
            "prompts": self.prompts,
        }
        return Recorder(eos_ids=self.model.eos_ids, about=about)


def show(answer: Answer, record: dict[str, Any], *, as_json: bool, many: bool, quiet: bool) -> None:
    if as_json:
        write(json.dumps(record, ensure_ascii=False))
    elif not quiet:
        if many and out.is_terminal:
            err.rule(f"{answer.index + 1}", align="left", style="dim")
        write(answer.text)
