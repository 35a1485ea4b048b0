"""WINO: its shadow, its bounds, and the whole rule position by position against the vectorised sampler."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, READING, Chaos, Script, Spy, fresh, pin, responses
from redraft.decoding import Clock, Denoise, walk
from redraft.samplers import WINO, parse
from redraft.samplers.wino import shadowed
from test_papers import best, log_softmax

SURE = Chaos(3, spread=20)
pytestmark = pytest.mark.usefixtures("unchecked_shapes")
NO_EOS = replace(READING, eos="none")


def take(sampler, model, length, block=None, prompts=((1, 2), (3,)), steps=None, reading=NO_EOS):
    canvas = fresh(length, prompts)
    return list(walk(model, canvas, sampler, steps=steps or length, block=block, reading=reading))


# --- the shadow ---


def test_draft_only_is_a_check_that_nothing_fails():
    draft, free = (take(parse(text), SURE, 24, 8) for text in ("wino(verify=False)", "wino(th_back=0)"))
    assert responses(draft) == responses(free)
    assert any(len(set(response[0])) < 24 for response in responses(draft))


def test_the_shadow_costs_tokens_not_calls():
    for text, extra in (("wino", 8), ("wino(verify=False)", 0)):
        spy = Spy(SURE)
        steps = take(parse(text), spy, 24, 8)
        assert len(spy.asked) == len(steps) == sum(step.calls for step in steps)
        for step in steps:
            assert step.processed.tolist() == [26 - row + extra for row in step.rows.tolist()]


def block_of(seed: int, width: int = 6):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(12, (2, width), generator=generator)
    shown = torch.rand(2, width, generator=generator) < 0.6
    canvas = fresh(2 * width, [[1, 2], [3]])
    block = canvas.window(2, 2 + width).write(torch.where(shown, tokens, MASK))
    return canvas, block


class Loud(Spy):
    """Remembers what it answered, too."""

    def __call__(self, tokens, **context):
        answer = super().__call__(tokens, **context)
        self.asked[-1]["logits"] = answer
        return answer


def look(canvas, block, model=SURE):
    loud = Loud(model)
    clock = Clock.at(2, 6, 0, 2, torch.device("cpu"))
    prediction, support = shadowed(Denoise(loud, canvas, block, clock, 2, NO_EOS), block)
    return prediction, support, loud.asked[0]["logits"][:, block.tokens.shape[1] :]


@pytest.mark.parametrize("seed", range(5))
def test_nobody_sees_the_shadow(seed):
    canvas, block = block_of(seed)
    clock = Clock.at(2, 6, 0, 2, torch.device("cpu"))
    plain = Denoise(SURE, canvas, block, clock, 2, NO_EOS)(block.tokens)
    prediction, _, _ = look(canvas, block)
    assert torch.equal(plain.tokens, prediction.tokens)
    assert torch.equal(plain.confidence, prediction.confidence)


@pytest.mark.parametrize("seed", range(3))
def test_a_shadow_position_sees_all_but_the_token_it_verifies(seed):
    canvas, block = block_of(seed)
    _, _, before = look(canvas, block)
    for position in range(6):
        tokens = block.tokens.clone()
        tokens[:, position] = (tokens[:, position] + 1) % 12
        _, _, after = look(canvas, block.write(tokens))
        same = (before == after).all(-1)
        assert same[:, position].all()
        assert same.sum(-1).tolist() == [1, 1]


def test_support_is_the_probability_of_the_token_that_stands():
    canvas, block = block_of(1)
    _, support, logits = look(canvas, block)
    logits[..., MASK] = -torch.inf
    expected = logits.softmax(-1).gather(-1, block.tokens[..., None]).squeeze(-1)
    assert torch.allclose(support, expected, rtol=1e-12)


# --- what it promises ---


@settings(max_examples=30)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.05, 0.3, 0.6]),
    st.sampled_from([0.2, 0.9]),
    st.integers(1, 3),
    st.integers(1, 12),
)
def test_a_block_ends_within_a_step_for_each_of_its_tokens(seed, th, th_back, blocks, block):
    sampler, length = WINO(th=th, th_back=th_back), block * blocks
    steps = take(sampler, Chaos(seed, spread=15), length, block)
    assert sum(step.calls for step in steps) <= sampler.calls(length, 1, block) == length
    for step in steps:
        accepted = (step.before.masked & step.after.visible).sum(-1)
        assert step.after.visible.sum(-1).ge(step.clock.step.squeeze(-1)).all()
        assert torch.equal(accepted[step.rows], step.after.memory.squeeze(-1)[step.rows])  # none of them masked again
    assert MASK not in steps[-1].result.response


def test_a_step_may_lose_tokens_and_the_bound_still_holds():
    counts = [int(step.after.visible.sum()) for step in take(WINO(th=0.3), Chaos(1, spread=12), 24, prompts=[[1]])]
    assert any(later < earlier for earlier, later in pairwise(counts))


def test_steps_bound_nothing_and_blocks_are_its_own_unless_given():
    sampler = parse("wino(block=8)")
    assert len(take(sampler, SURE, 24, steps=1)) == len(take(sampler, SURE, 24, steps=24)) > 3
    assert [stage.stop for stage in sampler.stages(24, 1)] == [8, 16, 24]
    assert [stage.stop for stage in sampler.stages(24, 1, 12)] == [12, 24]
    assert [stage.stop for stage in WINO().stages(256, 64)] == [128, 256]
    assert [stage.stop for stage in WINO().stages(24, 64)] == [24]
    with pytest.raises(ValueError, match="200 is not a whole number of blocks of 128"):
        WINO().stages(200, 64)


@pytest.mark.parametrize("verify", [True, False])
def test_end_tokens_that_must_wait_cost_no_calls_of_their_own(verify):
    """A short answer is mostly end tokens: a canvas of them is filled as fast as any other."""
    sampler, ends = WINO(verify=verify, th_back=0.0), Chaos(1, eos=40.0)
    calls = [len(take(sampler, ends, 24, prompts=[[1]], reading=reading)) for reading in (READING, NO_EOS)]
    assert calls[0] == calls[1] < 24


def test_pinned_tokens_are_never_verified():
    given = {(0, 0): 3, (0, 4): 5}
    canvas = pin(fresh(12, [[1, 2], [3]]), given)
    taken = walk(SURE, canvas, WINO(th=0.2, th_back=1.0), steps=12, reading=NO_EOS)
    for response in responses(list(taken)):
        assert {where: response[where[0]][where[1]] for where in given} == given


# --- the rule, by hand ---


def wino_by_hand(model, prompt, length, block, th, th_back, vetoed):
    """Methods 5.5, the shadow behind the canvas, as in the reference; `vetoed` is the EOS policy `confidence`."""
    x, start = [*prompt, *[MASK] * length], len(prompt)
    history = []
    for k in range(length // block):
        window = list(range(start + k * block, start + (k + 1) * block))
        whole = len(x)
        positions = [*range(whole), *window]
        attend = [
            [
                key < whole if query < whole else key >= whole or key != window[query - whole]
                for key in range(whole + block)
            ]
            for query in range(whole + block)
        ]
        last, masked, step = 30, [i for i in window if x[i] == MASK], 0
        while masked:
            step += 1
            cap = min(max(7 * len(masked) // 10, 5), 20)
            logits = model(
                torch.tensor([x + [MASK] * block]),
                attend=torch.tensor([attend]),
                positions=torch.tensor([positions]),
            )[0].tolist()
            log_p = [log_softmax(z, {MASK}) for z in logits]
            x0 = {i: log_p[i].index(max(log_p[i])) for i in masked}
            waits = {i for i in masked if vetoed and step < block and x0[i] in EOS}
            sure = {i: max(log_p[i]) for i in masked if i not in waits or waits == {*masked}}
            accepted = best({i: s for i, s in sure.items() if 2.718281828459045**s > th}, cap) or best(sure, 1)
            doubted = []
            if len(accepted) > 1:
                support = {i: log_p[whole + j][x[i]] for j, i in enumerate(window) if x[i] != MASK}
                low = {i: -s for i, s in support.items() if 2.718281828459045**s < th_back}
                doubted = best(low, last - 1)
            for i in accepted:
                x[i] = x0[i]
            for i in doubted:
                x[i] = MASK
            masked = [i for i in window if x[i] == MASK]
            last = len(accepted)
            history.append(x[start:])
    return history


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 11), max_size=3),
    st.integers(1, 10),
    st.integers(1, 2),
    st.sampled_from([0.1, 0.3, 0.6]),
    st.sampled_from([0.3, 0.9, 1.0]),
    st.sampled_from([6.0, 15.0]),
    st.booleans(),
)
def test_wino(seed, prompt, block, blocks, th, th_back, spread, vetoed):
    model, length = Chaos(seed, spread=spread, eos=4.0 if vetoed else 0.0), block * blocks
    reading = READING if vetoed else NO_EOS
    steps = take(WINO(th=th, th_back=th_back), model, length, block, [prompt], reading=reading)
    ours = [response[0] for response in responses(steps)]
    assert ours == wino_by_hand(model, prompt, length, block, th, th_back, vetoed)


def test_the_worked_example():
    """Methods 5.5: the second step accepts two and finds one of the first two wanting."""
    shown = [{0: 0.9}, {1: 0.7}, {2: 0.3}, {3: 0.2}]
    second = [{9: 0.5}, {9: 0.5}, {2: 0.65}, {3: 0.62}]
    third = [{9: 0.5}, {4: 0.8}, {9: 0.5}, {9: 0.5}]
    hidden = [{0: 0.95}, {1: 0.4}, {2: 0.99}, {3: 0.99}]
    script = Script([shown + hidden, second + hidden, third + hidden], start=3)
    taken = walk(script, fresh(4), WINO(), steps=4, reading=NO_EOS)
    assert [response[0] for response in responses(list(taken))] == [
        [0, 1, MASK, MASK],
        [0, MASK, 2, 3],
        [0, 4, 2, 3],
    ]
