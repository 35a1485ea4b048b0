"""Token to mask: its three detectors, its limits, and the whole rule by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, Chaos, Script, decode, go
from redraft.samplers import T2M, Editing, Unmask, parse
from redraft.samplers.t2m import BARS
from test_papers import best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
DETECTORS = ["low_prob", "t2t_remask", "logit_diff"]


@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("detector", DETECTORS)
def test_where_nothing_may_be_masked_again_it_is_unmask_a_token_a_step(detector, block):
    ours = decode(f"t2m(detector={detector}, th=1.0, max_per_pos=0, max_post=0)", Chaos(2), 12, 3, block)
    assert ours == decode(Unmask(), Chaos(2), 12, 12, block)


@pytest.mark.parametrize("detector", DETECTORS)
def test_where_nothing_may_be_masked_again_it_is_editing_without_edits(detector):
    ours = decode(f"t2m(detector={detector}, th=0.4, max_per_pos=0)", Chaos(2, spread=12), 12, 3, 4)
    assert ours == decode(Editing(th=0.4, th_edit=1.0), Chaos(2, spread=12), 12, 3, 4)


@pytest.mark.parametrize(
    ("detector", "rival", "own", "suspect"),
    [
        ("low_prob", 0.3, 0.49, True),
        ("low_prob", 0.4, 0.51, False),
        ("t2t_remask", 0.91, 0.01, True),
        ("t2t_remask", 0.89, 0.01, False),
        ("logit_diff", 0.05, 0.68, True),  # it had .99
        ("logit_diff", 0.05, 0.70, False),
    ],
)
def test_whom_each_detector_suspects(detector, rival, own, suspect):
    """The token revealed by the first pass, judged by a later one: logit_diff by the third, for the second is the first
    that sees it and has nothing to compare with."""
    calm, unsure = [{0: 0.99}, {1: 0.4}, {2: 0.3}], [{0: own, 7: rival}, {1: 0.99}, {2: 0.98}]
    script = [calm, calm, unsure] if detector == "logit_diff" else [calm, unsure]
    states = decode(f"t2m(detector={detector}, max_post=1)", Script([*script, *[unsure] * 30], 3), 3, 3)
    assert (states[len(script) - 1][0][0] == MASK) == suspect


def test_a_quarter_at_most_is_masked_at_once_the_worst_first():
    first = [[{token: 0.99} for token in range(8)]]
    doubt = [[{token: 0.49 - token / 100} for token in range(8)]] * 40
    assert decode("t2m", Script([*first, *doubt], 3), 8, 8)[1] == [[0, 1, 2, 3, 4, 5, MASK, MASK]]
    assert decode("t2m(ratio=1.0)", Script([*first, *doubt], 3), 8, 8)[1] == [[MASK] * 8]
    assert decode("t2m(ratio=0.01)", Script([*first, *doubt], 3), 8, 8)[1] == [[0, 1, 2, 3, 4, 5, 6, MASK]]


@pytest.mark.parametrize("limit", [1, 3])
def test_each_position_is_masked_again_so_often_at_most_and_no_token_becomes_another_within_a_pass(limit):
    again = {}
    for step in go(f"t2m(th=0.3, bar=0.9, ratio=1.0, max_per_pos={limit})", Chaos(4, spread=10), 8, 8):
        for i, (old, new) in enumerate(zip(step.before.tokens[0].tolist(), step.after.tokens[0].tolist(), strict=True)):
            assert MASK in (old, new) or old == new
            again[i] = again.get(i, 0) + (old != MASK == new)
    assert max(again.values()) == limit


def test_published_defaults_and_blocks():
    assert BARS == {"low_prob": 0.5, "t2t_remask": 0.9, "logit_diff": 0.3}
    assert [stage.stop for stage in T2M().stages(96, 4)] == [32, 64, 96]
    assert [stage.stop for stage in T2M().stages(96, 4, 48)] == [48, 96]
    assert T2M().calls(96, 4) == 3 * (32 * 4 + 16)


@pytest.mark.parametrize("option", ["max_per_pos=-1", "max_post=-1", "ratio=0", "ratio=1.5"])
def test_nonsense_is_refused(option):
    with pytest.raises(ValueError, match="max_per_pos and max_post are 0 or more, and ratio"):
        parse(f"t2m({option})").stages(8, 4)


def t2m_by_hand(model, prompt, length, block, detector, bar, th, per_pos, ratio, max_post, vetoed):
    """Methods 6.7 upon 6.6; state lasts for a block, and a previous pass counts once it saw a visible token."""
    x, history = [*prompt, *[MASK] * length], []
    for start in range(len(prompt), len(x), block):
        window, post, counts, before, tick = range(start, start + block), 0, dict.fromkeys(range(len(x)), 0), None, 0
        while True:
            masks = [i for i in window if x[i] == MASK]
            post += not masks
            if post > max_post:
                break
            tick += 1
            vetoes = vetoed and tick < block * (1 + per_pos) + max_post  # not the last pass there may be
            z = logits_of(model, x)
            p = {i: [math.exp(value) for value in log_softmax(z[i], {MASK})] for i in window}
            x0 = {i: p[i].index(max(p[i])) for i in window}
            free = [i for i in masks if not (vetoes and x0[i] in EOS)] or masks
            written = [i for i in free if max(p[i]) > th] or best({i: max(p[i]) for i in free}, 1)
            shown = [i for i in window if i not in masks]
            badness = {}
            for i in shown:
                old = p[i][x[i]]
                if detector == "low_prob" and old < bar:
                    badness[i] = -old
                elif detector == "t2t_remask" and max(p[i]) > bar and x0[i] != x[i]:
                    badness[i] = max(p[i])
                elif detector == "logit_diff" and before is not None and before[i][x[i]] - old > bar:
                    badness[i] = before[i][x[i]] - old
            badness = {i: bad for i, bad in badness.items() if counts[i] < per_pos}
            again = best(badness, max(1, int(len(shown) * ratio)))
            before = p if shown else None
            for i in written:
                x[i] = x0[i]
            for i in again:
                x[i], counts[i] = MASK, counts[i] + 1
            history.append(x[len(prompt) :])
            if not masks and not again:
                break
    return history


@settings(max_examples=60)
@given(
    st.builds(
        Chaos,
        st.integers(0, 10**6),
        spread=st.sampled_from([6.0, 12.0]),
        preserve=st.sampled_from([0.0, 3.0]),
        eos=st.sampled_from([0.0, 2.0]),
    ),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 3), (6, 6), (8, 8), (8, 4)]),
    st.sampled_from([("low_prob", 0.5), ("t2t_remask", 0.3), ("logit_diff", 0.1), ("logit_diff", 0.3)]),
    st.sampled_from([0.3, 0.95]),
    st.sampled_from([(3, 0.25), (1, 1.0), (2, 0.5)]),
    st.sampled_from([0, 2, 5]),
    st.booleans(),
)
def test_position_by_position(model, prompt, shape, detector, th, limits, max_post, vetoed):
    (length, block), (name, bar), (per_pos, ratio) = shape, detector, limits
    sampler = T2M(name, bar, th, per_pos, ratio, max_post)
    reading = READING if vetoed else NO_EOS
    steps = go(sampler, model, length, length, block, prompts=[prompt], reading=reading)
    assert sum(step.calls for step in steps) <= sampler.calls(length, length, block)
    theirs = t2m_by_hand(model, prompt, length, block, name, bar, th, per_pos, ratio, max_post, vetoed)
    assert [step.result.response[0].tolist() for step in steps] == theirs
