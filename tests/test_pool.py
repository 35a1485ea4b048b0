"""The pool of a small model's pretraining: rows as the model meets them, all different, for any number of processes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from redraft.train import pool, sums
from redraft.train.generated import Generated
from redraft.train.pretrain import first, masks, most_hidden, shares
from redraft.train.shape import untrained
from redraft.train.vocabulary import learn

TASKS = ("words", "algebra", "code")


@pytest.fixture(scope="module")
def model():
    made = Generated(TASKS)
    return untrained("tiny", learn((turn["content"] for n in range(600) for turn in made.messages(n)), size=700))


@pytest.fixture(scope="module")
def tokenizer_file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    model.tokenizer.backend_tokenizer.save(str(path))
    return path


def shelves(file, first, count, processes=1):
    return pool.conversations(file, TASKS, first, count, processes=processes, watch=lambda done: None)


def test_conversations_are_encoded_as_the_model_encodes_them(model):
    marks = pool.Marks.of(model.tokenizer.get_vocab())
    for number in range(60):
        *turns, last = Generated(TASKS).messages(number)
        prompt, answer = pool.encoded([*turns, last], model.tokenizer.backend_tokenizer, marks)
        assert prompt == model.encode(turns)
        assert model.decode(answer) == last["content"]


def test_rows_are_a_prompt_and_its_response_and_ends_of_text_behind_it(model, tokenizer_file):
    whole = []
    for shelf in shelves(tokenizer_file, 0, 200):
        assert not shelf.prose
        assert shelf.tokens.shape[1] % pool.STEP == 0
        for row, start in zip(shelf.tokens, shelf.start, strict=True):
            assert row[0] == model.tokenizer.bos_token_id
            assert "assistant" in model.tokenizer.decode(row[start - 20 : start])
            answer = row[start:].tolist()
            ended = answer.index(model.tokenizer.convert_tokens_to_ids("<|eot_id|>"))
            assert model.decode(answer[:ended])
            assert set(answer[ended + 1 :]) <= {model.eos_ids[0]}
            whole.append(len(answer) >= pool.RESPONSE)
            assert whole[-1] or len(answer) - ended - 1 < pool.STEP
    assert 0.2 < np.mean(whole) < 0.6


def test_every_conversation_is_another_one(tokenizer_file, monkeypatch):
    monkeypatch.setattr(pool, "CHUNK", 50)  # several workers' jobs
    rows = [row.tobytes() for shelf in shelves(tokenizer_file, 0, 400) for row in shelf.tokens]
    assert len(rows) == 400
    assert len(set(rows)) >= 398  # a short problem may come up twice


def test_the_next_conversations_are_new(tokenizer_file):
    first, second = (
        {row.tobytes() for shelf in shelves(tokenizer_file, begin, 100) for row in shelf.tokens} for begin in (0, 100)
    )
    assert len(first & second) <= 1


def test_processes_do_not_change_the_pool(tokenizer_file, monkeypatch):
    monkeypatch.setattr(pool, "CHUNK", 30)
    for one, two in zip(shelves(tokenizer_file, 0, 90), shelves(tokenizer_file, 0, 90, processes=2), strict=True):
        np.testing.assert_array_equal(one.tokens, two.tokens)
        np.testing.assert_array_equal(one.start, two.start)


def test_prose_is_cut_into_rows_with_ends_of_text_between_documents(model):
    shelf = pool.prose(iter(["one two three. " * 20, "four five six. " * 20]), model.tokenizer, width=32)
    assert shelf.prose
    assert not shelf.start.any()
    assert (shelf.tokens == model.eos_ids[0]).sum() >= 1
    with pytest.raises(ValueError, match="fewer than one row of 4096"):
        pool.prose(iter(["short"]), model.tokenizer, width=4096)


def test_prose_has_its_share_and_the_rest_goes_by_size():
    def shelf(rows, width, *, prose=False):
        return pool.Shelf(np.zeros((rows, width)), np.zeros(rows), prose)

    drawn = shares([shelf(10, 100), shelf(30, 100), shelf(5, 256, prose=True)], 0.2)
    assert drawn == pytest.approx([0.2, 0.6, 0.2])
    assert shares([shelf(10, 100)], 0.2) == [1.0]


def test_masks_are_uniform_rates_and_never_none():
    start = torch.arange(4000) % 60
    hidden = masks(torch.arange(4000), start, 124)
    assert not (hidden & (torch.arange(124) < start[:, None])).any()
    assert hidden.sum(-1).min() >= 1
    hidden = masks(torch.arange(4000), torch.zeros(4000, dtype=torch.long), 64).double()
    rates = hidden.mean(-1)
    assert float(rates.mean()) == pytest.approx(0.5, abs=0.02)
    assert float((rates < 0.1).double().mean()) == pytest.approx(0.1, abs=0.02)


def test_sums_are_right_and_as_large_as_the_tasks():
    for number in range(500):
        made = sums.problem("train", number)
        worked = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)\.", made.solution)
        assert worked
        for left, sign, right, result in worked:
            a, b, c = int(left), int(right), int(result)
            assert c == {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]
            assert max(a, b, c) <= sums.MOST
        assert made.gold == int(worked[-1][-1])
    assert sums.problem("train", 7) == sums.problem("train", 7)


def test_hidden_positions_come_first_and_all_of_them_are_among_so_many():
    for rows, width in ((1, 40), (32, 2048), (500, 128)):
        hidden = masks(torch.arange(rows), torch.zeros(rows, dtype=torch.long), width)
        found = first(hidden, most_hidden(rows, width))
        assert int(hidden.sum()) <= len(found) <= rows * width
        assert torch.equal(found[: int(hidden.sum())], hidden.flatten().nonzero().squeeze(-1))
        assert len(found.unique()) == len(found)
