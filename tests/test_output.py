"""Answers on disk: whole lines whatever happens, one run a file, in order, under their name only when complete."""

import io
import json

import pytest

from redraft.output import AnswerFile

RUN = {"model": "bundled", "seed": 0, "prompts": ["a", "b", "ü\u2028"]}


def record(index):
    return {"index": index, "text": f"ä\u2028\n{index}"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.jsonl"


@pytest.fixture
def part(tmp_path):
    return tmp_path / "x.jsonl.part"


def interrupted(path, *indices, run=RUN):
    file = AnswerFile(path, run)
    for index in indices:
        file.add(record(index))
    file.close()


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


class FullDisk(io.RawIOBase):
    def writable(self):
        return True

    def write(self, content):
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_named_and_a_run_that_answered_nothing_leaves_nothing(path, part):
    file = AnswerFile(path, RUN)
    file._file.close()
    file._file = io.TextIOWrapper(io.BufferedWriter(FullDisk()))
    with pytest.raises(OSError, match="No space left on device") as refused:
        file.add(record(0))
    assert refused.value.filename == str(part)
    file.close()
    assert not part.exists()


def test_a_whole_run_is_in_order_and_alone(path, tmp_path):
    file = AnswerFile(path, RUN)
    for index in (2, 0, 1):
        file.add(record(index))
        assert not path.exists()
    file.finish()
    file.close()
    assert lines(path) == [record(0), record(1), record(2)]
    assert list(tmp_path.iterdir()) == [path]


def test_every_answer_is_on_disk_at_once(path, part):
    file = AnswerFile(path, RUN)
    for count, index in enumerate((4, 2, 7), start=1):
        file.add(record(index))
        assert len(lines(part)) == 1 + count
    file.close()
    assert lines(part) == [{"run": RUN}, record(4), record(2), record(7)]


def test_a_run_goes_on(path, tmp_path):
    interrupted(path, 0, 2)
    file = AnswerFile(path, RUN)
    assert file.finished == {0: record(0), 2: record(2)}
    file.add({"index": 2, "text": "another answer"})  # what is there stays
    file.add(record(1))
    file.finish()
    assert lines(path) == [record(0), record(1), record(2)]
    assert list(tmp_path.iterdir()) == [path]


def test_wherever_a_kill_cuts_the_file_it_goes_on(path, part, tmp_path):
    interrupted(path, 0, 1)
    whole = part.read_bytes()
    ends = [at for at, byte in enumerate(whole, start=1) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        part.write_bytes(whole[:cut])
        file = AnswerFile(path, RUN)
        assert sorted(file.finished) == list(range(max(0, sum(end <= cut for end in ends) - 1)))
        for index in range(3):
            file.add(record(index))
        assert lines(part) == [{"run": RUN}, record(0), record(1), record(2)]
        file.close()
    assert list(tmp_path.iterdir()) == [part]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"prompts": ["a"]}, "prompts"),
        ({"new": None, "model": "x"}, "model"),
        ({"new": 1}, "new"),
    ],
)
def test_other_settings_are_never_mixed_in(path, part, other, named):
    interrupted(path, 0)
    before = part.read_bytes()
    with pytest.raises(
        ValueError, match=rf"x.jsonl.part is an unfinished run with other settings .*{named}.*--overwrite"
    ):
        AnswerFile(path, RUN | other)
    assert part.read_bytes() == before


def test_overwrite_starts_anew(path, part):
    interrupted(path, 0)
    path.write_text("old")
    file = AnswerFile(path, RUN | {"seed": 1}, overwrite=True)
    assert file.finished == {}
    assert path.read_text() == "old", "the old file stays until the new one is whole"
    file.add(record(0))
    file.finish()
    assert lines(path) == [record(0)]
    assert not part.exists()


def test_a_finished_file_is_not_touched(path, tmp_path):
    path.write_text("old")
    with pytest.raises(ValueError, match=r"x.jsonl exists: .*--overwrite"):
        AnswerFile(path, RUN)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_without_answers_leaves_nothing(path, tmp_path):
    interrupted(path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_at_the_end_loses_nothing(path, part, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    file = AnswerFile(path, RUN)
    file.add(record(0))
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        file.finish()
    file.close()
    assert list(tmp_path.iterdir()) == [part]
    assert lines(part) == [{"run": RUN}, record(0)]
