"""Tolerator's own code beside `tolerator`, on the same noise: the same response after every step of both phases.

golden/tolerator.json holds what it wrote; it takes one row at a time, ours take theirs together. To run it again,
compare, and write the file anew:

    git clone https://github.com/Rachum-thu/tolerator && git -C tolerator checkout 7780338
    PYTHONPATH=src:tests python tests/test_reference_tolerator.py tolerator

Its code draws from torch's generator. Here torch is put before it with our hash in three places: what fills (uniforms),
what is kept (a permutation), and what is drawn anew (a categorical sample, by the Gumbel trick).
"""

import sys
from typing import Any

import pytest
import torch

from redraft.decoding.noise import counter_uniform, gumbel, stream_number
from references import EOS, MASK, VOCABULARY, Recorded, Torch, canvas_of, functions, golden, ours, sampler_of, write

SOURCE = "https://github.com/Rachum-thu/tolerator eval/lm_eval/models/llada_denoise.py"
COMMIT = "77803380f452da50cfea72d5a84742056e9ed957"
LOCKING = "locking"
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {"sampler": "tolerator", "length": 16, "steps": 16},
    "more rounds": {"sampler": "tolerator(rounds=16)", "length": 24, "steps": 20},
    "blocks": {"sampler": "tolerator(rounds=6)", "length": 24, "steps": 12, "block": 8},
    "exponential": {"sampler": "tolerator(decay=exponential)", "length": 16, "steps": 16},
    "least supported": {"sampler": "tolerator(update_rate=0.4)", "length": 24, "steps": 16},
    "one round": {"sampler": "tolerator(rounds=1)", "length": 16, "steps": 8},
    "no dice": {"sampler": "tolerator(temperature=0.0, refine_temperature=0.0)", "length": 24, "steps": 16},
    "a long prompt": {"sampler": "tolerator(rounds=8)", "prompts": "long", "length": 24, "steps": 14, "block": 12},
    "all at once": {
        "sampler": "tolerator(start=1.0, end=1.0, temperature=0.0, refine_temperature=0.0)",
        "length": 24,
        "steps": 12,
    },
    "a pair": {"sampler": "tolerator", "prompts": "pair", "by_row": True, "length": 16, "steps": 16},
    "ragged, blocks": {
        "sampler": "tolerator(rounds=6)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 12,
        "block": 8,
    },
    "ragged, no dice": {
        "sampler": "tolerator(temperature=0.0, refine_temperature=0.0, start=0.6, end=0.3)",
        "prompts": "ragged",
        "by_row": True,
        "length": 24,
        "steps": 16,
    },
    LOCKING: {"sampler": "tolerator(lock=2, rounds=16)", "length": 16, "steps": 20},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_responses_are_tolerators_after_every_step(name):
    case = golden("tolerator")["cases"][name]
    assert case["setting"] == SETTINGS[name]
    assert ours(SETTINGS[name], case["seed"]) == case["canvases"]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("defaults", "tolerator(eos_penalty=1.0)"),
        ("exponential", "tolerator"),
        ("least supported", "tolerator"),
        (LOCKING, "tolerator(rounds=16)"),
    ],
)
def test_each_option_matters_where_it_is_tested(name, other):
    case = golden("tolerator")["cases"][name]
    assert ours({**case["setting"], "sampler": other}, case["seed"]) != case["canvases"]


def test_the_golden_file_says_where_it_comes_from():
    assert (golden("tolerator")["source"], golden("tolerator")["commit"]) == (SOURCE, COMMIT)
    assert golden("tolerator")["cases"].keys() == SETTINGS.keys()


class Dice(Torch):
    """torch, with our noise in the place of its generator."""

    def __init__(self, model: Recorded, setting: dict[str, Any]) -> None:
        self.model, self.canvas, self.sampler = model, canvas_of(setting), sampler_of(setting)
        self.stages = self.sampler.stages(setting["length"], setting["steps"], setting.get("block"))
        self.fills = sum(stage.rule.rounds == 0 for stage in self.stages)
        self.filled, self.round = 0, 0
        self.distributions = self

    def draw(self, stage: int, step: int, stream: str, *size: int) -> torch.Tensor:
        return counter_uniform(self.canvas.seeds, (stage, step, stream_number(stream)), size)

    def rand_like(self, like, dtype):
        """Ours is 1 - u, and drawn for the window only."""
        number, step = divmod(self.filled, self.stages[0].steps)
        self.filled += 1
        stage, whole = self.stages[number], torch.full(like.shape, 0.5, dtype=dtype)
        drawn = 1 - self.draw(number, step + 1, "gumbel.0", stage.stop - stage.start, VOCABULARY).to(dtype)
        whole[:, self.canvas.start + stage.start : self.canvas.start + stage.stop] = drawn
        return whole

    def nonzero(self, given, as_tuple):
        self.free = torch.nonzero(given)
        return self.free

    def randperm(self, count, device):
        self.round += 1
        lottery = self.draw(self.fills, self.round, "keep", self.canvas.length)[0]
        return lottery[self.free.squeeze(-1)].argsort(descending=True)

    def argsort(self, scores):
        self.order = torch.argsort(scores)
        return self.order

    def Categorical(self, probs):
        hidden = (self.model.shown[-1][0, self.canvas.start :] == MASK).nonzero().squeeze(-1)
        noise = gumbel(self.draw(self.fills, self.round, "gumbel.0", self.canvas.length, VOCABULARY))[0]
        self.drawn = (probs.log() + noise[hidden[self.order[: len(probs)]]]).argmax(-1)
        return self

    def sample(self):
        return self.drawn


def reference(git, setting: dict[str, Any], seed: int) -> list[list[list[int]]]:
    model, rounds = Recorded(seed), []
    dice = Dice(model, setting)
    canvas, sampler, last = dice.canvas, dice.sampler, dice.stages[-1]
    names = ["add_gumbel_noise", "get_num_transfer_tokens", "apply_eot_penalty", "sample_tokens"]
    names += ["llada_generate_with_eot_penalty", "create_llada_denoise_func", "apply_random_sample_denoise"]
    source = git("show", "HEAD:eval/lm_eval/models/llada_denoise.py")
    theirs = functions(source, names, pretend=dice)
    make = theirs.create_llada_denoise_func

    def recording(*arguments):
        refine = make(*arguments)

        def once(model, sequences):
            rounds.append(refine(model, sequences))
            return rounds[-1]

        return once

    theirs.scope["create_llada_denoise_func"] = recording
    draft = theirs.llada_generate_with_eot_penalty(
        model,
        canvas.tokens[:, : canvas.start],
        steps=setting["steps"] - last.steps,
        gen_length=setting["length"],
        block_length=setting.get("block") or setting["length"],
        temperature=sampler.temperature,
        mask_id=MASK,
        fillup_eot_penalty=sampler.eos_penalty,
    )
    filling = [*model.shown[1:], draft]
    parameters = {"max_iter": last.steps, "start_remask_ratio": sampler.start, "end_remask_ratio": sampler.end}
    parameters |= {"decay_schedule": sampler.decay, "update_rate": sampler.update_rate}
    parameters |= {"decode_temp": sampler.refine_temperature, "repeat_converge_threshold": sampler.lock}
    theirs.apply_random_sample_denoise(model, draft, canvas.start, parameters, mask_id=MASK)
    called = len(model.shown) - len(filling)
    return [tokens.tolist() for tokens in [*filling, *(sequences for sequences, _ in rounds[:called])]]


def telling(title: str, setting: dict[str, Any], seed: int, theirs: list[list[list[int]]]) -> bool:
    others = {"defaults": "tolerator(eos_penalty=1.0)", "exponential": "tolerator", "least supported": "tolerator"}
    others[LOCKING] = "tolerator(rounds=16)"
    locked = title != LOCKING or len(theirs) < setting["steps"]
    matters = title not in others or ours({**setting, "sampler": others[title]}, seed) != ours(setting, seed)
    ends = title != "defaults" or any(EOS in canvas[0] for canvas in theirs)
    return locked and matters and ends


if __name__ == "__main__":
    write("tolerator", sys.argv[1], SOURCE, SETTINGS, reference, telling)
