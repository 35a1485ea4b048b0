"""Masks and commits: counts, sets, what the self-prediction sees, and where the errors among commits come from."""

import math
from dataclasses import dataclass, field

import pytest
import torch

from fakes import MASK, VOCABULARY, Chaos, Spy
from redraft.decoding import derive
from redraft.train.batch import Batch
from redraft.train.corrupt import hide, mask_rates, mask_rows, self_commit
from redraft.train.recipes import Scope


def full(tokens, first=0):
    """A batch in which everything may be masked."""
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), None, torch.arange(first, first + len(tokens)))


def seeds_of(rows, seed=0):
    return torch.tensor([derive(seed, row) for row in range(rows)])


@dataclass
class Opinion:
    """A half-trained denoiser: the truth has the largest logit, by `strength` times a number of each position."""

    truth: torch.Tensor
    strength: float = 4.0
    size: int = VOCABULARY
    asked: list = field(default_factory=list)

    def __call__(self, tokens, *, attend=None, positions=None, columns=slice(None)):
        self.asked.append(tokens.clone())
        logits = torch.zeros(*tokens.shape, self.size, dtype=torch.float64)
        lead = self.strength * (1 + torch.arange(tokens.shape[1]).double() / tokens.shape[1])
        return logits.scatter(-1, self.truth[..., None], lead[None, :, None].expand(len(tokens), -1, 1))[:, columns]


TRUTH = torch.arange(6 * 50).reshape(6, 50) % 12
ALL = torch.ones_like(TRUTH, dtype=torch.bool)


# --- masks ---


def test_masks_are_bernoulli_at_each_rows_rate():
    batch = full(torch.zeros(4, 20_000, dtype=torch.int64))
    rates = torch.tensor([0.1, 0.35, 0.5, 0.9], dtype=torch.float64)
    hidden = mask_rows(batch, rates, seeds_of(4))
    deviation = (rates * (1 - rates) / 20_000).sqrt()
    assert ((hidden.double().mean(-1) - rates).abs() < 4 * deviation).all()
    assert hidden[1].roll(1).logical_and(hidden[1]).double().mean() == pytest.approx(0.35**2, abs=0.02)


def test_rates_are_clamped_draws_one_a_row():
    batch = full(torch.zeros(3000, 1, dtype=torch.int64))
    rates = mask_rates(batch, "beta(2,2)", seeds_of(3000))
    assert float(rates.min()) == 0.1
    assert float(rates.max()) == 0.9
    assert float(rates.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(((rates == 0.1) | (rates == 0.9)).double().mean()) == pytest.approx(0.056, abs=0.015)
    assert set(mask_rates(batch, 0.01, seeds_of(3000)).tolist()) == {0.1}


def test_exact_masks_have_the_rounded_count():
    batch = full(torch.zeros(3, 10, dtype=torch.int64))
    eligible = batch.eligible.clone()
    eligible[2, 3:] = False
    batch = batch._replace(eligible=eligible)
    hidden = mask_rows(batch, torch.tensor([0.3, 0.86, 0.1], dtype=torch.float64), seeds_of(3), exact=True)
    assert hidden.sum(-1).tolist() == [3, 9, 1]  # the last is round(0.3), but never none
    assert not (hidden & ~eligible).any()


def test_at_least_one_is_masked_and_any_position_may_be_it():
    batch = full(torch.zeros(4000, 4, dtype=torch.int64))
    nothing = torch.zeros(4000, dtype=torch.float64)
    hidden = mask_rows(batch, nothing, seeds_of(4000))
    assert (hidden.sum(-1) == 1).all()
    assert (hidden.sum(0) - 1000).abs().max() < 5 * math.sqrt(4000 * 0.25 * 0.75)
    assert not mask_rows(batch, nothing, seeds_of(4000), at_least_one=False).any()


def test_prompts_and_padding_are_never_masked():
    eligible = torch.zeros(200, 30, dtype=torch.bool)
    eligible[:, 7:21] = True
    batch = full(torch.zeros(200, 30, dtype=torch.int64))._replace(eligible=eligible)
    hidden = hide(batch, "beta(2,2)", seeds_of(200))
    assert not (hidden & ~eligible).any()
    assert hidden.any(-1).all()


def test_a_row_with_nothing_to_mask_is_refused():
    batch = full(TRUTH, first=40)
    eligible = batch.eligible.clone()
    eligible[2] = False
    with pytest.raises(ValueError, match=r"\[42\] have no position that may be masked"):
        hide(batch._replace(eligible=eligible), "beta(2,2)", seeds_of(6))


def test_same_seed_same_masks_in_any_layout_order_and_padding():
    seeds = seeds_of(6)
    together = hide(full(TRUTH), "beta(2,2)", seeds)
    for row in range(6):
        alone = full(TRUTH[row : row + 1])
        assert torch.equal(hide(alone, "beta(2,2)", seeds[row : row + 1])[0], together[row])
    order = torch.tensor([3, 1, 5])
    assert torch.equal(hide(full(TRUTH[order]), "beta(2,2)", seeds[order]), together[order])
    padded = full(torch.nn.functional.pad(TRUTH, (0, 9)))
    padded.eligible[:, 50:] = False
    assert torch.equal(hide(padded, "beta(2,2)", seeds)[:, :50], together)
    assert not torch.equal(hide(full(TRUTH), "beta(2,2)", seeds_of(6, seed=1)), together)


# --- commits ---


def commit(hidden=ALL, denoiser=None, tokens=TRUTH, seed=0, temperature=None, step=0, steps=None, **options):
    denoiser = Opinion(tokens) if denoiser is None else denoiser
    recipe = Scope(**options)
    return self_commit(
        denoiser,
        tokens,
        hidden,
        MASK,
        recipe=recipe,
        seeds=seeds_of(len(tokens), seed),
        step=step,
        steps=steps,
        temperature=temperature,
    )


def some_hidden(counts):
    hidden = torch.zeros(len(counts), 50, dtype=torch.bool)
    for row, count in enumerate(counts):
        hidden[row, torch.randperm(50, generator=torch.Generator().manual_seed(row))[:count]] = True
    return hidden


def test_how_many_are_committed():
    draft = commit(some_hidden([7, 3, 1, 10, 50, 20]))
    assert draft.committed.sum(-1).tolist() == [2, 1, 1, 3, 15, 6]
    hundred = torch.zeros(1, 100, dtype=torch.int64)
    assert int(commit(hundred == 0, tokens=hundred, share=0.29).committed.sum()) == 29  # 28.999999999999996 in float64
    assert commit(some_hidden([7, 3, 1, 10, 50, 20]), share=0.0).committed.sum(-1).tolist() == [1] * 6
    assert commit(some_hidden([7, 3, 1, 10, 50, 20]), share=1.0).masked.sum() == 0
    assert commit(some_hidden([7, 0, 1, 10, 50, 20])).committed.sum(-1).tolist() == [2, 0, 1, 3, 15, 6]


@pytest.mark.parametrize("options", [{}, {"commit": "random"}, {"rounds": 3}, {"context": "clean"}], ids=str)
def test_a_draft_is_the_truth_off_the_mask_and_its_sets_are_disjoint(options):
    hidden = some_hidden([7, 3, 1, 10, 50, 20])
    draft = commit(hidden, Chaos(), **options)
    assert not (draft.committed & ~hidden).any()
    assert not (draft.committed & draft.masked).any()
    assert torch.equal(draft.committed | draft.masked, hidden)
    assert torch.equal(draft.tokens[~hidden], TRUTH[~hidden])
    assert (draft.tokens[draft.masked] == MASK).all()
    assert (draft.tokens[draft.committed] != MASK).all()
    assert torch.equal(draft.wrong, draft.committed & (draft.tokens != TRUTH))
    assert draft.wrong.any()


def test_the_surest_positions_are_committed():
    draft = commit(some_hidden([20] * 6))  # `Opinion` is surer further right
    for row in range(6):
        assert draft.committed[row].nonzero().min() > draft.masked[row].nonzero().max()
    hidden = some_hidden([20] * 6)
    random = commit(hidden, commit="random")
    assert random.committed.sum(-1).tolist() == [6] * 6
    assert not torch.equal(random.committed, draft.committed)
    ranks = torch.where(hidden, hidden.cumsum(-1), 0)[random.committed].double()
    assert float(ranks.mean()) == pytest.approx(10.5, abs=4)  # anywhere among the 20


def test_confidence_is_that_of_the_position_not_of_the_sampled_token():
    """Methods S2: p_max = .99 and 1,000 others; at temperature 1.5 a third of the samples are among the others. Were
    they ranked by their own probability, none would be committed."""
    tokens = torch.zeros(4, 400, dtype=torch.int64)
    lead = math.log(0.99 / (0.01 / 1000))
    powers = 0.99 ** (1 / 1.5), 1000 * (0.01 / 1000) ** (1 / 1.5)
    expected = powers[1] / sum(powers)
    assert expected == pytest.approx(0.32, abs=0.01)

    def flat_opinion(tokens, **context):
        logits = torch.zeros(*tokens.shape, 1002, dtype=torch.float64)
        logits[..., 0] = lead
        return logits

    draft = self_commit(
        flat_opinion, tokens, torch.ones_like(tokens, dtype=torch.bool), 1001, recipe=Scope(), seeds=seeds_of(4)
    )
    rate = float(draft.wrong.sum() / draft.committed.sum())
    assert rate == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 480))


def test_samples_follow_the_tempered_distribution():
    logits = torch.linspace(0, 3, VOCABULARY).double()
    tokens = torch.zeros(8, 500, dtype=torch.int64)

    def same_everywhere(tokens, **context):
        return logits.expand(*tokens.shape, -1)

    draft = self_commit(
        same_everywhere,
        tokens,
        torch.ones_like(tokens, dtype=torch.bool),
        MASK,
        recipe=Scope(share=1.0, temperature=2.0),
        seeds=seeds_of(8),
    )
    wanted = (logits / 2).index_fill(0, torch.tensor(MASK), -torch.inf).softmax(0) * 4000
    counts = torch.bincount(draft.tokens.flatten(), minlength=VOCABULARY)
    assert counts[MASK] == 0
    likely = wanted > 0
    chi_square = float(((counts - wanted)[likely] ** 2 / wanted[likely]).sum())
    assert chi_square < 14 + 5 * math.sqrt(2 * 14)


def test_errors_among_commits_rise_with_temperature():
    rates = []
    for temperature in (0.0, 1.0, 1.5, 2.0):
        draft = commit(temperature=temperature)
        rates.append(float(draft.wrong.sum() / draft.committed.sum()))
    assert rates[0] == 0
    assert rates == sorted(rates)
    assert rates[3] > rates[2] + 0.05 > rates[1] + 0.1


def test_temperature_0_takes_the_most_probable_token():
    draft = commit(denoiser=Chaos(), temperature=0.0)
    seen = torch.full_like(TRUTH, MASK)
    logits = Chaos()(seen)
    logits[..., MASK] = -torch.inf
    assert torch.equal(draft.tokens[draft.committed], logits.argmax(-1)[draft.committed])
    log_p = logits.log_softmax(-1).amax(-1)
    for row in range(len(TRUTH)):
        assert log_p[row][draft.committed[row]].min() >= log_p[row][draft.masked[row]].max()


def test_what_the_self_prediction_sees():
    hidden = some_hidden([20] * 6)
    spy = Spy()
    commit(hidden, spy)
    (asked,) = spy.asked
    assert torch.equal(asked["tokens"], TRUTH.masked_fill(hidden, MASK))
    spy = Spy()
    draft = commit(hidden, spy, context="clean")
    assert torch.equal(spy.asked[0]["tokens"], TRUTH)
    assert (draft.tokens[draft.masked] == MASK).all()


def test_each_round_sees_the_commits_before_it():
    hidden = some_hidden([20, 7, 3, 50, 1, 10])
    spy = Spy()
    draft = commit(hidden, spy, rounds=4)
    assert draft.committed.sum(-1).tolist() == [6, 2, 1, 15, 1, 3]
    canvases = [asked["tokens"] for asked in spy.asked]
    visible = [((canvas != MASK) & hidden).sum(-1).tolist() for canvas in canvases]
    assert visible == [
        [0, 0, 0, 0, 0, 0],
        [1, 0, 0, 3, 0, 0],
        [3, 1, 0, 7, 0, 1],
        [4, 1, 0, 11, 0, 2],
    ]  # floor(K t / 4)
    for earlier, later in zip(canvases, [*canvases[1:], draft.tokens], strict=True):
        stays = earlier != MASK
        assert torch.equal(earlier[stays], later[stays])
    assert torch.equal(commit(hidden, Chaos(), rounds=1).tokens, commit(hidden, Chaos()).tokens)


def test_each_round_draws_anew():
    """A model that hears nothing commits the same positions in any number of rounds; only the first draws agree."""
    one, two = (commit(denoiser=Chaos(deaf=True), rounds=rounds) for rounds in (1, 2))
    assert torch.equal(one.committed, two.committed)
    same = (one.tokens == two.tokens)[one.committed].double().mean()
    assert 0.4 < float(same) < 0.9


def test_rounds_without_commits_cost_nothing_unless_in_lockstep():
    hidden = some_hidden([3] * 6)  # one commit each, in the last of five rounds
    for lockstep, calls in ((False, 1), (True, 5)):
        spy = Spy()
        draft = self_commit(spy, TRUTH, hidden, MASK, recipe=Scope(rounds=5), seeds=seeds_of(6), lockstep=lockstep)
        assert len(spy.asked) == calls
        assert draft.committed.sum(-1).tolist() == [1] * 6


def test_shares_may_be_drawn_or_follow_the_steps():
    tokens = torch.zeros(300, 100, dtype=torch.int64)
    hidden = tokens == 0

    def shares(share, **at):
        return commit(hidden, Chaos(deaf=True), tokens, share=share, **at).committed.double().mean(-1)

    wide, narrow = shares("uniform(0.1,0.8)"), shares("uniform(0.2,0.4)")
    assert wide.min() >= 0.1
    assert wide.max() <= 0.8
    assert float(wide.mean()) == pytest.approx(0.45, abs=0.04)
    assert narrow.min() >= 0.19
    assert narrow.max() <= 0.4
    assert set(shares("linear(0.1,0.8)", step=0, steps=8).tolist()) == {0.1}
    assert set(shares("linear(0.1,0.8)", step=7, steps=8).tolist()) == {0.8}
    with pytest.raises(ValueError, match="how many steps"):
        shares("linear(0.1,0.8)")


def test_commits_are_the_same_alone_in_any_chunk_and_differ_between_seeds():
    hidden, recipe, seeds = some_hidden([20, 7, 3, 50, 1, 10]), Scope(rounds=2), seeds_of(6)
    together = self_commit(Chaos(), TRUTH, hidden, MASK, recipe=recipe, seeds=seeds)
    chunked = self_commit(Chaos(), TRUTH, hidden, MASK, recipe=recipe, seeds=seeds, chunk=7)
    assert all(torch.equal(one, other) for one, other in zip(together, chunked, strict=True))
    for row in range(6):
        one = slice(row, row + 1)
        alone = self_commit(Chaos(), TRUTH[one], hidden[one], MASK, recipe=recipe, seeds=seeds[one])
        assert torch.equal(alone.tokens, together.tokens[one])
    other = self_commit(Chaos(), TRUTH, hidden, MASK, recipe=recipe, seeds=seeds_of(6, seed=1))
    assert not torch.equal(other.tokens, together.tokens)
