"""Reads what a checkpoint says it holds, without reading it, and compares that with what its config.json asks for.

transformers only logs missing and unexpected tensors, and a cut-off file fails late with a stack of Rust errors.
Format: https://github.com/huggingface/safetensors#format (8 bytes of length, a JSON header, the numbers).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from redraft.models.folders import read_json

Shapes = dict[str, tuple[int, ...]]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
LONGEST_HEADER = 100_000_000  # the format's own limit


def read_shapes(path: Path) -> Shapes:
    """Names and shapes in one safetensors file whose header, length and number types are in order."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise ValueError(f"{path} is cut off or not a safetensors file; fetch it again.")
        try:
            header = json.loads(file.read(length))
            entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
            shapes = {name: tuple(int(n) for n in entry["shape"]) for name, entry in entries.items()}
            spans = sorted((*map(int, entry["data_offsets"]), name) for name, entry in entries.items())
            kinds = {name: str(entry["dtype"]) for name, entry in entries.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} has a damaged header ({type(error).__name__}); fetch it again.") from error
    end = 0
    for start, stop, name in spans:
        if kinds[name] not in BYTES:
            raise ValueError(
                f"{path}: {name} is {kinds[name]}; only {', '.join(BYTES)} weights are opened (not quantised)."
            )
        if start != end or stop - start != math.prod(shapes[name]) * BYTES[kinds[name]]:
            raise ValueError(f"{path} has a header that contradicts itself at {name}; fetch it again.")
        end = stop
    if size != 8 + length + end:
        raise ValueError(
            f"{path} is {size:,} bytes long, but its header describes {8 + length + end:,}; fetch it again."
        )
    return shapes


def checkpoint_shapes(folder: Path) -> Shapes:
    """Names and shapes in a folder's model.safetensors, or in all shards that its index names."""
    if (folder / WEIGHTS).is_file():
        return read_shapes(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern))
        found = (
            f"only {', '.join(pickles[:3])}: pickles, which can run code and are not opened"
            if pickles
            else "no weights"
        )
        raise ValueError(
            f"{folder} holds no {WEIGHTS} ({found}). Convert pickled weights where you trust them: "
            "safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')."
        )
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise ValueError(f"{folder / INDEX} has no weight_map from tensor names to files.")
    shapes: Shapes = {}
    for shard in sorted(set(places.values())):
        if Path(shard).name != shard:
            raise ValueError(f"{folder / INDEX} names {shard!r}, which is not a file in the same folder.")
        if not (folder / shard).is_file():
            raise ValueError(f"{folder / shard} is missing, although {INDEX} names it; fetch it again.")
        inside = read_shapes(folder / shard)
        listed = {name for name, place in places.items() if place == shard}
        if inside.keys() != listed:
            raise ValueError(
                f"{folder / shard} and {INDEX} disagree about {_some(inside.keys() ^ listed)}; fetch both again."
            )
        shapes.update(inside)
    return shapes


def compare(found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]], what: str) -> None:
    """One sentence about everything in which `found` is not `wanted`."""
    faults = []
    if missing := wanted.keys() - found.keys():
        faults.append(f"{len(missing)} missing ({_some(missing)})")
    if extra := found.keys() - wanted.keys():
        faults.append(f"{len(extra)} not asked for ({_some(extra)})")
    if misshapen := {name for name in found.keys() & wanted.keys() if tuple(found[name]) != tuple(wanted[name])}:
        listed = (f"{name} is {list(found[name])} and should be {list(wanted[name])}" for name in sorted(misshapen)[:3])
        faults.append(f"{len(misshapen)} of another shape ({'; '.join(listed)}{'; ...' if len(misshapen) > 3 else ''})")
    if faults:
        raise ValueError(f"The tensors in {what} do not fit its config: {'; '.join(faults)}.")


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
