"""Canvas and block: what lies where, and what may be written."""

import pytest
import torch

from fakes import EOS, MASK, PAD, fresh, pin
from redraft.decoding import Block, Canvas
from redraft.decoding.canvas import map_memory


def a_block(memory=None) -> Block:
    tokens = torch.tensor([[1, MASK, 2, MASK], [MASK, MASK, 3, 4]])
    active = torch.tensor([[True, True, False, False], [True, True, True, True]])
    return Block(tokens, active, MASK, torch.tensor([10, 11]), memory)


def test_prompts_are_padded_on_the_left_so_that_answers_start_together():
    canvas = fresh(3, [[1, 2, 3], [4], []])
    assert canvas.tokens.tolist() == [
        [1, 2, 3, MASK, MASK, MASK],
        [PAD, PAD, 4, MASK, MASK, MASK],
        [PAD, PAD, PAD, MASK, MASK, MASK],
    ]
    assert canvas.attend.sum(-1).tolist() == [6, 4, 3]
    assert (canvas.start, canvas.length) == (3, 3)


def test_positions_count_from_a_rows_own_first_token():
    canvas = fresh(2, [[1, 2, 3], [4]])
    assert canvas.positions.tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]


def test_nothing_padded_needs_no_attention_mask():
    canvas = fresh(2, [[1, 2], [3, 4]])
    assert canvas.attend is None
    assert canvas.positions is None


def test_a_prompt_that_holds_the_mask_is_still_a_prompt():
    canvas = fresh(2, [[1, MASK, 2]])
    assert canvas.given.tolist() == [[True, True, True, False, False]]
    assert canvas.window(canvas.start, 5).masked.tolist() == [[True, True]]


def test_pinned_positions_are_given_and_not_active():
    canvas = pin(fresh(3, [[1]]), {(0, 1): 7})
    assert canvas.given.tolist() == [[True, False, True, False]]
    assert canvas.window(1, 4).active.tolist() == [[True, False, True]]


def test_place_writes_a_copy():
    canvas = fresh(4, [[1, 2]])
    block = canvas.window(3, 5)
    placed = canvas.place(block.write(torch.tensor([[8, 9]])), 3)
    assert placed.tokens.tolist() == [[1, 2, MASK, 8, 9, MASK]]
    assert canvas.response.eq(MASK).all()


def test_rows_of_a_canvas():
    canvas = pin(fresh(2, [[1, 2], [3], []]), {(2, 0): 5})
    chosen = canvas.rows(torch.tensor([2, 0]))
    assert chosen.tokens.tolist() == [[PAD, PAD, 5, MASK], [1, 2, MASK, MASK]]
    assert chosen.seeds.tolist() == canvas.seeds[[2, 0]].tolist()
    assert chosen.attend.tolist() == canvas.attend[[2, 0]].tolist()
    assert chosen.pinned.tolist() == canvas.pinned[[2, 0]].tolist()


def test_masked_and_visible_are_active():
    block = a_block()
    assert block.masked.tolist() == [[False, True, False, False], [True, True, False, False]]
    assert block.visible.tolist() == [[True, False, False, False], [False, False, True, True]]


def test_write_touches_active_positions_only():
    written = a_block().write(torch.full((2, 4), 9))
    assert written.tokens.tolist() == [[9, 9, 2, MASK], [9, 9, 9, 9]]


def test_write_keeps_what_was_remembered_unless_told_otherwise():
    block = a_block(memory=torch.zeros(2, 4))
    assert block.write(block.tokens).memory is block.memory
    assert block.write(block.tokens, memory=torch.ones(2, 4)).memory.eq(1).all()


def test_rows_and_put_rows_are_inverse():
    memory = {"age": torch.arange(8).view(2, 4), "pair": (torch.arange(2), torch.ones(2, 3))}
    block, index = a_block(memory), torch.tensor([1])
    back = block.put_rows(index, block.rows(index))
    assert torch.equal(back.tokens, block.tokens)
    assert torch.equal(back.memory["age"], memory["age"])
    changed = block.put_rows(index, block.rows(index).write(torch.full((1, 4), 5), {**block.rows(index).memory}))
    assert changed.tokens.tolist() == [[1, MASK, 2, MASK], [5, 5, 5, 5]]
    assert block.tokens[1, 0] == MASK


def test_memory_may_be_nested_tuples_and_dicts_and_nothing_else():
    doubled = map_memory(lambda x: 2 * x, {"a": (torch.ones(1), torch.ones(2))})
    assert [part.sum().item() for part in doubled["a"]] == [2, 4]
    assert map_memory(lambda x: x, None) is None
    with pytest.raises(AssertionError, match="memory is tensors"):
        map_memory(lambda x: x, [torch.ones(1)])


def test_one_seed_a_prompt():
    with pytest.raises(AssertionError, match="one seed"):
        Canvas.of([[1], [2]], 4, mask_id=MASK, pad_id=EOS[0], seeds=[0])
