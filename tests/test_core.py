"""CoRe: when it looks again, whom it doubts, and the whole rule by hand. It is tested against what it states."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, Script, Spy, decode, go
from redraft.samplers import CoRe, Unmask, parse
from test_papers import CUMULATIVE, best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.mark.parametrize("shape", [(12, 12, None), (12, 6, 4), (14, 4, None)])
def test_without_auxiliary_passes_it_is_unmask(shape):
    assert decode("core(every=0)", Chaos(), *shape) == decode(Unmask(), Chaos(), *shape)


def test_128_steps_make_8_auxiliary_passes():
    """As published. Fewer steps make fewer, and none is made before the first token or at the last step."""
    assert CoRe().calls(256, 128) == 136
    assert CoRe().calls(64, 64) == 68
    assert CoRe(every=1).calls(8, 4) == 7
    assert sum(step.calls for step in go(CoRe(every=4), Chaos(), 12, 12)) == CoRe(every=4).calls(12, 12) == 15


@given(st.integers(0, 1000), st.integers(1, 6))
@settings(max_examples=20)
def test_the_schedule_is_kept_whatever_is_masked_again(seed, every):
    states = decode(CoRe(every, 6, 3), Chaos(seed), 12, 12)
    assert [12 - state[0].count(MASK) for state in states] == list(range(1, 13))


def test_candidates_are_masked_together():
    spy = Spy(Chaos(3))
    go("core(every=4, candidates=2, revised=1)", spy, 8, 8)
    masks = [asked["tokens"].eq(MASK).sum().item() for asked in spy.asked]
    assert masks == [8, 7, 8, 6, 5, 4, 3, 5, 2, 1]  # at steps 2 and 6 a second time, with all there is, with two more


def test_what_loses_support_is_masked_again_and_nothing_else():
    """The second call of step 2 finds the first token's support fallen from 0.7 to 0.2; or risen to 0.9."""
    first, second = [{0: 0.9}, {1: 0.8}, {2: 0.1}, {3: 0.1}], [{0: 0.7}, {1: 0.6}, {2: 0.5}, {3: 0.4}]
    for then, after in ((0.2, [MASK, 1, 2, MASK]), (0.9, [0, 1, MASK, MASK])):
        script = Script([first, second, [{0: then}, {1: 0.1}, {2: 0.1}, {3: 0.1}], second, second], 3)
        assert decode("core(every=4)", script, 4, 4)[1] == [after]


@pytest.mark.parametrize("option", ["every=-1", "candidates=0", "revised=0"])
def test_nonsense_is_refused(option):
    with pytest.raises(ValueError, match="every is 0 or more, candidates and revised are 1 or more"):
        parse(f"core({option})").stages(8, 4)


def core_by_hand(model, prompt, length, steps, block, every, candidates, revised, vetoed):
    """Methods 6.12, and the sampler's docstring."""
    x, history = [*prompt, *[MASK] * length], []
    each = steps // (length // block)
    for start in range(len(prompt), len(x), block):
        window = range(start, start + block)
        for t in range(1, each + 1):
            masks = [i for i in window if x[i] == MASK]
            if not masks:
                break
            log_p = [log_softmax(z, {MASK}) for z in logits_of(model, x)]
            x0 = {i: log_p[i].index(max(log_p[i])) for i in masks}
            shown = [i for i in window if x[i] != MASK]
            if t < each and t % every == every // 2 and shown:
                rivals = {i: max(p for token, p in enumerate(log_p[i]) if token != x[i]) for i in shown}
                margin = {i: math.exp(rivals[i]) - math.exp(log_p[i][x[i]]) for i in shown}
                probed = best(margin, candidates)
                hidden = [MASK if i in probed else token for i, token in enumerate(x)]
                then = [log_softmax(z, {MASK}) for z in logits_of(model, hidden)]
                lost = {i: math.exp(log_p[i][x[i]]) - math.exp(then[i][x[i]]) for i in probed}
                hole = block - CUMULATIVE["front"](block, t, each)
                for i in best({i: loss for i, loss in lost.items() if loss > 0}, min(revised, hole)):
                    x[i] = MASK
            more = CUMULATIVE["front"](block, t, each) - sum(x[i] != MASK for i in window)
            score = {i: -math.inf if vetoed and t < each and x0[i] in EOS else max(log_p[i]) for i in masks}
            for i in masks if t == each else best(score, more):
                x[i] = x0[i]
            history.append(x[len(prompt) :])
    return history


@settings(max_examples=60)
@given(
    st.builds(Chaos, st.integers(0, 10**6), preserve=st.sampled_from([0.0, 3.0, 8.0]), eos=st.sampled_from([0.0, 2.0])),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(8, 8, 4), (6, 4, 6), (9, 9, 9), (10, 6, 5)]),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, options, vetoed):
    ours = decode(CoRe(*options), model, *shape, prompts=[prompt], reading=READING if vetoed else NO_EOS)
    assert [rows[0] for rows in ours] == core_by_hand(model, prompt, *shape, *options, vetoed)
