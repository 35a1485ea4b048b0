"""LLaDA2.1's `generate` beside `editing`, and with T2M's remasking in it beside `t2m`: the canvas after every pass.

golden/editing.json and golden/t2m.json hold what they wrote. To run them again, compare, and write them anew:

    git clone https://github.com/synsis/remasked_DLM && git -C remasked_DLM checkout 1fe25ab
    PYTHONPATH=src:tests python tests/test_reference_editing.py remasked_DLM

That repository has the former in `modeling_llada2_moe.py`, its editing step a method of its own, and the latter in
`modeling_remask.py`, which overrides that method. Their model is block-causal and sees no text to the right; here it is
put before the network of our own tests, which is shown all of the canvas. Their blocks count from the prompt's start:
here they are as long as prompt and response together, or as the prompt.
"""

import sys
from itertools import pairwise
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch

from redraft.samplers import T2M
from redraft.samplers.t2m import BARS
from references import MASK, Torch, canvas_of, functions, golden, logits_of, ours, remasked, sampler_of, write

EDITING: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "editing", "length": 24, "steps": 24},
    "lower": {"sampler": "editing(th=0.5, th_edit=0.3)", "length": 24, "steps": 24},
    "any rival": {"sampler": "editing(th=0.5, th_edit=0.0)", "length": 24, "steps": 24},
    "few passes": {"sampler": "editing(th=0.3, th_edit=0.0, max_post=2)", "length": 24, "steps": 24},
    "blocks": {"sampler": "editing(th=0.5, th_edit=0.2)", "length": 24, "steps": 24, "block": 4},
}
T2M_CASES: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "t2m", "length": 24, "steps": 24},
    "low probability": {"sampler": "t2m(th=0.3, bar=0.2)", "length": 24, "steps": 24},
    "rivals": {"sampler": "t2m(detector=t2t_remask, th=0.3, bar=0.3)", "length": 24, "steps": 24},
    "falls": {"sampler": "t2m(detector=logit_diff, th=0.3, bar=0.05)", "length": 24, "steps": 24},
    "all of them, once": {"sampler": "t2m(th=0.3, ratio=1.0, max_per_pos=1)", "length": 24, "steps": 24},
    "few passes": {"sampler": "t2m(th=0.2, bar=0.3, max_post=1)", "length": 24, "steps": 24},
    "blocks": {"sampler": "t2m(th=0.3, bar=0.3)", "length": 24, "steps": 24, "block": 4},
    "falls, blocks": {"sampler": "t2m(detector=logit_diff, th=0.3, bar=0.05)", "length": 24, "steps": 24, "block": 4},
}
REPOSITORY, COMMIT = "https://github.com/synsis/remasked_DLM", "1fe25ab025e575e279bc8b3780280915983321a7"
FILES = {"editing": "remask/modeling_llada2_moe.py", "t2m": "remask/modeling_remask.py"}
SETTINGS = {"editing": EDITING, "t2m": T2M_CASES}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file in SETTINGS for name in SETTINGS[file]])
def test_canvases_are_theirs_after_every_pass(file, name):
    case = golden(file)["cases"][name]
    assert case["setting"] == SETTINGS[file][name]
    assert ours(SETTINGS[file][name], case["seed"]) == case["canvases"]


def test_the_cases_are_telling():
    assert all(replaced(case["canvases"]) > 2 for case in golden("editing")["cases"].values())
    assert all(remasked(case["canvases"]) for case in golden("t2m")["cases"].values())


@pytest.mark.parametrize("file", FILES)
def test_the_golden_files_say_where_they_come_from(file):
    assert (golden(file)["source"], golden(file)["commit"]) == (f"{REPOSITORY} {FILES[file]}", COMMIT)
    assert golden(file)["cases"].keys() == SETTINGS[file].keys()


def replaced(canvases: list[list[list[int]]]) -> int:
    """How many visible tokens of the first row were overwritten."""
    pairs = [pair for old, new in pairwise(canvases) for pair in zip(old[0], new[0], strict=True)]
    return sum(old != new and MASK not in (old, new) for old, new in pairs)


class Cache:
    """What stands before the block; nothing of it is ever out of date."""

    def __init__(self, prefix: torch.Tensor) -> None:
        self.prefix = prefix

    def get_seq_length(self) -> int:
        return -1  # no block begins with a cache: it is filled anew

    def crop(self, length: int) -> None:
        assert length == self.prefix.shape[1]


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler, written = canvas_of(setting), sampler_of(setting), []
    this = SimpleNamespace(device=torch.device("cpu"))

    def forward(block_ids, block_pos, block_attn, cache, width):
        prefix = block_ids[:, :-width] if cache is None else cache.prefix
        this.prefix = prefix
        logits = logits_of(seed, whole(block_ids[:, -width:]))
        return logits[:, prefix.shape[1] : prefix.shape[1] + width], Cache(prefix)

    def whole(block: torch.Tensor) -> torch.Tensor:
        tokens = canvas.tokens.clone()
        tokens[:, : this.prefix.shape[1] + block.shape[1]] = torch.cat([this.prefix, block], dim=-1)
        return tokens

    names = ["_top_k_logits", "_top_p_logits", "_sample_with_temperature_topk_topp", "_token_edit_step"]
    names += ["_truncate_kv_cache", "generate"]
    base, known = git("show", f"HEAD:{FILES['editing']}"), {"time": Clock, "Optional": Brackets()}
    rooms = [functions(base, names, pretend=Torch(inference_mode=torch.no_grad), **known)]
    if isinstance(sampler, T2M):
        names = ["_get_editable_mask", "_remask_low_prob", "_remask_t2t", "_remask_logit_diff", "_token_edit_step"]
        names += ["_get_remask_counts", "_reset_remask_state"]
        rooms.append(functions(git("show", f"HEAD:{FILES['t2m']}"), names))
        this.remask_strategy = sampler.detector
        this.remask_threshold = BARS[sampler.detector] if sampler.bar is None else sampler.bar
        this.max_remask_per_pos, this.max_remask_ratio = sampler.max_per_pos, sampler.ratio
        this._prev_logits = this._remask_counts = None
    for room in rooms:
        for name, function in vars(room).items():
            if name != "scope":
                static = isinstance(function, staticmethod)
                setattr(this, name, function if static else MethodType(function, this))
    this._forward_block, edit = forward, this._token_edit_step

    def recording(block, *arguments):
        rests = edit(block, *arguments)
        written.append(whole(block).tolist())
        return rests

    this._token_edit_step = recording
    this.generate(
        canvas.tokens[:, : canvas.start],
        block_length=setting.get("block") or canvas.tokens.shape[1],
        gen_length=setting["length"],
        threshold=sampler.th,
        editing_threshold=getattr(sampler, "th_edit", 0.0),
        max_post_steps=sampler.max_post,
        mask_id=MASK,
        eos_id=-1,
    )
    return written


class Brackets:
    """A name in annotations."""

    def __getitem__(self, item):
        return Any


class Clock:
    """`time`, which they report."""

    time = staticmethod(lambda: 0.0)


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    if setting["sampler"].startswith("t2m"):
        return remasked(theirs) > 2
    return replaced(theirs) > 2


if __name__ == "__main__":
    for name, cases in SETTINGS.items():
        write(name, sys.argv[1], f"{REPOSITORY} {FILES[name]}", cases, reference, telling)
