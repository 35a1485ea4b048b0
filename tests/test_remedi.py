"""RemeDi: what it sees, what it keeps, and the whole rule by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, Script, Spy, decode, go
from redraft.samplers import D3IM, RemeDi, parse
from test_papers import CUMULATIVE, best, log_softmax

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

# --- what makes it itself ---


@pytest.mark.parametrize("shape", [(12, 6, None), (12, 12, 4), (14, 4, None)])
@pytest.mark.parametrize("reading", [NO_EOS, READING])
def test_ranked_by_probability_and_seeing_everything_it_is_d3im_that_may_not_overwrite(shape, reading):
    sampler, rows, model = RemeDi("probability", "canvas", "floor"), [[1, 2], [3]], Chaos(1, preserve=2.0, eos=1.0)
    ours = decode(sampler, model, *shape, prompts=rows, reading=reading)
    assert ours == decode(D3IM(t2t=False), model, *shape, prompts=rows, reading=reading)


def test_it_ranks_logits_and_not_probabilities():
    """The logits 5, 0, ..., 0 at one position, 6, 5.9, ..., 5.9 at the other: the latter is higher, not surer."""

    def model(tokens, *, columns=slice(None), **context):
        logits = torch.zeros(*tokens.shape, 16)
        logits[:, 3, 1] = 5
        logits[:, 4] = 5.9
        logits[:, 4, 2] = 6
        return logits[:, columns]

    assert decode("remedi", model, 2, 2)[0] == [[MASK, 2]]
    assert decode("remedi(score=probability)", model, 2, 2)[0] == [[1, MASK]]


def test_nobody_sees_what_comes_after_its_block():
    spy = Spy(Chaos())
    go("remedi", spy, 6, 4, 3, prompts=[[1, 2], [3]])
    first, second = spy.asked[0], spy.asked[-1]
    assert [asked["tokens"].shape[1] for asked in (first, second)] == [5, 8]
    prompt, block_1, block_2 = [0, 1], [2, 3, 4], [5, 6, 7]
    for query in range(8):
        seen = prompt + (block_1 if query >= 2 else []) + (block_2 if query >= 5 else [])
        assert second["attend"][0, query].nonzero().flatten().tolist() == seen
    assert not second["attend"][1, :, 0].any()  # padding
    assert second["attend"].any(-1).all()  # a query that sees nothing would be NaN


def test_a_finished_block_is_never_predicted_otherwise_by_later_text():
    """What makes its cache exact: the first block's logits are the same with and without a second one."""
    one, two = (decode("remedi", Chaos(2), length, length, 4) for length in (4, 8))
    assert [state[0][:4] for state in two[:4]] == [state[0] for state in one]


def test_blocks_are_its_own_unless_given():
    assert [stage.stop for stage in RemeDi().stages(96, 96)] == [32, 64, 96]
    assert [stage.stop for stage in RemeDi().stages(96, 96, 48)] == [48, 96]
    assert [stage.stop for stage in RemeDi().stages(24, 12)] == [24]


def test_a_token_that_loses_its_rank_is_masked_and_not_overwritten():
    first, second = [{0: 0.5}, {1: 0.4}, {2: 0.3}], [{7: 0.6, 0: 0.1}, {1: 0.9}, {2: 0.8}]
    last = [{7: 0.6}, {1: 0.9}, {2: 0.9}]
    states = decode("remedi(score=probability)", Script([first, second, last], 3), 3, 3)
    assert [state[0] for state in states] == [[0, MASK, MASK], [MASK, 1, 2], [7, 1, 2]]


# --- the rule, by hand ---


def remedi_by_hand(model, prompt, length, steps, block, score, vetoed):
    """Methods 6.3; its cache as attention: every position sees the text up to the end of its own block."""
    x, history, start = list(prompt), [], len(prompt)
    each = steps // (length // block)
    for k in range(length // block):
        window = range(start + k * block, start + (k + 1) * block)
        x = x + [MASK] * block
        ends = [start + max(0, (i - start) // block + 1) * block if i >= start else start for i in range(len(x))]
        attend = torch.tensor([[[key < end for key in range(len(x))] for end in ends]])
        for t in range(1, each + 1):
            z = model(torch.tensor([x]), attend=attend)[0].tolist()
            y, s = {}, {}
            for i in window:
                log_p = log_softmax(z[i], {MASK})
                y[i] = log_p.index(max(log_p)) if x[i] == MASK else x[i]
                s[i] = z[i][y[i]] if score == "logit" else log_p[y[i]]
                if vetoed and t < each and y[i] in EOS:
                    s[i] = -math.inf
            keep = window if t == each else best(s, CUMULATIVE["late"](block, t, each))
            for i in window:
                x[i] = y[i] if i in keep else MASK
            history.append(x[start:] + [MASK] * (start + length - len(x)))
    return history


@settings(max_examples=60)
@given(
    st.builds(Chaos, st.integers(0, 10**6), preserve=st.sampled_from([0.0, 3.0, 8.0]), eos=st.sampled_from([0.0, 2.0])),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 6, 3), (6, 4, 6), (5, 5, 5), (6, 3, 2), (8, 12, 4)]),
    st.sampled_from(["logit", "probability"]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, score, vetoed):
    ours = decode(RemeDi(score), model, *shape, prompts=[prompt], reading=READING if vetoed else NO_EOS)
    assert [rows[0] for rows in ours] == remedi_by_hand(model, prompt, *shape, score, vetoed)


def test_its_notation():
    assert repr(parse("remedi(schedule=late, score=probability)")) == "remedi(score=probability)"
