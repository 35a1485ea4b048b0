"""Proof that LLaDA-8B's exact shapes load and run: random weights in the published layout, through `load`.

    python benchmarks/llada_8b.py --device cuda                 # 16 GB of GPU memory and disk
    python benchmarks/llada_8b.py --device cpu                  # 20 GB of memory, some minutes
    python benchmarks/llada_8b.py --device cpu --scale tiny     # seconds

The weights are random and the tokenizer is a byte-level stand-in, so times and memory are real and the text is noise.
Weights are drawn and written one shard at a time; the folder is removed again unless `--folder` names one to keep.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from redraft import generate
from redraft.models import Model, load
from redraft.models.llada.configuration import LLaDAConfig
from redraft.models.llada.modeling import LLaDAForMaskedLM
from redraft.models.loading import wanted_shapes
from redraft.models.standin import standin_tokenizer
from redraft.models.weights import INDEX, Shapes

SCALES = {"8b": {}, "tiny": {"d_model": 64, "n_layers": 2, "n_heads": 4, "mlp_hidden_size": 192}}
PUBLISHED = {"tensors": 291, "parameters": 8_015_581_184, "bytes": 16_031_162_368}  # GSAI-ML/LLaDA-8B-Instruct


def main() -> None:
    options = arguments()
    config = LLaDAConfig(**SCALES[options.scale])
    shapes = wanted_shapes(LLaDAForMaskedLM, config)
    rows: list[tuple[str, str]] = [("device", device_name(options.device)), ("torch", torch.__version__)]
    with tempfile.TemporaryDirectory(dir=options.work) as scratch:
        folder = Path(options.folder or scratch)
        if not (folder / INDEX).is_file():
            seconds, _ = timed(options.device, lambda: write(folder, config, shapes, options.device))
            rows.append(("write random bf16 shards", f"{seconds:.1f} s"))
        files = sorted(folder.glob("*.safetensors"))
        rows.append(("files", f"{len(files)} shards, {sum(path.stat().st_size for path in files):,} bytes"))
        seconds, model = timed(options.device, lambda: load(folder, device=options.device, fingerprint=False))
        rows.append(("load", f"{seconds:.1f} s"))
        rows.extend(counts(model, options.scale))
        rows.extend(forward(model, options.device))
        rows.extend(generation(model, options.device, options.prompt, options.length, options.steps))
        rows.append(("peak memory", peak_memory(options.device)))
    print(f"\nLLaDA {options.scale}, random weights, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC\n")
    for name, value in rows:
        print(f"| {name:<34} | {value} |")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--scale", choices=tuple(SCALES), default="8b")
    parser.add_argument("--prompt", type=int, help="tokens before them  [1024 on a GPU, 64 elsewhere]")
    parser.add_argument("--length", type=int, help="tokens to generate  [256, 32]")
    parser.add_argument("--steps", type=int, help="to generate them in  [64, 8]")
    parser.add_argument("--folder", help="where the weights are, or are to be kept")
    parser.add_argument("--work", help="where temporary folders go: 16 GB, as /dev/shm may have")
    options = parser.parse_args()
    prompt, length, steps = (1024, 256, 64) if options.device == "cuda" else (64, 32, 8)
    options.prompt, options.length = options.prompt or prompt, options.length or length
    options.steps = options.steps or steps
    return options


def write(folder: Path, config: LLaDAConfig, shapes: Shapes, device: str) -> None:
    """A checkpoint of random bfloat16 weights in six-odd shards, each forgotten before the next is drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = list(split(shapes, parts=6))
    places = {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: draw(name, shapes[name], device).cpu() for name in names}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(names, file))
        print(f"wrote {file}: {len(names)} tensors", flush=True)
    total = 2 * sum(map(math.prod, shapes.values()))
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}))
    config.save_pretrained(folder)
    standin_tokenizer().save_pretrained(folder)


def split(shapes: Shapes, parts: int) -> Iterator[list[str]]:
    """Names in order, cut whenever a shard has its share of the numbers."""
    share = sum(map(math.prod, shapes.values())) / parts
    names: list[str] = []
    size = 0
    for name, shape in shapes.items():
        if names and size + math.prod(shape) > share:
            yield names
            names, size = [], 0
        names.append(name)
        size += math.prod(shape)
    yield names


def draw(name: str, shape: tuple[int, ...], device: str) -> torch.Tensor:
    """Norms are ones; matrices are uniform with the spread of a trained network's (about 0.02 at 8B)."""
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16, device=device)
    return torch.empty(shape, dtype=torch.bfloat16, device=device).uniform_(-1, 1).mul_((3 / shape[1]) ** 0.5)


def counts(model: Model, scale: str) -> list[tuple[str, str]]:
    tensors = model.network.state_dict().values()
    found = {
        "tensors": len(tensors),
        "parameters": sum(tensor.numel() for tensor in tensors),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    }
    assert all(tensor.dtype == torch.bfloat16 for tensor in tensors)
    assert scale != "8b" or found == PUBLISHED, found
    verdict = " (as published)" if found == PUBLISHED else ""
    return [(name, f"{number:,}{verdict}") for name, number in found.items()]


def forward(model: Model, device: str) -> list[tuple[str, str]]:
    """A canvas of masks only; then the same again, without what the first call sets up."""
    tokens = torch.full((1, 64), model.mask_id)
    first, logits = timed(device, lambda: model(tokens))
    assert logits.shape == (1, 64, model.vocab_size)
    assert logits.isfinite().all(), "logits of a canvas of masks are not finite"
    second, _ = timed(device, lambda: model(tokens))
    part, _ = timed(device, lambda: model(tokens, columns=slice(32, 64)))
    spread = f"finite, std {float(logits.float().std()):.3f}"
    return [
        ("forward of 64 masks", f"{first:.3f} s first, {second:.3f} s again; {spread}"),
        ("forward, 32 columns of logits", f"{part:.3f} s"),
    ]


def generation(model: Model, device: str, prompt: int, length: int, steps: int) -> list[tuple[str, str]]:
    """D3IM after a prompt of so many tokens, twice: what the first call sets up is not decoding."""
    asked = "What is 2 + 2? " * (1 + prompt // 15)
    asked = asked[: prompt - (len(model.encode(asked)) - len(asked))]  # the stand-in has a token for each byte
    answer = partial(generate, model, [asked], "d3im", length=length, steps=steps, seed=0)
    first, _ = timed(device, answer)
    again, (found,) = timed(device, answer)
    return [
        ("prompt", f"{len(model.encode(asked))} tokens"),
        (f"d3im, {length} tokens in {steps} steps", f"{first:.2f} s first, {again:.2f} s again"),
        ("a step", f"{1000 * again / found.calls:.1f} ms, {found.calls} calls (the text is noise)"),
    ]


def timed(device: str, call):
    """Seconds and result; a GPU is waited for."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = models[0].split(":", 1)[1].strip() if models else platform.processor()
    return f"{processor}, {torch.get_num_threads()} threads"


def peak_memory(device: str) -> str:
    main = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB main"
    return f"{main}, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB GPU" if device == "cuda" else main


if __name__ == "__main__":
    main()
