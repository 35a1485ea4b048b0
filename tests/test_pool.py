"""The pool of a small model's pretraining: rows as the model meets them, all different, for any number of processes."""

from __future__ import annotations

import numpy as np
import pytest

from redraft.train import pool
from redraft.train.generated import Generated
from redraft.train.pretrain import masks, shares
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


def test_rows_end_their_prompt_at_one_column_and_fill_their_response(model, tokenizer_file):
    for shelf in shelves(tokenizer_file, 0, 60):
        assert shelf.tokens.shape[1] == shelf.start + pool.RESPONSE
        for row, lead in zip(shelf.tokens, shelf.lead, strict=True):
            assert (row[:lead] == model.pad_id).all()
            assert row[lead] == model.tokenizer.bos_token_id
            assert model.decode(row[shelf.start :].tolist())  # some answer, and behind it nothing but ends of text
            assert row[-1] == model.eos_ids[0]


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
        assert one.start == two.start
        np.testing.assert_array_equal(one.tokens, two.tokens)
        np.testing.assert_array_equal(one.lead, two.lead)


def test_prose_is_cut_into_rows_with_ends_of_text_between_documents(model):
    shelf = pool.prose(iter(["one two three. " * 20, "four five six. " * 20]), model.tokenizer, width=32)
    assert shelf.start == 0
    assert (shelf.tokens == model.eos_ids[0]).sum() >= 1
    with pytest.raises(ValueError, match="fewer than one row of 4096"):
        pool.prose(iter(["short"]), model.tokenizer, width=4096)


def test_prose_has_its_share_and_the_rest_goes_by_size():
    def shelf(rows, width, start):
        return pool.Shelf(np.zeros((rows, width)), np.zeros(rows), start)

    drawn = shares([shelf(10, 100, 32), shelf(30, 100, 64), shelf(5, 256, 0)], 0.2)
    assert drawn == pytest.approx([0.2, 0.6, 0.2])
    assert shares([shelf(10, 100, 32)], 0.2) == [1.0]


def test_masks_are_uniform_rates_and_never_none():
    import torch

    hidden = masks(torch.arange(4000), 64).double()
    rates = hidden.mean(-1)
    assert hidden.sum(-1).min() >= 1
    assert float(rates.mean()) == pytest.approx(0.5, abs=0.02)
    assert float((rates < 0.1).double().mean()) == pytest.approx(0.1, abs=0.02)
