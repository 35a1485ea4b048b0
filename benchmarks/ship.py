"""From the folders of runs to the models that ship: adapters in bfloat16, all within the size that a wheel may carry.

    python benchmarks/ship.py --model runs/base/model --adapter runs/scope/adapter

`--model` is what `redraft pretrain` left, `--adapter` what `redraft train` left; either may be missing. Model cards
(README.md) are written by hand, with the results, and stay.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from redraft.models import load
from redraft.models.adapters import CONFIG, WEIGHTS, audit
from redraft.models.fingerprint import save_fingerprint

HOME = Path(__file__).parents[1] / "src" / "redraft" / "models"
MOST = 16 * 2**20  # bytes of all weights together


def main() -> None:
    options = arguments()
    if options.model:
        with tempfile.TemporaryDirectory() as scratch:
            load(options.model, device="cpu", dtype="bfloat16").save_pretrained(saved := Path(scratch) / "model")
            shutil.copytree(saved, HOME / "bundled", dirs_exist_ok=True)  # the card stays
        save_fingerprint(load(HOME / "bundled", device="cpu", fingerprint=False), HOME / "bundled")
        (HOME / "bundled" / "model.safetensors").chmod(0o644)  # safetensors writes for its owner alone
    if options.adapter:
        ship_adapter(options.adapter, HOME / "bundled-scope")
    files = sorted(HOME.glob("bundled*/*.safetensors"))
    for file in files:
        print(f"{file.relative_to(HOME)}: {file.stat().st_size:,} bytes")
    total = sum(file.stat().st_size for file in files)
    assert total <= MOST, f"{total:,} bytes are more than {MOST:,}"
    model = load("bundled", adapter="bundled-scope", device="cpu")
    print(f"opens, {audit(model.network).total:,} parameters, {total:,} bytes in all")


def ship_adapter(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(source / WEIGHTS).items()}
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    (target / WEIGHTS).chmod(0o644)
    config = json.loads((source / CONFIG).read_text())
    (target / CONFIG).write_text(json.dumps({**config, "base_model_name_or_path": "bundled"}, indent=2))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--adapter", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
