"""Who may import whom (CONTRIBUTING.md), read from the source: nothing is imported and nothing can hide in a branch."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

import redraft

ROOT = Path(redraft.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MODULES = {path: ".".join(["redraft", *path.relative_to(ROOT).with_suffix("").parts]) for path in FILES}
NAMES = {module.removesuffix(".__init__") for module in MODULES.values()}
LAYERS = {module.split(".")[1] for module in MODULES.values()}
CHOOSE_FAST = {"fast", "cli", "commands", "serve", "generation"}
SAMPLERS = [path for path in FILES if path.parent == ROOT / "samplers" and path.name != "__init__.py"]


def imported(source: str, module: str = "redraft.module") -> set[str]:
    """Every module that a file imports, anywhere in it; `from x import y` names x.y where that is a module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *([base] if base else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names} & NAMES
            found |= inner if inner and base == "redraft" else inner | {base}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            found |= {leaf.value for leaf in node.args if isinstance(leaf, ast.Constant)}
    return found


@cache
def imports_of(path: Path) -> set[str]:
    return imported(path.read_text(), MODULES[path])


def layer(*names: str) -> list[Path]:
    return [path for path in FILES if path.relative_to(ROOT).with_suffix("").parts[0] in names]


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def offences(paths, allowed) -> list[str]:
    return [
        f"{MODULES[path]} imports {name}" for path in paths for name in sorted(imports_of(path)) if not allowed(name)
    ]


def standard(name: str) -> bool:
    return name.split(".")[0] in sys.stdlib_module_names


def test_the_walk_sees_imports_wherever_they_are():
    source = """
import a.b
from redraft import samplers
from redraft.fast import speed
from . import sibling
def later():
    import c
    importlib.import_module("redraft.serve")
if TYPE_CHECKING:
    from d import e
"""
    expected = {"a.b", "redraft.samplers", "redraft.fast", "redraft", "c", "redraft.serve", "d"}
    assert imported(source, "redraft.module") == expected


def test_there_is_something_to_read():
    assert {"decoding", "samplers"} <= LAYERS
    assert len(SAMPLERS) >= 2


def test_decoding_knows_torch_numpy_and_itself():
    allowed = ("torch", "numpy", "redraft.decoding", "redraft.shapes")
    assert offences(layer("decoding"), lambda name: standard(name) or within(name, *allowed)) == []


def test_a_sampler_knows_torch_and_decoding():
    allowed = ("torch", "redraft.decoding", "redraft.shapes")
    assert offences(SAMPLERS, lambda name: standard(name) or within(name, *allowed)) == []


@pytest.mark.parametrize("path", SAMPLERS, ids=lambda path: path.stem)
def test_every_sampler_is_imported_by_its_package(path):
    assert f"redraft.samplers.{path.stem}" in imports_of(ROOT / "samplers" / "__init__.py")


@pytest.mark.parametrize("path", SAMPLERS, ids=lambda path: path.stem)
def test_a_sampler_file_is_small(path):
    assert len(path.read_text().splitlines()) <= 90


@pytest.mark.parametrize(
    ("layers", "never"),
    [
        (("models",), ("samplers", "decoding", "evals", "train", "diagnose", "fast", "serve", "cli", "commands", "hf")),
        (("train", "evals", "diagnose"), ("fast", "serve", "cli", "commands", "hf")),
        (("fast",), ("samplers", "serve", "cli", "commands", "hf")),
        (("hf",), ("train", "evals", "diagnose", "fast", "serve", "cli", "commands")),
    ],
    ids=str,
)
def test_who_never_imports_whom(layers, never):
    forbidden = [f"redraft.{name}" for name in never]
    assert offences(layer(*layers), lambda name: not within(name, *forbidden)) == []


def test_who_may_choose_the_fast_path():
    others = layer(*LAYERS - CHOOSE_FAST)
    assert offences(others, lambda name: not within(name, "redraft.fast")) == []


def test_only_tests_know_the_test_tools():
    tools = ("pytest", "hypothesis", "beartype")
    assert offences(FILES, lambda name: not within(name, *tools)) == []
    known = [path for path in FILES if "jaxtyping" in imports_of(path)]
    assert [MODULES[path] for path in known] == ["redraft.shapes"]
