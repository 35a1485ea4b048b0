"""PC-Sampler's own code beside `pc`, and its copy of Fast-dLLM's beside `threshold` and `factor`.

golden/pc.json holds what it wrote, golden/pc_frequencies.json is a made-up table in its format. To run it again,
compare, and write the file anew:

    git clone https://github.com/NEUIR/PC-Sampler && git -C PC-Sampler checkout 8b106b0
    PYTHONPATH=src:tests python tests/test_reference_pc.py PC-Sampler

Fast-dLLM's threshold is the same in NVlabs/Fast-dLLM `llada/generate.py` @ 24cc59e, which had no factor yet.
"""

import json
import sys
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch

from redraft.decoding.noise import counter_uniform, stream_number
from redraft.samplers import PC
from references import GOLDEN, MASK, VOCABULARY, Recorded, Torch, canvas_of, functions, golden, ours, sampler_of, write

SOURCE = "https://github.com/NEUIR/PC-Sampler src/generate.py"
COMMIT = "8b106b09877b2f69085db1b7bd7c1cc1e935d5a5"
TABLE = "frequencies='GOLDEN/pc_frequencies.json'"
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": f"pc({TABLE})", "length": 16, "steps": 16},
    "few steps": {"sampler": f"pc({TABLE})", "length": 24, "steps": 6},
    "blocks": {"sampler": f"pc({TABLE}, decay=0.5)", "length": 24, "steps": 12, "block": 8},
    "no place": {"sampler": f"pc({TABLE}, decay=0)", "length": 24, "steps": 12},
    "clipped": {"sampler": f"pc({TABLE}, decay=0.05, alpha=1.0)", "length": 24, "steps": 12},
    "temperature": {"sampler": f"pc({TABLE})", "length": 16, "steps": 8, "reading": {"temperature": 0.7}},
    "guidance": {"sampler": f"pc({TABLE})", "length": 16, "steps": 8, "reading": {"guidance": 1.5}},
    "threshold": {"sampler": "threshold", "length": 24, "steps": 24},
    "low threshold, blocks": {"sampler": "threshold(th=0.4)", "length": 24, "steps": 24, "block": 12},
    "factor": {"sampler": "factor", "length": 24, "steps": 24},
    "large factor, blocks": {"sampler": "factor(factor=2.0)", "length": 24, "steps": 24, "block": 8},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_canvases_are_theirs_after_every_step(name):
    case = golden("pc")["cases"][name]
    assert case["setting"] == SETTINGS[name]
    assert ours(SETTINGS[name], case["seed"]) == case["canvases"]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("defaults", "unmask"),
        ("defaults", "pc"),
        ("no place", "unmask"),
        ("clipped", f"pc({TABLE}, decay=0.05)"),
        ("low threshold, blocks", "threshold"),
        ("large factor, blocks", "factor"),
    ],
)
def test_each_option_matters_where_it_is_tested(name, other):
    case = golden("pc")["cases"][name]
    assert ours({**case["setting"], "sampler": other}, case["seed"]) != case["canvases"]


def test_the_golden_file_says_where_it_comes_from():
    assert (golden("pc")["source"], golden("pc")["commit"]) == (SOURCE, COMMIT)
    assert golden("pc")["cases"].keys() == SETTINGS.keys()


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler, model = canvas_of(setting), sampler_of(setting), Recorded(seed)
    reading, block, drawn = setting.get("reading", {}), setting.get("block") or setting["length"], []

    def noise(like, dtype):
        """Ours is 1 - u, and drawn for the window only."""
        stage, step = divmod(len(drawn), setting["steps"] // (setting["length"] // block))
        drawn.append(counter_uniform(canvas.seeds, (stage, step + 1, stream_number("gumbel.0")), (block, VOCABULARY)))
        whole = torch.full(like.shape, 0.5, dtype=dtype)
        start = canvas.start + stage * block
        whole[:, start : start + block] = 1 - drawn[-1].to(dtype)
        return whole

    names = ["add_gumbel_noise", "get_num_transfer_tokens", "get_transfer_index", "get_transfer_index_dynamic"]
    names += ["pc_sampler_function", "load_baseline", "generate_with_pc_sampler", "generate_with_fast_dllm"]
    theirs = functions(git("show", "HEAD:src/generate.py"), names, pretend=Torch(rand_like=noise), BASE_LINE=None)
    arguments: dict[str, Any] = {"gen_length": setting["length"], "steps": setting["steps"], "block_length": block}
    arguments |= {"temperature": reading.get("temperature", 0.0), "mask_id": MASK}
    prompt = canvas.tokens[:, : canvas.start]
    if isinstance(sampler, PC):
        opened = ModuleType("utils.load_json_or_jsonl")
        opened.__dict__["load_json_or_jsonl"] = lambda name: json.loads((GOLDEN / "pc_frequencies.json").read_text())
        with patch.dict(sys.modules, {"utils": ModuleType("utils"), opened.__name__: opened}):
            options = {"lambd": sampler.decay, "alpha": sampler.alpha, "cfg_scale": reading.get("guidance", 0.0)}
            written = theirs.generate_with_pc_sampler(model, prompt, **arguments, **options)
    else:
        options = {name: getattr(sampler, field, None) for name, field in (("threshold", "th"), ("factor", "factor"))}
        written, _ = theirs.generate_with_fast_dllm(model, prompt, **arguments, **options)
    return [tokens[:1].tolist() for tokens in [*model.shown[1:], written]]


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    others = {"defaults": "pc", "no place": "unmask", "clipped": f"pc({TABLE}, decay=0.05)"}
    others |= {"low threshold, blocks": "threshold", "large factor, blocks": "factor"}
    matters = title not in others or ours({**setting, "sampler": others[title]}, seed) != ours(setting, seed)
    adaptive = title not in ("threshold", "factor") or len(theirs) < setting["length"]
    unlike = title != "defaults" or ours({**setting, "sampler": "unmask"}, seed) != ours(setting, seed)
    return matters and adaptive and unlike


if __name__ == "__main__":
    write("pc", sys.argv[1], SOURCE, SETTINGS, reference, telling)
