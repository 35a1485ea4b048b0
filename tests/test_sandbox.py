"""Programs in the sandbox: each verdict, honest programs, ways out, what is left, and what holds them here.

tests/test_sandbox_attacks.py has the rest: every hostile program in every form, in every sandbox, for every user.
"""

import contextlib
import importlib
import math
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from attacks import ASSERTS, ESCAPING, FORMS, LANDLOCKED, escape, escapes, programs, run_as, with_tests
from redraft.evals import sandbox, sandbox_tier
from redraft.evals.sandbox import Job, Tier, run, run_many
from redraft.evals.sandbox_processes import SCRATCH_SIZE

DOUBLE = "def f(x):\n    return 2 * x\n"
HONEST = with_tests("honest")
CHEATS = programs("cheats")
linux = pytest.mark.skipif(sys.platform != "linux", reason="what holds programs is Linux's")

# --- verdicts ---

ENDS = {
    "passed": DOUBLE,
    "wrong": "def f(x):\n    return x + 2\n",
    "syntax": "def f(x) return 2 * x\n",
    "timeout": "while True:\n    pass\n",
    "memory": "def f(x):\n    return [0] * 10**10\n",
    "killed": "import os\ndef f(x):\n    os._exit(0)\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verdict", ENDS)
def test_verdicts(verdict, form):
    outcome = run(**FORMS[form](ENDS[verdict]), timeout=0.3 if verdict == "timeout" else 10.0)
    assert outcome.verdict == verdict
    assert outcome.passed == bool(outcome) == (verdict == "passed")
    assert outcome.tier == str(sandbox.tier())


def test_a_program_without_tests_passes_by_reaching_its_end():
    assert run("x = 1\n").verdict == run("x = 1\n", tests="  \n# none\n").verdict == "passed"
    assert run("x = 1\n").detail == "it reached its end; no tests were recognised"
    assert run("raise ValueError('no')").detail == "ValueError: no"
    assert run("raise SystemExit(0)").verdict == "killed"
    assert run("if __name__ == '__main__':\n    raise ValueError").verdict == "wrong", "it is the program that is run"


# Joined behind a program, these are not recognised as tests.
TESTS_BESIDE = {
    "helper": "def same(out, exp, atol):\n    assert out == exp, atol\n\n\ndef check(g):\n    same(g(1), 2, 0)\n"
    "    same(g(5), 10, 0)\n\n\ncheck(f)\n",
    "data": "def same(out, exp):\n    assert out == exp\n\n\nasked, wanted = [1, 5], [2, 10]\n\n\ndef check(g):\n"
    "    for x, y in zip(asked, wanted):\n        same(g(x), y)\n\n\ncheck(f)\n",
    "class": "class Tests:\n    def test(self):\n        assert f(1) == 2\n        assert f(5) == 10\n\n\n"
    "Tests().test()\n",
    "raise": "if f(1) != 2:\n    raise AssertionError\nif f(5) != 10:\n    raise ValueError('not ten')\n",
    "exit": "import sys\nif f(1) != 2 or f(5) != 10:\n    sys.exit(1)\n",
}
HELD_FAST = {
    "unittest": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)\n"
    "unittest.main(exit=False)\n",
    "exec": "exec('assert f(1) == 2')\n",
}
FOOLING = {
    "equal to everything": "class A:\n    def __eq__(self, other):\n        return True\n    def __ne__(self, other):\n"
    "        return False\ndef f(x):\n    return A()\n",
    "assigned": "class A:\n    pass\nA.__eq__ = lambda self, other: True\ndef f(x):\n    return A()\n",
    "built": "A = type('A', (), {'__' + 'eq' + '__': lambda self, other: True})\ndef f(x):\n    return A()\n",
    "looked up": "class A:\n    pass\nsetattr(A, '_' + '_eq_' + '_', lambda *a: True)\ndef f(x):\n    return A()\n",
    "of the library": "from unittest.mock import ANY\ndef f(x):\n    return ANY\n",
    "decorated": "def f(x):\n    return 0\ndef no(g):\n    return lambda *a: None\n@no\n",
    "a lambda": "def f(x):\n    return 0\n@lambda g: lambda *a: None\n",
    "rebound": "def f(x):\n    global same, Tests\n    same = lambda *a: True\n    return 0\n",
    "read": "def f(x):\n    return wanted[asked.index(x)]\n",
    "renamed": "wanted = []\ndef f(x):\n    return wanted[0 if x == 1 else 1]\n",
    "left": "import sys\ndef f(x):\n    sys.exit(0)\n",
    "other zip": "zip = lambda *a: []\ndef f(x):\n    return 0\n",
    "traced": "import os\nos.sys.settrace(None)\ndef f(x):\n    return 0\n",
    "wrong": "def f(x):\n    return x + 1\n",
}


@pytest.mark.parametrize("tests", TESTS_BESIDE)
def test_what_could_fool_tests_that_run_beside_it_does_not_pass(tests):
    assert run(DOUBLE + TESTS_BESIDE[tests]).verdict == "passed"
    jobs = [Job(program + TESTS_BESIDE[tests]) for program in FOOLING.values()]
    passed = [name for name, one in zip(FOOLING, run_many(jobs), strict=True) if one.passed]
    assert not passed


@pytest.mark.parametrize("tests", HELD_FAST)
def test_tests_that_a_program_could_have_changed_decide_nothing(tests):
    outcome = run(DOUBLE + HELD_FAST[tests])
    assert outcome.verdict == "wrong"
    assert "give them as tests=" in outcome.detail


@pytest.mark.parametrize(
    "program",
    [
        "def f(x):\n    raise ValueError(x)\n",
        "class A:\n    def __init__(self, x):\n        self._x = x\n    def __eq__(self, other):\n        return True\n"
        "    def half(self):\n        if self._x % 2:\n            raise ValueError('odd')\n"
        "        return self._x // 2\n"
        "print(A(4).half() == 2)\n",
    ],
)
def test_a_program_that_holds_no_tests_may_define_what_it_likes(program):
    assert run(program).passed


def test_what_goes_wrong_is_told():
    assert run(DOUBLE, tests="assert f(2) == 5, 'not five'").detail == "AssertionError: not five"
    assert run(DOUBLE, tests="g(2)").detail == "NameError: name 'g' is not defined"
    assert run(DOUBLE, tests="f([1], 2)").detail.startswith("TypeError: f() takes 1 positional argument")
    assert len(run("def f(x):\n    raise ValueError('no' * 10**6)", tests="f(1)").detail) < 10_000


@pytest.mark.parametrize(
    "program",
    [
        "(" * 20_000,
        "-" * 100_000 + "1",
        "x = " + "[" * 300 + "]" * 300,
        DOUBLE + "\0",
        DOUBLE + "# \ud800",
        "\ufeff\ufeff",
    ],
    ids=["brackets", "minuses", "lists", "a zero byte", "a surrogate", "marks"],
)
def test_texts_that_no_compiler_takes(program):
    assert run(program, tests=ASSERTS).verdict == "syntax"
    assert run(f"{program}\n{ASSERTS}").verdict == "syntax"


def test_a_program_too_deep_to_be_written_again_keeps_its_tests_apart():
    deep = f"x = {' + '.join(['1'] * 900)}\n"
    assert run(f"{deep}{DOUBLE}{ASSERTS}").verdict == "passed"
    assert run(f"{deep}{CHEATS['equals everything']}{ASSERTS}").verdict == "wrong"


def test_the_same_verdict_every_time():
    program = "import random\ndef f():\n    return list({str(n) for n in range(50)}) + [random.random()]\n"
    found = {run(program, tests="assert f() == 0, f()").detail for _ in range(2)}
    assert len(found) == 1


@pytest.mark.parametrize("asked", [{"timeout": 0.0}, {"timeout": math.inf}, {"timeout": math.nan}, {"memory_mb": 8}])
def test_limits_that_are_none_are_refused(asked):
    with pytest.raises(ValueError, match="give"):
        run(DOUBLE, **asked)


def test_tests_that_could_not_be_run_are_refused():
    with pytest.raises(ValueError, match="the tests are not Python"):
        run(DOUBLE, tests="assert f(2) ==")
    with pytest.raises(ValueError, match="name the function it is for as entry_point"):
        run(DOUBLE, tests="def check(candidate):\n    assert candidate(2) == 4")


def test_many_programs_in_their_order():
    jobs = [Job(f"def f():\n    return {n}\n", tests=f"assert f() == {n - n % 3}") for n in range(6)]
    assert [bool(outcome) for outcome in run_many(iter(jobs), workers=2)] == [n % 3 == 0 for n in range(6)]


# --- honest programs ---


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(name):
    program, tests = HONEST[name]
    outcome = run(program, tests=tests)
    assert (outcome.verdict, outcome.detail) == ("passed", "")


def test_tests_may_use_packages():
    tests = "import numpy as np\nassert np.allclose(f([1, 2]), [2, 4])"
    assert run("import numpy as np\ndef f(x):\n    return 2 * np.array(x)", tests=tests).passed
    assert run("def f(x):\n    return x", tests=tests).verdict == "wrong"
    assert run(CHEATS["answers arithmetic"], tests=tests).verdict == "wrong"


# --- hostile ones: those that the design was made for ---


@pytest.mark.parametrize("form", ["check", "joined"])
@pytest.mark.parametrize(
    "name",
    [
        "exits with 0", "kills itself when called", "patches builtins", "equals everything", "prints a verdict",
        "writes verdicts everywhere", "forks", "walks the stack", "answers for the protocol", "another f from a loop",
    ],
)  # fmt: skip
def test_hostile_programs_fail(name, form):
    outcome = run(**FORMS[form](CHEATS[name]), timeout=2.0)
    assert outcome.verdict in ("wrong", "killed")


def test_a_program_runs_neither_here_nor_where_the_verdict_is(monkeypatch):
    monkeypatch.setenv("REDRAFT_SECRET", "ours")
    program = "import os, sys\nsys.was_here = True\ndef told():\n    return os.getpid(), dict(os.environ), sys.argv\n"
    tests = f"""
import os, sys
assert not hasattr(sys, 'was_here')
number, variables, arguments = told()
assert number != {os.getpid()} and variables == {{}}
assert 'REDRAFT_SECRET' not in os.environ
"""
    assert run(program, tests=tests).detail == ""
    assert not hasattr(sys, "was_here")


@linux
def test_there_is_no_way_out(tmp_path):
    outside = tmp_path / "private.txt"
    outside.write_text("private")
    outcome = run(**vars(escape(escapes(outside, os.getpid()))))
    assert (outcome.verdict, outcome.detail) == ("passed", "")
    assert outside.read_text() == "private"
    assert os.listdir(tmp_path) == ["private.txt"]
    assert len(os.sched_getaffinity(0)) == os.cpu_count()


@linux
def test_the_ways_out_are_ways_where_nothing_is_in_the_way(tmp_path):
    """So that the test above can fail: what is harmless enough to be tried works where only limits hold."""
    outside = tmp_path / "private.txt"
    outside.write_text("private")
    chosen = {
        name: code
        for name, code in escapes(outside, os.getpid()).items()
        if name in (
            "reads a file of the user's", "reads the list of users", "lists a folder", "writes a file of the user's",
            "makes a folder", "removes a file", "lists processes", "signals its parent", "opens a socket",
            "opens a datagram socket", "forks", "makes anonymous files",
        )
    }  # fmt: skip
    job = Job(ESCAPING, f"done = escaped({chosen!r})\nassert done == {[*chosen]!r}, done")
    outcome = run_as((), {"all": job})["all"]
    assert outcome.detail == ""
    assert (tmp_path / "private.txt.made").is_dir()
    assert not outside.exists()


@linux
def test_datagrams_do_not_leave():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind(("127.0.0.1", 0))
        here.settimeout(0)
        send = f"""
import ctypes, socket, struct
libc = ctypes.CDLL(None)
address = struct.pack('=H', 2) + struct.pack('!H4B8x', {here.getsockname()[1]}, 127, 0, 0, 1)
for made in (lambda: libc.socket(2, 2, 0), lambda: libc.syscall(41, 2, 2, 0), lambda: 3):
    libc.sendto(made(), b'secret', 6, 0, address, len(address))
try:
    socket.socket(type=socket.SOCK_DGRAM).sendto(b'secret', ('127.0.0.1', {here.getsockname()[1]}))
except PermissionError:
    done = True
"""
        outcome = run(send, tests="assert done")
        with pytest.raises(BlockingIOError):
            here.recv(10)
    assert outcome.verdict in ("passed", "killed"), "killed if it wrote over its own line"


# --- limits ---


def test_memory_is_limited():
    taking = "def f(n):\n    return len(bytearray(n * 2**20))\n"
    assert run(taking, tests=f"assert f(64) == {64 * 2**20}", memory_mb=256).passed
    assert run(taking, tests="f(512)", memory_mb=256).verdict == "memory"


@pytest.mark.parametrize("waiting", ["while True: pass", "import time; time.sleep(60)"], ids=["busy", "asleep"])
def test_time_is_limited(waiting):
    begun = time.monotonic()
    outcome = run(waiting, timeout=0.3)
    assert outcome.verdict == "timeout"
    assert outcome.seconds >= 0.3
    assert time.monotonic() - begun < 30


def test_a_large_answer_and_a_large_output_are_not_ours(monkeypatch):
    program = "def f():\n    return 'x' * 2**26\nprint('x' * 2**26)\n"
    assert run(program, tests="assert f()").verdict == "memory"


@linux
def test_disk_is_limited():
    """In memory the file system says so; on a disk it is seen from here."""
    program = "def f():\n    for n in range(100):\n        open(str(n), 'wb').write(bytes(2**22))\n"
    on_disk, here = (run_as(layers, {"": Job(program, "f()")})[""] for layers in (LANDLOCKED, sandbox.tier().layers))
    assert SCRATCH_SIZE < 100 * 2**22
    assert (on_disk.verdict, on_disk.detail) == ("killed", "it wrote more than it may")
    in_memory = {"bubblewrap", "namespaces"} & {*sandbox.tier().layers}
    assert here.detail == ("OSError: [Errno 28] No space left on device" if in_memory else on_disk.detail)


# --- what is left ---

LITTER = """
import os, socket, tempfile, threading, time
os.makedirs('a/b/c')
open('a/b/c/file', 'w').write('x')
os.symlink('/', 'root')
os.mkfifo('pipe')
kept = tempfile.mkdtemp(), tempfile.mkstemp(), os.pipe(), socket.socketpair()
deep = os.getcwd()
for _ in range(300):
    os.mkdir('d')
    os.chdir('d')
os.chdir(deep)
os.chmod('a/b/c', 0)
os.chmod('a', 0)
threading.Thread(target=time.sleep, args=(60,)).start()
"""


def processes_with(word):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] if word.encode() in path.read_bytes() else []
    return found


@linux
@pytest.mark.parametrize("end", ["", "os._exit(0)", "1 / 0", "time.sleep(60)"], ids=["ends", "exits", "fails", "waits"])
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_nothing_is_left(end, on_disk, tmp_path, monkeypatch):
    layers = LANDLOCKED if on_disk else sandbox.tier().layers
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads, descriptors = threading.active_count(), os.listdir("/proc/self/fd")
    seen = []
    monkeypatch.setattr(sandbox, "_heard", lambda *a: (seen.extend(processes_with(str(tmp_path))), heard(*a))[1])
    outcome = run_as(layers, {"": Job(LITTER + end, timeout=0.5)})[""]
    assert outcome.verdict == {"": "passed", "os._exit(0)": "killed", "1 / 0": "wrong"}.get(end, "timeout")
    assert len(seen) >= 2, "the processes can be seen by the folder that they are given"
    assert processes_with(str(tmp_path)) == []
    assert os.listdir(tmp_path) == []
    assert os.listdir("/proc/self/fd") == descriptors
    assert threading.active_count() == threads


heard = sandbox._heard

STARTING = """
from redraft.evals import sandbox, sandbox_processes
class Told(sandbox_processes.Child):
    def __enter__(self):
        print(self.pid, flush=True)
        return self
held = sandbox.Tier(("landlock", "seccomp"))
sandbox.tier = lambda: held
sandbox.Child = Told
sandbox.run("import time\\ntime.sleep(600)", timeout=600)
"""
RUNNING = """
from redraft.evals import sandbox
heard = sandbox._heard
def told(reader, timeout, worker, driver):
    print(worker.pid, driver.pid, sep="\\n", flush=True)
    return heard(reader, timeout, worker, driver)
sandbox._heard = told
sandbox.run("import time\\ntime.sleep(600)", timeout=600)
"""


@linux
@pytest.mark.parametrize("script", [STARTING, RUNNING], ids=["starting", "running"])
def test_nothing_is_left_when_the_grader_is_killed(script, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # nobody is there to clear away an empty folder
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as grader:
        numbers = [int(grader.stdout.readline()) for _ in range(2)]
        ends = [os.pidfd_open(number) for number in numbers]
        grader.kill()
    for end in ends:
        assert select.select([end], [], [], 30)[0], "it is still there"
        os.close(end)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@linux
def test_an_error_of_ours_leaves_nothing_either(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sandbox, "_heard", lambda *_: 1 / 0)
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(ZeroDivisionError):
        run("while True: pass")
    assert processes_with(str(tmp_path)) == os.listdir(tmp_path) == []
    assert os.listdir("/proc/self/fd") == descriptors


# --- what holds programs here ---


@linux
@pytest.mark.parametrize(
    ("layers", "leaks"),
    [
        (LANDLOCKED, []),
        (("seccomp",), ["read files", "write files", "make files"]),
        (("landlock",), ["use the network", "start processes"]),
        (
            (),
            ["read files", "write files", "make files", "signal other processes", "use the network", "start processes"],
        ),
    ],
    ids=["both", "seccomp", "landlock", "limits"],
)
def test_a_layer_that_is_missing_is_noticed(layers, leaks):
    assert sandbox_tier.probe(Tier(layers)) == ["tried", *leaks]
    assert Tier(layers, tuple(leaks)).strong == (not leaks)


@linux
def test_a_layer_that_the_kernel_refuses_is_named(monkeypatch):
    monkeypatch.setattr(sandbox_tier, "probe", lambda held: ["refused", held.layers[0]] if held.layers else ["tried"])
    assert sandbox_tier.tier.__wrapped__() == Tier(())
    monkeypatch.setattr(sandbox_tier, "probe", lambda held: [])
    with pytest.raises(RuntimeError, match="cannot even be tried"):
        sandbox_tier.tier.__wrapped__()


def test_a_weak_sandbox_is_refused_unless_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(sandbox, "tier", lambda: Tier((), ("read files", "start processes")))
    monkeypatch.delenv(sandbox.ALLOW_WEAK, raising=False)
    with pytest.raises(ValueError, match=r"no more than a weak sandbox .*a program could read files, start processes"):
        run(DOUBLE, tests=ASSERTS)
    with pytest.raises(ValueError, match="allow_weak=True or REDRAFT_ALLOW_WEAK_SANDBOX=1"):
        next(run_many([Job(DOUBLE)]))
    allowed = run(DOUBLE, tests=ASSERTS, allow_weak=True)
    assert allowed.passed
    assert allowed.tier == "weak: limits; a program could read files, start processes"
    monkeypatch.setenv(sandbox.ALLOW_WEAK, "1")
    assert run(DOUBLE, tests=ASSERTS).passed
    assert run(**FORMS["joined"](CHEATS["equals everything"])).verdict == "wrong"
    assert run(**FORMS["joined"](CHEATS["exits with 0"])).verdict == "killed"


def test_no_system_but_those_with_forks(monkeypatch):
    monkeypatch.setattr(sandbox_tier, "os", SimpleNamespace(name="nt"))
    with pytest.raises(ValueError, match="Linux and macOS only"):
        sandbox_tier.tier.__wrapped__()


def test_doctor_says_what_holds_programs():
    doctor = importlib.import_module("redraft.commands.doctor")
    assert [*doctor.sandbox()] == [doctor.Finding("sandbox", True, str(sandbox.tier()))]
