"""XDLM's own `generate` beside `xdlm`: the same canvas, prompt included, after every step.

golden/xdlm.json holds what it wrote. With `region=canvas` their code is run as it is; for `region=window` one line of
it confines the candidates. To run it again, compare, and write the file anew:

    git clone https://github.com/MzeroMiko/LLaDA-XDLM && git -C LLaDA-XDLM checkout b72336d
    PYTHONPATH=src:tests python tests/test_reference_xdlm.py LLaDA-XDLM
"""

import sys
from itertools import pairwise
from typing import Any

import pytest
import torch

from redraft.decoding.noise import counter_uniform, stream_number
from references import (
    MASK,
    PROMPTS,
    VOCABULARY,
    Recorded,
    Torch,
    canvas_of,
    functions,
    golden,
    histories,
    ours,
    sampler_of,
    write,
)

SOURCE = "https://github.com/MzeroMiko/LLaDA-XDLM generate.py"
COMMIT = "b72336df024b76647984a0335df21e1f9d4b8d7c"
SETTINGS: dict[str, dict[str, Any]] = {
    "canvas": {"sampler": "xdlm(region=canvas)", "length": 40, "steps": 20},
    "canvas, blocks": {"sampler": "xdlm(k1=0.4, region=canvas)", "length": 24, "steps": 12, "block": 8},
    "canvas, steps that do not divide": {
        "sampler": "xdlm(k1=0.3, region=canvas)",
        "length": 21,
        "steps": 9,
        "block": 7,
    },
    "window": {"sampler": "xdlm", "length": 40, "steps": 20},
    "window, blocks": {"sampler": "xdlm(k1=0.4)", "length": 24, "steps": 12, "block": 8},
    "window, ragged": {"sampler": "xdlm(k1=0.3)", "prompts": "ragged", "length": 24, "steps": 12, "block": 12},
    "window, no end of text": {
        "sampler": "xdlm(k1=0.3)",
        "length": 24,
        "steps": 12,
        "reading": {"eos": "llada_logits"},
    },
    "window, end tokens last": {
        "sampler": "xdlm(k1=0.3)",
        "length": 24,
        "steps": 12,
        "reading": {"eos": "llada_confidence"},
    },
    "window, guidance": {"sampler": "xdlm(k1=0.3)", "length": 16, "steps": 8, "reading": {"guidance": 1.5}},
    "window, temperature": {"sampler": "xdlm(k1=0.3)", "length": 24, "steps": 12, "reading": {"temperature": 0.7}},
    "window, a long prompt, blocks": {
        "sampler": "xdlm(k1=0.4)",
        "prompts": "long",
        "length": 32,
        "steps": 16,
        "block": 16,
    },
    "window, a pair, both end flags": {
        "sampler": "xdlm(k1=0.3)",
        "prompts": "pair",
        "length": 24,
        "steps": 12,
        "reading": {"eos": "llada_both"},
    },
    "window, ragged, temperature, blocks": {
        "sampler": "xdlm(k1=0.4)",
        "prompts": "ragged",
        "length": 24,
        "steps": 12,
        "block": 12,
        "reading": {"temperature": 0.7},
    },
    "canvas, a pair, guidance": {
        "sampler": "xdlm(k1=0.3, region=canvas)",
        "prompts": "pair",
        "length": 24,
        "steps": 12,
        "reading": {"guidance": 1.0},
    },
    "canvas, ragged, blocks": {  # theirs would rewrite the padding, too: row by row there is none
        "sampler": "xdlm(k1=0.4, region=canvas)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 12,
        "block": 8,
    },
    "canvas, ragged, temperature, blocks": {
        "sampler": "xdlm(k1=0.4, region=canvas)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 12,
        "block": 12,
        "reading": {"temperature": 0.7},
    },
    "k1 = 0": {"sampler": "xdlm(k1=0.0)", "length": 16, "steps": 8},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_canvases_are_xdlms_after_every_step(name):
    case = golden("xdlm")["cases"][name]
    assert case["setting"] == SETTINGS[name]
    assert ours(SETTINGS[name], case["seed"]) == case["canvases"]


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "k1 = 0"])
def test_each_case_replaces_tokens(name):
    assert all(any(replaced(rows)) for rows in histories(golden("xdlm")["cases"][name]))


def test_the_reference_rewrites_the_prompt_and_finished_blocks():
    start = len(PROMPTS["one"][0])
    prompts = [canvas[0][:start] for canvas in golden("xdlm")["cases"]["canvas"]["canvases"]]
    assert prompts[-1] != PROMPTS["one"][0]
    blocks = golden("xdlm")["cases"]["canvas, blocks"]["canvases"]
    assert blocks[3][0][: start + 8] != blocks[-1][0][: start + 8]


def test_the_golden_file_says_where_it_comes_from():
    assert (golden("xdlm")["source"], golden("xdlm")["commit"]) == (SOURCE, COMMIT)
    assert golden("xdlm")["cases"].keys() == SETTINGS.keys()


def replaced(canvases: list[list[list[int]]]) -> list[int]:
    """How many visible tokens each step but the first replaced."""
    return [
        sum(MASK != a != b for before, after in zip(old, new, strict=True) for a, b in zip(before, after, strict=True))
        for old, new in pairwise(canvases)
    ]


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler = canvas_of(setting), sampler_of(setting)
    reading, model, draws = setting.get("reading", {}), Recorded(seed), 0
    block = setting.get("block") or setting["length"]
    each = setting["steps"] // (setting["length"] // block)

    def noise(like, dtype):
        """Ours is 1 - u, and drawn for the window only, which may begin with the prompt."""
        nonlocal draws
        stage, step = divmod(draws, each)
        draws += 1
        stop = canvas.start + (stage + 1) * block
        first = 0 if sampler.reach == "canvas" else stop - block
        counters, lead = (stage, step + 1, stream_number("gumbel.0")), max(0, canvas.start - first)
        drawn = counter_uniform(canvas.seeds, counters, (stop - first, VOCABULARY), first=-lead * VOCABULARY)
        whole = torch.full(like.shape, 0.5, dtype=dtype)
        whole[:, first:stop] = 1 - drawn.to(dtype)
        return whole

    source = git("show", "HEAD:generate.py")
    if sampler.region == "window":
        test = "clean_change_cond = (~mask_index) & (x0 != x) & (x0_p >= x_p)\n"
        first = "prompt.shape[1] + num_block * block_length"
        assert source.count(test) == 1
        source = source.replace(test, f"{test}            clean_change_cond[:, :{first}] = False\n")
    names = ("add_gumbel_noise", "get_num_transfer_tokens", "generate_mdm", "generate_xdm", "generate")
    arguments: dict[str, Any] = {"gen_length": setting["length"], "steps": setting["steps"], "block_length": block}
    if canvas.attend is not None or "guidance" in reading:  # guidance without a mask is a NameError there
        attend = torch.ones_like(canvas.tokens) if canvas.attend is None else canvas.attend.long()
        arguments["attention_mask"] = attend[:, : canvas.start]
    written = functions(source, names, pretend=Torch(rand_like=noise)).generate(
        model,
        canvas.tokens[:, : canvas.start],
        temperature=reading.get("temperature", 0.0),
        cfg_scale=reading.get("guidance", 0.0),
        mask_id=MASK,
        logits_eos_inf=reading.get("eos") in ("llada_logits", "llada_both"),
        confidence_eos_eot_inf=reading.get("eos") in ("llada_confidence", "llada_both"),
        k1=sampler.k1,
        **arguments,
    )
    return [tokens[: len(written)].tolist() for tokens in [*model.shown[1:], written]]


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    without = {**setting, "reading": {}}
    matters = "reading" not in setting or ours(without, seed) != ours(setting, seed)
    start = len(PROMPTS["one"][0])
    rewritten = title != "canvas" or theirs[-1][0][:start] != PROMPTS["one"][0]
    undone = title != "canvas, blocks" or theirs[3][0][: start + 8] != theirs[-1][0][: start + 8]
    return matters and rewritten and undone and (title == "k1 = 0" or sum(replaced(theirs)) > 1)


if __name__ == "__main__":
    write("xdlm", sys.argv[1], SOURCE, SETTINGS, reference, telling)
