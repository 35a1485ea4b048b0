"""Training data: what becomes of a document, in which order, and that an interruption changes nothing."""

import json
import random
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from redraft.models import Model
from redraft.models.standin import COMPACT_IDS, random_dream, random_llada
from redraft.train import files
from redraft.train.data import Packed, State, batches, collate, open_source

MODEL = random_llada()
BOS, EOS, MASK, HEADER, HEADER_END, EOT = COMPACT_IDS.values()
TEXTS = [f"document {i}: " + "abc " * (i % 7) for i in range(40)]
PAIRS = [{"prompt": f"{i}+{i}?", "response": "x" * (i % 9)} for i in range(30)]


def plain(text):
    return MODEL.tokenizer(text, add_special_tokens=False)["input_ids"]


def packed(source, **options):
    source = open_source(source) if not hasattr(source, "reader") else source
    return Packed(source, MODEL, **{"length": 64, "shuffle": 8, "repeat": False} | options)


def contents(stream, count=None):
    """(tokens, prompt, index) of the next examples, of all if no count is given."""
    taken = list(stream) if count is None else stream.take(count)
    return [(one.tokens.tolist(), one.prompt, one.index) for one in taken]


def tokens(stream):
    return [ids for ids, _, _ in contents(stream)]


def write_lines(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def saved(state: State) -> State:
    """As a checkpoint keeps it: JSON text, and arrays through safetensors."""
    from safetensors.numpy import load, save

    return State(json.loads(json.dumps(state.json)), load(save(state.arrays)))


# --- packing ---


def test_documents_are_put_end_to_end_and_cut_and_the_tail_is_dropped():
    flat = [i for text in TEXTS for i in [*plain(text), EOS]]
    stream = packed(TEXTS, length=50, shuffle=1)
    examples = contents(stream)
    assert [ids for ids, _, _ in examples] == [flat[at : at + 50] for at in range(0, len(flat) - 49, 50)]
    assert {prompt for _, prompt, _ in examples} == {0}
    assert stream.counts["dropped_tokens"] == len(flat) % 50 > 0
    assert stream.counts["documents"] == len(TEXTS)


def test_a_document_longer_than_an_example_loses_nothing():
    text = "".join(map(chr, range(97, 117))) * 13
    assert tokens(packed([text], length=20, shuffle=1)) == [plain(text)[at : at + 20] for at in range(0, 260, 20)]


def test_empty_documents_leave_no_trace():
    stream = packed(["", "a" * 40, "  \n", "b" * 40], length=41, shuffle=1)
    assert tokens(stream) == [[*plain("a" * 40), EOS], [*plain("b" * 40), EOS]]
    assert stream.counts["empty"] == 2


def test_text_of_special_tokens_stays_text():
    smuggled = "a<|mdm_mask|><|endoftext|>b<|eot_id|>"
    (example,) = tokens(packed([smuggled], length=len(smuggled) + 1))
    assert MODEL.tokenizer.decode(example[:-1]) == smuggled
    assert not {MASK, EOS, EOT} & set(example[:-1])
    record = {"prompt": smuggled, "response": smuggled}
    (example,) = contents(packed([record], length=256, pad_loss=False))
    assert MASK not in example[0]
    assert example[0].count(EOT) == 2  # the end of the question, and of the answer
    assert MODEL.tokenizer.decode(example[0][example[1] : -1]) == smuggled


def with_start():
    """A model whose tokenizer puts a start token before a text."""
    from tokenizers.processors import TemplateProcessing

    model = random_llada()
    model.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|startoftext|> $A", special_tokens=[("<|startoftext|>", BOS)]
    )
    model = Model.of(model.network, model.tokenizer, "test")
    assert model.encode("a", chat=False) == [BOS, *plain("a")]
    return model


def test_what_the_tokenizer_puts_before_a_text_comes_once():
    record = {"prompt": "p", "response": "rr"}
    source = open_source(["ab", record])
    stream = Packed(source, with_start(), length=4, shuffle=1, repeat=False, chat=False, pad_loss=False)
    assert tokens(stream) == [[BOS, *plain("ab"), EOS], [BOS, *plain("prr")]]


def test_a_long_file_has_one_start_and_one_end_also_when_interrupted_inside(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIECE", 5)
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    (tmp_path / "b.txt").write_text("six\n")
    whole = [BOS, *plain("one\ntwo\nthree\nfour\nfive\n"), EOS, BOS, *plain("six\n"), EOS]
    model = with_start()

    def fresh():
        return Packed(open_source(tmp_path), model, length=2, shuffle=1, repeat=False)

    assert [i for ids in tokens(fresh()) for i in ids] == whole[: len(whole) // 2 * 2]
    for at in range(len(whole) // 2):
        stream, resumed = fresh(), fresh()
        stream.take(at)
        resumed.load_state_dict(saved(stream.state_dict()))
        assert [i for ids in tokens(resumed) for i in ids] == whole[2 * at : len(whole) // 2 * 2]


# --- prompts ---


def test_a_prompt_is_never_eligible_and_the_answer_is_closed_and_filled():
    prompt = MODEL.encode("1+1?")
    record = {"prompt": "1+1?", "response": "2"}
    whole = [*prompt, *plain("2"), EOT]

    def one(pad_loss):
        (example,) = contents(packed([record], pad_loss=pad_loss, length=128))
        assert example[1] == len(prompt)
        return example[0]

    assert one(False) == whole
    assert one(True) == whole + [EOS] * (128 - len(whole))
    assert one(16) == whole + [EOS] * (-(len(whole) - len(prompt)) % 16), "the response, not the whole"
    batch = collate(packed([record], pad_loss=16, length=128).take(1), pad_id=MODEL.pad_id)
    assert not batch.eligible[0, : len(prompt)].any()
    assert batch.eligible[0, len(prompt) :].all()
    assert batch.attend is None


def test_a_conversation_is_its_last_answer_after_all_before_it():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
    ]
    (example,) = contents(packed([{"messages": messages}], length=256, pad_loss=False))
    prompt = MODEL.encode(messages[:-1])
    assert example == ([*prompt, *plain("4"), EOT], len(prompt), 0)


def test_without_a_template_an_answer_ends_its_text():
    (example,) = contents(packed([{"prompt": "1+1", "response": "2"}], chat=False, pad_loss=False))
    assert example == ([*plain("1+12"), EOS], 3, 0)


def test_dream_ends_its_turn_too():
    dream = random_dream()
    record = {"prompt": "1+1", "response": "2"}
    (example,) = Packed(open_source([record]), dream, length=128, repeat=False, pad_loss=False).take(1)
    assert example.tokens.tolist() == [*dream.encode("1+1"), *plain("2"), dream.eos_ids[1]]


def test_too_long_samples_are_cut_at_the_end_of_the_response_or_left_out_and_counted():
    prompt = MODEL.encode("?")
    length = len(prompt) + 10
    records = [
        {"prompt": "?", "response": "r" * 9},  # fits with its end
        {"prompt": "?", "response": "s" * 10},  # does not
        {"prompt": "?", "response": "t" * 99},
        {"prompt": "?" * 11, "response": "u"},  # no room for a single token
        {"prompt": "?" * 10, "response": "v"},  # room for one
    ]
    stream = packed(records, length=length, shuffle=1)
    answers = [ids[prompt:] for ids, prompt, _ in contents(stream)]
    assert answers == [[*plain("r" * 9), EOT], plain("s" * 10), plain("t" * 10), plain("v")]
    assert (stream.counts["truncated"], stream.counts["refused"]) == (3, 1)


def test_columns_can_be_named():
    record = {"question": "q", "answer": "a", "text": "t" * 64}
    source = open_source([record], prompt_column="question", response_column="answer")
    assert contents(packed(source, chat=False, pad_loss=False)) == [([*plain("qa"), EOS], 1, 0)]
    assert tokens(packed(open_source([{"body": "t" * 64}], text_column="body"))) == [plain("t" * 64)]
    # What is asked for by name wins over what a record also has.
    both = {"messages": [], "prompt": "p", "response": "r", "text": "t" * 64}
    assert tokens(packed(open_source([both], text_column="text"))) == [plain("t" * 64)]


# --- order ---


def test_the_order_is_a_permutation_that_the_seed_decides():
    ordered, one, again, other = (
        tokens(packed(TEXTS, shuffle=shuffle, seed=seed, length=16))
        for shuffle, seed in [(1, 0), (8, 0), (8, 0), (8, 1)]
    )
    assert one == again
    assert sorted(one) == sorted(ordered) == sorted(other)
    assert len({str(ordered), str(one), str(other)}) == 3
    # A small buffer cannot bring an example forward by more than its size.
    assert all(ordered.index(ids) <= at + 7 for at, ids in enumerate(one) if ordered.count(ids) == 1)


def test_a_buffer_that_holds_all_can_put_any_example_first():
    firsts = {str(packed(TEXTS, shuffle=1000, seed=seed, length=16).take(1)[0].tokens) for seed in range(60)}
    assert len(firsts) > 25


def test_neighbours_in_the_data_are_seldom_neighbours_in_the_stream():
    texts = [f"{i:03}" for i in range(400)]
    order = [int(MODEL.tokenizer.decode(ids[:3])) for ids in tokens(packed(texts, length=4, shuffle=40))]
    assert sorted(order) == list(range(400))
    distances = [abs(after - before) for before, after in pairwise(order)]
    assert sum(distance <= 2 for distance in distances) < 60
    assert sum(distances) / len(distances) > 15


def test_finite_data_repeats_in_another_order():
    once = tokens(packed(TEXTS))
    stream = packed(TEXTS, repeat=True)
    first, second = ([ids for ids, _, _ in contents(stream, len(once))] for _ in range(2))
    assert first == once
    assert second != once
    assert sorted(second) == sorted(once)
    assert stream.epoch == 1
    assert stream.take(1)[0].index == 2 * len(once)
    assert stream.epoch == 2


def test_data_that_may_not_repeat_ends_with_a_sentence():
    stream = packed(TEXTS)
    total = len(tokens(packed(TEXTS)))
    stream.take(total - 1)
    with pytest.raises(ValueError, match=f"ended after {total} examples, 2 short"):
        stream.take(3)
    with pytest.raises(StopIteration):
        next(stream)


def test_data_without_a_single_example_is_refused_even_if_it_may_repeat():
    with pytest.raises(ValueError, match="2 documents hold 6 tokens, and one example is 64"):
        next(packed(["ab", "cd"], repeat=True))
    with pytest.raises(ValueError, match="prompt alone of each of its 1 samples"):
        next(packed([{"prompt": "p" * 64, "response": "r"}], repeat=True))
    with pytest.raises(ValueError, match="0 documents"):
        next(packed([], repeat=True))


def test_a_generator_serves_one_epoch_only():
    stream = packed((text for text in TEXTS), repeat=True)
    with pytest.raises(ValueError, match="give a list"):
        stream.take(1000)


def test_take_reads_no_example_too_many():
    stream = packed(TEXTS)
    assert [contents(stream, 2), contents(stream, 1)] == [
        contents(whole := packed(TEXTS), 2),
        contents(whole, 1),
    ]
    assert stream.take(0) == []
    assert stream.index == 3


# --- batches ---


def test_batches_of_any_size_hold_the_same_rows():
    """Batch size, and the rows beside it, change nothing about a row but its padding."""

    def rows(count):
        stream = packed(PAIRS, pad_loss=False, repeat=True)
        reader = batches(stream, first=0, count=count, pad_id=MODEL.pad_id)
        for batch in (next(reader) for _ in range(24 // count)):
            for row in range(count):
                end = int(batch.attend[row].sum()) if batch.attend is not None else batch.tokens.shape[1]
                assert not batch.eligible[row, end:].any()
                assert batch.attend is None or not batch.attend[row, end:].any()
                assert (batch.tokens[row, end:] == MODEL.pad_id).all()
                yield int(batch.indices[row]), batch.tokens[row, :end].tolist(), batch.eligible[row, :end].tolist()

    alone = list(rows(1))
    assert [index for index, _, _ in alone] == list(range(24))
    assert list(rows(3)) == list(rows(8)) == alone


def test_padding_is_not_heard():
    """The logits of a row do not depend on what it was padded for."""
    examples = packed(PAIRS, pad_loss=False, shuffle=1).take(9)
    batch = collate(examples, pad_id=MODEL.pad_id)
    assert batch.attend is not None
    assert not batch.attend.all()
    together = MODEL(batch.tokens, attend=batch.attend)
    for row, example in enumerate(examples):
        alone = collate([example], pad_id=MODEL.pad_id)
        assert alone.attend is None
        width = alone.tokens.shape[1]
        torch.testing.assert_close(together[row, :width], MODEL(alone.tokens)[0], atol=1e-5, rtol=0)


def test_batches_begin_at_a_global_index():
    def some(first, count, stream):
        reader = batches(stream, first=first, count=count, pad_id=0)
        return torch.cat([next(reader).indices for _ in range(2)]).tolist()

    stream = packed(TEXTS, repeat=True)
    assert some(3, 2, stream) == [3, 4, 5, 6]
    assert some(7, 1, stream) == [7, 8]
    with pytest.raises(ValueError, match="stands at example 9, behind 8"):
        some(8, 1, stream)


# --- exact to resume ---


def jsonl(folder):
    half = len(TEXTS) // 2
    write_lines(folder / "b.jsonl", [{"text": text} for text in TEXTS[half:]])
    write_lines(folder / "a.jsonl", [{"text": text} for text in TEXTS[:half]])
    return folder


def mixed(folder):
    jsonl(folder)
    write_lines(folder / "c.jsonl", PAIRS)
    (folder / "d.txt").write_text("line of prose\n" * 30, encoding="utf-8")
    (folder / "e.json").write_text(json.dumps([{"text": text} for text in TEXTS]), encoding="utf-8")
    (folder / "sub").mkdir(exist_ok=True)
    parquet(folder / "sub" / "f.parquet", [{"text": text} for text in TEXTS])
    return folder


def parquet(path, records, rows=7):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path, row_group_size=rows)
    return path


SOURCES = {
    "list": lambda folder: open_source([*TEXTS, *PAIRS]),
    "jsonl": lambda folder: open_source(jsonl(folder)),
    "mixed": lambda folder: open_source(str(mixed(folder))),
    "lines": lambda folder: open_source(mixed(folder), text_files="lines"),
    "streamed": lambda folder: open_source(jsonl(folder), streaming=True),
    "streamed parquet": lambda folder: open_source(f"hf:parquet:{parquet(folder / 'f.parquet', PAIRS)}"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_resumed_stream_goes_on_bit_by_bit(name, tmp_path, monkeypatch):
    """After any number of examples, through two epochs, and again from where the resumed one was interrupted."""
    monkeypatch.setattr(files, "PIECE", 100)  # so that a text file is several records

    def fresh():
        return packed(SOURCES[name](tmp_path), length=40, shuffle=5, repeat=True, pad_loss=8, seed=3)

    stream, states = fresh(), []
    expected = []
    while stream.epoch < 2:
        states.append(saved(stream.state_dict()))
        expected += contents(stream, 1)
    counts = stream.counts
    chosen = [0, 1, len(states) // 2 - 1, len(states) - 1, *random.Random(0).sample(range(len(states)), 6)]
    for at in [*chosen, next(at for at, state in enumerate(states) if state.json["epoch"] == 1)]:
        resumed = fresh()
        resumed.load_state_dict(states[at])
        half = (len(expected) - at) // 2
        went_on = contents(resumed, half)
        again = fresh()
        again.load_state_dict(saved(resumed.state_dict()))
        assert went_on + contents(again, len(expected) - at - half) == expected[at:]
        assert again.counts == counts


def test_two_streams_of_one_source_do_not_disturb_each_other(tmp_path):
    """A dataset keeps where it stands in itself."""
    source = open_source(jsonl(tmp_path), streaming=True)
    expected = contents(packed(source, shuffle=1))
    one, other = packed(source, shuffle=1), packed(source, shuffle=1)
    assert contents(one, 6) + contents(other, 1) == expected[:6] + expected[:1]
    states = [saved(stream.state_dict()) for stream in (one, other)]
    assert contents(one, 1) + contents(other, 2) == expected[6:7] + expected[1:3]
    states += [saved(stream.state_dict()) for stream in (one, other)]
    for state, at in zip(states, (6, 1, 7, 3), strict=True):
        resumed = packed(source, shuffle=1)
        resumed.load_state_dict(state)
        assert contents(resumed) == expected[at:]


def test_a_state_is_a_copy_and_small():
    stream = packed(TEXTS * 50, length=32, shuffle=16, repeat=True)
    stream.take(5)
    state = stream.state_dict()
    kept = json.dumps(state.json), {name: array.copy() for name, array in state.arrays.items()}
    expected = contents(stream, 200)
    assert json.dumps(state.json) == kept[0]
    assert all(np.array_equal(array, kept[1][name]) for name, array in state.arrays.items())
    assert len(kept[0]) < 600
    assert sum(array.nbytes for array in state.arrays.values()) < 16 * 32 * 4 + 2000
    stream.load_state_dict(state)
    assert contents(stream, 200) == expected


def test_a_state_may_come_back_as_tensors():
    stream = packed(TEXTS)
    stream.take(3)
    state = stream.state_dict()
    expected = contents(stream)
    again = packed(TEXTS)
    again.load_state_dict(State(state.json, {name: torch.from_numpy(part) for name, part in state.arrays.items()}))
    assert contents(again) == expected


def test_other_settings_and_other_data_are_no_resumption(tmp_path):
    stream = packed(jsonl(tmp_path))
    stream.take(2)
    state = stream.state_dict()
    with pytest.raises(ValueError, match=r"length was 64, now 32; seed was 0, now 1"):
        packed(tmp_path, length=32, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="pad_loss was True, now 1"):
        packed(tmp_path, pad_loss=1).load_state_dict(state)
    with pytest.raises(ValueError, match="not the data that the interrupted run was reading"):
        packed(TEXTS).load_state_dict(state)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"text": "one more"}\n')
    with pytest.raises(ValueError, match="not the data that the interrupted run was reading"):
        packed(tmp_path).load_state_dict(state)


def test_a_moved_folder_is_the_same_data(tmp_path):
    (tmp_path / "here").mkdir()
    stream = packed(jsonl(tmp_path / "here"))
    stream.take(2)
    state, expected = stream.state_dict(), contents(stream)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = packed(tmp_path / "there")
    moved.load_state_dict(state)
    assert contents(moved) == expected


def test_an_iterable_that_became_shorter_is_noticed():
    stream = packed(TEXTS, shuffle=1)
    stream.take(5)
    shorter = packed(TEXTS[:2], shuffle=1)
    shorter.load_state_dict(stream.state_dict())
    with pytest.raises(ValueError, match="the iterable ended after 2 documents"):
        list(shorter)


def test_a_failure_is_met_again_and_not_taken_for_the_end(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS])
    path.write_text(path.read_text() + "broken\n")
    stream = packed(path, shuffle=1, repeat=True)
    taken = 0
    for _ in range(3):
        with pytest.raises(ValueError, match="line 41"):  # noqa: PT012 (how many examples come first is counted)
            while True:
                next(stream)
                taken += 1
    assert taken == len(tokens(packed(TEXTS)))
    path.write_text(path.read_text().replace("broken\n", ""))
    next(stream)
    assert stream.epoch == 1


# --- files ---


def test_every_kind_of_file_gives_the_same_documents(tmp_path):
    records = [{"text": text} for text in TEXTS]
    (tmp_path / "list.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(records).encode())
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    kinds = [
        open_source(write_lines(tmp_path / "a.jsonl", records)),
        open_source(write_lines(tmp_path / "bare.jsonl", TEXTS)),
        open_source(write_lines(tmp_path / "lines.json", records)),
        open_source(tmp_path / "list.json"),
        open_source(tmp_path / "bom.json"),
        open_source(parquet(tmp_path / "a.parquet", records)),
        open_source(tmp_path / "lines.txt", text_files="lines"),
        open_source(tmp_path / "a.jsonl", streaming=True),
        open_source(f"hf:json:{tmp_path / 'list.json'}"),
        open_source(f"hf:parquet:{tmp_path / 'a.parquet'}"),
        open_source(f"hf:text:{tmp_path / 'lines.txt'}", text_files="lines"),
    ]
    expected = tokens(packed(TEXTS))
    for source in kinds:
        assert tokens(packed(source)) == expected, source.name


def test_streamed_records_of_several_kinds_are_what_they_are_in_the_file(tmp_path):
    """The datasets library makes one table of them, with None in the columns that a record lacks."""
    path = write_lines(tmp_path / "a.jsonl", [*({"text": text} for text in TEXTS), *PAIRS])
    assert contents(packed(open_source(path, streaming=True))) == contents(packed(path))


def test_blank_lines_windows_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "abc"}\r\n\r\n{"text": "\xe2\x98\x83"}')
    assert tokens(packed(path, length=8, shuffle=1)) == [[*plain("abc"), EOS, *plain("☃"), EOS]]
    (tmp_path / "a.txt").write_bytes(b"ab\r\ncd\r\n")
    assert tokens(packed(tmp_path / "a.txt", length=7)) == [[*plain("ab\ncd\n"), EOS]]


def test_a_text_file_is_one_document_however_long(tmp_path, monkeypatch):
    text = "".join(f"line {i}\n" for i in range(100))
    (tmp_path / "a.txt").write_text(text)
    whole = tokens(packed(tmp_path / "a.txt"))
    streamed = tokens(packed(open_source(f"hf:text:{tmp_path / 'a.txt'}")))
    monkeypatch.setattr(files, "PIECE", 30)
    stream = packed(tmp_path / "a.txt")
    assert tokens(stream) == whole == streamed == tokens(packed([text]))
    assert stream.counts["documents"] == 1


def test_a_folder_is_read_in_the_order_of_names_and_the_rest_ignored(tmp_path):
    (tmp_path / "z").mkdir()
    (tmp_path / ".git").mkdir()
    for name, text in [("b.txt", "bb"), ("z/a.txt", "dd"), ("c.jsonl", '"cc"'), ("A.TXT", "aa")]:
        (tmp_path / name).write_text(text)
    for name in ("README.md", ".hidden.txt", ".git/x.txt"):
        (tmp_path / name).write_text("no")
    assert tokens(packed(tmp_path, length=12)) == [
        [i for part in ("aa", "bb", "cc", "dd") for i in [*plain(part), EOS]]
    ]


def test_reads_without_datasets_and_says_what_needs_it(tmp_path, monkeypatch):
    parquet(tmp_path / "a.parquet", [{"text": "a"}])
    for library in ("datasets", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("t" * 63)
    (tmp_path / "data" / "b.json").write_text(json.dumps([{"text": "j" * 63}]))
    write_lines(tmp_path / "data" / "c.jsonl", [{"text": "l" * 63}])
    assert len(tokens(packed(tmp_path / "data"))) == 3
    for spec, streaming in [(tmp_path / "data" / "c.jsonl", True), ("hf:owner/name", None)]:
        with pytest.raises(ValueError, match=r"needs the datasets library, .* pip install 'redraft\[train\]'"):
            next(packed(open_source(spec, streaming=streaming)))
    with pytest.raises(ValueError, match=r"a\.parquet needs pyarrow"):
        next(packed(tmp_path / "a.parquet"))


BROKEN = {
    "malformed": (b'{"text": "a"}\n{"text": \n', r"line 2 of .*x\.jsonl is not JSON"),
    "cut off": (b'{"text": "a"}\n{"text": "b', r"line 2 of .*x\.jsonl is not JSON"),
    "not UTF-8": (b'{"text": "a"}\n{"text": "\xff"}\n', r"line 2 of .*x\.jsonl is not UTF-8: byte 0xff at column 11"),
    "a number": (b'{"text": "a"}\n\n3\n', r"line 3 of .*x\.jsonl is a JSON int"),
    "no text": (b'{"txt": "a"}\n', r"line 1 of .*x\.jsonl has no column 'text' \(did you mean 'txt'\?\); it has 'txt'"),
    "null": (b'{"text": null}\n', r"line 1 of .*x\.jsonl: 'text' is None"),
    "half a pair": (b'{"text": "\\ud83d"}\n', r"line 1 of .*x\.jsonl holds half of a surrogate pair"),
    "half a pair in a message": (
        b'{"messages": [{"role": "user", "content": "\\ud83d"}, {"role": "assistant", "content": "a"}]}\n',
        r"line 1 of .*x\.jsonl holds half of a surrogate pair",
    ),
    "no response": (b'{"prompt": "a"}\n', r"line 1 of .*x\.jsonl has no column 'text'"),
    "messages": (b'{"messages": [{"role": "user", "content": "a"}]}\n', r"line 1 of .*x\.jsonl: 'messages' must end"),
    "message": (
        b'{"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]}\n',
        r"line 1 of .*x\.jsonl: A message needs a role and a content",
    ),
    "deep": (b"[" * 200_000, r"x\.jsonl is not JSON"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named(name, tmp_path):
    content, message = BROKEN[name]
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(packed(path))


def test_broken_files_of_other_kinds_are_named(tmp_path):
    def fails(name, content, message, **options):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            list(packed(open_source(tmp_path / name, **options)))

    fails("x.json", b'[{"text": "a"},\n{"text": }]', r"line 2 of .*x\.json is not JSON")
    fails("y.json", b'[{"text": "a"}, 3]', r"entry 2 of .*y\.json is a int")
    fails("z.json", b'{\n "text": "a"\n}', r"line 1 of .*z\.json is not JSON .*one record a line")
    fails("x.parquet", b"not parquet", r"x\.parquet cannot be read as parquet past row 0")
    fails("x.txt", b"fine\n\xe9t\xe9\n", r"line 2 of .*x\.txt is not UTF-8: byte 0xe9 at column 1")
    # The datasets library names no line; our own reading of the same file does.
    for name, (content, message) in list(BROKEN.items())[:3]:
        fails("x.jsonl", content, message, streaming=True)
        assert name


@pytest.mark.parametrize("streaming", [False, True])
def test_a_file_that_vanishes_is_named(tmp_path, streaming):
    folder = jsonl(tmp_path)
    stream = packed(open_source(folder, streaming=streaming), shuffle=1, repeat=True)
    stream.take(1)
    (folder / "b.jsonl").unlink()
    with pytest.raises(ValueError, match=r"b\.jsonl"):
        stream.take(1000)
    stream = packed(open_source(folder, streaming=streaming))
    (folder / "a.jsonl").unlink()
    with pytest.raises(ValueError, match=r"cannot read .*a\.jsonl: No such file"):
        next(stream)


def test_a_path_with_brackets_is_a_path(tmp_path):
    folder = tmp_path / "run [1]*"
    folder.mkdir()
    write_lines(folder / "a.jsonl", [{"text": text} for text in TEXTS])
    assert tokens(packed(open_source(folder, streaming=True))) == tokens(packed(TEXTS))


# --- names of sources ---


def test_a_name_that_means_nothing_lists_what_is_possible(tmp_path):
    (tmp_path / "a.csv").write_text("a")
    (tmp_path / "empty").mkdir()
    for spec, message in [
        ("nowhere.jsonl", "no file or folder 'nowhere.jsonl'.* possible are hf:owner/name"),
        ("hf:", "possible are hf:owner/name"),
        ("hf:a/b/c/d/e", "possible are hf:owner/name"),
        ("hf:json:nowhere.jsonl", "no file or folder 'nowhere.jsonl'"),
        (tmp_path / "a.csv", r"those are \.jsonl, \.json, \.parquet, \.txt"),
        (tmp_path / "empty", r"holds none of the files that can be read: \.jsonl"),
        (b"bytes", "b'bytes' is no source of text; possible are"),
        ({"text": "a"}, "no source of text"),
    ]:
        with pytest.raises(ValueError, match=message):
            open_source(spec)
    with pytest.raises(ValueError, match="not both"):
        open_source(["a"], text_column="a", prompt_column="b")
    with pytest.raises(ValueError, match="one kind at a time"):
        open_source(mixed(tmp_path / "empty"), streaming=True)


def test_the_name_of_a_hub_dataset(monkeypatch):
    import datasets

    asked = []

    def load_dataset(**options):
        asked.append(options)
        return datasets.IterableDataset.from_generator(lambda: iter([{"text": "a" * 63}]))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for spec, expected in {
        "hf:HuggingFaceFW/fineweb-edu/sample-10BT": {"path": "HuggingFaceFW/fineweb-edu", "name": "sample-10BT"},
        "hf:openai/gsm8k/main:test": {"path": "openai/gsm8k", "name": "main", "split": "test"},
        "hf:a/b@main:validation": {"path": "a/b", "revision": "main", "split": "validation"},
        "hf:a/b": {"path": "a/b"},
    }.items():
        assert tokens(packed(spec)) == [[*plain("a" * 63), EOS]]
        assert asked.pop() == {"split": "train", "streaming": True} | expected


def test_no_network_is_one_sentence():
    with pytest.raises(ValueError, match=r"hf:nobody/nothing cannot be opened: .*needs a network"):
        next(packed("hf:nobody/nothing"))


def test_a_dataset_object_of_the_user(tmp_path):
    from datasets import Dataset, load_dataset

    records = [{"text": text} for text in TEXTS]
    path = write_lines(tmp_path / "a.jsonl", records)
    expected = tokens(packed(TEXTS))
    assert tokens(packed(Dataset.from_list(records))) == expected
    streamed = load_dataset("json", data_files=str(path), split="train", streaming=True)
    stream = packed(streamed.map(lambda record: {"text": record["text"]}))
    stream.take(4)
    state = saved(stream.state_dict())
    assert "dataset" in state.json["place"]
    again = packed(streamed.map(lambda record: {"text": record["text"]}))
    again.load_state_dict(state)
    assert tokens(again) == tokens(stream) == expected[4:]


def test_settings_that_cannot_be_are_refused():
    for options in ({"length": 1}, {"shuffle": 0}, {"pad_loss": -1}):
        with pytest.raises(ValueError, match="length is at least 2"):
            packed(TEXTS, **options)
