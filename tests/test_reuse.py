"""Answering from memory changes no token, computes what has changed only, and is counted as if it had not been."""

import pytest
import torch

from redraft.decoding import SAMPLERS, Reading
from redraft.fast import Reuse
from redraft.generation import Plan, batches
from redraft.models.standin import random_llada

PROMPTS = ["one", "a longer prompt than that", "and a third", "x"]


@pytest.fixture(scope="module")
def model():
    return random_llada(dtype=torch.float64)


def decoded(model, denoiser, sampler, temperature=0.0):
    plan = Plan.of(sampler, length=16, steps=8, reading=Reading(temperature=temperature, eos="confidence"))
    (batch,) = batches(model, PROMPTS, length=16, chat=False)
    steps = list(plan.walk(denoiser, batch.canvas))
    return steps[-1].result.tokens, sum(step.calls for step in steps), sum(step.processed.sum() for step in steps)


class Speaking:
    """A model's denoiser, and what `Plan.walk` asks besides."""

    def __init__(self, model):
        self.wrapped, self.eos_ids = Reuse(model), model.eos_ids

    def __call__(self, *arguments, **options):
        return self.wrapped(*arguments, **options)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_the_same_tokens_calls_and_counts(model, sampler, temperature):
    tokens, calls, processed = decoded(model, model, sampler, temperature)
    memory = Speaking(model)
    again, same_calls, same_processed = decoded(model, memory, sampler, temperature)
    assert torch.equal(tokens, again)
    assert (calls, processed) == (same_calls, same_processed)


def test_only_rows_that_changed_are_computed():
    seen = []

    def denoiser(tokens, *, attend, positions, columns):
        seen.append(tokens.tolist())
        return torch.nn.functional.one_hot(tokens, 9).float()[:, columns]

    memory = Reuse(denoiser)
    attend = torch.ones(3, 4, dtype=torch.bool)
    first = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [1, 1, 1, 1]])
    second = first.clone()
    second[1, 3] = 0
    for tokens in (first, first, second, first[:2]):
        logits = memory(tokens, attend=attend[: len(tokens)], positions=None, columns=slice(2, 4))
        assert torch.equal(logits.argmax(-1), tokens[:, 2:])
    assert seen == [first.tolist(), [second[1].tolist()], first[:2].tolist()]
    assert (memory.rows, memory.computed) == (11, 6)
    memory(first, attend=attend, positions=None, columns=slice(0, 4))
    assert seen[-1] == first.tolist(), "other columns are another question"
    attend[0, 0] = False
    memory(first, attend=attend, positions=None, columns=slice(0, 4))
    assert seen[-1] == [first[0].tolist()], "and so is another attention"


def test_what_was_given_may_be_changed_afterwards():
    memory = Reuse(lambda tokens, *, attend, positions, columns: tokens[..., None].float())
    tokens = torch.tensor([[1, 2]])
    memory(tokens)
    tokens[0, 0] = 7
    assert memory(tokens)[0, 0, 0] == 7
