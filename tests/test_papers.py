"""D3IM and standard unmasking written out position by position in plain Python, against the vectorised samplers.

The oracles follow methods 2.2 (Yu et al., Algorithm 1 and appendix B.1) and 5.1 (LLaDA, `generate.py`). They share
nothing with the package: lists, `math`, and a model's logits.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, READING, Chaos, Script, fresh, responses
from redraft.decoding import walk
from redraft.samplers import D3IM, Unmask

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

CUMULATIVE = {  # methods 0.4
    "floor": lambda n, t, steps: math.floor(n * t / steps),
    "ceil": lambda n, t, steps: math.ceil(n * t / steps),
    "front": lambda n, t, steps: t * (n // steps) + min(t, n % steps),
    "late": lambda n, t, steps: t * (n // steps) + max(0, t - (steps - n % steps)),
}
LOWEST = -1e300  # the lowest finite score; -inf cannot be kept


def log_softmax(logits: list[float], banned: set[int]) -> list[float]:
    logits = [-math.inf if token in banned else z for token, z in enumerate(logits)]
    total = math.log(sum(math.exp(z - max(logits)) for z in logits))
    return [z - max(logits) - total for z in logits]


def best(scores: dict[int, float], k: int) -> list[int]:
    """The k highest above -inf, ties to the lowest position."""
    order = sorted(scores, key=lambda position: (-scores[position], position))
    return [position for position in order if scores[position] > -math.inf][:k]


def logits_of(model, canvas: list[int]) -> list[list[float]]:
    import torch

    return model(torch.tensor([canvas]))[0].tolist()


def d3im_by_hand(model, prompt, length, steps, block, *, t2t, t2m, visible_conf, schedule, eos, overflow):
    """Methods 2.2, with its numbering."""
    x = [*prompt, *[MASK] * length]
    each = steps // (length // block)
    history = []
    for k in range(length // block):
        window = range(len(prompt) + k * block, len(prompt) + (k + 1) * block)
        for t in range(1, each + 1):
            final = t == each
            z = logits_of(model, x)  # 1
            banned = {MASK}  # 2
            if eos == "logit_all" or (eos == "logit_nonfinal" and not final):
                banned |= set(EOS)
            y, s = {}, {}
            for i in window:
                log_p = log_softmax(z[i], banned)
                a = log_p.index(max(log_p))  # 3
                y[i] = a if t2t or x[i] == MASK else x[i]  # 4
                s[i] = log_p[y[i]]
                judged = y[i]
                if visible_conf == "max":  # the position's confidence is that of its top-1 candidate, veto included
                    s[i], judged = max(log_p), a
                if eos == "confidence" and not final and judged in EOS:  # 5
                    if x[i] != MASK and not t2m:
                        y[i] = x[i]
                    else:
                        s[i] = LOWEST if overflow == "fill" else -math.inf
                if not t2m and x[i] != MASK:  # 7
                    s[i] = math.inf
            keep = list(window) if final else best(s, CUMULATIVE[schedule](block, t, each))  # 6, 8
            for i in window:  # 9
                x[i] = y[i] if i in keep else MASK
            history.append(x[len(prompt) :])
    return history


def unmask_by_hand(model, prompt, length, steps, block, *, schedule, eos, overflow):
    """Methods 5.1, with LLaDA's two flags at temperature 0 (quirk 1) and our policies."""
    x = [*prompt, *[MASK] * length]
    each = steps // (length // block)
    history = []
    for k in range(length // block):
        window = range(len(prompt) + k * block, len(prompt) + (k + 1) * block)
        for t in range(1, each + 1):
            final = t == each
            z = logits_of(model, x)
            banned = {MASK}
            if eos == "logit_all" or (eos == "logit_nonfinal" and not final):
                banned |= set(EOS)
            if eos == "llada_logits":
                banned.add(EOS[0])
            x0, s = {}, {}
            for i in window:
                if x[i] != MASK:
                    continue
                log_p = log_softmax(z[i], banned)
                x0[i] = log_p.index(max(log_p))
                if eos == "llada_confidence":
                    log_p = log_softmax(z[i], banned | set(EOS))
                s[i] = max(log_p[x0[i]], LOWEST)
                if eos == "confidence" and not final and x0[i] in EOS:
                    s[i] = LOWEST if overflow == "fill" else -math.inf
            more = CUMULATIVE[schedule](block, t, each) - CUMULATIVE[schedule](block, t - 1, each)
            for i in best(s, more):
                x[i] = x0[i]
            if final:  # whatever a strict veto held back (the paper's final-step accept)
                x = [x0[i] if i in x0 and x[i] == MASK else token for i, token in enumerate(x)]
            history.append(x[len(prompt) :])
    return history


@st.composite
def cases(draw, revises: bool = True):
    block, blocks = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    each = draw(st.integers(1, block + 3 if revises else block))
    model = Chaos(
        draw(st.integers(0, 10**6)),
        preserve=draw(st.sampled_from([0.0, 2.0, 5.0])),
        eos=draw(st.sampled_from([0.0, 1.0, 3.0])),
    )
    prompt = draw(st.lists(st.integers(0, 11), max_size=3))
    policies = [
        "none",
        "confidence",
        "logit_nonfinal",
        "logit_all",
        *([] if revises else ["llada_logits", "llada_confidence"]),
    ]
    options = {
        "schedule": draw(st.sampled_from([*CUMULATIVE])),
        "eos": draw(st.sampled_from(policies)),
        "overflow": draw(st.sampled_from(["strict", "fill"])),
    }
    return model, prompt, block * blocks, each * blocks, block, options


def decode(model, prompt, length, steps, block, sampler, eos, overflow):
    reading = replace(READING, eos=eos, overflow=overflow)
    taken = walk(model, fresh(length, [prompt]), sampler, steps=steps, block=block, reading=reading)
    return [response[0] for response in responses(list(taken))]


@pytest.mark.parametrize("visible_conf", ["kept", "max"])
@pytest.mark.parametrize("t2m", [True, False])
@pytest.mark.parametrize("t2t", [True, False])
@settings(max_examples=30)
@given(case=cases())
def test_d3im(case, t2t, t2m, visible_conf):
    model, prompt, length, steps, block, options = case
    if not (t2t or t2m):
        steps = min(steps, length)  # it reveals only, so that more steps are refused
    flags = {"t2t": t2t, "t2m": t2m, "visible_conf": visible_conf}
    sampler = D3IM(schedule=options["schedule"], **flags)
    ours = decode(model, prompt, length, steps, block, sampler, options["eos"], options["overflow"])
    assert ours == d3im_by_hand(model, prompt, length, steps, block, **options, **flags)


@settings(max_examples=100)
@given(cases(revises=False))
def test_unmask(case):
    model, prompt, length, steps, block, options = case
    sampler = Unmask(schedule=options["schedule"])
    ours = decode(model, prompt, length, steps, block, sampler, options["eos"], options["overflow"])
    theirs = unmask_by_hand(model, prompt, length, steps, block, **options)
    assert ours == theirs[: len(ours)]
    assert ours[-1] == theirs[-1]


# --- the worked example, methods 2.7 ---

A, B, C, E = 0, 1, 2, EOS[0]
LETTERS = {A: "A", B: "B", C: "C", E: "E", MASK: "_"}
SCRIPT = [
    [{A: 0.9}, {B: 0.6}, {C: 0.5}, {E: 0.99}],
    [{B: 0.7, A: 0.2}, {B: 0.8}, {C: 0.5}, {E: 0.99}],
    [{C: 0.3}, {B: 0.9}, {A: 0.6}, {A: 0.5}],
    [{C: 0.9}, {C: 0.9}, {A: 0.9}, {E: 0.9}],
]


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (D3IM(), ["A___", "BB__", "_BAA", "CCAE"]),
        (D3IM(t2m=False), ["A___", "BB__", "CBA_", "CCAE"]),
        (D3IM(t2t=False, t2m=False), ["A___", "AB__", "ABA_", "ABAE"]),
        (Unmask(), ["A___", "AB__", "ABA_", "ABAE"]),
        (D3IM(t2t=False), ["A___", "_BC_"]),
        (D3IM(t2t=False, visible_conf="max"), ["A___", "AB__"]),
    ],
    ids=repr,
)
def test_the_worked_example(sampler, expected):
    taken = walk(Script(SCRIPT, start=3), fresh(4), sampler, steps=4, reading=READING)
    spelt = ["".join(LETTERS.get(token, "?") for token in response[0]) for response in responses(list(taken))]
    assert spelt[: len(expected)] == expected
