"""Logits to candidates and confidences: against brute force in plain Python, and against what LLaDA's code computes."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fakes import EOS, MASK, ORDINARY, READING, VOCABULARY
from redraft.decoding import Reading, predict, top
from redraft.decoding.noise import counter_uniform
from redraft.decoding.reading import log_probability

EOT = EOS[1]


def noise(stream: str, size: tuple[int, ...]) -> torch.Tensor:
    return counter_uniform(torch.tensor([5]), (len(stream),), size)


def read(logits: torch.Tensor, *, final: bool = False, **options):
    """The prediction for one row of logits [w, v], the row dimension taken off again."""
    reading = replace(READING, **{"dtype": "float64", "eos": "none", **options})
    found = predict(logits[None], reading, mask_id=MASK, final=torch.tensor([[final]]), noise=noise)
    return found._replace(tokens=found.tokens[0], confidence=found.confidence[0], vetoed=found.vetoed[0])


def random_logits(seed: int = 0, positions: int = 40, scale: float = 3.0, eos: float = 0.0) -> torch.Tensor:
    logits = scale * torch.randn(positions, VOCABULARY, generator=torch.Generator().manual_seed(seed)).double()
    logits[:, list(EOS)] += eos
    return logits


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(z - max(logits)) for z in logits]
    return [weight / sum(weights) for weight in weights]


def without(logits: list[float], *banned: int) -> list[float]:
    return [-math.inf if token in banned else z for token, z in enumerate(logits)]


def argmax(values: list[float]) -> int:
    return values.index(max(values))


# --- ranking measures ---


def probability(p: list[float], token: int) -> float:
    return math.log(p[token])


def margin(p: list[float], token: int) -> float:
    best_other = max(q for other, q in enumerate(p) if other != token)
    return -math.log(1 - (p[token] - best_other))


def entropy(p: list[float], token: int) -> float:
    return sum(q * math.log(q) for q in p if q > 0)


@pytest.mark.parametrize("measure", [probability, margin, entropy])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_confidence_against_brute_force(measure, scale):
    logits = random_logits(scale=scale)
    found = read(logits, rank=measure.__name__)
    for row, token, confidence in zip(logits.tolist(), found.tokens.tolist(), found.confidence.tolist(), strict=True):
        p = softmax(without(row, MASK))
        assert token == argmax(p)
        assert confidence == pytest.approx(measure(p, token), rel=1e-9)


@pytest.mark.parametrize("measure", [probability, margin, entropy])
def test_any_token_can_be_scored_on_the_same_scale(measure):
    logits, ids = random_logits(), torch.arange(40) % 12
    found = read(logits, rank=measure.__name__)
    scores = found.score(ids[None])[0].tolist()
    expected = [
        measure(softmax(without(z, MASK)), token) for z, token in zip(logits.tolist(), ids.tolist(), strict=True)
    ]
    assert scores == pytest.approx(expected, rel=1e-9)
    assert torch.equal(found.score(found.tokens[None])[0], found.confidence)


def test_random_rank_is_a_lottery_that_ignores_the_logits():
    one, other = (read(random_logits(seed), rank="random").confidence for seed in (0, 1))
    assert torch.equal(one, other)
    assert len(set(one.tolist())) == 40
    assert one.min() > 0
    assert one.max() < 1


@pytest.mark.parametrize("rank", ["probability", "margin"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_near_certainty_does_not_saturate(rank, dtype):
    leads = [0.5 * number for number in range(1, 120)]  # of the first token over eleven others: p from .13 to 1 - 1e-25
    logits = torch.full((len(leads), VOCABULARY), -torch.inf, dtype=getattr(torch, dtype))
    logits[:, : len(ORDINARY)] = 0
    logits[:, 0] = torch.tensor(leads)
    confidence = read(logits, rank=rank, dtype=dtype).confidence
    assert (confidence.diff() > 0).all()
    closed_form = {
        "probability": [-math.log1p(11 * math.exp(-lead)) for lead in leads],
        "margin": [lead - math.log(12) + math.log1p(11 * math.exp(-lead)) for lead in leads],
    }
    assert confidence.tolist() == pytest.approx(closed_form[rank], rel=1e-5, abs=1e-6 if rank == "margin" else 0)


def test_an_overwhelming_margin_is_finite():
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 3] = 1000.0
    assert read(logits, rank="margin", dtype="float32").confidence.isfinite().all()


def test_entropy_of_a_certain_position_is_0():
    logits = torch.full((1, VOCABULARY), -torch.inf)
    logits[0, 3] = 1.0
    assert read(logits, rank="entropy").confidence.item() == 0


# --- precision (methods 0.3 and 9.7) ---


def test_bfloat16_ties_what_log_p_tells_apart():
    logits = torch.zeros(2, 2, dtype=torch.float64)
    logits[:, 0] = torch.tensor([0.9990, 0.9985], dtype=torch.float64).logit()
    reading = Reading(forbid_mask=False)
    final = torch.tensor([[True]])

    def confidence(dtype):
        return predict(logits[None].float(), replace(reading, dtype=dtype), mask_id=0, final=final, noise=noise)[1][0]

    assert confidence("bfloat16").unique().numel() == 1
    for dtype in ("float32", "float64"):
        assert confidence(dtype)[0] > confidence(dtype)[1]
        assert confidence(dtype).exp().tolist() == pytest.approx([0.9990, 0.9985], rel=1e-6)


def test_float32_log_p_keeps_confidences_apart_where_other_formulas_round_them_together():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, 500, generator=generator)
    logits[:, 0] = 5 + 15 * torch.rand(2000, generator=generator) + logits[:, 1:].amax(-1)
    logits = logits.bfloat16().float()  # what a bfloat16 model hands over
    exact = logits.double().log_softmax(-1)[:, 0]

    def lost(values: torch.Tensor) -> float:
        return 1 - values.unique().numel() / exact.unique().numel()

    ours = log_probability(logits[None], torch.zeros(1, 2000, dtype=torch.int64))[0]
    assert lost(ours) < 0.001
    assert lost((logits.amax(-1) - logits.logsumexp(-1)).exp()) > 0.05
    assert lost(logits.bfloat16().softmax(-1)[:, 0]) > 0.5
    assert ours.double().tolist() == pytest.approx(exact.tolist(), rel=1e-5)
    ranked = exact[ours.argsort()]  # float32 may swap what differs by a rounding, and nothing else
    assert (ranked.diff() >= -1e-5 * ranked[1:].abs()).all()


def test_arithmetic_is_at_least_as_precise_as_the_logits():
    assert read(random_logits(), dtype="float32").confidence.dtype == torch.float64
    assert read(random_logits().float(), dtype="float32").confidence.dtype == torch.float32
    assert read(random_logits().bfloat16(), dtype="float32").confidence.dtype == torch.float32


# --- end tokens ---


def test_none_lets_end_tokens_compete():
    logits = random_logits(eos=6)
    found = read(logits, eos="none")
    assert found.tokens.tolist() == [argmax(without(row, MASK)) for row in logits.tolist()]
    assert not found.vetoed.any()
    assert found.confidence.isfinite().all()


@pytest.mark.parametrize(("overflow", "floor"), [("strict", -math.inf), ("fill", torch.finfo(torch.float64).min)])
def test_confidence_policy_vetoes_end_tokens_before_the_last_step(overflow, floor):
    logits = random_logits(eos=3)
    plain, found = read(logits), read(logits, eos="confidence", overflow=overflow)
    ends = [token in EOS for token in plain.tokens.tolist()]
    assert True in ends
    assert False in ends
    assert torch.equal(found.tokens, plain.tokens)  # the candidate stays what it was
    assert found.vetoed.tolist() == ends
    expected = [floor if end else c for end, c in zip(ends, plain.confidence.tolist(), strict=True)]
    assert found.confidence.tolist() == expected


def test_confidence_policy_allows_end_tokens_at_the_last_step():
    logits = random_logits(eos=3)
    plain, found = read(logits), read(logits, eos="confidence", final=True)
    assert torch.equal(found.confidence, plain.confidence)
    assert not found.vetoed.any()


def test_fill_ranks_vetoed_positions_last_lowest_first_and_strict_not_at_all():
    """Methods 2.7: t=3, K=3, candidates A,E,E,E: strict keeps one token, fill keeps A and two E."""
    logits = torch.zeros(4, VOCABULARY).double()
    logits[0, 1] = 2
    logits[1:, EOS[0]] = torch.tensor([5.0, 7.0, 9.0]).double()

    def kept(overflow):
        found = read(logits, eos="confidence", overflow=overflow)
        return top(found.confidence[None], 3, torch.ones(1, 4, dtype=torch.bool)).tolist()

    assert kept("strict") == [[True, False, False, False]]
    assert kept("fill") == [[True, True, True, False]]


@pytest.mark.parametrize(
    ("eos", "final", "banned"),
    [
        ("logit_nonfinal", False, EOS),
        ("logit_nonfinal", True, ()),
        ("logit_all", False, EOS),
        ("logit_all", True, EOS),
        ("llada_logits", False, EOS[:1]),
        ("llada_logits", True, EOS[:1]),
    ],
)
def test_logit_policies_renormalise_without_the_banned(eos, final, banned):
    logits = random_logits(eos=3)
    found = read(logits, eos=eos, final=final)
    for row, token, confidence in zip(logits.tolist(), found.tokens.tolist(), found.confidence.tolist(), strict=True):
        p = softmax(without(row, MASK, *banned))
        assert token == argmax(p)
        assert confidence == pytest.approx(math.log(p[token]), rel=1e-9)
    assert set(found.tokens.tolist()) & set(EOS) == set(EOS) - set(banned)


def llada_flags(z: list[float], noised: list[float], *, logits_eos_inf: bool, confidence_eos_eot_inf: bool):
    """What LLaDA's `generate.py` (commit b7e6c35) makes of one position: candidate and probability.

    At temperature 0 its noised logits are the logits themselves, so that what it writes to the one it writes to both.
    """
    if logits_eos_inf:
        z[EOS[0]] = -math.inf
    token = argmax(noised)
    if confidence_eos_eot_inf:
        noised[EOS[0]] = -math.inf
        z[EOT] = -math.inf
    return token, softmax(z)[token]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("eos", ["llada_logits", "llada_confidence", "llada_both"])
def test_llada_flags_as_its_code_computes_them(eos, temperature):
    """Methods 5.1 quirk 1 and 9.15."""
    logits = random_logits(eos=3)
    found = read(logits, eos=eos, temperature=temperature, forbid_mask=False)
    gumbel = -(-(1 - noise("gumbel", (40, VOCABULARY))[0].double()).log()).log()
    flags = {"logits_eos_inf": eos != "llada_confidence", "confidence_eos_eot_inf": eos != "llada_logits"}
    impossible = 0
    for row, g, token, confidence in zip(logits, gumbel, found.tokens.tolist(), found.confidence.tolist(), strict=True):
        z = row.tolist()
        noised = z if temperature == 0 else (row + temperature * g).tolist()
        if temperature > 0 and flags["logits_eos_inf"]:
            noised[EOS[0]] = -math.inf  # there the ban comes before the copy
        expected, p = llada_flags(z, noised, **flags)
        assert token == expected
        impossible += p == 0
        if p > 0:
            assert math.exp(confidence) == pytest.approx(p, rel=1e-5)
        else:  # an end token of probability 0: last in the order, yet not out of it
            assert confidence == torch.finfo(torch.float64).min
    assert (impossible > 0) == flags["confidence_eos_eot_inf"]


def test_llada_confidence_at_a_temperature_spares_end_of_text():
    logits = random_logits(eos=8)
    cold, warm = read(logits, eos="llada_confidence"), read(logits, eos="llada_confidence", temperature=0.01)
    lowest = torch.finfo(torch.float64).min
    assert (cold.confidence[(cold.tokens == EOS[0]) | (cold.tokens == EOT)] == lowest).all()
    assert (warm.confidence[warm.tokens == EOT] == lowest).all()
    assert (warm.confidence[warm.tokens == EOS[0]] > lowest).all()
    assert {EOS[0], EOT} <= set(warm.tokens.tolist())


# --- the mask ---


def test_the_mask_is_never_predicted_unless_allowed():
    logits = random_logits()
    logits[:, MASK] = 20
    assert MASK not in read(logits).tokens
    assert set(read(logits, forbid_mask=False).tokens.tolist()) == {MASK}


@pytest.mark.parametrize(
    "eos", ["none", "confidence", "logit_nonfinal", "logit_all", "llada_confidence", "llada_logits", "llada_both"]
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_given_logits_are_never_written_to(eos, temperature):
    logits = random_logits()
    before = logits.clone()
    read(logits, eos=eos, temperature=temperature)
    assert torch.equal(logits, before)


# --- temperature ---


def test_temperature_0_is_argmax_first_of_equals():
    logits = torch.tensor([[1.0, 3, 3, 2]]).double()
    found = predict(logits[None], Reading(), mask_id=3, final=torch.tensor([[False]]), noise=noise)
    assert found.tokens.tolist() == [[1]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampled_tokens_follow_the_tempered_softmax(temperature):
    count = 20_000
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5, 99.0]).double()
    reading = Reading(temperature=temperature)

    def draw(stream, size):
        return counter_uniform(torch.arange(count), (0,), size)

    rows = logits.expand(count, 1, 6)
    found = predict(rows, reading, mask_id=5, final=torch.zeros(count, 1, dtype=torch.bool), noise=draw)
    counts = torch.bincount(found.tokens.flatten(), minlength=6)[:5].tolist()
    expected = [count * p for p in softmax([z / temperature for z in logits[:5].tolist()])]
    chi_square = sum((seen - e) ** 2 / e for seen, e in zip(counts, expected, strict=True))
    assert chi_square < 23.5  # 4 degrees of freedom, p = 0.0001


@given(st.integers(0, 10_000), st.sampled_from([0.1, 1.0, 3.0]))
def test_confidence_does_not_depend_on_temperature(seed, temperature):
    logits = random_logits(seed)
    cold, warm = read(logits), read(logits, temperature=temperature)
    assert torch.equal(warm.confidence, cold.score(warm.tokens[None])[0])


def test_probability_is_log_p_whatever_the_ranking_measure():
    logits, ids = random_logits(), torch.zeros(1, 40, dtype=torch.int64)
    expected = [math.log(softmax(without(row, MASK))[0]) for row in logits.tolist()]
    for rank in ("probability", "margin", "entropy", "random"):
        assert read(logits, rank=rank).probability(ids)[0].tolist() == pytest.approx(expected, rel=1e-9)


def test_a_forgotten_prediction_says_that_its_logits_are_gone():
    kept = read(random_logits()).forget()
    assert kept.logits is None
    with pytest.raises(AssertionError, match="keeps no logits"):
        kept.probability(kept.tokens[None])


# --- options ---


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rank", "confidence"),
        ("eos", "off"),
        ("overflow", "loose"),
        ("dtype", "float16"),
        ("temperature", -0.1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("guidance", -1),
        ("guidance", math.inf),
    ],
)
def test_invalid_options_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} is "):
        Reading(**{option: value})


# --- top ---


scores = st.lists(st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 3.0, math.inf]), min_size=1, max_size=9)


@given(scores, st.integers(0, 10), st.randoms())
def test_top_against_sorting(values, k, random):
    among = [random.random() < 0.7 for _ in values]
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    best = [i for i in order if among[i] and values[i] > -math.inf][:k]
    found = top(torch.tensor([values]), k, torch.tensor([among]))
    assert found[0].nonzero().flatten().tolist() == sorted(best)


def test_ties_go_to_the_lowest_position_however_many_there_are():
    found = top(torch.zeros(2, 5000), 1234, torch.ones(2, 5000, dtype=torch.bool))
    assert found[:, :1234].all()
    assert not found[:, 1234:].any()


def test_top_takes_a_k_for_each_row():
    values = torch.tensor([[1.0, 2, 3], [1.0, 2, 3]])
    found = top(values, torch.tensor([[1], [2]]), torch.ones(2, 3, dtype=torch.bool))
    assert found.tolist() == [[False, False, True], [False, True, True]]
