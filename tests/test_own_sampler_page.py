"""docs/adding-a-sampler.md, lived through: its one file is run, tested, held to the contract and compared."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from redraft.decoding import SAMPLERS, outside
from redraft.models.standin import random_llada
from redraft.samplers import parse
from running import environment, run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "adding-a-sampler.md").read_text()
FILE, TEST = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.S)
    for line in block.replace("\\\n", "").splitlines()
]
COMMANDS = {words[1]: words[1:] for words in map(shlex.split, LINES) if words[0] == "redraft"}
FEW = ("--count", "2", "--length", "8", "--steps", "2")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the file and nothing else; what the file registers goes with the test."""
    (tmp_path / "patient.py").write_text(f"{FILE}\n\n{TEST}")
    monkeypatch.chdir(tmp_path)
    classes = dict(SAMPLERS.classes)
    yield tmp_path
    SAMPLERS.classes.clear()
    SAMPLERS.classes.update(classes)
    outside.LOADED.clear()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_llada().save_pretrained(tmp_path_factory.mktemp("models") / "random")


def test_the_file_can_be_run_as_the_page_says(folder):
    command = [word for word in COMMANDS["generate"] if word != "--watch"]
    assert command != COMMANDS["generate"]
    done = run(*command)
    assert done.code == 0, done.err
    assert done.out.strip()


@pytest.mark.parametrize("command", ["eval", "sweep"])
def test_the_file_can_be_compared_as_the_page_says(folder, model, command):
    """On a random model and a few items; the page's other options stand."""
    last = ("--model", model, *(("--adapter", "none") if command == "sweep" else ()))
    done = run(*COMMANDS[command], *FEW, *last)
    assert done.code == 0, done.err
    if command == "eval":
        assert (
            json.loads((folder / "runs/patient/card.json").read_text())["subject"]["sampler"] == "patient(patience=3)"
        )
        return
    rows = [json.loads(line) for line in (folder / "runs/sweep/results.jsonl").read_text().split("\n")[:-1]]
    assert [row["sampler"] for row in rows[:4]] == ["unmask", "d3im", "patient", "patient(patience=4)"]
    assert [row["sampler_file"] is not None for row in rows[:4]] == [False, False, True, True]
    for name in ("table.md", "figure.png", "figure.html"):
        assert f"`{name}`" in PAGE
        assert (folder / "runs/sweep" / name).stat().st_size > 500


def pytest_says(command, folder, cwd, *options):
    """What pytest says of a line of the page, and of liar.py where there is one; `folder` is where the files lie."""
    line = next(line for line in LINES if command in line)
    words = shlex.split(line.replace("./patient.py", f"{folder}/patient.py"))
    given = dict(word.split("=", 1) for word in words if word.startswith("REDRAFT_SAMPLERS="))
    if given and (folder / "liar.py").exists():
        given["REDRAFT_SAMPLERS"] += f";{folder}/liar.py:liar"
    arguments = words[len(given) + 1 :]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, *options],
        env={**environment(), **given}, cwd=cwd, text=True, capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.long
def test_the_file_has_its_own_test(folder):
    code, said = pytest_says("pytest patient.py", folder, folder)
    assert (code, "1 passed" in said) == (0, True), said


def test_its_own_test_can_fail(folder):
    path = folder / "patient.py"
    path.write_text(path.read_text().replace("defeats < self.patience", "defeats <= self.patience"))
    broken = type(parse("./patient.py:patient", files=True))
    with pytest.raises(AssertionError):
        vars(sys.modules[broken.__module__])["test_patience_of_one_is_d3im"]()


@pytest.mark.long
def test_the_contract_holds_a_file_to_its_promises(folder):
    """Beside the page's own, one that overwrites and denies it."""
    liar = FILE.replace("Patient", "Liar").replace('"m2t", "t2t", "t2m"', '"m2t", "t2m"')
    (folder / "liar.py").write_text(liar)
    code, said = pytest_says("tests/test_contract.py", folder, ROOT, "-k", "patient or liar")
    assert code == 1
    failed = {line.split("::")[1].split(" ")[0] for line in said.splitlines() if line.startswith("FAILED")}
    assert failed == {"test_walks_make_exactly_the_declared_transitions[liar]"}, said
    assert int(re.search(r"(\d+) passed", said)[1]) > 100


def test_a_registered_sampler_needs_one_line_more():
    assert "`from redraft.samplers.patient import Patient`" in PAGE
    (path,) = re.findall(r"`(src/[\w/]+/__init__\.py)`", PAGE)
    assert "from redraft.samplers.unmask import Unmask\n" in (ROOT / path).read_text()
