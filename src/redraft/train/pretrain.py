"""A small masked diffusion model from nothing: the plain masked objective on a pool of examples, all on one device.

Made for models whose step takes milliseconds: the pool, the draws and the masks live on the device, layers are
compiled, and the host waits for the device only to log. Which rows a step learns from, and which tokens it hides, are
functions of (seed, step, row); so a run that was interrupted goes on exactly where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from redraft.decoding.noise import counter_uniform, derive, stream_number
from redraft.models import Model
from redraft.shapes import Bool, Int
from redraft.train import checkpoint
from redraft.train.ask import ask, token_cross_entropy
from redraft.train.compiled import compile_blocks, uncompile_blocks
from redraft.train.muon import Muon
from redraft.train.pool import Shelf
from redraft.train.watch import Log, Record

CHECKPOINTS, LOG = "checkpoints", "log.jsonl"
MEASURED = (200, 400)  # where a run of so many minutes measures its rate; by then everything is compiled
FREE = ("save_every", "log_every", "compile", "stop_after")  # what may differ when a run goes on


@dataclass(frozen=True)
class Pretraining:
    """How; what is learned from is the pool."""

    steps: int | None = 1000  # of the optimiser; None: as many as `minutes` hold
    minutes: float | None = None
    tokens: int = 65536  # of one forward pass, all rows from one shelf
    accumulate: int = 4  # forward passes a step, from shelves drawn by their sizes
    lr: float = 2e-3
    warmup: int = 100  # then down to nothing, in a straight line
    weight_decay: float = 0.05
    clip: float = 1.0
    prose: float = 0.2  # of the forward passes are of prose, if there is any
    optimizer: str = "muon"
    seed: int = 0
    save_every: int = 2000
    log_every: int = 20
    compile: bool = False
    stop_after: float | None = None  # seconds, to be gone on from by the same command


class Pretrain:
    """Iterate over it: one record every `log_every` steps. The model's network is changed in place."""

    def __init__(
        self, model: Model, shelves: list[Shelf], settings: Pretraining, *, identity: dict[str, Any],
        out: Path | None = None, report: Callable[[str], None] = lambda said: None,
    ) -> None:  # fmt: skip
        self.model, self.settings, self.out = model, settings, out
        self.device = model.device
        self.shelves = [shelf.to(self.device) for shelf in shelves]
        self.weights = torch.tensor(shares(shelves, settings.prose), dtype=torch.float64).cumsum(0)
        self.network = model.network.train()
        self.identity = {**identity, **{k: v for k, v in asdict(settings).items() if k not in FREE}}
        self.step, self.steps = 0, settings.steps
        assert (settings.steps is None) != (settings.minutes is None), "either steps or minutes"
        assert settings.steps is not None or settings.warmup >= MEASURED[1], "no rate may depend on steps before"
        self.optimizers = optimizers(self.network, settings)
        if settings.compile:
            compile_blocks(self.network, dynamic=True)  # shelves differ in width
        self.log = Log(out / LOG if out else None)
        if out is not None:
            self._resume(out / CHECKPOINTS, report)

    def __iter__(self) -> Iterator[Record]:
        settings, started = self.settings, time.perf_counter()
        since, losses, tokens = started, [], 0
        before = started
        while self.steps is None or self.step < self.steps:
            loss, count = self._one_step()
            if self.steps is None and self.step in MEASURED:
                loss.item()  # waits for the device
                before, each = time.perf_counter(), (time.perf_counter() - before) / (MEASURED[1] - MEASURED[0])
                if self.step == MEASURED[1]:
                    assert settings.minutes is not None
                    self.steps = self.step + max(1, int((60 * settings.minutes - (before - started)) / each))
            losses.append(loss)
            tokens += count
            due = self.step % settings.log_every == 0 or self.step == self.steps
            if due:
                mean, now = float(torch.stack(losses).mean()), time.perf_counter()
                record = {
                    "step": self.step, "loss": mean, "lr": self.rate(), "seconds": now - since,
                    "tokens_per_second": tokens / (now - since),
                }  # fmt: skip
                if not math.isfinite(mean):
                    raise ValueError(
                        f"the loss of step {self.step} is {mean}: a smaller lr or a longer warmup may help"
                    )
                since, losses, tokens = now, [], 0
                self.log.add(record)
                yield record
            late = settings.stop_after is not None and due and time.perf_counter() - started > settings.stop_after
            if self.out is not None and (late or self.step % settings.save_every == 0 or self.step == self.steps):
                self.save()
            if late:
                return

    def rate(self) -> float:
        """The learning rate of the step that comes next."""
        settings, done = self.settings, self.step
        rising = (done + 1) / max(settings.warmup, 1)
        falling = 1.0 if self.steps is None else (self.steps - done) / max(self.steps - settings.warmup, 1)
        return settings.lr * min(1.0, rising, falling)

    def _one_step(self) -> tuple[Tensor, int]:
        settings = self.settings
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate()
        total, tokens = torch.zeros((), device=self.device), 0
        for turn in range(settings.accumulate):
            number = self.step * settings.accumulate + turn
            shelf = self._drawn(number)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                loss = self._loss(shelf, number) / settings.accumulate
            loss.backward()
            total = total + loss.detach()
            tokens += self._rows(shelf) * shelf.tokens.shape[1]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total, tokens

    def _drawn(self, number: int) -> Shelf:
        """The shelf of a forward pass: on the host, for its width decides the shapes."""
        unit = derive(derive(self.settings.seed, number), stream_number("shelf")) / 2**62
        return self.shelves[min(int(torch.searchsorted(self.weights, unit)), len(self.shelves) - 1)]

    def _rows(self, shelf: Shelf) -> int:
        return max(1, self.settings.tokens // shelf.tokens.shape[1])

    def _loss(self, shelf: Shelf, number: int) -> Tensor:
        """Cross-entropy at the masks of rows drawn from a shelf, each row alike however many it has.

        As LLaDA's 1/t weighs them; a plain mean over masks would mostly be that of rows with next to nothing to see.
        """
        device = self.device
        seeds = torch.arange(self._rows(shelf), device=device) + derive(derive(self.settings.seed, number), 0)
        pick = counter_uniform(seeds, (stream_number("pick"),), (1,))[:, 0].double()
        index = (pick * len(shelf)).long().clamp_max(len(shelf) - 1)
        tokens = shelf.tokens[index].long()
        hidden = masks(seeds, shelf.start[index], tokens.shape[1])
        seen = tokens.masked_fill(hidden, self.model.mask_id)
        where = first(hidden, most_hidden(*tokens.shape))
        (losses,) = ask(self.network, seen, None, where, token_cross_entropy, (tokens.flatten()[where],))
        share = hidden.flatten()[where] / hidden.sum(-1)[where // tokens.shape[1]]
        return (losses * share).sum() / len(tokens)

    def result(self) -> Model:
        """The model as it was trained, in bfloat16, as it is shipped and used."""
        uncompile_blocks(self.network)
        return replace(self.model, network=self.network.eval().to(torch.bfloat16))

    def save(self) -> None:
        assert self.out is not None
        weights = {name: one.detach().cpu() for name, one in self.network.named_parameters()}
        averages = {
            f"{number}/{place}/{key}": value.cpu()
            for number, optimizer in enumerate(self.optimizers)
            for place, one in enumerate(one for group in optimizer.param_groups for one in group["params"])
            for key, value in optimizer.state[one].items()
        }
        content = {"model.safetensors": weights, "optimizer.safetensors": averages}
        state = {"step": self.step, "steps": self.steps, "run": self.identity}
        checkpoint.save(self.out / CHECKPOINTS, self.step, {**content, "state.json": state}, keep=1)

    def _resume(self, place: Path, report: Callable[[str], None]) -> None:
        from redraft.train.loop import refuse_other

        found = checkpoint.newest(place, report)
        if found is None:
            return
        state = found.record("state.json")
        refuse_other(state["run"], self.identity, place.parent)
        self.step, self.steps = state["step"], state["steps"]
        self.network.load_state_dict(found.tensors("model.safetensors"))
        averages = found.tensors("optimizer.safetensors")
        for number, optimizer in enumerate(self.optimizers):
            parameters = [one for group in optimizer.param_groups for one in group["params"]]
            for name, value in averages.items():
                which, at, key = name.split("/")
                if int(which) == number:
                    one = parameters[int(at)]
                    optimizer.state[one][key] = (
                        value if key == "step" and not _fused(optimizer) else value.to(one.device)
                    )
        self.log.truncate(self.step)
        report(f"going on after step {self.step}, from {found.folder}")


def _fused(optimizer: Any) -> bool:
    return bool(optimizer.param_groups[0].get("fused"))


def masks(seeds: Int[Tensor, " b"], start: Int[Tensor, " b"], width: int) -> Bool[Tensor, "b w"]:
    """Every row's response at a rate of its own, uniform between 0 and 1, and at least one position of each."""
    rate = counter_uniform(seeds, (stream_number("rate"),), (1,))
    unit = counter_uniform(seeds, (stream_number("mask"),), (width,))
    unit = unit.masked_fill(torch.arange(width, device=seeds.device) < start[:, None], 1.0)  # it is always below
    return (unit < rate) | (unit == unit.amin(-1, keepdim=True))


def most_hidden(rows: int, width: int) -> int:
    """Positions of so many rows that are hidden at most: six standard deviations of their mean rate above a half."""
    return math.ceil(rows * width * min(1.0, 0.5 + 6 / (12 * rows) ** 0.5))


def first(hidden: Bool[Tensor, "b w"], count: int) -> Int[Tensor, " c"]:
    """The flat positions that are hidden, and behind them others up to `count`: to know how many there are, the host
    would wait for the device at every pass."""
    return hidden.flatten().byte().argsort(descending=True, stable=True)[:count]


def shares(shelves: list[Shelf], prose: float) -> list[float]:
    """How often each shelf is drawn from: prose shelves have their share, and sizes decide among each kind."""
    told = [0 if shelf.prose else shelf.tokens.size for shelf in shelves]
    text = [shelf.tokens.size if shelf.prose else 0 for shelf in shelves]
    share = 0.0 if not any(text) else prose if any(told) else 1.0
    return [
        share * one / max(sum(text), 1) + (1 - share) * other / max(sum(told), 1)
        for one, other in zip(text, told, strict=True)
    ]


def optimizers(network: Any, settings: Pretraining) -> list[Any]:
    """Muon for the layers' matrices, AdamW for embeddings, head and norms."""
    inside = [one for name, one in network.named_parameters() if one.ndim == 2 and ".blocks." in name]
    chosen = {id(one) for one in inside}
    rest = [one for one in network.parameters() if id(one) not in chosen]
    fused = rest[0].device.type == "cuda"
    if settings.optimizer == "adamw":
        return [
            torch.optim.AdamW(
                network.parameters(), lr=settings.lr, betas=(0.9, 0.98), weight_decay=settings.weight_decay, fused=fused
            )
        ]
    return [
        Muon(inside, lr=settings.lr, weight_decay=settings.weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=settings.lr, betas=(0.9, 0.98), weight_decay=settings.weight_decay, fused=fused),
    ]
