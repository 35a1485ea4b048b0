"""ProSeCo's own `generate` beside `proseco`, and Corrective DLM's `llada_sample` beside `corrective`.

golden/proseco.json and golden/corrective.json hold what they wrote. To run them again, compare, and write them anew:

    git clone https://github.com/kuleshov-group/proseco && git -C proseco checkout 69fe45d
    git clone https://github.com/zhangshuibai/CDLM && git -C CDLM checkout 12fe555
    PYTHONPATH=src:tests python tests/test_reference_correctors.py proseco CDLM

The former stops early at an end token only with a tokenizer, which is not given. The latter revises what it is given: a
canvas of masks here. A pass of it that changes nothing repeats itself; ours ends there, and so does what is kept.
"""

import sys
from itertools import pairwise
from typing import Any

import pytest

from redraft.samplers import Corrective
from references import MASK, Recorded, canvas_of, functions, golden, ours, remasked, sampler_of, write

PROSECO: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "proseco", "length": 24, "steps": 12},
    "blocks": {"sampler": "proseco", "length": 24, "steps": 24, "block": 8},
    "every step, blocks": {"sampler": "proseco(n=1, s=2)", "length": 24, "steps": 12, "block": 12},
    "many passes": {"sampler": "proseco(n=3, s=8)", "length": 20, "steps": 10, "block": 10},
    "steps that do not divide": {"sampler": "proseco", "length": 21, "steps": 12, "block": 7},
    "no corrector": {"sampler": "proseco(s=0)", "length": 16, "steps": 8},
}
CORRECTIVE: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "corrective", "length": 16, "steps": 8},
    "low threshold": {"sampler": "corrective(th=0.5)", "length": 24, "steps": 12},
    "linear": {"sampler": "corrective(rule=linear)", "length": 24, "steps": 8},
    "linear, steps that do not divide": {"sampler": "corrective(rule=linear)", "length": 21, "steps": 6},
    "outliers": {"sampler": "corrective(rule=mad)", "length": 24, "steps": 12},
    "near outliers": {"sampler": "corrective(rule=mad, k=0.8)", "length": 24, "steps": 12},
}
SOURCES = {
    "proseco": (
        "https://github.com/kuleshov-group/proseco llada/generate.py",
        "69fe45d101d8367b0d1807466b409f71449a7c58",
    ),
    "corrective": ("https://github.com/zhangshuibai/CDLM llada_sample.py", "12fe555aa815959fe1323a85f3d8a9656c480149"),
}
CASES = [("proseco", name) for name in PROSECO] + [("corrective", name) for name in CORRECTIVE]
SETTINGS = {"proseco": PROSECO, "corrective": CORRECTIVE}


@pytest.mark.parametrize(("file", "name"), CASES)
def test_canvases_are_theirs_after_every_step(file, name):
    case = golden(file)["cases"][name]
    assert case["setting"] == SETTINGS[file][name]
    assert ours(SETTINGS[file][name], case["seed"]) == case["canvases"]


@pytest.mark.parametrize(
    ("file", "name", "other"),
    [
        ("proseco", "defaults", "unmask"),
        ("proseco", "blocks", "proseco(region=window)"),
        ("corrective", "outliers", "corrective(rule=mad, k=100)"),
    ],
)
def test_the_cases_are_telling(file, name, other):
    case = golden(file)["cases"][name]
    assert ours({**case["setting"], "sampler": other}, case["seed"]) != case["canvases"]


@pytest.mark.parametrize("file", SOURCES)
def test_the_golden_files_say_where_they_come_from(file):
    assert (golden(file)["source"], golden(file)["commit"]) == SOURCES[file]
    assert golden(file)["cases"].keys() == SETTINGS[file].keys()


class Bar:
    """tqdm, which shows nothing."""

    def __init__(self, items, **options) -> None:
        self.items = items

    def __iter__(self):
        return iter(self.items)

    def set_postfix(self, **shown) -> None:
        pass


def proseco(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler, model = canvas_of(setting), sampler_of(setting), Recorded(seed)
    names = ("add_gumbel_noise", "get_num_transfer_tokens", "generate", "get_transfer_index")
    theirs = functions(git("show", "HEAD:llada/generate.py"), names, tqdm=Bar)
    written, *_ = theirs.generate(
        model,
        canvas.tokens[:, : canvas.start],
        steps=setting["steps"],
        gen_length=setting["length"],
        block_length=setting.get("block") or min(setting["length"], sampler.block),
        mask_id=MASK,
        max_corrector_steps_per_loop=sampler.s,
        apply_corrector_every_n_steps=sampler.n,
        early_eos_stopping=False,
    )
    predicted = [tokens for tokens in model.shown if MASK in tokens]  # the corrector is shown no mask
    return [tokens.tolist() for tokens in [*predicted[1:], written]]


def corrective(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler = canvas_of(setting), sampler_of(setting)
    assert isinstance(sampler, Corrective)
    names = ["top_p_logits", "top_k_logits", "sample_tokens", "compute_remask_schedule", "get_model_logits"]
    source = git("show", "HEAD:llada_sample.py")
    first = source.index("def find_outlier_tokens")  # it is there twice, word for word
    second = source.index("def find_outlier_tokens", first + 1)
    source = source[:first] + source[second:]
    typing = {name: Subscript() for name in ("Optional", "Dict", "Union", "List")}
    theirs = functions(source, [*names, "find_outlier_tokens", "llada_sample"], **typing)
    fixed = canvas.given
    rule = {"threshold": "vanilla", "linear": "vanilla", "mad": "vanilla_MAD"}[sampler.rule]
    result = theirs.llada_sample(
        Recorded(seed),
        canvas.tokens,
        fixed,
        MASK,
        steps=setting["steps"],
        algorithm=f"self_conf-remask:{rule}",
        confidence_threshold=sampler.th if sampler.rule == "threshold" else None,
        mad_k=sampler.k,
        return_history=True,
    )
    written = [step["sequence"].tolist() for step in result["history"]["steps"]]
    return eventful(canvas.tokens.tolist(), written)


class Subscript:
    """A name in annotations."""

    def __getitem__(self, item):
        return Any


def eventful(given: list[list[int]], written: list[list[list[int]]]) -> list[list[list[int]]]:
    """Without the passes that did nothing: those that left the canvas as it was, and those after it was full."""
    kept = [after for before, after in pairwise([given, *written]) if before != after]
    full = next((n for n, canvas in enumerate(kept, 1) if MASK not in canvas[0]), len(kept))
    return kept[:full]


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    if "proseco" in setting["sampler"]:
        plain, window = (ours({**setting, "sampler": s}, seed) for s in ("unmask", "proseco(region=window)"))
        return title == "no corrector" or (theirs != plain and (title != "blocks" or theirs != window))
    return remasked(theirs) > 0 or (title == "outliers" and len(theirs) > 1)


if __name__ == "__main__":
    write("proseco", sys.argv[1], SOURCES["proseco"][0], PROSECO, proseco, telling)
    write("corrective", sys.argv[2], SOURCES["corrective"][0], CORRECTIVE, corrective, telling)
