"""The programs of tests/hostile, and the four ways in which a program and its tests arrive. No pytest in here: it is
also run by users who have little else, as

PYTHONPATH=src:tests python -m attacks < plan.json
"""

import json
import re
import sys
from pathlib import Path

from redraft.evals import sandbox
from redraft.evals.sandbox import Job, Outcome, Tier

HOSTILE = Path(__file__).parent / "hostile"
ASSERTS = "assert f(2) == 4\nassert f(-3) == -6\nassert f(10) == 20\n"
CHECK = (
    "METADATA = {}\n\n\ndef check(candidate):\n"
    "    assert candidate(2) == 4\n    assert candidate(-3) == -6\n    assert candidate(10) == 20\n"
)
# In which a program that is asked to double a number meets its tests.
FORMS = {
    "asserts": lambda program: {"program": program, "tests": ASSERTS},
    "check": lambda program: {"program": program, "tests": CHECK, "entry_point": "f"},
    "joined": lambda program: {"program": f"{program}\n{ASSERTS}"},
    "joined check": lambda program: {"program": f"{program}\n{CHECK}\ncheck(f)"},
}
LANDLOCKED = ("landlock", "seccomp")
# What holds a program where the system gives it: each of these is to be strong.
STRONG = {
    "bubblewrap": ("bubblewrap", *LANDLOCKED),
    "namespaces": ("namespaces", *LANDLOCKED),
    "neither": LANDLOCKED,
}


def programs(name: str) -> dict[str, str]:
    parts = re.split(r"^=== (.+)\n", (HOSTILE / f"{name}.txt").read_text(), flags=re.M)
    assert parts[0] == "", "a file of programs begins with a name"
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(found) == len(parts) // 2, "two programs have one name"
    return found


def with_tests(name: str) -> dict[str, tuple[str, str]]:
    return {title: tuple(text.split("--- tests\n")) for title, text in programs(name).items()}


def escapes(outside: Path | str, parent: int) -> dict[str, str]:
    """Ways out, for a program that has this file of somebody's before it and this process above it."""
    found = programs("escapes")
    return {name: code.format(outside=str(outside), parent=parent) for name, code in found.items()}


ESCAPING = """
import ctypes, fcntl, os, platform, resource, signal, socket, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
x86 = platform.machine() == 'x86_64'

def must(done):
    if done < 0:
        raise OSError(ctypes.get_errno(), 'refused')

def escaped(attempts):
    # What is refused raises one of these; an attempt that is itself at fault raises something else.
    done = []
    for name, code in attempts.items():
        try:
            exec(code, globals())
            done.append(name)
        except (OSError, KeyError):
            pass
        except ValueError as refused:
            assert 'limit' in str(refused), name
        for left in os.listdir('.'):
            os.remove(left)
    return done
"""


def escape(attempts: dict[str, str]) -> Job:
    """A program that tries them all. It passes if all of them fail; if not, the detail names those that did not."""
    return Job(ESCAPING, f"done = escaped({attempts!r})\nassert done == [], done", timeout=20.0)


def run_as(layers: tuple[str, ...], jobs: dict[str, Job]) -> dict[str, Outcome]:
    """What becomes of them in a sandbox of these layers."""
    held, known = Tier(layers), sandbox.tier
    sandbox.tier = lambda: held
    try:
        return dict(zip(jobs, sandbox.run_many(jobs.values(), 2), strict=True))
    finally:
        sandbox.tier = known


def main() -> None:
    asked = json.load(sys.stdin)
    jobs = {name: Job(**job) for name, job in asked["jobs"].items()}
    if "outside" in asked:
        import os

        jobs["escapes"] = escape(escapes(asked["outside"], os.getpid()))
    found = run_as(tuple(asked["layers"]), jobs)
    print(json.dumps({"tier": str(sandbox.tier()), "outcomes": {name: vars(each) for name, each in found.items()}}))


if __name__ == "__main__":
    main()
