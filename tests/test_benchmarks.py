"""Where the problems come from: the published files by their checksums, other files, the hub."""

import gzip
import json
import subprocess
import sys

import pytest

from published import DATA, needs_data, rows
from redraft.evals import benchmarks
from redraft.evals.benchmarks import GSM8K, HUMANEVAL, MATH500, MBPP, first
from redraft.evals.tasks import find

QUESTIONS = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(3)]


def written(path, found):
    content = "".join(json.dumps(row) + "\n" for row in found).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@needs_data
@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        (GSM8K, {"test": 1319, "train": 7473}),
        (MATH500, {"test": 500}),
        (HUMANEVAL, {"test": 164}),
        (MBPP, {"test": 500, "prompt": 10, "validation": 90, "train": 374}),
    ],
)
def test_the_published_files_are_known(source, sizes):
    assert {split: len(benchmarks.rows(source, split, DATA)) for split in sizes} == sizes
    assert set(source.known) == set(source.files.values())


@needs_data
def test_mbpp_is_asked_of_ids_11_to_510():
    assert [row["task_id"] for row in benchmarks.rows(MBPP, "test", DATA)] == list(range(11, 511))


@needs_data
def test_a_published_name_needs_the_published_content(tmp_path):
    content = (DATA / "math500.jsonl").read_bytes()
    (tmp_path / "math500.jsonl").write_bytes(content.replace(b"1", b"2", 1))
    with pytest.raises(ValueError, match="is not the published file of this name: its SHA-256 should begin with 35dc"):
        benchmarks.rows(MATH500, "test", tmp_path)
    (tmp_path / "math500.jsonl").rename(tmp_path / "mine.jsonl")
    assert len(benchmarks.rows(MATH500, "test", tmp_path / "mine.jsonl")) == 500


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.jsonl.gz"])
def test_files_of_one_s_own(tmp_path, name):
    path = written(tmp_path / name, QUESTIONS)
    assert benchmarks.rows(GSM8K, "test", path) == QUESTIONS
    items = find("gsm8k").items(data=path, shots=0)
    assert [(item.prompt, item.gold) for item in items] == [(f"Q: {n} + 1?\nA:", str(n + 1)) for n in range(3)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not JSON\n", "line 1, is not JSON: one problem a line is wanted"),
        ('{"question": "?", "answer": "1"}\n\n{"question": "?"}\n', "line 3, has no 'answer'"),
        ("[1]\n", "line 1, has no 'question' and no 'answer'"),
        ("", "has no problem of the test split"),
    ],
)
def test_what_is_no_file_of_problems_is_refused(tmp_path, content, said):
    (tmp_path / "mine.jsonl").write_text(content)
    with pytest.raises(ValueError, match=said):
        benchmarks.rows(GSM8K, "test", tmp_path / "mine.jsonl")


def test_a_split_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="openai/gsm8k has no split 'validation': it has test, train"):
        benchmarks.rows(GSM8K, "validation")


def test_without_a_file_the_hub_is_asked(monkeypatch):
    asked = []
    monkeypatch.setattr("datasets.load_dataset", lambda *args, **named: asked.append((args, named)) or QUESTIONS)
    assert benchmarks.rows(GSM8K, "train") == QUESTIONS
    assert asked == [(("openai/gsm8k", "main"), {"split": "train"})]


def test_a_hub_out_of_reach_is_one_sentence(monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("nobody is there")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(ValueError, match=r"cannot be read from the hub: give its file with --data \(nobody is there\)"):
        benchmarks.rows(MATH500, "test")


def test_the_first_of_them():
    assert first("abc", None) == ["a", "b", "c"]
    assert first("abc", 2) == ["a", "b"]
    with pytest.raises(ValueError, match="a number of problems is wanted, not -1"):
        first("abc", -1)


@needs_data
@pytest.mark.parametrize("name", ["gsm8k", "gsm8k-answer-first", "math500", "humaneval", "mbpp"])
def test_items_are_named_for_ever_and_golds_are_what_the_grader_takes(name):
    task = find(name)
    items = task.items(data=DATA, count=3)
    number = rows("mbpp")[10]["task_id"] if name == "mbpp" else 0
    assert [item.id for item in items] == [f"{name}-{task.version}/test/{number + place}" for place in range(3)]
    assert json.loads(json.dumps(items[0].gold)) == items[0].gold
    assert task.grade("", items[0].gold).verdict in ("no_answer", "no_code")
    assert task.citation


HEAVY = ("torch", "transformers", "datasets", "numpy")
GRADES = f"""
import sys
from redraft.evals.answers import equal
from redraft.evals import gsm8k, humaneval, math500, mbpp
from redraft.evals.sandbox import run

assert gsm8k.grade("The answer is 18.", "#### 18").correct
assert gsm8k.grade("The answer is 18.", 18, filter="strict") and gsm8k.grade("18", "18", "flexible")
assert equal("1/2", "0.5") and not equal("1/2", "0.2")
assert math500.grade("\\\\boxed{{1}}", "1").extracted == "1"
assert humaneval.grade("", {{"entry_point": "f", "prompt": "", "test": ""}}).verdict == "no_code"
assert mbpp.grade("", {{"test_list": []}}).verdict == "no_code"
assert run("assert 1 + 1 == 2").passed
print(*(name for name in {HEAVY} if name in sys.modules))
"""


def test_graders_need_neither_a_model_nor_torch():
    done = subprocess.run([sys.executable, "-c", GRADES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
