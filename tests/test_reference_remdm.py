"""ReMDM's own `_ddpm_caching_update` beside `remdm(style=ancestral)`, on the same noise: the same canvas at every step.

golden/remdm.json holds what it wrote. To run it again, compare, and write the file anew:

    git clone https://github.com/kuleshov-group/remdm && git -C remdm checkout f830d65
    PYTHONPATH=src:tests python tests/test_reference_remdm.py remdm

Their update is given our times (alpha from 0 to 1, exact in binary), puts its own probabilities together, and draws
from them with our uniforms in the place of its `_sample_categorical`. The prompt, which theirs does not know, is put
back after each step; stored confidences are float32, there bfloat16.
"""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from redraft.decoding.noise import counter_uniform, gumbel, stream_number
from references import MASK, VOCABULARY, Recorded, canvas_of, functions, golden, ours, remasked, sampler_of, write

SOURCE = "https://github.com/kuleshov-group/remdm diffusion.py"
COMMIT = "f830d659fb98d9b2c79ff71bfa12d578312b688a"
KINDS = {
    "cap": "kind=cap, eta=0.1",
    "rescale": "kind=rescale, eta=0.2, top_p=0.7",
    "conf": "kind=conf",
    "loop": "kind=loop, eta=0.2, t_on=0.5, t_off=0.125",
    "never": "kind=cap, eta=0.0",
}
SETTINGS: dict[str, dict[str, Any]] = {
    name: {"sampler": f"remdm({options}, style=ancestral)", "length": 24, "steps": 16}
    for name, options in KINDS.items()
}


@pytest.mark.parametrize("name", SETTINGS)
def test_canvases_are_remdms_after_every_step(name):
    case = golden("remdm")["cases"][name]
    assert case["setting"] == SETTINGS[name]
    assert ours(SETTINGS[name], case["seed"]) == case["canvases"]


def test_all_kinds_mask_tokens_again_but_at_eta_0():
    cases = golden("remdm")["cases"]
    assert {name for name in SETTINGS if remasked(cases[name]["canvases"])} == set(SETTINGS) - {"never"}


def test_the_golden_file_says_where_it_comes_from():
    assert (golden("remdm")["source"], golden("remdm")["commit"]) == (SOURCE, COMMIT)
    assert golden("remdm")["cases"].keys() == SETTINGS.keys()


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    canvas, sampler, model, step = canvas_of(setting), sampler_of(setting), Recorded(seed), 0

    def draw(stream: str, *size: int) -> torch.Tensor:
        return counter_uniform(canvas.seeds, (0, step, stream_number(stream)), size)

    def sample(q):
        """A draw of each position from its unnormalised q: mask or not by the one uniform, the token by the other."""
        q = q[:, canvas.start :] / q[:, canvas.start :].sum(-1, keepdim=True)
        was_masked = model.shown[-1][:, canvas.start :] == MASK
        lottery, to_mask = draw("remask", canvas.length), q[..., MASK]
        to_mask = torch.where(was_masked, lottery >= 1 - to_mask, lottery < to_mask)
        q[..., MASK] = 0
        tokens = (q.log() + gumbel(draw("gumbel.0", canvas.length, VOCABULARY))).argmax(-1)
        return torch.cat([canvas.tokens[:, : canvas.start], torch.where(to_mask, MASK, tokens)], dim=-1)

    names = ("_ddpm_caching_update", "_subs_parameterization")
    theirs = functions(git("show", "HEAD:diffusion.py"), names, _sample_categorical=sample)
    options = {"sampler": f"remdm-{sampler.kind}", "nucleus_p": sampler.top_p, "eta": sampler.rate}
    options |= {"t_on": sampler.t_on, "t_off": sampler.t_off, "alpha_on": sampler.alpha_on}
    config = SimpleNamespace(noise=SimpleNamespace(type="loglinear"), sampling=SimpleNamespace(**options))
    this = SimpleNamespace(config=config, noise=lambda t: (t, None), mask_index=MASK, neg_infinity=-1e6)
    this.time_conditioning = False
    this.forward = lambda x, sigma: theirs._subs_parameterization(this, logits=model(x).logits, xt=x)
    x, written = canvas.tokens, []
    conf = torch.full(x.shape, -torch.inf)
    for step in range(1, setting["steps"] + 1):
        t = torch.full((1, 1), 1 - (step - 1) / setting["steps"])
        _, x, conf = theirs._ddpm_caching_update(this, x, t, 1 / setting["steps"], conf=conf)
        written.append(x.tolist())
    return written


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    return title == "never" or remasked(theirs) > 2


if __name__ == "__main__":
    write("remdm", sys.argv[1], SOURCE, SETTINGS, reference, telling)
