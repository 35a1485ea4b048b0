"""docs/training.md: its commands and code run, and its tables name every field, preset and config that there is."""

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from redraft.cli import app
from redraft.models.adapters import PRESETS
from redraft.models.families import FAMILIES
from redraft.train.recipes import RECIPES
from redraft.train.watch import ENDS, HEALTHY_ERRORS, STARTS
from running import run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "training.md").read_text()
RUNNING = re.findall(r"<!-- runs.*?-->\n```(\w+)\n(.*?)```", PAGE, flags=re.S)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the data that the page speaks of, in which its commands are run one after the other."""
    folder = tmp_path_factory.mktemp("page")
    lines = [{"prompt": f"{a} + {b} = ?", "response": f"{a} + {b} = {a + b}"} for a in range(1, 9) for b in range(1, 9)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.long
def test_what_runs_runs_in_order(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert [language for language, _ in RUNNING] == ["sh", "sh", "python", "python"]
    for language, block in RUNNING:
        if language == "python":
            exec(compile(block, "docs/training.md", "exec"), {})
            continue
        for line in block.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "redraft"
            done = run(*arguments)
            assert done.code == 0, (line, done.err)
            assert done.out.strip(), line
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[-3:]] == ["1", "2", "3"]
    protocol = json.loads((place / "runs" / "first" / "protocol.json").read_text())
    assert (protocol["steps"], protocol["run"]["recipe"]) == (20, "scope(eos=confidence)")


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_field_of_a_recipe_is_in_its_table_with_its_default(recipe):
    (section,) = re.findall(rf"### `{recipe}`\n(.*?)\n##", PAGE, flags=re.S)
    table = dict(re.findall(r"^\| `(\w+)` \| `(.+?)` \|", section, flags=re.M))
    assert table == {field.name: str(field.default) for field in fields(RECIPES.classes[recipe])}


def test_every_option_of_the_command_is_named():
    command: Any = typer.main.get_command(app)
    for option in command.commands["train"].params:
        names = [*option.opts, *option.secondary_opts]
        assert any(f"`{name}" in PAGE or f" {name} " in PAGE for name in names if name.startswith("--")), names


@pytest.mark.parametrize(("kind", "column"), [("llada", 3), ("Dream", 5)])
def test_the_counts_of_the_presets(kind, column):
    """A LoRA of rank r has r (in + out) parameters a matrix."""
    network = FAMILIES[kind].network()
    with torch.device("meta"):
        matrices = [
            (n, m) for n, m in network(network.config_class()).named_modules() if isinstance(m, torch.nn.Linear)
        ]
    heads = ("model.transformer.ff_out", "lm_head")
    for preset, targets in PRESETS[kind].items():
        chosen = [m for name, m in matrices if name.rpartition(".")[2] in targets and name not in heads]
        count = sum(64 * (one.in_features + one.out_features) for one in chosen)
        (row,) = re.findall(rf"^\| `{preset}` \|.*$", PAGE, flags=re.M)
        assert row.split("|")[column].strip() == f"{count:,}"


def test_the_paper_ranges_are_those_that_the_curves_mark():
    rows = {cells[1].strip(): cells for cells in (line.split("|") for line in PAGE.splitlines()) if len(cells) == 5}
    for key in STARTS:
        (name,) = (name for name in rows if name.startswith(f"`{key}`"))
        assert [float(cell) for cell in rows[name][2:4]] == [STARTS[key], ENDS[key]]
    (name,) = (name for name in rows if name.startswith("`error_rate`, "))
    assert rows[name][2].strip() == "{:.2f} to {:.2f}".format(*HEALTHY_ERRORS)


def test_every_config_is_named_and_names_its_own_file():
    files = sorted((ROOT / "configs" / "accelerate").glob("*.yaml"))
    assert {f"`{path.name}`" for path in files} == set(re.findall(r"`[\w-]+\.yaml`", PAGE))
    for path in files:
        assert f"--config_file configs/accelerate/{path.name}" in path.read_text()
