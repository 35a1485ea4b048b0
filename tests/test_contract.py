"""What every sampler promises (architecture, section 6). A new one is tested here as soon as it is registered.

Its options are tested too once they are named in `VARIANTS`; its defaults are tested in any case.
"""

import os
import pickle
from dataclasses import is_dataclass, replace
from functools import lru_cache

import jaxtyping
import pytest
import torch

import redraft.samplers
from fakes import MASK, READING, Chaos, Spy, fresh, pin, responses
from redraft.decoding import SAMPLERS, Denoise, Reading, Sampler, Step, walk
from redraft.decoding.notation import listed

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

VARIANTS = {
    "d3im": [
        "d3im(t2t=False)",
        "d3im(t2m=False)",
        "d3im(t2t=False, t2m=False)",
        "d3im(t2t=False, visible_conf=max)",
        "d3im(schedule=ceil)",
    ],
    "unmask": ["unmask(schedule=floor)", "unmask(schedule=late)"],
    "rcr": ["rcr(region=response)", "rcr(top_p=1.0)", "rcr(schedule=linear)"],
    "remdm": [
        "remdm(eta=0)",
        "remdm(kind=rescale, eta=0.3)",
        "remdm(kind=conf)",
        "remdm(kind=loop, eta=0.2)",
        "remdm(style=ancestral, eta=0.2)",
        "remdm(kind=conf, style=ancestral)",
        "remdm(kind=loop, style=ancestral, eta=0.2)",
    ],
    "tolerator": ["tolerator(rounds=0)", "tolerator(decay=exponential, update_rate=0.5, lock=2)"],
    "wino": ["wino(verify=False)", "wino(th=0.3, th_back=0.5)"],
    "xdlm": ["xdlm(k1=0)", "xdlm(k1=0.5)", "xdlm(k1=0.5, region=canvas)"],
    "threshold": ["threshold(th=0.5)"],
    "factor": ["factor(factor=2.0)"],
    "dream": ["dream(alg=origin)", "dream(alg=topk_margin, alg_temp=0.5)"],
    "proseco": ["proseco(s=0)", "proseco(s=2, n=1)", "proseco(region=window)"],
    "corrective": ["corrective(rule=linear)", "corrective(rule=mad, k=0.5)"],
    "editing": ["editing(th=0.3, th_edit=0.3)", "editing(max_post=0)"],
    "pc": ["pc(decay=0)", "pc(decay=1.0, alpha=3)"],
    "remedi": ["remedi(score=probability)", "remedi(context=canvas, schedule=floor)"],
    "core": ["core(every=1, candidates=4, revised=2)", "core(every=2)", "core(every=0)"],
    "soft": ["soft(scale=0)", "soft(scale=1.0, k=1)"],
    "spd": ["spd(th=0.5)", "spd(th=0.9, rest=0.99)"],
    "adaptive": ["adaptive(th=0.5)", "adaptive(th=1.0, schedule=ceil)"],
    "t2m": ["t2m(detector=t2t_remask, th=0.5)", "t2m(detector=logit_diff, th=0.5)"],
}
NOTATIONS = [notation for name in SAMPLERS for notation in (name, *VARIANTS.get(name, ()))]
# Samplers from files, which are held to the same promises: REDRAFT_SAMPLERS='./mine.py:mine;./mine.py:mine(k=3)'
if OUTSIDE := os.environ.get("REDRAFT_SAMPLERS"):
    NOTATIONS += [repr(redraft.samplers.parse(text, files=True)) for text in listed(OUTSIDE)]

SHAPES = {  # length, steps, block
    "one block": (12, 6, None),
    "blocks": (12, 6, 4),
    "uneven": (12, 9, 4),
    "one step": (12, 1, None),
    "a token a step": (12, 12, 4),
}
READINGS = {
    "greedy": READING,
    "no end policy": replace(READING, eos="none"),
    "warm": replace(READING, temperature=0.8),
    "fill": replace(READING, overflow="fill"),
    "random order": replace(READING, rank="random", temperature=0.5),
    "guided": replace(READING, guidance=1.0, rank="margin"),
}
MODELS = {"chaos": Chaos(1), "stubborn": Chaos(2, preserve=4.0), "end-loving": Chaos(3, eos=1.5)}
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10], []]

CASES = [(shape, "greedy", "chaos") for shape in SHAPES]
CASES += [("uneven", reading, "end-loving") for reading in READINGS]
CASES += [("blocks", "greedy", "stubborn")]

# The module as the scope makes pytest run all tests of one sampler together, so that a process decodes a case once.
samplers = pytest.mark.parametrize("notation", NOTATIONS, scope="module")
cases = pytest.mark.parametrize(("shape", "reading", "model"), CASES)


def go(notation: str, shape: str, reading: str = "greedy", model: str = "chaos", canvas=None, **options):
    """A walk; over a ragged batch, if no canvas is given."""
    length, steps, block = SHAPES[shape]
    canvas = fresh(length, PROMPTS) if canvas is None else canvas
    sampler = redraft.samplers.parse(notation)
    return walk(MODELS[model], canvas, sampler, steps=steps, block=block, reading=READINGS[reading], **options)


@lru_cache(maxsize=2 * len(CASES))  # all of one sampler; more would only burden the garbage collector
def decode(notation: str, shape: str, reading: str = "greedy", model: str = "chaos") -> tuple[Step, ...]:
    return tuple(go(notation, shape, reading, model))


def moments(steps) -> dict[tuple[int, int], list[list[int]]]:
    """The response at each tick of each stage."""
    return {(step.stage, int(step.clock.step.max())): step.result.response.tolist() for step in steps}


def costs(steps, row: int) -> tuple[int, int]:
    """Calls of the model for a row, and tokens that it read for them."""
    taken = [(step, (step.rows == row).nonzero().squeeze(-1)) for step in steps]
    return sum(int(step.each[at].sum()) for step, at in taken), sum(int(step.processed[at].sum()) for step, at in taken)


def content(thing):
    """All that steps, blocks, canvases and predictions hold, as lists and numbers."""
    if isinstance(thing, torch.Tensor):
        return str(thing.dtype), thing.tolist()
    if is_dataclass(thing):
        return [content(value) for value in vars(thing).values()]
    if isinstance(thing, dict):
        return {key: content(value) for key, value in thing.items()}
    return [content(part) for part in thing] if isinstance(thing, (tuple, list)) else thing


def test_the_table_of_variants_names_registered_samplers_and_their_options():
    assert VARIANTS.keys() <= set(SAMPLERS)
    for name, notations in VARIANTS.items():
        parsed = [redraft.samplers.parse(notation) for notation in notations]
        assert all(type(sampler) is SAMPLERS.classes[name] for sampler in parsed)
        assert len({SAMPLERS.classes[name](), *parsed}) == len(parsed) + 1


@samplers
@pytest.mark.parametrize("shape", ["one block", "uneven"])
def test_every_shape_is_as_annotated(notation, shape):
    jaxtyping.config.update("jaxtyping_disable", False)
    try:
        list(go(notation, shape))
    finally:
        jaxtyping.config.update("jaxtyping_disable", True)


@samplers
@cases
def test_no_mask_is_left(notation, shape, reading, model):
    steps = decode(notation, shape, reading, model)
    assert MASK not in steps[-1].result.response


@samplers
@cases
def test_nothing_is_written_beyond_reach(notation, shape, reading, model):
    steps = decode(notation, shape, reading, model)
    reach = redraft.samplers.parse(notation).reach
    before = fresh(SHAPES[shape][0], PROMPTS)
    for step in steps:
        now, width = step.result, step.after.tokens.shape[1]
        prompt = torch.ones_like(now.attend) if reach != "canvas" else ~now.attend  # there it may change, padding not
        prompt[:, now.start :] = False
        assert torch.equal(now.tokens[prompt], before.tokens[prompt])
        assert torch.equal(now.tokens[:, : step.start], before.tokens[:, : step.start])
        assert torch.equal(now.tokens[:, step.start + width :], before.tokens[:, step.start + width :])
        if reach == "block":
            assert width <= (SHAPES[shape][2] or SHAPES[shape][0])
            assert now.tokens[:, now.start : step.start].ne(MASK).all()  # finished blocks are full, and now frozen
            assert now.tokens[:, step.start + width :].eq(MASK).all()
        before = now
    if reach == "block":
        starts = [step.start for step in steps]
        assert starts == sorted(starts)


@samplers
def test_the_same_call_gives_the_same_walk(notation):
    for reading in ("greedy", "random order"):
        assert content(decode(notation, "blocks", reading)) == content([*go(notation, "blocks", reading)])


@samplers
@cases
def test_calls_stay_within_the_declared_bound(notation, shape, reading, model):
    length, steps, block = SHAPES[shape]
    bound = redraft.samplers.parse(notation).calls(length, steps, block)
    guided = 2 if READINGS[reading].guidance else 1
    assert sum(step.calls for step in decode(notation, shape, reading, model)) <= guided * bound


@samplers
def test_calls_are_counted_as_the_model_sees_them(notation):
    spy = Spy()
    steps = list(walk(spy, fresh(12, PROMPTS), redraft.samplers.parse(notation), steps=6, block=4))
    assert sum(step.calls for step in steps) == len(spy.asked)
    seen = [asked["attend"] if asked["attend"].ndim == 2 else asked["attend"].any(1) for asked in spy.asked]
    assert sum(int(step.processed.sum()) for step in steps) == sum(int(tokens.sum()) for tokens in seen)


@samplers
@pytest.mark.parametrize("reading", ["greedy", "random order"])
def test_a_step_is_pure(notation, reading):
    length, total, block = SHAPES["blocks"]
    plan = redraft.samplers.parse(notation).stages(length, total, block)
    for step in decode(notation, "blocks", reading):
        stage = plan[step.stage]
        options = replace(READINGS[reading], **stage.reading)
        given, canvas, clock = step.before.rows(step.rows), step.canvas.rows(step.rows), step.clock.rows(step.rows)
        kept = content((given, canvas, clock))
        results = []
        for _ in range(2):
            denoise = Denoise(MODELS["chaos"], canvas, given, clock, step.start, options)
            results.append(stage.rule.step(denoise, given, clock))
        assert content((given, canvas, clock)) == kept
        assert content(results[0]) == content(results[1])
        assert torch.equal(results[0].active, given.active)
        revealed = torch.where(results[0].masked, step.after.rows(step.rows).tokens, results[0].tokens)
        assert torch.equal(revealed, step.after.rows(step.rows).tokens)


@samplers
@pytest.mark.parametrize(("shape", "reading"), [("one block", "greedy"), ("uneven", "random order")])
def test_a_row_alone_is_the_row_in_a_ragged_batch(notation, shape, reading):
    together = decode(notation, shape, reading)
    batched, ragged = moments(together), fresh(SHAPES[shape][0], PROMPTS)
    for row, prompt in enumerate(PROMPTS):
        canvas = replace(fresh(SHAPES[shape][0], [prompt]), seeds=ragged.seeds[row : row + 1])
        steps = list(go(notation, shape, reading, canvas=canvas))
        alone = moments(steps)
        assert {when: [batched[when][row]] for when in alone} == alone
        assert together[-1].result.response[row].tolist() == [*alone.values()][-1][0]
        assert costs(together, row) == costs(steps, 0)


@samplers
def test_other_seeds_give_other_samples(notation):
    canvas = fresh(12, PROMPTS, seed=1)
    other = responses(list(go(notation, "blocks", "warm", canvas=canvas)))[-1]
    assert other != responses(decode(notation, "blocks", "warm"))[-1]


@samplers
@pytest.mark.parametrize(("shape", "model"), [("one block", "chaos"), ("blocks", "end-loving")])
def test_pinned_positions_never_change(notation, shape, model):
    given = {(0, 0): 3, (0, 5): 4, (1, 11): 12, (2, 4): 5, (2, 5): 6, (2, 6): 7, (2, 7): 8}
    canvas = pin(fresh(SHAPES[shape][0], PROMPTS), given)
    steps = list(go(notation, shape, "greedy", model, canvas=canvas))
    for response in responses(steps):
        assert {where: response[where[0]][where[1]] for where in given} == given
    assert MASK not in steps[-1].result.response


@samplers
@pytest.mark.parametrize("shape", ["one block", "blocks"])
def test_a_finished_row_costs_no_further_calls(notation, shape):
    length, steps, block = SHAPES[shape]
    full = {(1, position): 5 for position in range(length)}
    spy = Spy()
    canvas = pin(fresh(length, PROMPTS), full)
    taken = list(walk(spy, canvas, redraft.samplers.parse(notation), steps=steps, block=block, reading=READING))
    assert all(1 not in step.rows for step in taken)
    assert {len(asked["tokens"]) for asked in spy.asked} <= {1, 2}
    assert taken[-1].result.response[1].tolist() == [5] * length


@samplers
@pytest.mark.parametrize("reading", ["greedy", "random order"])
def test_a_walk_goes_on_from_any_step_even_one_from_a_file(notation, reading):
    steps = decode(notation, "blocks", reading)
    for number in sorted({*range(0, len(steps), 1 + len(steps) // 4), len(steps) - 1}):
        stored = pickle.loads(pickle.dumps(steps[number]))
        rest = list(go(notation, "blocks", reading, after=stored))
        assert content(rest) == content(steps[number + 1 :])


@samplers
def test_a_walk_stops_at_its_call_budget(notation):
    whole = decode(notation, "blocks")
    most = max(step.calls for step in whole)
    for budget in (1, 2, len(whole)):
        part = list(go(notation, "blocks", max_calls=budget))
        assert content(part) == content(whole[: len(part)])
        spent = sum(step.calls for step in part)
        assert budget <= spent < budget + most or len(part) == len(whole)


@samplers
def test_more_steps_than_tokens_are_refused_where_they_cannot_be_of_use(notation):
    sampler = redraft.samplers.parse(notation)
    if sampler.revises:
        steps = list(walk(Chaos(), fresh(5), sampler, steps=20))
        assert MASK not in steps[-1].result.response
    else:
        with pytest.raises(ValueError, match=r"20 steps are more than the 5 tokens.*at most 5 steps would fit"):
            next(walk(Chaos(), fresh(5), sampler, steps=20))


@pytest.mark.parametrize(
    ("length", "steps", "block", "message"),
    [
        (12, 6, 5, "12 is not a whole number of blocks of 5: blocks of 3 or 4 or 6 would fit"),
        (12, 6, 24, "not a whole number of blocks of 24: blocks of 4 or 6 or 12 would fit"),
        (12, 7, 4, "7 steps cannot be divided equally over 3 blocks: 6 or 9 would fit"),
        (12, 2, 4, "2 steps cannot be divided equally over 3 blocks: 3 would fit"),
        (12, 6, 0, "block is at least 1, not 0"),
        (12, 0, None, "steps is at least 1, not 0"),
        (0, 1, None, "length is at least 1, not 0"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_what_would_fit(length, steps, block, message):
    with pytest.raises(ValueError, match=message):
        next(walk(Chaos(), fresh(length), SAMPLERS.parse("d3im"), steps=steps, block=block))


@samplers
def test_the_declarations_are_well_formed(notation):
    sampler = redraft.samplers.parse(notation)
    assert {"m2t"} <= sampler.channels <= {"m2t", "t2m", "t2t"}
    assert sampler.reach in ("block", "response", "canvas")
    assert Reading(eos=sampler.eos)
    assert sampler.citation
    assert sampler.provenance
    assert type(sampler).__doc__
    assert type(sampler).__mro__[1] is Sampler  # samplers are final
    assert redraft.samplers.parse(repr(sampler)) == sampler
