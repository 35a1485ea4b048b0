"""WINO's own `decoding_wino` beside `wino`: the same canvas after every step.

golden/wino.json holds what it wrote; it takes one row at a time, ours take theirs together. To run it again, compare,
and write the file anew:

    git clone https://github.com/Feng-Hong/WINO-DLLM && git -C WINO-DLLM checkout 9549a1d
    PYTHONPATH=src:tests python tests/test_reference_wino.py WINO-DLLM
"""

import sys
from itertools import pairwise
from typing import Any

import pytest
import torch

from redraft.decoding.noise import counter_uniform, stream_number
from references import (
    MASK,
    VOCABULARY,
    Recorded,
    Torch,
    canvas_of,
    functions,
    golden,
    histories,
    ours,
    remasked,
    sampler_of,
    write,
)

SOURCE = "https://github.com/Feng-Hong/WINO-DLLM LLaDA/decoding.py"
COMMIT = "9549a1d0c3cbd9dc9b8f7cd09be8a7aac322d6fb"
CAPPED = "a long block, where 20 are accepted"
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "wino", "length": 16, "steps": 16},
    CAPPED: {"sampler": "wino(th=0.05, th_back=0.2)", "length": 64, "steps": 64},
    "blocks": {"sampler": "wino(th=0.4)", "length": 24, "steps": 24, "block": 8},
    "its own blocks": {"sampler": "wino(th=0.4, th_back=0.7, block=12)", "length": 24, "steps": 24},
    "a mild check": {"sampler": "wino(th=0.3, th_back=0.3)", "length": 32, "steps": 32},
    "draft only": {"sampler": "wino(verify=False, th=0.4)", "length": 32, "steps": 32},
    "temperature": {"sampler": "wino(th=0.4)", "length": 24, "steps": 24, "block": 12, "reading": {"temperature": 0.5}},
    "high bars": {"sampler": "wino(th=0.8, th_back=0.95)", "length": 32, "steps": 32},
    "a long prompt": {"sampler": "wino(th=0.4)", "prompts": "long", "length": 32, "steps": 32, "block": 16},
    "a pair": {"sampler": "wino(th=0.3)", "prompts": "pair", "by_row": True, "length": 24, "steps": 24},
    "ragged, blocks": {
        "sampler": "wino(th=0.4)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 24,
        "block": 12,
    },
    "ragged, temperature": {
        "sampler": "wino(th=0.4)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 24,
        "reading": {"temperature": 0.5},
    },
    "ragged, draft only": {
        "sampler": "wino(verify=False, th=0.4)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 24,
        "block": 8,
    },
}
DRAFTS = [name for name in SETTINGS if "draft only" in name]


@pytest.mark.parametrize("name", SETTINGS)
def test_canvases_are_winos_after_every_step(name):
    case = golden("wino")["cases"][name]
    assert case["setting"] == SETTINGS[name]
    assert ours(SETTINGS[name], case["seed"]) == case["canvases"]


@pytest.mark.parametrize("name", SETTINGS)
def test_each_case_but_the_drafts_masks_tokens_again(name):
    assert all(bool(remasked(rows)) == (name not in DRAFTS) for rows in histories(golden("wino")["cases"][name]))


def test_the_golden_file_says_where_it_comes_from():
    assert (golden("wino")["source"], golden("wino")["commit"]) == (SOURCE, COMMIT)
    assert golden("wino")["cases"].keys() == SETTINGS.keys()


def test_the_cap_binds_where_it_is_tested():
    assert revealed(golden("wino")["cases"][CAPPED]["canvases"]) == 20


def revealed(canvases: list[list[list[int]]]) -> int:
    """The most in one step after the first."""
    return max(sum(a == MASK != b for a, b in zip(old[0], new[0], strict=True)) for old, new in pairwise(canvases))


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler = canvas_of(setting), sampler_of(setting)
    model, stages = Recorded(seed), []
    block = setting.get("block") or min(sampler.block, setting["length"])

    def noise(like, dtype):
        """Ours is 1 - u, and drawn for the window only."""
        holes = (model.shown[-1][0, canvas.start : canvas.start + canvas.length] == MASK).nonzero()
        stage = int(holes.min()) // block
        stages.append(stage)
        drawn = counter_uniform(
            canvas.seeds, (stage, stages.count(stage), stream_number("gumbel.0")), (block, VOCABULARY)
        )
        whole = torch.full(like.shape, 0.5, dtype=dtype)
        start = canvas.start + stage * block
        whole[:, start : start + block] = 1 - drawn.to(dtype)
        return whole

    source = git("show", "HEAD:LLaDA/decoding.py")
    theirs = functions(source, ("add_gumbel_noise", "decoding_wino"), pretend=Torch(rand_like=noise))
    written, steps = theirs.decoding_wino(
        model,
        canvas.tokens[:, : canvas.start],
        gen_length=setting["length"],
        block_length=block,
        temperature=setting.get("reading", {}).get("temperature", 0.0),
        mask_id=MASK,
        threshold=sampler.th,
        threshold_back=sampler.th_back if sampler.verify else 0.0,
    )
    shown = [tokens[:, : canvas.tokens.shape[1]] for tokens in model.shown[1:]]
    assert steps == len(shown) + 1
    return [tokens.tolist() for tokens in [*shown, written]]


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    capped = title != CAPPED or revealed(theirs) == 20
    return len(theirs) > 4 and capped and (title in DRAFTS or remasked(theirs) > 1)


if __name__ == "__main__":
    write("wino", sys.argv[1], SOURCE, SETTINGS, reference, telling)
