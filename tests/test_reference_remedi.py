"""RemeDi's own `generate_block_diffusion` beside `remedi`: the same canvas after every step.

golden/remedi.json holds what it wrote. To run it again, compare, and write the file anew:

    git clone https://github.com/maple-research-lab/RemeDi && git -C RemeDi checkout 2e1b19d
    PYTHONPATH=src:tests python tests/test_reference_remedi.py RemeDi

Its model caches keys and values. Here what was put into the cache is kept as tokens, and seen through a mask by which
each part sees itself and what was cached before it.
"""

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from references import MASK, Torch, canvas_of, functions, golden, logits_of, ours, remasked, sampler_of, write

SOURCE = "https://github.com/maple-research-lab/RemeDi inference.py"
COMMIT = "2e1b19d34db09e345898f6c5b6ed60418659821a"
SETTINGS: dict[str, dict[str, Any]] = {
    "one block": {"sampler": "remedi", "length": 16, "steps": 16},
    "few steps": {"sampler": "remedi", "length": 24, "steps": 8},
    "steps that do not divide": {"sampler": "remedi", "length": 14, "steps": 4},
    "blocks": {"sampler": "remedi", "length": 24, "steps": 24, "block": 8},
    "blocks, steps that do not divide": {"sampler": "remedi", "length": 21, "steps": 12, "block": 7},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_canvases_are_remedis_after_every_step(name):
    case = golden("remedi")["cases"][name]
    assert case["setting"] == SETTINGS[name]
    assert ours(SETTINGS[name], case["seed"]) == case["canvases"]


@pytest.mark.parametrize("other", ["remedi(score=probability)", "remedi(context=canvas)", "d3im"])
def test_its_ways_matter(other):
    case = golden("remedi")["cases"]["blocks"]
    assert ours({**case["setting"], "sampler": other}, case["seed"]) != case["canvases"]


def test_each_case_masks_tokens_again():
    assert all(remasked(golden("remedi")["cases"][name]["canvases"]) for name in SETTINGS)


def test_the_golden_file_says_where_it_comes_from():
    assert (golden("remedi")["source"], golden("remedi")["commit"]) == (SOURCE, COMMIT)
    assert golden("remedi")["cases"].keys() == SETTINGS.keys()


class Cached:
    """The network behind a cache. It keeps what it was shown of each block."""

    def __init__(self, seed: int) -> None:
        self.seed, self.parts, self.shown = seed, [], []

    def __call__(self, tokens, position_ids=None, kv_cache=None, update_kv_cache=False):
        parts = [*self.parts, tokens]
        number = torch.cat([torch.full(part.shape, index) for index, part in enumerate(parts)], dim=-1)[0]
        attend = (number <= number[:, None]).unsqueeze(0)
        logits = logits_of(self.seed, torch.cat(parts, dim=-1), attention_mask=attend)
        if self.parts:
            self.shown.append((torch.cat(self.parts, dim=-1)[0].tolist(), tokens[0].tolist(), update_kv_cache))
        if update_kv_cache:
            self.parts.append(tokens.clone())
        return SimpleNamespace(logits=logits[:, -tokens.shape[1] :])


class Tokenizer:
    """Gives the prompt as it is."""

    def __init__(self, prompt: torch.Tensor) -> None:
        self.prompt = prompt

    def apply_chat_template(self, conversation, **options):
        return conversation

    def __call__(self, conversation, **options):
        return {"input_ids": self.prompt, "attention_mask": torch.ones_like(self.prompt)}

    def decode(self, tokens, **options):
        return tokens


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler, model = canvas_of(setting), sampler_of(setting), Cached(seed)
    block = setting.get("block") or min(setting["length"], sampler.block)
    pretend = Torch(autocast=lambda **options: nullcontext())
    source = git("show", "HEAD:inference.py")
    theirs = functions(source, ("generate_block_diffusion",), pretend=pretend, DynamicCache=object)
    theirs.generate_block_diffusion(
        model,
        None,
        Tokenizer(canvas.tokens[:, : canvas.start]),
        "cpu",
        1,
        steps=setting["steps"] * block // setting["length"],
        max_length=setting["length"],
        block_size=block,
        mask_token_id=MASK,
    )
    states = [[*before, *now] for before, now, _ in model.shown if any(token != MASK for token in now)]
    return [[state + [MASK] * (canvas.tokens.shape[1] - len(state))] for state in states]


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    others = ("remedi(score=probability)", "remedi(context=canvas)", "d3im")
    return remasked(theirs) > 1 and all(ours({**setting, "sampler": other}, seed) != theirs for other in others)


if __name__ == "__main__":
    write("remedi", sys.argv[1], SOURCE, SETTINGS, reference, telling)
