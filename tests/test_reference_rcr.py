"""MDPO's own `diffusion_generate(rcr=True)` beside `rcr`: the same response after every step.

golden/rcr.json holds what it wrote. With `region=response` their code is run as it is; for `region=window` one line of
it forgets the confidences of the blocks before. To run it again, compare, and write the file anew:

    git clone https://github.com/autonomousvision/mdpo && git -C mdpo checkout e6ae439
    PYTHONPATH=src:tests python tests/test_reference_rcr.py mdpo

It takes one row at a time, ours take theirs together. Seeds are taken only where no confidence is exactly 1: such ties
are broken by `torch.topk` there, by position here. Where its schedule is not an exact ceil ours is asked for `linear`,
and the exact one must differ. At a temperature its confidence is tempered, ours never: no case of
that.
"""

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from redraft.decoding import Reading, walk
from references import (
    EOS,
    EOT,
    MASK,
    Recorded,
    Torch,
    canvas_of,
    functions,
    golden,
    histories,
    logits_of,
    ours,
    remasked,
    sampler_of,
    write,
)

SOURCE = "https://github.com/autonomousvision/mdpo src/mdlm_generation_utils.py"
COMMIT = "e6ae43906d202a11813860746c9f361d2da3ab5d"
UNDONE = "response, blocks"
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "rcr", "length": 16, "steps": 16},
    "few steps": {"sampler": "rcr", "length": 32, "steps": 8},
    "one step": {"sampler": "rcr", "length": 16, "steps": 1},
    "steps that do not divide": {"sampler": "rcr", "length": 14, "steps": 4},
    "no nucleus": {"sampler": "rcr(top_p=1.0)", "length": 32, "steps": 16},
    "small nucleus": {"sampler": "rcr(top_p=0.7)", "length": 16, "steps": 8},
    "margin": {"sampler": "rcr", "length": 32, "steps": 8, "reading": {"rank": "margin"}},
    "entropy": {"sampler": "rcr", "length": 32, "steps": 8, "reading": {"rank": "entropy"}},
    "window, blocks": {"sampler": "rcr", "length": 24, "steps": 12, "block": 8},
    UNDONE: {"sampler": "rcr(region=response)", "length": 24, "steps": 12, "block": 8},
    "response, margin": {
        "sampler": "rcr(region=response)",
        "length": 24,
        "steps": 8,
        "block": 12,
        "reading": {"rank": "margin"},
    },
    "its rounding": {"sampler": "rcr(schedule=linear)", "length": 24, "steps": 24},
    "its rounding, blocks": {"sampler": "rcr(schedule=linear)", "length": 36, "steps": 18, "block": 12},
    "a long prompt": {"sampler": "rcr", "prompts": "long", "length": 32, "steps": 8, "block": 16},
    "a pair": {"sampler": "rcr", "prompts": "pair", "by_row": True, "length": 32, "steps": 8},
    "ragged, blocks": {
        "sampler": "rcr",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 12,
        "block": 8,
    },
    "ragged, response, margin": {
        "sampler": "rcr(region=response)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 12,
        "block": 8,
        "reading": {"rank": "margin"},
    },
}
ROUNDED = [name for name in SETTINGS if name.startswith("its rounding")]


@pytest.mark.parametrize("name", SETTINGS)
def test_responses_are_mdpos_after_every_step(name):
    case = golden("rcr")["cases"][name]
    assert case["setting"] == SETTINGS[name]
    assert ours(SETTINGS[name], case["seed"]) == case["canvases"]


def test_most_cases_mask_tokens_again():
    cases = golden("rcr")["cases"]
    assert {name for name in SETTINGS if all(map(remasked, histories(cases[name])))} >= set(SETTINGS) - {"one step"}


def test_the_reference_masks_tokens_of_finished_blocks():
    block = slice(4, 12)
    canvases = golden("rcr")["cases"][UNDONE]["canvases"]
    assert any(MASK in canvas[0][block] for canvas in canvases[4:])
    assert not any(MASK in canvas[0][block] for canvas in golden("rcr")["cases"]["window, blocks"]["canvases"][4:])


@pytest.mark.parametrize("name", ROUNDED)
def test_its_rounding_is_not_an_exact_ceil(name):
    case = golden("rcr")["cases"][name]
    assert ours({**case["setting"], "sampler": "rcr"}, case["seed"]) != case["canvases"]


def test_the_nucleus_matters_where_it_is_small():
    case = golden("rcr")["cases"]["small nucleus"]
    assert ours({**case["setting"], "sampler": "rcr(top_p=1.0)"}, case["seed"]) != case["canvases"]


def test_the_golden_file_says_where_it_comes_from():
    assert (golden("rcr")["source"], golden("rcr")["commit"]) == (SOURCE, COMMIT)
    assert golden("rcr")["cases"].keys() == SETTINGS.keys()


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler, model = canvas_of(setting), sampler_of(setting), Recorded(seed)
    schedule = functions(git("show", "HEAD:src/llada/generate.py"), ("gamma_func", "get_num_transfer_tokens_maskgit"))
    source = git("show", "HEAD:src/mdlm_generation_utils.py")
    if sampler.region == "window":
        line = "            num_transfer_tokens = get_num_transfer_tokens_maskgit("
        assert source.count(line) == 1
        source = source.replace(line, f"            overtime_confidence.zero_()\n{line}")
    known = {"get_num_transfer_tokens_maskgit": schedule.get_num_transfer_tokens_maskgit}
    amp = SimpleNamespace(autocast=lambda *arguments, **options: nullcontext())  # float32, not CUDA's float16
    names = ("top_p_logits", "top_k_logits", "diffusion_generate")
    theirs = functions(source, names, pretend=Torch(amp=amp), **known)
    rank = setting.get("reading", {}).get("rank")
    written, *_ = theirs.diffusion_generate(
        model,
        canvas.tokens[:, : canvas.start],
        MASK,
        steps=setting["steps"],
        gen_length=setting["length"],
        block_length=setting.get("block") or setting["length"],
        conf_alg={None: "origin", "margin": "topk_margin", "entropy": "entropy"}[rank],
        rcr=True,
        top_p=sampler.top_p,
    )
    last = torch.cat([canvas.tokens[:, : canvas.start], written], dim=-1)
    return [tokens.tolist() for tokens in [*model.shown[1:], last]]


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    undone = title != UNDONE or any(MASK in canvas[0][4:12] for canvas in theirs[4:])
    whole = {**setting, "sampler": "rcr(top_p=1.0)"}
    matters = title != "small nucleus" or ours(whole, seed) != ours(setting, seed)
    rounded = title not in ROUNDED or ours({**setting, "sampler": "rcr"}, seed) != theirs
    return undone and matters and rounded and not tied(setting, seed) and (title == "one step" or remasked(theirs) > 1)


def tied(setting: dict[str, Any], seed: int) -> bool:
    """Whether two positions of one step are equally, because wholly, certain."""

    def denoiser(tokens, *, attend=None, positions=None, columns=slice(None)):
        return logits_of(seed, tokens, columns=columns)

    reading = Reading(eos="none", eos_ids=(EOS, EOT))
    shape = {"steps": setting["steps"], "block": setting.get("block")}
    taken = walk(denoiser, canvas_of(setting), sampler_of(setting), reading=reading, **shape)
    return any(bool((step.predictions[0].confidence[step.before.masked] == 0).any()) for step in taken)


if __name__ == "__main__":
    write("rcr", sys.argv[1], SOURCE, SETTINGS, reference, telling)
