"""LLaDA's own `generate.py` beside `unmask`: the same tokens after every step.

golden/llada_generate.json holds what LLaDA's code wrote, step by step, on small random networks; the tests replay it
with ours alone. To run the reference again, compare, and write the file anew (nothing of it is kept here):

    git clone https://github.com/ML-GSAI/LLaDA && git -C LLaDA checkout b7e6c35
    PYTHONPATH=src python tests/test_reference.py LLaDA

Weights come from numpy's legacy generator, whose stream is frozen. Of each setting the first seed is taken whose tokens
stay the same under noise of 1e-4 on the logits, so that no other machine's rounding can turn a case, and whose options
matter. Two differences are known. A network may predict the mask itself: LLaDA's answer then keeps masks, where ours
takes the last prediction; that has a case of its own. And equal confidences go to the lowest position here, where
`torch.topk` leaves open which; they occur when `confidence_eos_eot_inf` gives several positions probability 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import types
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from redraft.decoding import Canvas, Reading, derive, walk
from redraft.decoding.noise import counter_uniform, stream_number
from redraft.samplers import Unmask

GOLDEN = Path(__file__).parent / "golden" / "llada_generate.json"
VOCABULARY, MASK, EOS, EOT, PAD = 24, 20, 21, 22, 23
LLADA_IDS = {"126336": MASK, "126081": EOS, "126348": EOT}  # written out in its code
PROMPTS = {
    "one": [[1, 2, 3, 4]],
    "long": [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]],
    "pair": [[9, 8, 7, 6, 5, 4], [1, 1, 2, 3, 5, 8]],  # of one length: nothing is padded
    "ragged": [[5, 6, 7, 8, 9], [10], [11, 12, 13]],
}


@dataclass(frozen=True)
class Setting:
    """Arguments of LLaDA's `generate`, and what they are called here."""

    prompts: str = "one"
    gen_length: int = 16
    steps: int = 16
    block_length: int = 16
    temperature: float = 0.0
    cfg_scale: float = 0.0
    logits_eos_inf: bool = False
    confidence_eos_eot_inf: bool = False
    remasking: str = "low_confidence"

    @property
    def reading(self) -> Reading:
        flags = (self.logits_eos_inf, self.confidence_eos_eot_inf)
        eos = {(False, False): "none", (True, False): "llada_logits", (False, True): "llada_confidence"}
        options: dict[str, Any] = {"temperature": self.temperature, "guidance": self.cfg_scale}
        options |= {"eos": eos.get(flags, "llada_both"), "rank": RANKS[self.remasking]}
        return Reading(eos_ids=(EOS, EOT), forbid_mask=False, **options)


RANKS = {"low_confidence": "probability", "random": "random"}
PREDICTS_THE_MASK = "a predicted mask"
SETTINGS = {
    "defaults": Setting(),
    "few steps": Setting(steps=4),
    "one step": Setting(steps=1),
    "steps that do not divide": Setting(gen_length=14, block_length=14, steps=4),
    "blocks": Setting(gen_length=24, block_length=8, steps=12),
    "blocks, steps that do not divide": Setting(gen_length=21, block_length=7, steps=9),
    "blocks of one": Setting(gen_length=8, block_length=1, steps=8),
    "no end of text": Setting(logits_eos_inf=True, steps=8),
    "no end of text, blocks": Setting(logits_eos_inf=True, gen_length=24, block_length=8, steps=12),
    "end tokens last": Setting(confidence_eos_eot_inf=True, steps=8),
    "end tokens last, blocks": Setting(confidence_eos_eot_inf=True, gen_length=24, block_length=8, steps=12),
    "guidance": Setting(cfg_scale=1.5, steps=8),
    "guidance, blocks, end tokens last": Setting(
        cfg_scale=0.5, gen_length=16, block_length=8, steps=8, confidence_eos_eot_inf=True
    ),
    "ragged": Setting("ragged", steps=8),
    "ragged, blocks": Setting("ragged", gen_length=24, block_length=8, steps=12),
    "ragged, guidance, no end of text": Setting("ragged", cfg_scale=2.0, steps=8, logits_eos_inf=True),
    "temperature": Setting(temperature=0.7, steps=8),
    "temperature, ragged, blocks": Setting("ragged", temperature=1.0, gen_length=24, block_length=8, steps=12),
    "temperature, no end of text": Setting(temperature=0.7, steps=8, logits_eos_inf=True),
    "temperature, end of turn last": Setting(temperature=0.7, steps=8, confidence_eos_eot_inf=True),
    "a longer answer": Setting(gen_length=64, block_length=32, steps=16),
    "a long prompt": Setting("long", gen_length=24, block_length=12, steps=8),
    "a pair": Setting("pair", gen_length=24, steps=8, block_length=24),
    "a pair, blocks, guidance": Setting("pair", gen_length=24, steps=12, block_length=8, cfg_scale=1.0),
    "a pair, both end flags": Setting("pair", steps=8, logits_eos_inf=True, confidence_eos_eot_inf=True),
    "random order": Setting(steps=8, remasking="random"),
    "random order, ragged, blocks": Setting("ragged", gen_length=24, block_length=8, steps=12, remasking="random"),
    PREDICTS_THE_MASK: Setting(steps=8),
}


@cache
def network(seed: int):
    """A small LLaDA in float32 with weights of order 1."""
    from redraft.models.llada.configuration import LLaDAConfig
    from redraft.models.llada.modeling import LLaDAForMaskedLM

    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "mlp_hidden_size": 64, "vocab_size": VOCABULARY}
    ids = {"mask_token_id": MASK, "eos_token_id": EOS, "pad_token_id": PAD}
    built: Any = LLaDAForMaskedLM(LLaDAConfig(**sizes, **ids))
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            source = np.random.RandomState(zlib.crc32(f"{seed} {name}".encode()))
            noise = torch.from_numpy(source.standard_normal(tuple(parameter.shape)))
            parameter.copy_(1 + noise / 10 if noise.ndim == 1 else noise * 2 / noise.shape[-1] ** 0.5)
    return built.float().eval()


def canvas_of(setting: Setting) -> Canvas:
    prompts = PROMPTS[setting.prompts]
    seeds = [derive(0, row) for row in range(len(prompts))]
    return Canvas.of(prompts, setting.gen_length, mask_id=MASK, pad_id=PAD, seeds=seeds)


def ours(setting: Setting, seed: int, trembling: torch.Generator | None = None) -> list[list[list[int]]]:
    """The response after each step."""

    @torch.no_grad()
    def denoiser(tokens, *, attend=None, positions=None, columns=slice(None)):
        output = network(seed)(tokens, attention_mask=attend, position_ids=positions, columns=columns)
        noise = 0 if trembling is None else 1e-4 * torch.randn(output.logits.shape, generator=trembling)
        return output.logits + noise

    shape = {"steps": setting.steps, "block": setting.block_length}
    taken = walk(denoiser, canvas_of(setting), Unmask(), reading=setting.reading, **shape)
    return [step.result.response.tolist() for step in taken]


@cache
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != PREDICTS_THE_MASK])
def test_tokens_are_lladas_after_every_step(name):
    case = golden()["cases"][name]
    assert case["setting"] == vars(SETTINGS[name])
    assert ours(SETTINGS[name], case["seed"]) == case["responses"]


def test_where_the_network_predicts_the_mask_they_part_at_the_last_step_and_nowhere_else():
    case = golden()["cases"][PREDICTS_THE_MASK]
    *before, last = ours(SETTINGS[PREDICTS_THE_MASK], case["seed"])
    assert before == case["responses"][:-1]
    pairs = list(zip(last[0], case["responses"][-1][0], strict=True))
    assert all(own == theirs for own, theirs in pairs if theirs != MASK)
    assert any(own != theirs for own, theirs in pairs)


def test_the_golden_file_says_where_it_comes_from_and_is_small():
    assert golden()["source"] == "https://github.com/ML-GSAI/LLaDA generate.py"
    assert golden()["commit"] == "b7e6c3565f194352da44b38dd12b6970597309f3"
    assert golden()["cases"].keys() == SETTINGS.keys()
    assert GOLDEN.stat().st_size < 200_000


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("no end of text", "logits_eos_inf"),
        ("end tokens last", "confidence_eos_eot_inf"),
        ("temperature, end of turn last", "confidence_eos_eot_inf"),
        ("guidance", "cfg_scale"),
        ("temperature", "temperature"),
        ("random order", "remasking"),
    ],
)
def test_each_option_matters_where_it_is_tested(name, option):
    case = golden()["cases"][name]
    without = replace(SETTINGS[name], **{option: getattr(Setting(), option)})
    assert ours(without, case["seed"]) != case["responses"]


# --- running the reference ---


class Shim:
    """Our network as LLaDA's code calls one."""

    device = torch.device("cpu")

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, tokens, attention_mask=None):
        return network(self.seed)(tokens, attention_mask=None if attention_mask is None else attention_mask.bool())


def reference(code: str, setting: Setting, seed: int) -> list[list[list[int]]]:
    """LLaDA's `generate`, its ids replaced, its noise ours, its canvas kept after each step."""
    write = "            x[transfer_index] = x0[transfer_index]\n"
    assert code.count(write) == 1
    for theirs, own in LLADA_IDS.items():
        code = code.replace(theirs, str(own))
    kept: list[list[list[int]]] = []
    canvas = canvas_of(setting)
    block, each = setting.block_length, setting.steps // (setting.gen_length // setting.block_length)

    def draw(stream: str, whole: torch.Tensor) -> torch.Tensor:
        """Our noise of this step, which is drawn for the window only."""
        stage, step = divmod(len(kept), each)
        start = canvas.start + stage * block
        window = whole[:, start : start + block]
        window[:] = counter_uniform(canvas.seeds, (stage, step + 1, stream_number(stream)), tuple(window.shape[1:]))
        return whole

    def noise(like, dtype):
        """LLaDA divides exp(z) by (-log u)^tau; ours is 1 - u."""
        return 1 - draw("gumbel.0", torch.full(like.shape, 0.5, dtype=dtype))

    module = types.ModuleType("generate")
    module.__dict__["keep"] = lambda x: kept.append(x[:, canvas.start :].tolist())
    exec(compile(code.replace(write, write + "            keep(x)\n"), "generate.py", "exec"), module.__dict__)
    arguments = dict(vars(setting))
    del arguments["prompts"]
    if canvas.attend is not None or setting.cfg_scale > 0:  # guidance without a mask is a NameError there
        attend = torch.ones_like(canvas.tokens) if canvas.attend is None else canvas.attend.long()
        arguments["attention_mask"] = attend[:, : canvas.start]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand_like", noise)
        patch.setattr(torch, "rand", lambda shape, device: draw("rank.0", torch.zeros(shape)))
        module.__dict__["generate"](Shim(seed), canvas.tokens[:, : canvas.start], mask_id=MASK, **arguments)
    return kept


def telling(name: str, setting: Setting, seed: int, theirs: list[list[list[int]]]) -> bool:
    """Whether a seed makes a good case. Agreement is no part of it."""
    leaves_masks = any(MASK in row for row in theirs[-1])
    trembling = torch.Generator().manual_seed(0)
    steady = all(ours(setting, seed, trembling) == ours(setting, seed) for _ in range(3))
    plain = replace(setting, logits_eos_inf=False, confidence_eos_eot_inf=False)
    matters = setting == plain or ours(plain, seed) != ours(setting, seed)
    return steady and matters and leaves_masks == (name == PREDICTS_THE_MASK)


def main(clone: str) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", clone, *arguments], check=True, capture_output=True, text=True).stdout

    code, cases = git("show", "HEAD:generate.py"), {}
    for name, setting in SETTINGS.items():
        seed = next(seed for seed in range(1000) if telling(name, setting, seed, reference(code, setting, seed)))
        theirs = reference(code, setting, seed)
        verdict = "equal" if theirs == ours(setting, seed) else "DIFFERENT"
        print(f"{name}: seed {seed}, {len(theirs)} steps, {verdict}")
        cases[name] = {"setting": vars(setting), "seed": seed, "responses": theirs}
    head = {"source": "https://github.com/ML-GSAI/LLaDA generate.py", "commit": git("rev-parse", "HEAD").strip()}
    lines = [f"  {json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}" for name, case in cases.items()]
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    GOLDEN.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
