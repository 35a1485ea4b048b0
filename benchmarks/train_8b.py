"""What a SCOPE micro-batch takes in LLaDA-8B's exact shape, beside the same step written plainly on all logits.

    python benchmarks/train_8b.py                                 # one GPU with 40 GB, no disk; --brief, two minutes
    python benchmarks/train_8b.py --scale tiny --device cpu       # seconds: does it run

Random bf16 weights, the paper's adapter and recipe, batch 1, the package's own training loop. The plain steps see the
same examples, masks and coins. Times are medians of whole steps (loss, backward, clipping, AdamW), waited for. The
share of the machine is a step's with commits: 6 operations a parameter and token (what checkpointing computes again
does not count), beside the fastest product of two large bf16 matrices in the same run.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from llada_8b import SCALES, device_name, draw, timed

from redraft.models import Model
from redraft.models.adapters import adapt
from redraft.models.llada.configuration import LLaDAConfig
from redraft.models.llada.modeling import LLaDAForMaskedLM
from redraft.models.standin import standin_tokenizer
from redraft.train.batch import Batch, Draft, row_uniform
from redraft.train.compiled import uncompile_blocks
from redraft.train.corrupt import hide
from redraft.train.data import Packed, collate, open_source
from redraft.train.loop import Run
from redraft.train.parallel import checkpoint_blocks
from redraft.train.plan import predict_memory
from redraft.train.recipes import Scope
from redraft.train.settings import Settings

RECIPE = Scope()
LENGTHS = {"8b": 2048, "tiny": 64}


class Timing(NamedTuple):
    name: str
    conditioned: list[float]  # seconds of each micro-batch with commits
    unconditioned: list[float]
    peak: float | None  # GiB
    planned: float | None


def main() -> None:
    options = arguments()
    settings = Settings(length=LENGTHS[options.scale], accumulate=1, steps=options.warmup + options.steps)
    measure = Measure(options.scale, options.device, options.warmup)
    compiled = options.device == "cuda" or options.compile
    print(f"\nSCOPE on LLaDA {options.scale}, random weights, {settings.length} tokens, {datetime.now(UTC):%Y-%m-%d}")
    print(f"{device_name(options.device)}, torch {torch.__version__}; {options.steps} steps after {options.warmup}\n")
    found: list[Timing] = []
    fastest = ceiling(options.device)
    print(f"fastest product of two bf16 matrices: {fastest / 1e12:.3g} TFLOP/s", flush=True)
    for checkpointed in (False, True):
        kept = ", checkpointing" * checkpointed
        ours = changed(settings, gradient_checkpointing=checkpointed)
        if compiled:
            found.append(measure.ours(f"ours, compiled{kept}", changed(ours, compile=True)))
        if not (compiled and options.brief):
            found.append(measure.ours(f"ours{kept}", ours))
        if not (checkpointed and options.brief):
            found.append(measure.plainly(f"all logits, plainly{kept}", ours))
    table(found, operations(options.scale) * settings.length / fastest)
    agreement(measure, changed(settings, compile=compiled))
    whole_steps(measure, changed(settings, compile=compiled, accumulate=4, steps=options.warmup + options.steps // 4))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--scale", choices=tuple(SCALES), default="8b")
    parser.add_argument("--steps", type=int, default=24, help="that are timed")
    parser.add_argument("--warmup", type=int, default=8, help="steps before them")
    parser.add_argument("--brief", action="store_true", help="ours as it runs by default, and one plain version")
    parser.add_argument("--compile", action="store_true", help="on a CPU too, where it takes minutes")
    return parser.parse_args()


def changed(settings: Settings, **values: Any) -> Settings:
    return Settings(**{**vars(settings), **values})


# --- the things that are measured ---


def ceiling(device: str, tries: int = 20) -> float:
    """Operations a second of one large product."""
    side = 8192 if device == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * side**3 / min(timed(device, lambda: a @ b)[0] for _ in range(tries))


def operations(scale: str) -> float:
    """Of a token in a step with commits: two passes forward and one back, 2 a parameter each."""
    with torch.device("meta"):
        network = LLaDAForMaskedLM(LLaDAConfig(**SCALES[scale]))
    return 6.0 * sum(one.numel() for one in network.parameters())


class Measure:
    def __init__(self, scale: str, device: str, warmup: int) -> None:
        self.scale, self.device, self.warmup = scale, device, warmup
        self.tokenizer = standin_tokenizer()

    def model(self) -> Model:
        """Weights drawn where they are to be."""
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        with torch.device("meta"):
            network = LLaDAForMaskedLM(LLaDAConfig(**SCALES[self.scale]))
        shapes = {name: tuple(one.shape) for name, one in network.named_parameters()}
        weights = {name: draw(name, shape, self.device) for name, shape in shapes.items()}
        network.load_state_dict(weights, assign=True)
        return Model.of(network.eval(), self.tokenizer, name=f"random-llada-{self.scale}")

    def stream(self, model: Model, settings: Settings) -> Packed:
        letters = random.Random(0)
        count = settings.steps * settings.accumulate + 2
        texts = [{"text": "".join(letters.choices("etaoin shrdlu", k=settings.length))} for _ in range(count)]
        return Packed(open_source(texts), model, length=settings.length, seed=0, shuffle=1)

    def run(self, settings: Settings) -> Run:
        model = self.model()
        return Run(model, self.stream(model, settings), RECIPE, settings)

    def ours(self, name: str, settings: Settings) -> Timing:
        records = iter(self.run(settings))

        def steps() -> Iterator[bool]:
            for record in records:
                yield record["self_conditioned"] > 0

        return self.timing(name, steps(), self.planned(settings))

    def plainly(self, name: str, settings: Settings) -> Timing:
        return self.timing(name, plain_steps(self, settings), None)

    def planned(self, settings: Settings) -> float | None:
        if self.device == "cpu":
            return None
        config = LLaDAConfig(**SCALES[self.scale])
        return predict_memory(config, torch.bfloat16, RECIPE, settings).peak / 2**30

    def timing(self, name: str, steps: Iterator[bool], planned: float | None) -> Timing:
        """`steps` takes a step whenever it is asked and says whether it was one with commits."""
        found: dict[bool, list[float]] = {True: [], False: []}
        with suppress(StopIteration):
            for number in range(1 << 30):
                if number == self.warmup and self.device == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                seconds, conditioned = timed(self.device, partial(next, steps))
                if number >= self.warmup:
                    found[conditioned].append(seconds)
        peak = torch.cuda.max_memory_allocated() / 2**30 if self.device == "cuda" else None
        both = f"{median(found[True]):.1f} ms with commits, {median(found[False]):.1f} ms without"
        memory = "" if peak is None else f", {peak:.1f} GiB"
        print(f"{name}: {sum(map(len, found.values()))} steps timed, {both}{memory}", flush=True)
        return Timing(name, found[True], found[False], peak, planned)


# --- the same step, as one writes it down from the paper ---


def plain_steps(measure: Measure, settings: Settings) -> Iterator[bool]:
    model = measure.model()
    stream = measure.stream(model, settings)
    if settings.gradient_checkpointing:
        checkpoint_blocks(model.network)
    assert settings.lora is not None
    network, _ = adapt(model.network.requires_grad_(False), settings.lora)
    for module in network.modules():
        if hasattr(module, "lora_A"):  # as in our loop: autocast needs no float32 copies of the inputs
            module.cast_input_dtype_enabled = False
    network = network.to(model.device).train()
    trained = [one for one in network.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.lr, weight_decay=0.0, fused=model.device.type == "cuda" or None)
    for _ in range(settings.steps):
        batch = collate(stream.take(1), pad_id=model.pad_id).to(model.device)
        seeds = batch.seeds(settings.seed)
        hidden = hide(batch, RECIPE.rates, seeds)
        conditioned = bool(row_uniform(seeds, "coin") < RECIPE.self_condition)
        with autocast(model.device.type):
            tokens, where = batch.tokens.masked_fill(hidden, model.mask_id), hidden
            if conditioned:
                tokens = plain_guesses(network, batch.tokens, hidden, model.mask_id)
            loss = plain_loss(network, tokens, batch.tokens, where)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, settings.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield conditioned


@torch.no_grad()
def plain_guesses(network: Any, truth: torch.Tensor, hidden: torch.Tensor, mask_id: int) -> torch.Tensor:
    """The surest share of the model's own samples, among masks."""
    network.eval()
    logits = network(input_ids=truth.masked_fill(hidden, mask_id)).logits.float()
    network.train()
    logits[..., mask_id] = -torch.inf
    guesses = torch.multinomial((logits / RECIPE.temperature).softmax(-1)[0], 1).T
    confidence = logits.softmax(-1).amax(-1).masked_fill(~hidden, -torch.inf)
    kept = max(1, int(float(RECIPE.share) * int(hidden.sum())))
    committed = torch.zeros_like(hidden).scatter(1, confidence.topk(kept).indices, True)
    return torch.where(committed, guesses, truth.masked_fill(hidden, mask_id))


def plain_loss(network: Any, tokens: torch.Tensor, truth: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    logits = network(input_ids=tokens).logits.float()
    losses = F.cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none")
    return losses[where.flatten()].mean()


def autocast(device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, cache_enabled=False)


# --- what comes out ---


def table(timings: list[Timing], least: float) -> None:
    """`least`: seconds that a step with commits would take at the machine's fastest."""
    print("\n| | with commits, ms | without, ms | mean, ms | x plain | of the machine | peak, GiB | planned, GiB |")
    print("|---|---|---|---|---|---|---|---|")
    plain = next(one for one in timings if one.name.startswith("all logits"))
    for one in timings:
        first, second = median(one.conditioned), median(one.unconditioned)
        times = f"{first:.1f} | {second:.1f} | {(first + second) / 2:.1f}"
        ratio, share = median(plain.conditioned) / first, 1000 * least / first
        peak = "-" if one.peak is None else f"{one.peak:.1f}"
        planned = "-" if one.planned is None else f"{one.planned:.1f} ({one.planned / (one.peak or 1) - 1:+.0%})"
        print(f"| {one.name} | {times} | {ratio:.2f} | {share:.0%} | {peak} | {planned} |")


def median(seconds: list[float]) -> float:
    return 1000 * statistics.median(seconds) if seconds else float("nan")


def agreement(measure: Measure, settings: Settings) -> None:
    """Loss and gradient of one conditioned micro-batch: ours, and plainly without compilation on the same draft."""
    run = measure.run(settings)
    network, mask_id = run.network, run.model.mask_id
    for name, one in network.named_parameters():
        if "lora_B" in name:  # zeros at the start, and with them half of the gradients
            torch.nn.init.normal_(one, std=1e-3)
    batch = collate(run.stream.take(1), pad_id=run.model.pad_id).to(run.device)
    recipe, seeds = Scope(self_condition=1.0), batch.seeds(settings.seed)
    with autocast(run.device.type):
        draft = recipe.draft(network, batch, mask_id=mask_id, step=0, seeds=seeds)
        ours = gradient(network, lambda: recipe.loss(network, batch, step=0, seeds=seeds, mask_id=mask_id)[0])
        uncompile_blocks(network)
        plain = gradient(network, lambda: loss_of(network, batch, draft))
    loss = abs(ours[0] - plain[0]) / plain[0]
    apart = float((ours[1] - plain[1]).norm() / plain[1].norm())
    print(f"\nAgreement on one draft: loss {ours[0]:.5f} and {plain[0]:.5f} ({loss:.1e} apart, relative), ", end="")
    print(f"gradients {apart:.1e} apart, {int(draft.committed.sum())} commits, {int(draft.masked.sum())} masks")


def loss_of(network: Any, batch: Batch, draft: Draft) -> torch.Tensor:
    return plain_loss(network, draft.tokens, batch.tokens, draft.committed | draft.masked)


def gradient(network: Any, loss_of: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    network.zero_grad(set_to_none=True)
    loss = loss_of()
    loss.backward()
    parts = [one.grad.flatten().float() for one in network.parameters() if one.grad is not None]
    return float(loss.detach()), torch.cat(parts)


def whole_steps(measure: Measure, settings: Settings) -> None:
    """The recipe's own step: four micro-batches."""
    seconds = []
    records = iter(measure.run(settings))
    for _ in range(settings.steps):
        seconds.append(timed(measure.device, partial(next, records))[0])
    each = statistics.fmean(seconds[measure.warmup :])
    print(
        f"An optimiser step of {settings.accumulate}: {1000 * each:.0f} ms, so 500 take {500 * each / 60:.1f} minutes"
    )


if __name__ == "__main__":
    main()
