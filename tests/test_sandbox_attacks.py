"""Every hostile program, in every form, in every sandbox that there is here, for root and for a user without rights."""

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

import attacks
from attacks import FORMS, LANDLOCKED, STRONG, escape, escapes, programs, run_as, with_tests
from redraft.evals import humaneval, mbpp, sandbox_tier
from redraft.evals.inside.joined import split
from redraft.evals.sandbox import Job, Outcome, Tier

DATA = Path(os.environ.get("REDRAFT_DATA") or Path(__file__).parents[2] / "shared" / "data")
NOBODY = 65534
ENDLESS = {
    name: Job(**FORMS["joined"](program), timeout=0.5, memory_mb=256) for name, program in programs("endless").items()
}
JOINED = {
    f"{name}, {form}": Job(*parts) if form == "apart" else Job("\n".join(parts))
    for name, parts in with_tests("joined").items()
    for form in ("apart", "as one")
}
HONEST = {name: Job("\n".join(parts)) for name, parts in with_tests("honest").items()}
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="what holds programs is Linux's"),
]


def layers_of(name):
    """The layers of a sandbox, if this system gives it."""
    if name == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    if sandbox_tier.probe(Tier(STRONG[name])) != ["tried"]:
        pytest.skip(f"the kernel refuses {name}")
    return STRONG[name]


def not_failed(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    return {name: one for name, one in outcomes.items() if one.verdict not in ("wrong", "killed", "syntax", "memory")}


def not_passed(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    return {name: one for name, one in outcomes.items() if not one.passed}


@pytest.mark.parametrize("form", FORMS)
def test_no_cheat_passes(form):
    jobs = {name: Job(**FORMS[form](program), timeout=5.0) for name, program in programs("cheats").items()}
    assert not_failed(run_as(layers_of("namespaces"), jobs)) == {}


def test_no_cheat_passes_against_tests_of_its_own():
    assert not_failed(run_as(layers_of("namespaces"), JOINED)) == {}


@pytest.mark.parametrize("tier", STRONG)
def test_what_does_not_end_is_ended(tier):
    begun = time.monotonic()
    found = run_as(layers_of(tier), ENDLESS)
    assert {name: one for name, one in found.items() if one.verdict not in ("timeout", "memory", "killed")} == {}
    assert {one.verdict for one in found.values()} == {"timeout", "memory", "killed"}
    assert time.monotonic() - begun < 5 * len(ENDLESS)


@pytest.mark.parametrize("tier", STRONG)
def test_no_sandbox_is_left_and_none_is_in_the_way(tier, tmp_path):
    outside = tmp_path / "private.txt"
    outside.write_text("private")
    layers = layers_of(tier)
    attempts = escapes(outside, os.getpid())
    if layers == LANDLOCKED:
        del attempts["fills the disk"]  # which ends the program: tests/test_sandbox.py has it
    found = run_as(layers, {"escapes": escape(attempts), **HONEST})
    assert not_passed(found) == {}
    assert outside.read_text() == "private"


def test_a_sandbox_of_limits_alone_grades_right():
    """It holds nobody, but it is no easier to be passed in."""
    harmless = {name: text for name, text in programs("cheats").items() if "fork" not in name and "process" not in name}
    jobs = {name: Job(**FORMS["joined"](program), timeout=5.0) for name, program in harmless.items()}
    assert not_failed(run_as((), jobs)) == {}
    assert not_passed(run_as((), HONEST)) == {}


# --- as a user without rights ---


@pytest.fixture(scope="module")
def reachable():
    """A folder that anybody may read, with what is needed there; and a Python that anybody may run."""
    if os.geteuid():
        pytest.skip("not root: all other tests were run without rights")
    mine = ["env", f"HOME={tempfile.gettempdir()}"]
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        probe = [*mine, python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if (
            subprocess.run(probe, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True).returncode
            == 0
        ):
            break
    else:
        pytest.skip("there is no Python that others may run")
    folder = Path(tempfile.mkdtemp(prefix="reachable-"))
    package = Path(attacks.sandbox.__file__).parents[1]
    for file in [package / "__init__.py", *(package / "evals").glob("*.py"), *(package / "evals/inside").glob("*.py")]:
        (folder / file.relative_to(package.parent)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.relative_to(package.parent))
    shutil.copy(attacks.__file__, folder)
    shutil.copytree(attacks.HOSTILE, folder / "hostile")
    (folder / "private.txt").write_text("private")
    subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
    yield python, folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("tier", STRONG)
def test_without_rights(tier, reachable):
    python, folder = reachable
    layers = layers_of(tier)
    jobs = {f"honest: {name}": job for name, job in HONEST.items()}
    jobs |= {name: Job(**FORMS["joined check"](text), timeout=5.0) for name, text in programs("cheats").items()}
    asked = {"layers": layers, "jobs": {name: asdict(job) for name, job in jobs.items()}}
    if layers != LANDLOCKED:
        asked["outside"] = str(folder / "private.txt")
    done = subprocess.run(
        [python, "-m", "attacks"], user=NOBODY, group=NOBODY, extra_groups=[], cwd=folder,
        env={"PATH": os.environ["PATH"]}, input=json.dumps(asked), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    found = {name: Outcome(**one) for name, one in told["outcomes"].items()}
    assert {one.tier for one in found.values()} == {str(Tier(layers))}
    assert told["tier"].startswith("strong: ")
    honest = {name: found.pop(name) for name in [*found] if name == "escapes" or name.startswith("honest: ")}
    assert not_passed(honest) == {}
    assert len(honest) >= len(HONEST)
    assert not_failed(found) == {}
    assert (folder / "private.txt").read_text() == "private"


# --- the benchmarks' own solutions ---


def rows(name):
    path = DATA / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip("no benchmark files")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_solution_of_humaneval_passes_within_a_minute():
    problems, begun = rows("humaneval"), time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        grades = list(pool.map(lambda row: humaneval.grade(row["canonical_solution"], row), problems))
    assert time.monotonic() - begun < 60
    assert len(grades) == 164
    assert [row["task_id"] for row, grade in zip(problems, grades, strict=True) if not grade] == []


def test_the_tests_of_every_benchmark_are_found_behind_a_program():
    texts = [f"{row['prompt']}    0\n{row['test']}\ncheck({row['entry_point']})\n" for row in rows("humaneval")]
    assert all(split(text).trusted for text in texts)
    for row in rows("mbpp"):
        found = split("\n".join([row["code"], row["test_setup_code"], *row["test_list"]]))
        asserts = [each for each in found.tests.body if isinstance(each, ast.Assert)]
        assert len(asserts) >= len(row["test_list"]), row["task_id"]


def test_every_solution_of_mbpp_passes():
    problems = [row for row in rows("mbpp") if 11 <= row["task_id"] <= 510]
    with ThreadPoolExecutor(2) as pool:
        grades = list(pool.map(lambda row: mbpp.grade(row["code"], row), problems))
    assert len(grades) == 500
    assert [row["task_id"] for row, grade in zip(problems, grades, strict=True) if not grade] == []
