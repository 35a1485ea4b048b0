"""The documents' own code runs, and what they link to exists."""

import re
import shlex
from pathlib import Path

import pytest

from redraft import cli
from redraft.decoding import SAMPLERS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), flags=re.S)


def commands(document: str) -> list[list[str]]:
    """The `redraft` command lines of a document that need no download, as argument lists."""
    lines = "\n".join(blocks(document, "sh")).splitlines()
    found = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("redraft ")]
    return [arguments for arguments in found if "GSAI-ML/LLaDA-8B-Instruct" not in arguments and arguments != ["demo"]]


def test_readme_python_runs(capsys):
    (code,) = blocks("README.md", "python")
    exec(compile(code, "README.md", "exec"), {})
    assert "reveal" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", commands("README.md"), ids=" ".join)
def test_readme_commands_run(arguments, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["redraft", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip()


def test_readme_lists_every_sampler_with_its_options():
    text = (ROOT / "README.md").read_text()
    table = {name: row for row in text.splitlines() for name in re.findall(r"^\| `(\w+)`(?: \*)? \|", row)}
    ours = {name: one for name, one in SAMPLERS.classes.items() if one.__module__.startswith("redraft.")}
    assert set(ours) <= set(table)
    for name, one in ours.items():
        fields = one.__dataclass_fields__
        assert ", ".join(f"{field.name}={field.default}" for field in fields.values()) in table[name]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target
