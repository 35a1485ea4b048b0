"""Likelihoods by Monte Carlo: exact where they can be, unbiased where they cannot, hiding what they should."""

import math
from dataclasses import dataclass, field
from itertools import combinations

import pytest
import torch

from fakes import MASK, VOCABULARY, Chaos
from redraft.evals.likelihood import log_likelihood, patterns

CONTEXT, TARGET = [3, 1, 4], [1, 5, 9, 2, 6]


@dataclass
class Observed:
    """What a model was shown; logits from `Chaos`."""

    model: Chaos
    mask_id: int = MASK
    device: str = "cpu"
    shown: list[torch.Tensor] = field(default_factory=list)

    def __call__(self, tokens, *, columns):
        self.shown.append(tokens.clone())
        return self.model(tokens, columns=columns)


def exact(model, context, target):
    """The bound itself: over l, and over every set of l hidden tokens."""
    n, total = len(target), 0.0
    for count in range(1, n + 1):
        sets = list(combinations(range(n), count))
        for hidden in sets:
            tokens = [MASK if at in hidden else token for at, token in enumerate(target)]
            log_p = model(torch.tensor([context + tokens]), columns=slice(len(context), None)).log_softmax(-1)[0]
            total += sum(float(log_p[at, target[at]]) for at in hidden) * n / count / len(sets) / n
    return total


def test_it_estimates_the_bound():
    model = Chaos(1, spread=3.0)
    found = log_likelihood(Observed(model), CONTEXT, TARGET, draws=20_000, batch_size=5000)
    assert found == pytest.approx(exact(model, CONTEXT, TARGET), abs=0.1)
    assert abs(found - log_likelihood(Observed(Chaos(2, spread=3.0)), CONTEXT, TARGET, draws=20_000)) > 0.3


def test_a_model_that_says_the_same_of_every_token_has_one_likelihood_whatever_is_hidden():
    flat = Chaos(spread=0.0)
    for draws in (1, 3, 64):
        found = log_likelihood(Observed(flat), CONTEXT, TARGET, draws=draws)
        assert found == pytest.approx(-5 * math.log(VOCABULARY))


def test_one_token_takes_one_call_and_is_exact():
    model = Observed(Chaos(3))
    found = log_likelihood(model, CONTEXT, [7], draws=64)
    assert found == pytest.approx(exact(model.model, CONTEXT, [7]))
    assert [tokens.tolist() for tokens in model.shown] == [[[3, 1, 4, MASK]]]


def test_the_context_is_never_hidden_and_may_be_empty():
    model = Observed(Chaos(3))
    log_likelihood(model, CONTEXT, TARGET, draws=50, batch_size=50)
    (shown,) = model.shown
    assert (shown[:, :3] == torch.tensor(CONTEXT)).all()
    hidden = shown[:, 3:] == MASK
    assert (hidden | (shown[:, 3:] == torch.tensor(TARGET))).all()
    assert math.isfinite(log_likelihood(model, [], TARGET, draws=4))


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_the_batch_changes_nothing(batch_size):
    model, whole = Chaos(4), log_likelihood(Observed(Chaos(4)), CONTEXT, TARGET, draws=30, seed=5, batch_size=30)
    found = log_likelihood(Observed(model), CONTEXT, TARGET, draws=30, seed=5, batch_size=batch_size)
    assert found == pytest.approx(whole, abs=1e-9)
    assert log_likelihood(Observed(model), CONTEXT, TARGET, draws=30, seed=6) != pytest.approx(whole, abs=1e-9)


def test_every_number_of_hidden_tokens_is_as_frequent_and_so_is_every_place():
    counts = patterns(8, 64, seed=1).sum(-1).bincount(minlength=9)
    assert counts.tolist() == [0] + [8] * 8
    for seed in range(50):  # fewer draws than tokens: spread over them
        few = patterns(12, 4, seed).sum(-1).sort().values
        assert len(set(few.tolist())) == 4
        assert few.min() >= 1
        assert few.max() <= 12
    starts = torch.cat([patterns(12, 1, seed).sum(-1) for seed in range(600)]).bincount(minlength=13)[1:]
    assert starts.min() > 25
    assert starts.max() < 80  # 50 expected
    places = torch.cat([patterns(6, 60, seed) for seed in range(60)]).float().mean(0)
    assert places == pytest.approx(torch.full((6,), 3.5 / 6), abs=0.03)
