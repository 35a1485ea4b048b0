"""Fast-dLLM's own `generate` beside `threshold`, and Dream's own `_sample`, which that repository has, beside `dream`.

golden/threshold.json and golden/dream.json hold what they wrote. To run them again, compare, and write them anew:

    git clone https://github.com/NVlabs/Fast-dLLM && git -C Fast-dLLM checkout 24cc59e
    PYTHONPATH=src:tests python tests/test_reference_parallel.py Fast-dLLM

A Dream model predicts the token to the right, hence their shift; the network here is shifted the other way before it.
`alg=origin` draws, so that our uniforms stand in the place of torch's. `factor` came to Fast-dLLM later: it is run in
test_reference_pc.py, by PC-Sampler's copy of that code.
"""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from redraft.decoding.noise import counter_uniform, stream_number
from references import MASK, Recorded, Torch, canvas_of, functions, golden, ours, sampler_of, write

THRESHOLD: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "threshold", "length": 16, "steps": 16},
    "low": {"sampler": "threshold(th=0.3)", "length": 24, "steps": 24},
    "blocks": {"sampler": "threshold(th=0.4)", "length": 24, "steps": 24, "block": 8},
}
DREAM: dict[str, dict[str, Any]] = {
    "entropy": {"sampler": "dream", "length": 16, "steps": 5},
    "a token a step": {"sampler": "dream", "length": 24, "steps": 24},
    "margin": {"sampler": "dream(alg=topk_margin)", "length": 16, "steps": 8},
    "probability": {"sampler": "dream(alg=maskgit_plus)", "length": 21, "steps": 6},
    "nucleus": {"sampler": "dream(top_p=0.6)", "length": 16, "steps": 8},
    "at random": {"sampler": "dream(alg=origin)", "length": 16, "steps": 8},
    "another end of time": {"sampler": "dream(eps=0.1)", "length": 16, "steps": 8},
}
REPOSITORY, COMMIT = "https://github.com/NVlabs/Fast-dLLM", "24cc59e75f20a6384bae8c905965bb090b96388e"
FILES = {"threshold": "llada/generate.py", "dream": "dream/model/generation_utils.py"}
SETTINGS = {"threshold": THRESHOLD, "dream": DREAM}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file in SETTINGS for name in SETTINGS[file]])
def test_canvases_are_theirs_after_every_step(file, name):
    case = golden(file)["cases"][name]
    assert case["setting"] == SETTINGS[file][name]
    assert ours(SETTINGS[file][name], case["seed"]) == case["canvases"]


OTHERS = {
    ("threshold", "low"): "threshold",
    ("threshold", "blocks"): "threshold",
    ("dream", "entropy"): "dream(alg=maskgit_plus)",
    ("dream", "a token a step"): "unmask",
    ("dream", "margin"): "dream(alg=maskgit_plus)",
    ("dream", "probability"): "unmask",
    ("dream", "nucleus"): "dream",
    ("dream", "another end of time"): "dream",
}


@pytest.mark.parametrize(("file", "name"), OTHERS)
def test_each_option_matters_where_it_is_tested(file, name):
    case = golden(file)["cases"][name]
    assert ours({**case["setting"], "sampler": OTHERS[file, name]}, case["seed"]) != case["canvases"]


@pytest.mark.parametrize("file", FILES)
def test_the_golden_files_say_where_they_come_from(file):
    assert (golden(file)["source"], golden(file)["commit"]) == (f"{REPOSITORY} {FILES[file]}", COMMIT)
    assert golden(file)["cases"].keys() == SETTINGS[file].keys()


def threshold(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, model = canvas_of(setting), Recorded(seed)
    names = ("add_gumbel_noise", "get_num_transfer_tokens", "get_transfer_index", "generate")
    written, calls = functions(git("show", f"HEAD:{FILES['threshold']}"), names).generate(
        model,
        canvas.tokens[:, : canvas.start],
        steps=setting["steps"],
        gen_length=setting["length"],
        block_length=setting.get("block") or setting["length"],
        mask_id=MASK,
        threshold=sampler_of(setting).th,
    )
    assert calls == len(model.shown)
    return [tokens.tolist() for tokens in [*model.shown[1:], written]]


class Dream(Recorded):
    """The network as a Dream model, and its `self`."""

    def __call__(self, tokens, attention_mask=None, position_ids=None):
        logits = super().__call__(tokens).logits
        return SimpleNamespace(logits=torch.cat([logits[:, 1:], logits[:, :1]], dim=1))


def dream(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, model, sampler = canvas_of(setting), Dream(seed), sampler_of(setting)

    def rand(count: int, device) -> torch.Tensor:
        counters = (0, len(model.shown), stream_number("reveal"))
        drawn = counter_uniform(canvas.seeds, counters, (setting["length"],))
        return drawn[model.shown[-1][:, canvas.start :] == MASK]

    names = ("top_p_logits", "sample_tokens", "_sample")
    known = {"DreamGenerationConfig": None, "DreamModelOutput": None, "Optional": Brackets(), "Union": Brackets()}
    known |= {"time": Clock, "print": lambda text: None}
    theirs = functions(git("show", f"HEAD:{FILES['dream']}"), names, pretend=Torch(rand=rand), **known)
    options = {"max_length": canvas.tokens.shape[1], "mask_token_id": MASK, "steps": setting["steps"]}
    options |= {"eps": sampler.eps, "alg": sampler.alg, "top_p": sampler.top_p, "alg_temp": None, "temperature": 0.0}
    config = SimpleNamespace(**options, top_k=None, output_history=False, return_dict_in_generate=False)
    written, prompt = [], canvas.tokens[:, : canvas.start]

    def keep(step, tokens, logits):
        if step is not None:
            written.append(tokens.tolist())
        return tokens

    theirs._sample(model, prompt, None, config, keep, lambda step, tokens, logits: logits)
    return written


class Brackets:
    """A name in annotations."""

    def __getitem__(self, item):
        return Any


class Clock:
    """`time`, which they print."""

    time = staticmethod(lambda: 0.0)


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    file = "threshold" if setting["sampler"].startswith("threshold") else "dream"
    other = OTHERS.get((file, title))
    bold = file == "dream" or len(theirs) < setting["length"]
    return bold and (other is None or ours({**setting, "sampler": other}, seed) != ours(setting, seed))


if __name__ == "__main__":
    for name, run in (("threshold", threshold), ("dream", dream)):
        write(name, sys.argv[1], f"{REPOSITORY} {FILES[name]}", SETTINGS[name], run, telling)
