"""`redraft doctor`: is this installation fit to be trusted with numbers? Exit code 1 if not."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Any

import typer

from redraft.commands.console import err, out, plain, write

NEEDED = ("torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers", "huggingface_hub", "numpy")

# Versions known to give wrong results without an error: (library, from, before, what goes wrong, where it is told).
KNOWN_BAD = (
    (
        "transformers",
        "5.0",
        "5.13",
        "silently re-initialises weights of models it did not expect",
        "jgi-genomeocean issue 8",
    ),
)


@dataclass(frozen=True)
class Finding:
    subject: str
    fine: bool
    said: str


def doctor(
    model: Annotated[str, typer.Option("--model", "-m", help="The model whose ids are shown and checked.")] = "bundled",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as a list of objects.")] = False,
) -> None:
    """Check versions, devices, arithmetic, determinism and a model's ids; exit 1 on trouble."""
    findings: list[Finding] = []
    checks = {"versions": versions, "known bad": known_bad, "devices": devices, "dtypes": dtypes, "sandbox": sandbox}
    for subject, check in {**checks, "determinism": determinism, model: lambda: model_ids(model)}.items():
        for finding in _caught(subject, check):
            findings.append(finding)
            if not as_json:
                mark = "[green]ok[/]  " if finding.fine else "[bold red]bad[/] "
                out.print(f"{mark} {plain(f'{finding.subject:<16} {finding.said}')}")
    if as_json:
        write(json.dumps([asdict(finding) for finding in findings], indent=1))
    trouble = [finding.subject for finding in findings if not finding.fine]
    if trouble:
        err.print(plain(f"trouble with: {', '.join(trouble)}"))
        raise typer.Exit(1)


def _caught(subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check that breaks is a finding too."""
    try:
        yield from check()
    except ValueError as refused:  # a sentence for users already
        yield Finding(subject, False, str(refused))
    except Exception as broken:  # whatever a broken installation can throw
        yield Finding(subject, False, f"{type(broken).__name__}: {broken}")


def versions() -> Iterator[Finding]:
    """What is installed, against the ranges that this package declares."""
    from packaging.requirements import Requirement

    yield Finding("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    declared = {one.name: one.specifier for one in map(Requirement, metadata.requires("redraft") or [])}
    for name in NEEDED:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding(name, False, "is not installed: pip install redraft brings it")
            continue
        wanted = declared.get(name)
        fits = wanted is None or wanted.contains(found.split("+")[0], prereleases=True)
        yield Finding(name, fits, found if fits else f"{found} is outside of {wanted}")


def known_bad() -> Iterator[Finding]:
    from packaging.version import Version

    for name, since, before, harm, told in KNOWN_BAD:
        try:
            found = Version(metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
        if Version(since) <= found < Version(before):
            yield Finding("known bad", False, f"{name} {found} {harm} ({told}): use {before} or later")


def devices() -> Iterator[Finding]:
    import torch

    yield Finding("cpu", True, f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    for number in range(torch.cuda.device_count()):
        one = torch.cuda.get_device_properties(number)
        yield Finding(f"cuda:{number}", True, f"{one.name}, {one.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        yield Finding("mps", True, "Apple GPU; it has no float64, which nothing here needs")


def dtypes() -> Iterator[Finding]:
    """Which arithmetic works on the device that models go to, by doing some."""
    import torch

    from redraft.models.devices import best_device

    device = best_device()
    exact = torch.arange(64 * 64, dtype=torch.float32).view(64, 64) % 7 - 3
    for name in ("float32", "bfloat16", "float64"):
        try:
            square = exact.to(device, getattr(torch, name))
            right = torch.equal((square @ square).float().cpu(), (exact @ exact).to(getattr(torch, name)).float())
        except (RuntimeError, TypeError) as refused:
            needed = name == "float32"
            yield Finding(name, not needed, f"not on {device}: {str(refused).splitlines()[0]}")
            continue
        yield Finding(name, right, f"works on {device}" if right else f"wrong products on {device}")


def sandbox() -> Iterator[Finding]:
    """What holds the programs that a model writes. A weak one is no fault: it is not used unless that is asked for."""
    from redraft.evals import sandbox

    yield Finding("sandbox", True, str(sandbox.tier()))


def determinism() -> Iterator[Finding]:
    """Decode a small random model: twice, and each row alone. Same seeds must give the same tokens."""
    import torch

    from redraft.decoding import Canvas, Reading, walk
    from redraft.models.devices import best_device
    from redraft.models.standin import random_llada
    from redraft.samplers import parse

    device = best_device()
    dtype = torch.float32 if device == "mps" else torch.float64
    model = random_llada(seed=0, dtype=dtype)
    model.network.to(device)
    prompts, seeds = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10]], [11, 12, 13]

    def decode(rows: list[int]) -> list[list[int]]:
        chosen, theirs = [prompts[row] for row in rows], [seeds[row] for row in rows]
        canvas = Canvas.of(chosen, 24, mask_id=model.mask_id, pad_id=model.pad_id, seeds=theirs, device=device)
        reading = Reading(temperature=0.7, eos_ids=model.eos_ids)
        for step in walk(model, canvas, parse("d3im"), steps=12, reading=reading):
            canvas = step.result
        return canvas.response.tolist()

    where = f"{str(dtype).removeprefix('torch.')} on {device}"
    together = decode([0, 1, 2])
    again = decode([0, 1, 2]) == together
    yield Finding("determinism", again, f"{'the same' if again else 'other'} tokens the second time, {where}")
    alone = [decode([row])[0] for row in range(3)] == together
    said = (
        "each row alone gives the tokens it has in a batch"
        if alone
        else "a row alone gives other tokens than in a batch"
    )
    yield Finding("batches", alone, f"{said}, {where}")


def model_ids(name: str) -> Iterator[Finding]:
    from redraft.models import load

    model = load(name, device="cpu")
    said: dict[str, Any] = {
        "mask": model.mask_id, "end": list(model.eos_ids), "pad": model.pad_id,
        "vocabulary": model.vocab_size, "context": model.context, "dtype": str(model.dtype).removeprefix("torch."),
    }  # fmt: skip
    yield Finding(
        name, model.mask_id not in (*model.eos_ids, model.pad_id), ", ".join(f"{k} {v}" for k, v in said.items())
    )
