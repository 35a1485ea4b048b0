"""The training loop: explicit and small, round a recipe's pure loss. One optimiser step is a function of its number.

Step s learns from the examples [s G, (s + 1) G) of the stream, G = batch x accumulate x processes. Every process reads
the whole stream and takes its rows, and the loss of a step is the mean over the supervised tokens of all G examples,
whose number is known before any forward pass. So order, masks, coins and losses are the same for every layout of the
same G, and nothing but (step, parameters, averages, place in the data, steering) has to be saved to go on exactly.
"""

from __future__ import annotations

import json
import math
import platform
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

from redraft.decoding.noise import derive
from redraft.models import Model
from redraft.models.adapters import WEIGHTS as ADAPTER
from redraft.models.adapters import Audit, adapt, adapter_files, audit, saved_name
from redraft.train import checkpoint, parallel
from redraft.train.ask import innermost
from redraft.train.batch import Batch
from redraft.train.compiled import compile_blocks
from redraft.train.data import Packed, State, collate
from redraft.train.metrics import Metrics
from redraft.train.recipes import Recipe, Scope
from redraft.train.scope import supervised
from redraft.train.settings import Settings
from redraft.train.steering import Steering, steer
from redraft.train.watch import Log, Record, curves, model_card

CHECKPOINTS, LOG, PROTOCOL = "checkpoints", "log.jsonl", "protocol.json"
WEIGHTS = "model.safetensors"


class Stopped(ValueError):
    """A run that cannot go on, in one sentence that says what is kept."""


class Run:
    """A model being trained. Iterate over it: one record an optimiser step.

        run = Run(load("bundled"), stream, Scope(), Settings(steps=100), out=Path("run"))
        for record in run:
            print(record["step"], record["loss"])

    The model's network is changed in place. With `out`, states are saved there, and a run that was interrupted goes on
    from the last one; without, nothing is written.
    """

    def __init__(
        self,
        model: Model,
        stream: Packed,
        recipe: Recipe,
        settings: Settings,
        *,
        out: Path | None = None,
        accelerator: Any = None,
        report: Callable[[str], None] = lambda said: None,
    ) -> None:
        self.model, self.stream, self.recipe, self.settings, self.out = model, stream, recipe, settings, out
        self.accelerator = accelerator or parallel.accelerator(device=str(model.device))
        self.world, self.main = self.accelerator.num_processes, self.accelerator.is_main_process
        self.device = self.accelerator.device
        self.report = report if self.main else lambda said: None
        self.dtype = model.dtype  # as it came: full training makes it float32
        self.low = model.dtype in (torch.bfloat16, torch.float16)
        self.step = 0  # optimiser steps done
        self.asked_to_stop = False  # this process; `interrupted` once all know, at the end of a step
        self.interrupted = False
        self.steering = (
            Steering(recipe.temperature) if isinstance(recipe, Scope) and recipe.error_rate is not None else None
        )
        self.audit = self._prepare()
        self.log = Log(out / LOG if out and self.main else None)
        if out is not None:
            self._resume(out / CHECKPOINTS)

    # --- making ready ---

    def _prepare(self) -> Audit:
        settings, network = self.settings, self.model.network
        if settings.gradient_checkpointing:
            parallel.checkpoint_blocks(network)
        network.requires_grad_(settings.lora is None)
        if settings.lora is None:
            if self.low:  # steps of 1e-4 are lost in bfloat16's 8 bits
                network.float()
            counted = audit(network)
        else:
            network, counted = adapt(network, settings.lora, seed=settings.seed, base=self.model.name)
        if settings.compile:
            compile_blocks(network)
        self._cast_inputs(network, not self.low)
        self.network = network.to(self.device).train()
        model: Any = self.network
        if settings.shard:
            model = parallel.shard(model, self.accelerator)
        optimizer: Any = torch.optim.AdamW(
            [one for one in model.parameters() if one.requires_grad],
            lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay,
            fused=True if self.device.type == "cuda" else None,
        )  # fmt: skip
        if not settings.shard:
            if parallel.kind(self.accelerator) == "DEEPSPEED":  # it wants to hear it, though no loader is prepared
                plugin = self.accelerator.state.deepspeed_plugin
                plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = settings.batch
            model, optimizer = self.accelerator.prepare(model, optimizer)
        self.wrapped, self.optimizer = model, optimizer
        inner = model if settings.shard else self.accelerator.unwrap_model(model)
        self.trained = parallel.Trained(inner, optimizer, self.accelerator)
        # Where a forward pass gathers parameters, all processes must make the same number of them.
        self.lockstep = settings.shard or parallel.kind(self.accelerator) in ("FSDP", "DEEPSPEED")
        return counted

    @staticmethod
    def _cast_inputs(network: Any, on: bool) -> None:
        """Beside a bfloat16 model PEFT keeps three float32 copies of each layer's input; autocast needs none."""
        for module in network.modules():
            if hasattr(module, "lora_A"):
                module.cast_input_dtype_enabled = on

    def identity(self) -> dict[str, Any]:
        """What decides the result; a continuation must have the same."""
        dtype = str(self.dtype).removeprefix("torch.")
        return identity(self.model.name, self.stream.source.name, self.recipe, self.settings, self.world, dtype)

    # --- the loop ---

    def __iter__(self) -> Iterator[Record]:
        with self._signals():
            while self.step < self.settings.steps and not self.interrupted:
                record = self._one_step()
                self._write_down(record)
                due = self.step % self.settings.save_every == 0 or self.step == self.settings.steps
                if self.out is not None and (due or self.interrupted):
                    self.save()
                yield record

    def _one_step(self) -> Record:
        started = time.perf_counter()
        settings, step = self.settings, self.step
        batch = self._examples()
        seeds = batch.seeds(settings.seed)
        count = supervised(batch, self.recipe, seeds, step=step, steps=settings.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(step)
        total: Metrics | None = None
        for turn in range(settings.accumulate):
            first = (turn * self.world + self.accelerator.process_index) * settings.batch
            rows = slice(first, first + settings.batch)
            part = _trimmed(batch.rows(rows)).to(self.device)
            torch.manual_seed(derive(settings.seed, int(part.indices[0])))  # of dropout, should there be any
            last = turn == settings.accumulate - 1
            with parallel.exchange(self.wrapped, self.accelerator, now=last), self._precision():
                loss, metrics = self.recipe.loss(
                    self.wrapped, part, step=step, steps=settings.steps, seeds=seeds[rows], mask_id=self.model.mask_id,
                    temperature=self.steering.temperature if self.steering else None,
                    count=count / self.world,  # processes are averaged
                    lockstep=self.lockstep,
                )  # fmt: skip
                self.accelerator.backward(loss)
            total = metrics if total is None else total + metrics
        assert total is not None
        norm = self.accelerator.clip_grad_norm_(self.trained.parameters.values(), settings.clip)
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        summary = self._agreed(total)
        self._refuse_nonsense(summary["loss"], norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step = step + 1
        temperature = self.steering.temperature if self.steering else getattr(self.recipe, "temperature", None)
        if self.steering and isinstance(self.recipe, Scope) and self.recipe.error_rate is not None:
            self.steering = steer(self.steering, summary["error_rate"], self.recipe.error_rate)
        seconds = time.perf_counter() - started
        tokens = int(batch.attend.sum()) if batch.attend is not None else batch.tokens.numel()
        return {
            "step": self.step, **summary, "supervised": count, "temperature": temperature, "grad_norm": norm,
            "lr": settings.rate(step), "tokens": tokens, "tokens_per_second": tokens / seconds,
            "memory_gib": memory(self.device) / 2**30, "seconds": seconds, "epoch": self.stream.epoch,
        }  # fmt: skip

    def _examples(self) -> Batch:
        first = self.step * self.settings.rows(self.world)
        try:
            examples = self.stream.take(self.settings.rows(self.world))
        except (ValueError, OSError) as gone:
            raise Stopped(f"at step {self.step + 1}: {str(gone).rstrip('.')}; {self._kept()}") from gone
        assert examples[0].index == first, f"the stream stands at {examples[0].index}, not at {first}"
        return collate(examples, pad_id=self.model.pad_id)

    def _precision(self) -> Any:
        """A bfloat16 model multiplies in bfloat16, whatever is trained. No cache: what the pass without gradients
        casts would be used again by the one with them, and the adapter would learn nothing."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.low, cache_enabled=False)

    def _write_down(self, record: Record) -> None:
        try:
            self.log.add(record)
        except OSError as refused:  # a full disk, mostly
            raise Stopped(f"cannot write {self.log.path} ({refused.strerror or refused}); {self._kept()}") from None

    def _agreed(self, metrics: Metrics) -> dict[str, Any]:
        """The monitors summed over processes; an interruption of one is an interruption of all."""
        packed = metrics.pack()
        packed = self.accelerator.reduce(torch.cat([packed, packed.new_tensor([float(self.asked_to_stop)])]), "sum")
        self.interrupted = float(packed[-1]) > 0
        return Metrics.unpack(packed[:-1]).summary()

    def _refuse_nonsense(self, loss: float | None, norm: float) -> None:
        for what, value in (("loss", loss), ("gradient", norm)):
            if value is None or not math.isfinite(value):
                raise Stopped(
                    f"the {what} of step {self.step + 1} is {value}, and nothing was learned from it; {self._kept()}. "
                    "A smaller lr, a longer warmup or other data may help (with --overwrite)"
                )

    # --- saving and going on ---

    def save(self) -> None:
        """Everything needed to go on, on the disk. All processes take part, the first one writes."""
        assert self.out is not None
        weights, averages = self.trained.weights(), self.trained.averages()
        trouble: OSError | None = None
        if self.main:
            data = self.stream.state_dict()
            state = {
                "step": self.step, "run": self.identity(), "steering": self.steering and self.steering._asdict(),
                # No generator has a state: whatever is drawn is a function of the seed and these two.
                "random": {"seed": self.settings.seed, "step": self.step, "example": self.stream.index},
                "processes": self.world, "versions": versions(),
            }  # fmt: skip
            content = {
                **self._weight_files(weights),
                "optimizer.safetensors": averages,
                "data.safetensors": {name: torch.from_numpy(array) for name, array in data.arrays.items()},
                "data.json": data.json,
                "state.json": state,
            }
            try:
                self.log.flush()
                checkpoint.save(self.out / CHECKPOINTS, self.step, content, keep=self.settings.keep)
            except OSError as refused:
                trouble = refused
        failed = torch.tensor([float(trouble is not None)], device=self.device)
        if float(self.accelerator.reduce(failed, "sum")) > 0:  # nobody waits for a process that gave up
            reason = (trouble.strerror or str(trouble)) if trouble else "the first process could not write"
            raise Stopped(f"cannot save step {self.step} in {self.out} ({reason}); {self._kept()}")

    def _weight_files(self, weights: dict[str, torch.Tensor]) -> dict[str, Any]:
        if self.settings.lora is not None:
            return adapter_files(self.network, weights)
        return {WEIGHTS: weights}

    def _kept(self) -> str:
        found = checkpoint.saved(self.out / CHECKPOINTS) if self.out is not None else []
        if not found:
            return "no state had been saved yet"
        return (
            f"the state after step {found[0].step} is kept in {found[0].folder}, and the same command goes on from it"
        )

    def _resume(self, place: Path) -> None:
        found = checkpoint.newest(place, self.report)
        steps = self.accelerator.gather(torch.tensor([found.step if found else 0], device=self.device)).tolist()
        if len(set(steps)) > 1:
            raise ValueError(f"the processes see different states in {place} (after steps {steps}): share the folder")
        if found is None:
            self.log.truncate(0)
            return
        state = found.record("state.json")
        refuse_other(state["run"], self.identity(), place.parent)
        saved = found.tensors(ADAPTER if self.settings.lora is not None else WEIGHTS)
        naming = saved_name if self.settings.lora is not None else str
        self.trained.load_weights({name: saved[naming(name)] for name in self.trained.parameters})
        self.step = int(state["step"])
        if self.step:
            self.trained.load_averages(found.tensors("optimizer.safetensors"), self.step)
        arrays = {name: tensor.numpy() for name, tensor in found.tensors("data.safetensors").items()}
        self.stream.load_state_dict(State(found.record("data.json"), arrays))
        if state["steering"] is not None:
            self.steering = Steering(**state["steering"])
        self.log.truncate(self.step)
        self.report(f"going on after step {self.step}, from {found.folder}")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C, or a scheduler's SIGTERM, ends the run after the step it is in; a second one at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: Any) -> None:
            if self.asked_to_stop:
                raise KeyboardInterrupt
            self.asked_to_stop = True

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- the result ---

    def result(self) -> Model:
        """The model as it was trained, to be used outside of the loop (where it was not sharded)."""
        self._cast_inputs(self.network, True)
        return replace(self.model, network=self.network.eval())

    def finish(self) -> Path | None:
        """OUT/adapter, which plain PEFT opens (or OUT/model), curves, model card, and last the protocol.

        Every process must call it, the first one writes.
        """
        assert self.out is not None
        assert self.step == self.settings.steps, "the run is not at its end"
        weights = self.trained.weights()
        if not self.main:
            return None
        try:
            return self._write(self.out, weights)
        except OSError as refused:
            raise Stopped(
                f"cannot write the result in {self.out} ({refused.strerror or refused}); {self._kept()}"
            ) from None

    def _write(self, out: Path, weights: dict[str, torch.Tensor]) -> Path:
        folder = out / ("adapter" if self.settings.lora is not None else "model")
        records, protocol = self.log.records, self.protocol()
        title = f"{self.model.name}: {self.recipe!r}"
        drawn = curves(records, out / "curves.png", title=title)
        card = model_card(protocol, records, picture=drawn)
        if self.settings.lora is not None:
            files = {**adapter_files(self.network, weights), "README.md": model_card(protocol, records, picture=False)}
            checkpoint.write(folder, files, manifest=False)
        else:
            self._write_model(folder, weights)
        checkpoint.write_text(out / "README.md", card)
        checkpoint.write_text(out / PROTOCOL, json.dumps(protocol, indent=1) + "\n")
        return folder

    def _write_model(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        if folder.exists():
            checkpoint.discard(folder)
        with torch.device("meta"):  # the trained one may be spread over processes
            network = type(innermost(self.network))(self.model.network.config)
        network.load_state_dict({name: tensor.to(self.dtype) for name, tensor in weights.items()}, assign=True)
        replace(self.model, network=network.eval()).save_pretrained(folder)

    def protocol(self) -> dict[str, Any]:
        """What makes the result comparable with another one."""
        records = self.log.records
        return {
            "run": self.identity(), "steps": self.step, "processes": self.world, "versions": versions(),
            "trainable": self.audit.trainable, "parameters": self.audit.total,
            "modules": {target: len(names) for target, names in self.audit.matched.items()},
            "tokens": sum(record["tokens"] for record in records), "data": self.stream.counts,
            "epochs": self.stream.epoch, "seconds": sum(record["seconds"] for record in records),
            "hardware": f"{self.world} x {hardware(self.device)}",
            "finished": datetime.now(UTC).isoformat("T", "seconds"),
        }  # fmt: skip


def identity(
    model: str, data: str, recipe: Recipe, settings: Settings, world: int, dtype: str | None
) -> dict[str, Any]:
    return {"model": model, "dtype": dtype, "data": data, "recipe": repr(recipe), **settings.record(world)}


def refuse_other(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """A run in this folder with other settings is not continued."""
    differing = [
        f"{key} was {before.get(key)!r}, now {now.get(key)!r}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]
    if differing:
        raise ValueError(
            f"{out} holds a run with other settings ({'; '.join(differing)}): repeat its command to go on with it, "
            "give another --out, or --overwrite to start anew"
        )


def _trimmed(batch: Batch) -> Batch:
    """Without the columns that are padding in all of these rows."""
    if batch.attend is None:
        return batch
    width = int(batch.attend.any(0).nonzero().max()) + 1
    attend = batch.attend[:, :width]
    return Batch(
        batch.tokens[:, :width], batch.eligible[:, :width], None if bool(attend.all()) else attend, batch.indices
    )


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {device.type}, {torch.get_num_threads()} threads"


def memory(device: torch.device) -> int:
    """The most that has been in use: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def versions() -> dict[str, str]:
    from importlib import metadata

    import redraft  # which may run from its source, not installed

    names = ("torch", "transformers", "peft", "accelerate", "safetensors", "datasets")
    found = {name: metadata.version(name) for name in names if _installed(name)}
    return {"python": ".".join(map(str, sys.version_info[:3])), "redraft": redraft.__version__, **found}


def _installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
