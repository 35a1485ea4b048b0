"""The loop and the denoiser it hands out: what the model is shown, what is metered, when a walk ends or goes on."""

from dataclasses import dataclass, replace

import pytest
import torch

from fakes import MASK, READING, Chaos, Spy, fresh, pin, responses
from redraft.decoding import Denoiser, Reading, Sampler, Stage, walk
from redraft.samplers import D3IM, Unmask

RAGGED = [[1, 2, 3], [4]]


@dataclass(frozen=True, repr=False)
class Probe(Sampler):
    """Reveal everything at once, after looking at the model in one way or another."""

    way: str = "plain"
    channels = frozenset({"m2t"})

    def step(self, denoise, block, clock):
        if self.way == "look":
            denoise.look(torch.zeros(len(block.tokens), 5, dtype=torch.int64))
        if self.way == "shadow":  # the window twice, the copy hidden from all but itself
            tokens = torch.cat([denoise.canvas.tokens, block.tokens], dim=-1)
            whole = denoise.canvas.tokens.shape[1]
            attend = torch.ones(len(tokens), tokens.shape[1], tokens.shape[1], dtype=torch.bool)
            attend[:, :whole, whole:] = False
            if denoise.canvas.attend is not None:
                attend[:, :, :whole] &= denoise.canvas.attend[:, None]
            denoise.look(tokens, attend=attend, columns=slice(whole, None))
        if self.way == "soft":
            ids = block.tokens[..., None].expand(-1, -1, 2)
            return block.write(denoise(block.tokens, soft=(ids, torch.full(ids.shape, 0.5))).tokens)
        return block.write(denoise(block.tokens, prefix=self.way == "prefix").tokens)


def one_step(way="plain", prompts=RAGGED, length=4, block=None, **options):
    spy = Spy()
    steps = list(
        walk(spy, fresh(length, prompts), Probe(way), steps=length // (block or length), block=block, **options)
    )
    return spy, steps


def test_any_callable_is_a_denoiser():
    assert isinstance(Chaos(), Denoiser)


# --- what the model is shown ---


def test_the_model_sees_the_whole_canvas_and_is_asked_for_the_window():
    spy, steps = one_step(block=2)
    first, second = spy.asked
    assert first["tokens"].tolist() == fresh(4, RAGGED).tokens.tolist()
    assert (first["columns"], second["columns"]) == (slice(3, 5), slice(5, 7))
    assert second["tokens"].tolist() == steps[0].result.tokens.tolist()
    assert first["attend"].tolist() == [[True] * 7, [False] * 2 + [True] * 5]
    assert first["positions"].tolist() == [[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 3, 4]]
    assert "soft" not in first


def test_prefix_hides_what_is_right_of_the_window():
    spy, steps = one_step("prefix", block=2)
    first, second = spy.asked
    assert first["tokens"].tolist() == fresh(2, RAGGED).tokens.tolist()
    assert first["attend"].shape == first["positions"].shape == (2, 5)
    assert second["tokens"].shape == (2, 7)
    shorter = list(walk(Chaos(), fresh(2, RAGGED), Probe(), steps=1))
    assert responses(shorter)[0] == [row[:2] for row in responses(steps)[0]]


def test_soft_mixtures_reach_the_model_as_they_are():
    spy, _ = one_step("soft")
    ids, weights = spy.asked[0]["soft"]
    assert ids.tolist() == [[[MASK, MASK]] * 4] * 2
    assert weights.unique().tolist() == [0.5]


def test_a_hidden_copy_does_not_change_what_the_rest_predicts():
    _, plain = one_step("plain")
    _, shadowed = one_step("shadow")
    assert responses(plain) == responses(shadowed)


# --- guidance ---


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_guidance_is_lladas_formula(scale):
    canvas = pin(fresh(4, RAGGED), {(0, 1): 5})
    steps = list(walk(Chaos(), canvas, Probe(), steps=1, reading=replace(READING, guidance=scale, eos="none")))
    hidden = canvas.tokens.clone()
    hidden[:, : canvas.start] = MASK
    hidden[0, canvas.start + 1] = MASK
    context = {"attend": canvas.attend, "positions": canvas.positions, "columns": slice(canvas.start, None)}
    conditional, blind = Chaos()(canvas.tokens, **context), Chaos()(hidden, **context)
    guided = blind + (scale + 1) * (conditional - blind)
    guided[..., MASK] = -torch.inf
    (prediction,) = steps[0].predictions
    assert torch.equal(prediction.tokens, guided.argmax(-1))
    assert torch.allclose(prediction.confidence, guided.log_softmax(-1).amax(-1), rtol=1e-12)
    assert not torch.equal(prediction.tokens, conditional.argmax(-1))


# --- noise and memory ---


def test_two_calls_of_one_step_draw_different_noise():
    @dataclass(frozen=True, repr=False)
    class Twice(Probe):
        def step(self, denoise, block, clock):
            denoise(block.tokens)
            return super().step(denoise, block, clock)

    for reading in (replace(READING, temperature=5.0), replace(READING, rank="random")):
        (step,) = walk(Chaos(), fresh(8), Twice(), steps=1, reading=reading)
        first, second = step.predictions
        assert not torch.equal(first.confidence, second.confidence)


@dataclass(frozen=True, repr=False)
class Counting(Probe):
    """Reveal one position a step, from the left, and count the steps of each row."""

    def begin(self, block):
        return block.remember({"taken": torch.zeros_like(block.seeds)})

    def step(self, denoise, block, clock):
        first = block.masked & (block.masked.cumsum(-1) == 1)
        tokens = torch.where(first, denoise(block.tokens).tokens, block.tokens)
        return block.write(tokens, {"taken": block.memory["taken"] + 1})

    def done(self, block):
        return ~block.masked.any(-1)


def test_memory_follows_its_row_while_others_rest():
    canvas = pin(fresh(4, [[1], [2], [3]]), {(1, 0): 5, (1, 1): 6, **{(2, position): 7 for position in range(4)}})
    steps = list(walk(Chaos(), canvas, Counting(), steps=4))
    assert [step.after.memory["taken"].tolist() for step in steps] == [[1, 1, 0], [2, 2, 0], [3, 2, 0], [4, 2, 0]]
    rest = list(walk(Chaos(), canvas, Counting(), steps=4, after=steps[1]))
    assert rest[-1].after.memory["taken"].tolist() == [4, 2, 0]


# --- the meter ---


@pytest.mark.parametrize(
    ("way", "guidance", "calls", "processed"),
    [
        ("plain", 0, 1, [7, 5]),
        ("plain", 1, 2, [14, 10]),
        ("prefix", 0, 1, [5, 3]),
        ("look", 0, 2, [12, 10]),
        ("shadow", 0, 2, [7 + 9, 5 + 7]),
        ("soft", 0, 1, [7, 5]),
    ],
)
def test_calls_and_tokens_are_metered_without_padding(way, guidance, calls, processed):
    spy, steps = one_step(way, block=2, reading=replace(READING, guidance=guidance))
    assert steps[0].calls == calls
    assert steps[0].processed.tolist() == processed
    assert sum(step.calls for step in steps) == len(spy.asked)


# --- where a walk ends, and how it goes on ---


def test_whatever_is_masked_after_the_last_step_takes_its_last_prediction():
    class Idle(Probe):
        def step(self, denoise, block, clock):
            denoise(block.tokens)
            return block

    (step,) = walk(Chaos(), fresh(4), Idle(), steps=1)
    assert torch.equal(step.after.tokens, step.predictions[-1].tokens)


def test_a_last_step_without_a_prediction_is_a_mistake_of_the_sampler():
    class Blind(Probe):
        def step(self, denoise, block, clock):
            return block

    with pytest.raises(AssertionError, match="without a prediction"):
        list(walk(Chaos(), fresh(4), Blind(), steps=1))


def test_a_stage_may_read_differently():
    @dataclass(frozen=True, repr=False)
    class Phased(Probe):
        def stages(self, length, steps, block=None):
            return [Stage(self, 0, 2, 1, {"temperature": 5.0}), Stage(self, 2, 4, 1)]

    def answer(temperature: float) -> list[int]:
        reading = replace(READING, temperature=temperature, eos="none")
        return responses(list(walk(Chaos(), fresh(4, seed=1), Phased(), steps=2, reading=reading)))[-1][0]

    assert answer(0.0)[:2] == answer(5.0)[:2]
    assert answer(0.0)[2:] != answer(5.0)[2:]


def test_without_a_reading_the_samplers_own_policy_holds():
    @dataclass(frozen=True, repr=False)
    class Adaptive(Probe):
        eos = "none"

    seen = []

    class Told(Adaptive):
        def step(self, denoise, block, clock):
            seen.append(denoise.reading)
            return super().step(denoise, block, clock)

    list(walk(Chaos(), fresh(4), Told(), steps=1))
    assert seen == [Reading(eos="none")]


def test_rows_that_are_done_cost_no_calls():
    canvas = pin(fresh(4, [[1], [2], [3]]), {(1, 0): 5, (1, 1): 6, (2, 0): 7, (2, 1): 7, (2, 2): 7, (2, 3): 7})
    spy = Spy()
    steps = list(walk(spy, canvas, Unmask(), steps=4, reading=replace(READING, eos="none")))
    assert [step.rows.tolist() for step in steps] == [[0, 1], [0, 1], [0], [0]]
    assert [len(asked["tokens"]) for asked in spy.asked] == [2, 2, 1, 1]
    assert steps[-1].result.response.ne(MASK).all()


def test_a_stage_ends_early_when_all_rows_are_done():
    canvas = pin(fresh(4), {(0, 0): 5, (0, 1): 5, (0, 2): 5})
    spy = Spy()
    assert len(list(walk(spy, canvas, Unmask(), steps=4, reading=replace(READING, eos="none")))) == 1
    assert len(spy.asked) == 1


def test_nothing_left_to_write_takes_no_step():
    canvas = pin(fresh(2), {(0, 0): 5, (0, 1): 6})
    assert list(walk(Chaos(), canvas, D3IM(), steps=2)) == []


def test_the_given_canvas_is_never_written_to():
    canvas = fresh(4)
    list(walk(Chaos(), canvas, D3IM(), steps=4))
    assert canvas.response.eq(MASK).all()


def test_a_walk_goes_on_from_an_edited_step():
    steps = list(walk(Chaos(), fresh(6), Unmask(), steps=6))
    edited = steps[2].after.tokens.clone()
    edited[0, 0] = 9
    go_on = list(
        walk(
            Chaos(), fresh(6), Unmask(), steps=6, after=steps[2]._replace(after=replace(steps[2].after, tokens=edited))
        )
    )
    assert len(go_on) <= 3
    assert all(response[0][0] == 9 for response in responses(go_on))
    assert MASK not in responses(go_on)[-1][0]


@pytest.mark.parametrize("notation", ["d3im", "d3im(t2m=False)"])
def test_more_visible_than_the_schedule_wants_is_demoted_only_by_what_may_demote(notation):
    """An edit may reveal ahead of the schedule."""
    from redraft.samplers import parse

    canvas, sampler = fresh(6), parse(notation)
    first = next(walk(Chaos(), canvas, sampler, steps=6))
    ahead = first._replace(after=replace(first.after, tokens=torch.tensor([[1, 2, 3, 4, MASK, MASK]])))
    second = next(walk(Chaos(), canvas, sampler, steps=6, after=ahead))
    assert second.after.visible.sum() == (2 if sampler.t2m else 4)


def test_a_call_budget_stops_a_walk_that_can_go_on():
    whole = list(walk(Chaos(), fresh(8), D3IM(), steps=8, block=4))
    parts, last = [], None
    for _ in range(8):
        part = list(walk(Chaos(), fresh(8), D3IM(), steps=8, block=4, after=last, max_calls=3))
        parts += part
        if not part:
            break
        assert len(part) <= 3
        last = part[-1]
    assert responses(parts) == responses(whole)


def test_guided_calls_count_twice_against_the_budget():
    reading = replace(READING, guidance=1.0)
    assert len(list(walk(Chaos(), fresh(8), D3IM(), steps=8, reading=reading, max_calls=4))) == 2
