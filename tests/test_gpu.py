"""The same on a GPU as on a CPU: noise to the bit, ties, tokens of every sampler, SCOPE's drafts and losses.

Needs nothing but pytest beside the package, so that it runs on a bare GPU machine:
`PYTHONPATH=src python -m pytest --noconftest -o addopts= tests/test_gpu.py`.
"""

import pytest
import torch

from redraft.decoding import Reading, top
from redraft.decoding.noise import counter_uniform
from redraft.generation import generate
from redraft.models.standin import random_llada
from redraft.samplers import SAMPLERS
from redraft.train.batch import Batch
from redraft.train.recipes import parse

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

PROMPTS = ["one", "a longer prompt than that", "and a third", "x"]
VARIANTS = sorted({*SAMPLERS, "d3im(t2t=False)", "d3im(t2m=False)", "remdm(style=ancestral)", "xdlm(region=canvas)"})


@pytest.fixture(scope="module")
def models():
    def model(device):
        made = random_llada(dtype=torch.float64)
        made.network.to(device)
        return made

    return model("cpu"), model("cuda")


def test_noise_is_the_same_to_the_bit():
    seeds = torch.tensor([0, 1, 2**40 + 7, 2**61])
    here = counter_uniform(seeds, (3, torch.arange(4), 12345), (1000, 7))
    there = counter_uniform(seeds.cuda(), (3, torch.arange(4).cuda(), 12345), (1000, 7))
    assert torch.equal(here, there.cpu())


def test_ties_go_to_the_lowest_position():
    scores = torch.randint(0, 3, (64, 200), generator=torch.Generator().manual_seed(0)).float()
    among = torch.rand(64, 200, generator=torch.Generator().manual_seed(1)) < 0.7
    k = torch.arange(64)[:, None]
    assert torch.equal(top(scores, k, among=among), top(scores.cuda(), k.cuda(), among=among.cuda()).cpu())


@pytest.mark.filterwarnings("ignore:temperature changes nothing")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sampler", VARIANTS)
def test_every_sampler_decodes_to_the_same_tokens(models, sampler, temperature):
    here, there = (
        generate(one, PROMPTS, sampler, length=24, block=12, steps=8, reading=Reading(temperature=temperature))
        for one in models
    )
    assert [answer.ids for answer in here] == [answer.ids for answer in there]
    assert [answer.calls for answer in here] == [answer.calls for answer in there]


@pytest.mark.parametrize(
    "recipe", ["scope(self_condition=1.0)", "scope(commit=random, rounds=2)", "mdm", "xdlm(k1=0.3)"]
)
def test_recipes_draft_and_lose_the_same(models, recipe):
    tokens = torch.randint(0, 256, (4, 40), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), None, torch.arange(4))
    losses = []
    for model, device in zip(models, ("cpu", "cuda"), strict=True):
        on = batch.to(device)
        loss, _ = parse(recipe).loss(model.network, on, step=0, seeds=on.seeds(3), mask_id=model.mask_id)
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_bfloat16_is_near_float32():
    small, wide = (random_llada(dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    tokens = torch.randint(0, 256, (3, 50), generator=torch.Generator().manual_seed(0))
    small.network.cuda()
    wide.network.cuda()
    logits = small(tokens.cuda()).float()
    exact = wide(tokens.cuda())
    assert (logits - exact).norm() < 0.03 * exact.norm()
