"""What must hold because it is a theorem (methods, section 9)."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import redraft.samplers
from fakes import EOS, MASK, READING, Chaos, Script, Spy, fresh, responses
from redraft.decoding import SAMPLERS, SCHEDULES, Clock, Denoise, Sampler, walk
from redraft.samplers import D3IM, Unmask

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
NO_EOS = replace(READING, eos="none")
MASKED_ONLY = D3IM(t2t=False, t2m=False)
ABLATIONS = [D3IM(), D3IM(t2t=False), D3IM(t2m=False), MASKED_ONLY]
ablations = pytest.mark.parametrize("sampler", ABLATIONS, ids=repr)
CPU = torch.device("cpu")


def decode(sampler: Sampler, model=Chaos(), *, length=12, steps=12, block=None, reading=NO_EOS, prompts=((3, 1, 4),)):
    return responses(list(walk(model, fresh(length, prompts), sampler, steps=steps, block=block, reading=reading)))


@st.composite
def shapes(draw):
    """Length, steps and block: with at most one step a token, dividing or not."""
    block, blocks = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    return {"length": block * blocks, "steps": blocks * draw(st.integers(1, block)), "block": block}


# --- D3IM and standard unmasking ---

READINGS = [
    NO_EOS,
    replace(READING, overflow="fill"),  # one rule for end tokens in both, which keeps the visible counts equal
    replace(NO_EOS, temperature=1.0),
    replace(NO_EOS, rank="margin"),
    replace(NO_EOS, rank="random"),
]


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    shapes(),
    st.sampled_from(READINGS),
    st.sampled_from([*SCHEDULES]),
    st.sampled_from([0.0, 1.5]),
)
def test_masked_only_d3im_is_unmask_step_for_step(seed, shape, reading, schedule, eos):
    model, prompts = Chaos(seed, eos=eos), [[1, 2], [3]]
    ours = decode(replace(MASKED_ONLY, schedule=schedule), model, reading=reading, prompts=prompts, **shape)
    theirs = decode(Unmask(schedule=schedule), model, reading=reading, prompts=prompts, **shape)
    assert ours[: len(theirs)] == theirs
    assert ours[-1] == theirs[-1]


def test_strict_overflow_is_where_they_part():
    """Keeping fewer than K leaves D3IM to catch up with its cumulative count, unmasking with only its increment."""
    script = [[{0: 0.9}] + [{EOS[0]: 0.9}] * 5, [{1: 0.9}] * 6, [{2: 0.9}] * 6]
    counts = [
        [visible(state[0]) for state in decode(sampler, Script(script, 3), length=6, steps=3, reading=READING)]
        for sampler in (MASKED_ONLY, Unmask())
    ]
    assert counts == [[1, 4, 6], [1, 3, 6]]


@pytest.mark.parametrize("sampler", [*ABLATIONS, Unmask()], ids=repr)
def test_one_block_of_the_whole_length_is_no_blocks(sampler):
    assert decode(sampler, steps=6, block=12) == decode(sampler, steps=6)


@ablations
def test_one_step_is_one_argmax_everywhere(sampler):
    model = Spy(Chaos(eos=1))
    canvas = fresh(12)
    expected = model(canvas.tokens)[:, canvas.start :].clone()
    expected[..., MASK] = -torch.inf
    assert decode(sampler, model, steps=1, reading=READING) == [expected.argmax(-1).tolist()]
    assert len(model.asked) == 2
    assert set(EOS) & set(expected.argmax(-1)[0].tolist())


@pytest.mark.parametrize("sampler", [*ABLATIONS, Unmask()], ids=repr)
def test_blocks_of_one_token_and_one_step_are_greedy_from_left_to_right(sampler):
    model, tokens = Chaos(), fresh(8).tokens.clone()
    for position in range(3, 11):
        logits = model(tokens)[0, position]
        logits[MASK] = -torch.inf
        tokens[0, position] = logits.argmax()
    assert decode(sampler, model, length=8, steps=8, block=1)[-1] == tokens[:, 3:].tolist()


# --- every other sampler, where its options make it a simpler one ---

A_TOKEN_A_STEP = None
TWINS = {  # sampler: its twin, and steps for each block of both
    "adaptive(th=1.0)": ("d3im", 6),
    "core(every=0)": ("unmask", 6),
    "corrective(rule=linear)": ("d3im(t2t=False, schedule=ceil)", 6),
    "d3im(t2t=False, t2m=False, schedule=front)": ("unmask", 6),
    "dream(alg=maskgit_plus)": ("unmask", 1),
    "editing(th=1.0, th_edit=1.0, max_post=0)": ("unmask", A_TOKEN_A_STEP),
    "factor(factor=100)": ("unmask", 1),
    "pc(decay=0)": ("unmask", 6),
    "proseco(s=0)": ("unmask", 6),
    "rcr": ("d3im", 1),
    "remdm(eta=0)": ("unmask(schedule=floor)", 5),
    "remedi(score=probability, context=canvas, schedule=floor)": ("d3im(t2t=False)", 6),
    "soft(scale=0)": ("unmask", 6),
    "spd(th=0.0, rest=0.0)": ("unmask", 1),
    "t2m(th=1.0, max_per_pos=0, max_post=0)": ("unmask", A_TOKEN_A_STEP),
    "threshold(th=1.0)": ("unmask", A_TOKEN_A_STEP),
    "tolerator(rounds=0, temperature=0, eos_penalty=1)": ("unmask", 6),
    "unmask(schedule=floor)": ("d3im(t2t=False, t2m=False)", 6),
    "wino(verify=False, th=1.0)": ("unmask", A_TOKEN_A_STEP),
    "xdlm(k1=0)": ("unmask", 6),
}


def test_every_sampler_has_a_twin():
    ours = {name for name in SAMPLERS if SAMPLERS.classes[name].__module__.startswith("redraft.samplers.")}
    assert {redraft.samplers.parse(notation).name for notation in TWINS} == ours


@pytest.mark.parametrize("notation", TWINS)
@pytest.mark.parametrize("block", [None, 6])
def test_a_sampler_is_its_twin(notation, block):
    (twin, each), width = TWINS[notation], block or 12
    for seed in range(3):
        shape = {"model": Chaos(seed, preserve=2.0), "prompts": [[1, 2], [3]], "block": block}
        steps = (each or width) * 12 // width
        ours, theirs = (decode(redraft.samplers.parse(name), steps=steps, **shape) for name in (notation, twin))
        assert ours[: len(theirs)] == theirs[: len(ours)]
        assert ours[-1] == theirs[-1]


# --- how much is visible ---


def visible(response: list[int]) -> int:
    return sum(token != MASK for token in response)


revised = given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 14), st.sampled_from(ABLATIONS))


@settings(max_examples=30)
@revised
def test_exactly_floor_of_b_t_over_s_is_visible_after_each_step(seed, length, steps, sampler):
    steps = steps if sampler.revises else min(steps, length)
    history = decode(sampler, Chaos(seed), length=length, steps=steps)
    assert [visible(state[0]) for state in history] == [length * t // steps for t in range(1, steps + 1)]


@settings(max_examples=30)
@revised
def test_a_strict_veto_leaves_at_most_that_many_and_all_at_the_end(seed, length, steps, sampler):
    steps = steps if sampler.revises else min(steps, length)
    history = decode(sampler, Chaos(seed, eos=1.5), length=length, steps=steps, reading=READING)
    counts = [visible(state[0]) for state in history]
    assert all(count <= length * t // steps for t, count in enumerate(counts, 1))
    assert counts[-1] == length


def test_the_veto_does_bite():
    history = decode(D3IM(), Chaos(eos=1.5), reading=READING)
    assert any(visible(state[0]) < t for t, state in enumerate(history, 1))


@pytest.mark.parametrize("sampler", [*ABLATIONS, Unmask()], ids=repr)
def test_no_end_token_is_visible_before_a_blocks_last_step(sampler):
    steps = list(walk(Chaos(eos=1), fresh(12), sampler, steps=12, block=4, reading=READING))
    for step in steps:
        shown = set(step.after.tokens.flatten().tolist())
        assert step.clock.final.all() or not shown & set(EOS)
    assert set(EOS) & set(steps[-1].result.response.flatten().tolist())


# --- D3IM forgets ---


def random_block(seed: int):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(12, (1, 10), generator=generator)
    shown = torch.rand(1, 10, generator=generator) < 0.6
    return fresh(10).window(3, 13).write(torch.where(shown, tokens, MASK))


def take(sampler: Sampler, block, tick: int, model):
    canvas, clock = fresh(10).place(block, 3), Clock.at(tick, 10, 0, 1, CPU)
    return sampler.step(Denoise(model, canvas, block, clock, 3, READING), block, clock)


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 10))
def test_equal_logits_give_equal_canvases_whatever_was_there(one, other, tick):
    deaf = Chaos(one, deaf=True)
    assert torch.equal(
        take(D3IM(), random_block(one), tick, deaf).tokens, take(D3IM(), random_block(other), tick, deaf).tokens
    )


@pytest.mark.parametrize("sampler", ABLATIONS[1:], ids=repr)
def test_its_ablations_remember(sampler):
    deaf = Chaos(deaf=True)
    after = {tuple(take(sampler, random_block(seed), 5, deaf).tokens[0].tolist()) for seed in range(10)}
    assert len(after) > 1


@settings(max_examples=15)
@given(st.integers(0, 1000))
def test_a_model_that_ignores_its_input_is_never_revised(seed):
    history = decode(D3IM(), Chaos(seed, deaf=True))
    for before, after in pairwise(state[0] for state in history):
        assert all(old in (MASK, new) for old, new in zip(before, after, strict=True))


# --- only ranks matter ---

MONOTONE = {
    "cube": lambda score: score**3,
    "stretch and shift": lambda score: 100 * score + 7,
    "probability": lambda score: torch.where(score == -torch.inf, score, score.exp()),
}


class Mapped(Denoise):
    """The same predictions, their confidences mapped."""

    function = staticmethod(lambda score: score)

    def __call__(self, tokens, **options):
        prediction = super().__call__(tokens, **options)
        return prediction._replace(
            confidence=self.function(prediction.confidence),
            score_of=lambda ids: self.function(prediction.score(ids)),
        )


@ablations
@pytest.mark.parametrize("name", MONOTONE)
def test_a_monotone_map_of_confidence_changes_nothing(sampler, name):
    for step in walk(Chaos(eos=1), fresh(12), sampler, steps=12, reading=READING):
        denoise = Mapped(Chaos(eos=1), step.canvas, step.before, step.clock, step.start, READING)
        denoise.function = MONOTONE[name]
        assert torch.equal(sampler.step(denoise, step.before, step.clock).tokens, step.after.tokens)


def test_ties_go_to_the_lowest_position():
    def flat(tokens, *, columns=slice(None), **context):
        logits = torch.zeros(*tokens.shape, 16)
        logits[..., 5] = 2
        return logits[:, columns]

    assert decode(D3IM(), flat, length=4, steps=4)[1] == [[5, 5, MASK, MASK]]
    assert decode(Unmask(), flat, length=4, steps=4)[1] == [[5, 5, MASK, MASK]]


def test_the_ablations_differ():
    assert len({str(decode(sampler, Chaos(preserve=2))) for sampler in ABLATIONS}) == 4


def test_visible_conf_matters_only_without_overwriting():
    kept, most = (decode(redraft.samplers.parse(f"d3im(visible_conf={how})")) for how in ("kept", "max"))
    assert kept == most
    kept, most = (decode(redraft.samplers.parse(f"d3im(t2t=False, visible_conf={how})")) for how in ("kept", "max"))
    assert kept != most
