"""DMax's soft parallel decoding: what it fills, when it rests, and the whole rule by hand, as it states itself."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, Script, Spy, decode, go
from redraft.models.standin import random_llada
from redraft.samplers import SPD, parse
from test_papers import log_softmax

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def test_without_a_threshold_a_block_is_filled_at_once():
    assert all(MASK not in state[0] for state in decode("spd", Chaos(), 12, 12))


def test_a_model_that_ignores_its_input_rests_after_two_passes_a_block():
    steps = go("spd", Chaos(2, deaf=True), 12, 12, 4)
    assert [step.calls for step in steps] == [1, 1] * 3
    sure = go("spd", Chaos(2, deaf=True, spread=1e6), 12, 12, 4)
    assert len(sure) == 3  # surer than 0.9 everywhere: nothing needs confirming


def test_fills_are_a_run_from_the_left():
    """The second mask is doubtful, so that the third waits although it is sure; then nothing is sure, and one goes."""
    script = [
        [{0: 0.9}, {1: 0.4}, {2: 0.9}, {3: 0.9}],
        [{0: 0.9}, {1: 0.4}, {2: 0.9}, {3: 0.9}],
        [{0: 0.9}, {5: 0.8}, {2: 0.4}, {3: 0.9}],
        [{6: 0.9}, {5: 0.9}, {2: 0.9}, {3: 0.9}],
    ]
    states = decode("spd(th=0.5)", Script(script, 3), 4, 4)
    assert [state[0] for state in states] == [[0, MASK, MASK, MASK], [0, 1, MASK, MASK], [0, 5, 2, MASK], [6, 5, 2, 3]]


def test_a_filled_position_is_shown_as_sure_as_it_was():
    spy = Spy(Script([[{0: 0.9}, {1: 0.6}, {2: 0.3}]] * 3, 3))
    go("spd(th=0.5)", spy, 3, 3)
    (ids, first, rescaled), (_, second, _) = spy.asked[0]["soft"], spy.asked[1]["soft"]
    assert rescaled is True
    assert ids[0].tolist() == [[MASK, MASK]] * 3
    assert first[0].tolist() == [[1, 0]] * 3
    assert second[0].tolist() == [pytest.approx([0.9, 0.1]), pytest.approx([0.6, 0.4]), [1, 0]]
    assert spy.asked[1]["soft"][0][0].tolist() == [[0, MASK], [1, MASK], [MASK, MASK]]


def test_a_mixture_is_as_long_as_its_parts_on_average():
    model = random_llada(dtype=torch.float64)
    embed = model.network.get_input_embeddings().weight
    ids, weights = torch.tensor([[[5, 9], [7, 9]]]), torch.tensor([[[0.7, 0.3], [0.2, 0.8]]], dtype=torch.float64)
    tokens = torch.tensor([[1, 2, 3]])
    mixed = model._mix(tokens, slice(1, 3), ids, weights, keep_length=True)[0, 1:]
    plain = model._mix(tokens, slice(1, 3), ids, weights, keep_length=False)[0, 1:]
    wanted = 0.7 * embed[5].norm() + 0.3 * embed[9].norm()
    assert mixed[0].norm().item() == pytest.approx(wanted.item())
    assert torch.allclose(mixed / mixed.norm(dim=-1, keepdim=True), plain / plain.norm(dim=-1, keepdim=True))
    assert plain[0].norm() < wanted


def test_blocks_are_its_own_unless_given_and_steps_bound_nothing():
    assert [stage.stop for stage in SPD().stages(96, 4)] == [32, 64, 96]
    assert [stage.stop for stage in SPD().stages(96, 4, 48)] == [48, 96]
    assert SPD().calls(96, 4) == 96


def spd_by_hand(model, prompt, length, block, th, rest, vetoed):
    """Methods 6.8."""
    x, history = [*prompt, *[MASK] * length], []
    for start in range(len(prompt), len(x), block):
        window, certainty = range(start, start + block), [1.0] * block
        for t in range(1, block + 1):
            ids = torch.tensor([[[x[i], MASK] for i in window]])
            shares = torch.tensor([[[p, 1 - p] for p in certainty]])
            z = model(torch.tensor([x]), soft=(ids, shares, True), columns=slice(start, start + block))[0].tolist()
            log_p = [log_softmax(row, {MASK}) for row in z]
            x0, p = [row.index(max(row)) for row in log_p], [math.exp(max(row)) for row in log_p]
            waits = [vetoed and t < block and token in EOS for token in x0]
            masks = [j for j in range(block) if x[start + j] == MASK]
            run = []
            for j in masks:
                if p[j] < th or waits[j]:
                    break
                run.append(j)
            if masks and not run:
                run = [j for j in masks if not waits[j]][:1] or masks[:1]
            written = run + [j for j in range(block) if j not in masks and not waits[j]]
            before = list(x)
            for j in written:
                x[start + j], certainty[j] = x0[j], p[j]
            if t == block:
                for j in range(block):
                    x[start + j] = x0[j] if x[start + j] == MASK else x[start + j]
            history.append(x[len(prompt) :])
            if MASK not in x[start : start + block] and (min(p) >= rest or x == before):
                break
    return history


class Coarse(Chaos):
    """Chaos that hears shares only to a hundredth: the sampler's are float32, the oracle's are not."""

    def __call__(self, tokens, *, soft=None, **context):
        soft = None if soft is None else (soft[0], (soft[1] * 100).round() / 128)
        return super().__call__(tokens, soft=soft, **context)


@settings(max_examples=60)
@given(
    st.builds(
        Coarse,
        st.integers(0, 10**6),
        spread=st.sampled_from([6.0, 20.0, 60.0]),
        preserve=st.sampled_from([0.0, 10.0]),
        eos=st.sampled_from([0.0, 2.0]),
    ),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 3), (6, 6), (5, 5), (8, 4)]),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from([0.5, 0.9]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, th, rest, vetoed):
    (length, block), reading = shape, READING if vetoed else NO_EOS
    ours = decode(SPD(th, rest), model, length, length, block, prompts=[prompt], reading=reading)
    theirs = spd_by_hand(model, prompt, length, block, th, rest, vetoed)
    assert [rows[0] for rows in ours] == theirs


def test_its_notation():
    assert repr(parse("spd(rest=0.9, th=0.5)")) == "spd(th=0.5)"
