"""Whatever a user gets wrong is one sentence that says what to do, exit code 2, and nothing left behind."""

import json
import shutil

import pytest

from redraft.models.folders import resolve
from redraft.output import AnswerFile
from running import QUESTION, SHORT, Run, run
from tiny import of_words


def refused(done: Run, *words: str):
    """One sentence on stderr, which says `words`, and nothing on stdout."""
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("redraft: ")
    assert done.err.count("\n") == 1, f"more than one line: {done.err}"
    assert done.err.endswith("\n")
    assert "Traceback" not in done.err
    assert "Error" not in done.err.split(":")[1], "the name of an exception is not a sentence"
    assert 30 < len(done.err) < 500, done.err
    for word in words:
        assert word in done.err, f"{word!r} is not in: {done.err}"


ALONE = [  # without a prompt, the words before it
    (("--nonsense",), ["No such option: --nonsense", "redraft --help"]),
    (("generat",), ["'generat'", "Did you mean 'generate'?"]),
    (("samplers", "more"), ["unexpected extra argument", "redraft samplers --help"]),
    (("demo", "--problems", "0"), ["--problems"]),
    (("demo", "--problems", "100000000"), ["--problems"]),
    (("demo", "--problems", "1", "--replay", "missing/x.html"), ["missing does not exist", "make it first"]),
    (("generate",), ["stdin holds no prompt"]),
    (("generate", "-"), ["stdin holds no prompt"]),
    (("generate", ""), ["the prompt is empty", "write something"]),
    (("generate", " \n"), ["the prompt is empty"]),
    (("generate", QUESTION, ""), ["prompt 2 is empty"]),
    (("generate", "\udcff"), ["not Unicode", "UTF-8"]),
    (("generate", "1 + " * 2000 + "1", "--no-chat"), ["the prompt has 4001 tokens", "at most 2048", "shorten"]),
]
OPTIONS = [
    (["--lenth", "3"], ["--lenth", "--length", "redraft generate --help"]),
    (["--length", "3.5"], ["--length", "integer"]),
    (["--length", "0"], ["length is at least 1"]),
    (["--length", "-3"], ["length is at least 1"]),
    (["--length", "1" + "0" * 30], ["length is at most 1,000,000"]),
    (["--length", "100000", "--block", "1"], ["bundled reads at most 2048", "shorten"]),
    (["--no-chat", "--length", "2037"], ["the prompt has 12 tokens", "2037 more", "at most 2048"]),
    (["--steps", "0"], ["steps is at least 1"]),
    (["--steps", "-1"], ["steps is at least 1"]),
    (["--steps", "1000000000000"], ["steps is at most 1,000,000"]),
    (["--sampler", "unmask", "--length", "24", "--steps", "25"], ["25 steps are more than the 24", "at most 24"]),
    (["--block", "0"], ["block is at least 1"]),
    (["--block", "-6"], ["block is at least 1"]),
    (["--length", "24", "--block", "7"], ["24 is not a whole number of blocks of 7", "6 or 8"]),
    (["--length", "24", "--block", "48"], ["24 is not a whole number of blocks of 48"]),
    (["--length", "24", "--block", "6", "--steps", "7"], ["7 steps cannot be divided", "4 or 8", "--steps-per-block"]),
    (["--length", "24", "--block", "6", "--steps-per-block", "0"], ["steps is at least 1"]),
    (["--steps", "6", "--steps-per-block", "6"], ["the number of steps once"]),
    (["--batch-size", "0"], ["--batch-size", "1"]),
    (["--seed", "one"], ["--seed", "integer"]),
    (["--sampler", "d3mi"], ["no sampler 'd3mi'", "did you mean 'd3im'?"]),
    (["--sampler", "d3im(t3t=True)"], ["no option 't3t'", "did you mean 't2t'?"]),
    (["--sampler", "d3im(t2t=perhaps)"], ["'t2t'", "True or False", "'perhaps'"]),
    (["--sampler", "d3im("], ["cannot read 'd3im('"]),
    (["--sampler", ""], ["cannot read ''"]),
    (["--eos", "never"], ["eos is one of none, confidence", "'never'"]),
    (["--overflow", "burst"], ["overflow is one of strict, fill"]),
    (["--rank", "best"], ["rank is one of probability, margin"]),
    (["--precision", "float9"], ["--precision is one of float32", "'float9'"]),
    (["--temperature", "-1"], ["temperature is 0 or more"]),
    (["--temperature", "nan"], ["temperature is 0 or more"]),
    (["--guidance", "inf"], ["guidance is 0 or more"]),
    (["--dtype", "float9"], ["dtype must be", "'float9'"]),
    (["--dtype", "int8"], ["dtype must be", "'int8'"]),
    (["--device", "cuda:99"], ["no such device here; there is cpu"]),
    (["--device", "gpu"], ["no such device here"]),
    (["--device", "meta"], ["no such device here"]),
    (["--model", "nope"], ["'nope' is neither a folder", "bundled"]),
    (["--model", "bundled-nope"], ["no 'bundled-nope'", "bundled"]),
    (["--model", "nobody/nothing"], ["nobody/nothing is not a folder here", "could not be downloaded"]),
    (["--adapter", "nope"], ["'nope' is neither a folder"]),
    (["--prompts", "nope.txt"], ["not both"]),
    (["second", "--batch-size", "1", "--trajectory", "x.npz"], ["2 prompts need --batch-size 2"]),
]


@pytest.mark.parametrize(("arguments", "words"), ALONE, ids=lambda case: " ".join(case)[:40])
def test_commands_and_prompts(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    refused(run(*arguments), *words)


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=lambda case: " ".join(case)[:40])
def test_options(tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    refused(run("generate", QUESTION, "--out", "x.jsonl", *options), *words)
    assert list(tmp_path.iterdir()) == [], "something was left behind"


PROMPT_FILES = [
    ("x.txt", b"", ["x.txt holds no prompt"]),
    ("x.txt", b"\n \n", ["x.txt holds no prompt"]),
    ("x.txt", b"7 + \xff\n", ["x.txt is not UTF-8", "byte 4"]),
    ("x.jsonl", b"", ["holds no prompt"]),
    ("x.jsonl", b'{"prompt": "1"}\n{"prompt": \n', ["line 2 is not JSON"]),
    ("x.jsonl", b'[{"prompt": "1"}]\n', ["line 1 has neither"]),
    ("x.jsonl", b'{"question": "1"}\n', ['neither "prompt" (text) nor "messages"']),
    ("x.jsonl", b'{"prompt": 5}\n', ["line 1 has neither"]),
    ("x.jsonl", b'{"prompt": ""}\n{"prompt": "1"}\n', ["prompt 1 is empty"]),
    ("x.jsonl", b'{"prompt": "\\ud800"}\n', ["not Unicode"]),
    ("x.jsonl", b'{"messages": []}\n', ["line 1 has neither"]),
    ("x.jsonl", b'{"messages": [{"role": "user"}]}\n', ["line 1 has neither"]),
    ("x.jsonl", b'{"messages": [{"role": "user", "content": " "}]}\n', ["the prompt is empty"]),
    ("x.json", b'[\n  {"prompt": "1"}\n]\n', ["line 1 is not JSON", "one whole object a line"]),
]


@pytest.mark.parametrize(("name", "content", "words"), PROMPT_FILES)
def test_files_of_prompts(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    refused(run("generate", "--prompts", tmp_path / name, "--out", tmp_path / "y.jsonl"), *words)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return of_words().save_pretrained(tmp_path_factory.mktemp("models") / "words")


def test_words_that_a_model_does_not_know(words):
    refused(
        run("generate", "1 + hello 2 world ?", "--model", words), "'hello', 'world'", "does not know", "such as 0 1"
    )
    refused(run("generate", "1 + 2", "1 + <hole>", "--model", words), "prompt 2 has words", "'<hole>'")


def test_conversations_with_a_model_that_has_no_template(tmp_path, words):
    path = tmp_path / "x.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "1"}]}\n')
    refused(run("generate", "--prompts", path, "--model", words), "needs a chat template")
    refused(run("generate", "--prompts", path, "--no-chat"), "bundled needs its chat template, which is switched off")


def test_stdin_that_is_not_text():
    refused(run("generate", stdin=b"7 \xff"), "stdin is not UTF-8")


def test_nothing_to_read(tmp_path):
    refused(run("generate", "--prompts", tmp_path / "nope.txt"), "there is no file", "nope.txt")
    refused(run("generate", "--prompts", tmp_path), "is a folder")
    refused(run("generate", typing=True), "there is no prompt", "--prompts")  # nobody waits for what nobody types


@pytest.mark.parametrize("option", ["--out", "--trajectory"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing/x", ["missing does not exist", "make it first"]),
        ("file/x", ["file is not a folder", "write elsewhere"]),
        ("folder", ["folder is a folder", "the name of a file"]),
        ("there", ["there exists", "--overwrite"]),
        ("/proc/x", ["cannot write in the folder /proc"]),
        ("x" * 300, ["File name too long"]),
        ("", ["name of the output file is empty"]),
    ],
)
def test_outputs_that_cannot_be_written(tmp_path, monkeypatch, option, path, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("file", "there"):
        (tmp_path / name).write_text("precious")
    refused(run("generate", QUESTION, *SHORT, option, path), *words)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder", "there"]
    assert (tmp_path / "there").read_text() == "precious"


def test_two_outputs_of_one_name(tmp_path):
    path = tmp_path / "x"
    refused(run("generate", QUESTION, *SHORT, "--out", path, "--trajectory", path), "different names")


def test_parts_of_something_else(tmp_path):
    for content in ("[1]\n", "not json\n", '{"a": 1}\n', '{"run": {}}\n{"no": "index"}\n', '{"run": 5}\n', "1\n"):
        (tmp_path / "x.jsonl.part").write_text(content)
        refused(run("generate", QUESTION, *SHORT, "--out", tmp_path / "x.jsonl"), "x.jsonl.part is ")
        assert (tmp_path / "x.jsonl.part").read_text() == content
        assert not (tmp_path / "x.jsonl").exists()


def test_a_full_disk_keeps_what_was_written(tmp_path, monkeypatch):
    add = AnswerFile.add

    def full(self, record):
        if record["index"] == 1:
            raise OSError(28, "No space left on device")
        add(self, record)

    monkeypatch.setattr(AnswerFile, "add", full)
    done = run("generate", QUESTION, "4 + 4 = ?", *SHORT, "--out", tmp_path / "x.jsonl")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert "1 of 2 answers are in" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl.part"]


@pytest.mark.parametrize("words", ["CUDA out of memory", "DefaultCPUAllocator: can't allocate memory", "MemoryError"])
def test_too_little_memory(tmp_path, monkeypatch, words):
    import torch

    kind = {"C": torch.OutOfMemoryError, "D": RuntimeError, "M": MemoryError}[words[0]]

    def greedy(*_, **__):
        raise kind(words)

    monkeypatch.setattr("redraft.generation.walk", greedy)
    refused(run("generate", QUESTION, *SHORT, "--out", tmp_path / "x.jsonl"), "out of memory", "--batch-size below 16")
    assert list(tmp_path.iterdir()) == []


# --- models ---


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(resolve("bundled"), tmp_path / "model")


CONFIGS = [
    ({"d_model": 0}, ["d_model"]),
    ({"d_model": -64}, ["d_model"]),
    ({"d_model": "64"}, ["d_model", "whole number"]),
    ({"n_layers": 10**9}, ["n_layers"]),
    ({"n_heads": 7}, ["7 heads"]),
    ({"vocab_size": 10**12}, ["vocab_size"]),
    ({"n_layers": 7}, ["tensors", "not asked for"]),
    ({"n_layers": 9}, ["tensors", "missing"]),
    ({"mlp_hidden_size": 100}, ["of another shape"]),
    ({"model_type": "gpt2"}, ["'gpt2'", "llada"]),
    ({"model_type": "llada2_moe"}, ["LLaDA2", "not built yet"]),
    ({"mask_token_id": 10**6}, ["mask_token_id"]),
    ({"max_sequence_length": "many"}, ["max_sequence_length"]),
]


@pytest.mark.parametrize(("fields", "words"), CONFIGS, ids=lambda case: str(case)[:30])
def test_configs_with_absurd_numbers(folder, fields, words):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    refused(run("generate", QUESTION, "--model", folder, *SHORT), *words)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("model.safetensors", lambda old: old[:-100], ["model.safetensors is", "bytes long", "fetch it again"]),
        ("model.safetensors", lambda old: old[:100], ["cut off"]),
        ("model.safetensors", lambda old: b"", ["cut off"]),
        ("model.safetensors", lambda old: None, ["holds no model.safetensors"]),
        ("config.json", lambda old: old[:-20], ["config.json is not JSON"]),
        ("config.json", lambda old: b"[]", ["config.json holds a JSON list"]),
        ("config.json", lambda old: None, ["holds no config.json"]),
        ("tokenizer.json", lambda old: old[:-20], ["tokenizer.json cannot be read"]),
        ("tokenizer.json", lambda old: None, ["holds no tokenizer"]),
        ("fingerprint.json", lambda old: old[:-20], ["fingerprint.json is not JSON"]),
    ],
)
def test_damaged_models(folder, tmp_path, name, change, words):
    path = folder / name
    changed = change(path.read_bytes())
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    refused(run("generate", QUESTION, "--model", folder, *SHORT, "--out", tmp_path / "x.jsonl"), *words)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_tracebacks_on_demand(monkeypatch):
    monkeypatch.setenv("REDRAFT_TRACEBACK", "1")
    done = run("generate", QUESTION, "--sampler", "d3mi")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("redraft: there is no sampler 'd3mi'")
