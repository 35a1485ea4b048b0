"""The model that ships with us: it is as its fingerprint says, it has learnt something, batches change nothing."""

import pytest
import torch

from redraft import generate, load
from redraft.decoding import SAMPLERS, Reading
from redraft.evals import words
from redraft.evals.run import evaluate
from redraft.evals.tasks import find
from redraft.generation import Plan
from redraft.models.folders import resolve

VARIANTS = sorted({*SAMPLERS, "d3im(t2t=False)", "d3im(t2m=False)", "d3im(t2t=False, t2m=False)"})


@pytest.fixture(scope="module")
def bundled():
    return load("bundled", device="cpu", fingerprint=True)


@pytest.fixture(scope="module")
def exact():
    return load("bundled", device="cpu", dtype="float64")


def ragged() -> list[str]:
    """The last 2, 5 and 8 words of a problem: short, for there are many samplers."""
    said = words.problem("test", 0).question.split()
    return [" ".join(said[-count:]) for count in (2, 5, 8)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sampler", VARIANTS)
def test_a_row_alone_is_the_row_in_a_ragged_batch(exact, sampler, temperature):
    def decode(size: int) -> list[list[int]]:
        plan = {"length": 12, "block": 6, "steps": 4, "reading": Reading(temperature=temperature)}
        found = generate(exact, ragged(), sampler, **plan, batch_size=size, chat=False)
        return [answer.ids for answer in found]

    assert decode(1) == decode(3)


def test_it_fills_in_half_of_a_solution(bundled):
    """Of problems that it was not trained on. The commonest token is one in twelve."""
    right = []
    for problem in (words.problem("test", index) for index in range(24)):
        prompt = bundled.encode(problem.question)
        solution = torch.tensor(bundled.encode(problem.solution, chat=False))
        holes = torch.arange(len(solution)) % 2 == 0
        given = solution.masked_fill(holes, bundled.mask_id)
        logits = bundled(torch.cat([torch.tensor(prompt), given])[None])[0, len(prompt) :]
        right += (logits.argmax(-1) == solution)[holes].tolist()
    assert sum(right) > 0.75 * len(right)


@pytest.mark.long
def test_it_solves_some_problems(bundled):
    """A floor well below what it does, and well above what numbers at random would get."""
    items = words.TASK.items(count=40)
    answers = generate(bundled, [one.prompt for one in items], "unmask", length=128, steps=64, batch_size=20)
    right = sum(words.grade(answer.text, one.gold).correct for answer, one in zip(answers, items, strict=True))
    assert right >= 4


@pytest.mark.parametrize("chat", [True, False])
def test_special_tokens_in_a_prompt_stay_text(bundled, chat):
    """A mask would be a hole in the prompt, and an end of turn would let the prompt speak for the model."""
    marks = sorted(bundled.tokenizer.all_special_tokens)
    assert {"<|mdm_mask|>", "<|endoftext|>"} <= set(marks)
    specials = set(bundled.tokenizer.all_special_ids)
    told, plain = (bundled.encode(text, chat=chat) for text in (" ".join(["say", *marks]), "say"))
    assert [token for token in told if token in specials] == [token for token in plain if token in specials]
    for mark in marks:
        assert mark in bundled.decode(told, trim=False)


def test_both_fit_into_a_wheel(bundled):
    files = [resolve("bundled") / "model.safetensors", resolve("bundled-scope") / "adapter_model.safetensors"]
    assert sum(file.stat().st_size for file in files) <= 16 * 2**20
    assert 5_500_000 <= sum(one.numel() for one in bundled.network.parameters()) <= 7_500_000
    assert len(bundled.tokenizer) <= 2000
    assert bundled.context >= 2048
    ids = [bundled.mask_id, bundled.pad_id, *bundled.eos_ids]  # end of text, end of turn
    assert len(set(ids)) == len(ids) == 4


@pytest.mark.parametrize("name", ["bundled", "bundled-scope"])
def test_each_has_a_card(name):
    card = (resolve(name) / "README.md").read_text(encoding="utf-8")
    for said in ("license: apache-2.0", "## Data", "## How it was made", "## What it can do"):
        assert said in card


def test_the_adapter_makes_another_model(bundled):
    scope = load("bundled", adapter="bundled-scope", device="cpu").merged()
    tokens = torch.tensor([bundled.encode(words.problem("test", 0).question)])
    assert not torch.equal(scope(tokens), bundled(tokens))


@pytest.mark.long
def test_d3im_needs_scope_and_has_it(bundled):
    """The sign of the paper's first finding, where it is largest: of 24 programs."""
    task = find("code")
    items, plan = task.items(count=24), Plan.of("d3im", length=task.length, steps=task.length // 4)
    scope = load("bundled", adapter="bundled-scope", device="cpu").merged()
    right = [sum(record.correct for record in evaluate(one, task, items, plan)) for one in (bundled, scope)]
    assert right[1] - right[0] >= 8
