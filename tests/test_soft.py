"""Soft masks: what they are made of, and the whole rule by hand. It is tested against what it states."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, Spy, decode, go
from redraft.models.standin import random_llada
from redraft.samplers import Unmask, parse
from test_papers import CUMULATIVE, best, log_softmax

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.mark.parametrize("shape", [(12, 12, None), (12, 6, 4), (14, 4, None)])
def test_without_a_share_of_guesses_it_is_unmask(shape):
    rows = [[1, 2], [3]]
    assert decode("soft(scale=0)", Chaos(), *shape, prompts=rows) == decode(Unmask(), Chaos(), *shape, prompts=rows)
    assert decode("soft(scale=1.0)", Chaos(), *shape) != decode(Unmask(), Chaos(), *shape)


def test_a_model_reads_hard_tokens_and_certain_mixtures_alike():
    model = random_llada(dtype=torch.float64)
    tokens = torch.randint(0, 200, (2, 9), generator=torch.Generator().manual_seed(0))
    ids = torch.stack([tokens[:, 3:], tokens[:, :6]], dim=-1)
    certain = torch.tensor([1.0, 0.0]).expand(2, 6, 2)
    hard = model(tokens, columns=slice(3, None))
    assert torch.equal(model(tokens, columns=slice(3, None), soft=(ids, certain)), hard)
    assert torch.equal(model(tokens, columns=slice(3, None), soft=(ids, certain, True)), hard)
    assert not torch.equal(model(tokens, columns=slice(3, None), soft=(ids, certain.flip(-1))), hard)


def test_what_the_model_is_shown():
    spy = Spy(Chaos(4))
    go("soft(k=2)", spy, 6, 6)
    for number, asked in enumerate(spy.asked):
        ids, shares = asked["soft"]
        tokens = asked["tokens"][0, 3:]
        assert ids[0, :, 0].tolist() == tokens.tolist()
        assert shares.sum(-1).allclose(torch.ones(6))
        hard = (tokens != MASK) if number else torch.ones(6, dtype=torch.bool)
        assert (shares[0, :, 0] == 1).tolist() == hard.tolist()


def test_the_share_of_guesses_by_example():
    """Half of `scale` where sum p ln p is `centre`; the guesses by their probability among themselves."""
    spy = Spy(lambda tokens, *, columns, **context: LOGITS.expand(1, tokens.shape[1], -1)[:, columns])
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    LOGITS = torch.full((16,), -torch.inf)
    LOGITS[:4] = p.log()
    centre = float((p * p.log()).sum())
    go(f"soft(scale=0.8, centre={centre}, k=3)", spy, 2, 2)
    ids, shares = spy.asked[1]["soft"]
    assert ids[0, 1].tolist() == [MASK, 0, 1, 2]
    assert shares[0, 1].tolist() == pytest.approx(
        [0.6, 0.4 * 0.5 / 0.95, 0.4 * 0.3 / 0.95, 0.4 * 0.15 / 0.95], rel=1e-5
    )


@pytest.mark.parametrize("option", ["scale=-0.1", "scale=1.5", "k=0"])
def test_nonsense_is_refused(option):
    with pytest.raises(ValueError, match="scale is from 0 to 1 and k at least 1"):
        parse(f"soft({option})").stages(8, 4)


def soft_by_hand(model, prompt, length, steps, block, scale, k, vetoed):
    """Methods 6.9 upon 5.1."""
    x, history = [*prompt, *[MASK] * length], []
    each = steps // (length // block)
    for start in range(len(prompt), len(x), block):
        window, last = slice(start, start + block), None
        for t in range(1, each + 1):
            masks = [i for i in range(start, start + block) if x[i] == MASK]
            if not masks:
                break
            ids, shares = [], []
            for j, token in enumerate(x[window]):
                if token == MASK and last:
                    order = sorted(range(len(last[j])), key=lambda v: (-last[j][v], v))[:k]
                    certainty = sum(math.exp(p) * p for p in last[j] if p > -math.inf)
                    share = scale / (1 + math.exp(-5 * (certainty + 1)))
                    mass = sum(math.exp(last[j][v]) for v in order)
                    ids.append([token, *order])
                    shares.append([1 - share, *(share * math.exp(last[j][v]) / mass for v in order)])
                else:
                    ids.append([token] * (k + 1))
                    shares.append([1.0] + [0.0] * k)
            soft = (torch.tensor([ids]), torch.tensor([shares]))
            z = model(torch.tensor([x]), soft=soft, columns=window)[0].tolist()
            last = [log_softmax(row, {MASK}) for row in z]
            x0 = {i: last[i - start].index(max(last[i - start])) for i in masks}
            score = {i: max(last[i - start]) for i in masks}
            score = {i: -math.inf if vetoed and t < each and x0[i] in EOS else s for i, s in score.items()}
            more = CUMULATIVE["front"](block, t, each) - CUMULATIVE["front"](block, t - 1, each)
            for i in masks if t == each else best(score, more):
                x[i] = x0[i]
            history.append(x[len(prompt) :])
    return history


class Coarse(Chaos):
    """Chaos that hears shares only to a hundredth: the sampler's are float32, the oracle's are not."""

    def __call__(self, tokens, *, soft=None, **context):
        soft = None if soft is None else (soft[0], (soft[1] * 100).round() / 128)
        return super().__call__(tokens, soft=soft, **context)


@settings(max_examples=50)
@given(
    st.builds(Coarse, st.integers(0, 10**6), spread=st.sampled_from([6.0, 20.0]), eos=st.sampled_from([0.0, 2.0])),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 6, 3), (6, 4, 6), (5, 5, 5), (9, 6, 3)]),
    st.sampled_from([0.25, 1.0]),
    st.integers(1, 3),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, scale, k, vetoed):
    ours = decode(f"soft(scale={scale}, k={k})", model, *shape, prompts=[prompt], reading=READING if vetoed else NO_EOS)
    theirs = soft_by_hand(model, prompt, *shape, scale, k, vetoed)
    assert [rows[0] for rows in ours] == theirs
