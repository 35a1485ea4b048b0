"""Programs that nobody has read are run here: `run(program, tests=..., entry_point=...)`, `run_many(jobs)`.

Every run has two processes of its own. The worker runs the program; the driver runs the tests, asks the worker for
values, and has the verdict, which is a message and never an exit status. Both give up what they may do before they see
a line of the program: see `inside/`. This process only waits, kills and clears away.
"""

from __future__ import annotations

import json
import math
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from redraft.evals.task import VERDICTS, Verdict

ALLOW_WEAK = "REDRAFT_ALLOW_WEAK_SANDBOX"  # in the environment, for processes that are started by others
PATIENCE = 60.0  # seconds that the two processes may take to start
LEAST_MEMORY = 64  # MiB; Python itself takes half of that
INSIDE = Path(__file__).parent / "inside"
# Imports the package `inside` from its folder alone: none of its neighbours can be taken for the standard library.
BOOT = (
    "import sys, types; package = sys.modules['inside'] = types.ModuleType('inside');"
    f"package.__path__ = [{str(INSIDE)!r}]; import inside.__main__"
)
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
BUBBLE = """--unshare-all --die-with-parent --new-session --clearenv --cap-drop ALL --dir /tmp
--dev-bind /dev/null /dev/null
--dev-bind /dev/zero /dev/zero --dev-bind /dev/full /dev/full --dev-bind /dev/random /dev/random
--dev-bind /dev/urandom /dev/urandom --proc /proc"""


@dataclass(frozen=True)
class Outcome:
    """What became of a program. Its truth value says whether it passed."""

    verdict: Verdict
    detail: str = ""  # the error, as far as there is one to tell
    seconds: float = 0.0
    tier: str = ""  # what held the program

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    def __bool__(self) -> bool:
        return self.passed


@dataclass(frozen=True)
class Job:
    """What `run` takes, for `run_many`."""

    program: str
    tests: str = ""
    entry_point: str | None = None
    timeout: float = 10.0
    memory_mb: int = 1024


def run(
    program: str,
    *,
    tests: str = "",
    entry_point: str | None = None,
    timeout: float = 10.0,
    memory_mb: int = 1024,
    allow_weak: bool = False,
) -> Outcome:
    """Run a program and its tests; never raises for anything that either does.

    tests: Python that uses what the program defines; if it defines `check`, that is called with the program's
    `entry_point`. Without tests the program is split where its own begin; without any it passes by reaching its end.
    timeout: seconds of time, of both together. memory_mb: address space of each.
    allow_weak: run it even where the system gives no more than resource limits.
    """
    job = Job(program, tests, entry_point, timeout, memory_mb)
    _check(job)
    held = tier()
    if not (held.strong or allow_weak or os.environ.get(ALLOW_WEAK)):
        raise ValueError(
            f"this system gives generated code no more than a weak sandbox ({held}), so none is run: allow it with"
            f" allow_weak=True or {ALLOW_WEAK}=1 if you trust the model, or install bubblewrap"
        )
    return _run(job, held)


def run_many(jobs: Iterable[Job], workers: int | None = None, *, allow_weak: bool = False) -> Iterator[Outcome]:
    """The outcomes of many jobs in their order, `workers` at a time (default: one a processor)."""
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        yield from pool.map(lambda job: run(**vars(job), allow_weak=allow_weak), jobs)


def _check(job: Job) -> None:
    if not 0 < job.timeout < math.inf:
        raise ValueError(f"the timeout is {job.timeout}: give a positive number of seconds")
    if job.memory_mb < LEAST_MEMORY:
        raise ValueError(f"memory_mb is {job.memory_mb}: give at least {LEAST_MEMORY}, Python itself needs half of it")
    try:
        compile(job.tests, "<tests>", "exec")
    except (SyntaxError, ValueError) as wrong:
        raise ValueError(f"the tests are not Python: {wrong}") from None
    if (
        job.entry_point is None
        and re.search(r"^def check\(", job.tests, re.M)
        and not re.search(r"^check\(", job.tests, re.M)
    ):
        raise ValueError("the tests define check and do not call it: name the function it is for as entry_point")


# --- one run ---


def _run(job: Job, held: Tier) -> Outcome:
    with ExitStack() as cleanup:
        verdicts, said = os.pipe()
        cleanup.callback(os.close, verdicts)
        line, other = socket.socketpair()
        worker = cleanup.enter_context(_Child("worker", held, job, {"line": other.fileno(), "packages": packages()}))
        other.close()
        given = {"program": job.program, "tests": job.tests, "entry_point": job.entry_point}
        channels = {"line": line.fileno(), "verdicts": said}
        driver = cleanup.enter_context(_Child("driver", held, job, channels, json.dumps(given)))
        line.close()
        os.close(said)
        reader = _Reader(verdicts)
        started = reader.line(PATIENCE)
        if started is None or started[0] != "ready":
            raise RuntimeError(f"the sandbox could not be set up: {': '.join(started or ['it takes too long'])}")
        begun = time.monotonic()
        found = reader.line(job.timeout)
        seconds = time.monotonic() - begun
        late = found is None and seconds >= job.timeout
        exhausted = signal.SIGXCPU in (-worker.end(), -driver.end())
    if late or (exhausted and (found is None or found[0] == "killed")):
        return Outcome("timeout", f"{job.timeout:g} seconds were not enough", seconds, str(held))
    if found is None:
        return Outcome("killed", "the tests did not survive", seconds, str(held))
    return Outcome(_verdict(found[0]), found[1], seconds, str(held))


def _verdict(said: str) -> Verdict:
    assert said in VERDICTS
    return said  # pyright: ignore[reportReturnType]


class _Reader:
    """Lines of JSON from a pipe, each within a time; None when it is over or too late."""

    def __init__(self, pipe: int) -> None:
        self.pipe, self.buffer = pipe, b""

    def line(self, patience: float) -> list[str] | None:
        deadline = time.monotonic() + patience
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.pipe], [], [], left)[0]:
                return None
            data = os.read(self.pipe, 1 << 16)
            if not data:
                return None
            self.buffer += data
        first, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(first)


class _Child:
    """A process of the sandbox and its scratch folder: both are gone at the end of the `with`."""

    def __init__(self, role: str, held: Tier, job: Job, given: dict[str, Any], stdin: str = "") -> None:
        self.scratch = os.path.realpath(tempfile.mkdtemp(prefix="redraft-"))
        terms = {
            "layers": [layer for layer in held.layers if layer != BUBBLEWRAP],
            "scratch": self.scratch,
            "readable": readable(),
            "seconds": math.ceil(job.timeout) + 1,
            "memory_mb": job.memory_mb,
        }
        open_channels = [given[name] for name in ("line", "verdicts") if name in given]
        with tempfile.TemporaryFile() as file, ExitStack() as channels:
            file.write(stdin.encode(errors="surrogatepass"))
            file.seek(0)
            command = [interpreter(), "-I", "-S", "-B", "-c", BOOT, role, json.dumps({**given, "terms": terms})]
            self.told: int | None = None
            if BUBBLEWRAP in held.layers:
                self.told, tell = os.pipe()
                channels.callback(os.close, tell)
                command = [*_bubble(self.scratch), "--info-fd", str(tell), *command]
                open_channels.append(tell)
            self.process = subprocess.Popen(
                command,
                stdin=file,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                pass_fds=open_channels,
                start_new_session=True,
            )

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        if self.told is not None:
            os.close(self.told)
        _remove(self.scratch)

    def end(self) -> int:
        """Kill it if it still runs; its exit status."""
        if self.process.poll() is None:
            os.kill(self._target(), signal.SIGKILL)
        return self.process.wait()

    def _target(self) -> int:
        """With bubblewrap, the first process inside: with it goes everything inside, and bubblewrap follows."""
        if self.told is not None and select.select([self.told], [], [], PATIENCE)[0]:
            found = re.search(rb'"child-pid": (\d+)', os.read(self.told, 4096))
            if found:
                return int(found[1])
        return self.process.pid


def _remove(folder: str) -> None:
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # folders without permissions, or thousands of them within one another
        subprocess.run(["chmod", "-R", "u+rwX", folder], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)


# --- what the system gives ---

BUBBLEWRAP = "bubblewrap"


@dataclass(frozen=True)
class Tier:
    """What holds a program besides resource limits; and what it could do all the same when it was tried."""

    layers: tuple[str, ...]
    leaks: tuple[str, ...] = ()

    @property
    def strong(self) -> bool:
        return not self.leaks

    def __str__(self) -> str:
        if self.strong:
            return f"strong: {', '.join((*self.layers, 'limits'))}"
        return f"weak: {', '.join((*self.layers, 'limits'))}; a program could {', '.join(self.leaks)}"


@cache
def tier() -> Tier:
    """What this system gives, found by trying: the layers that hold, and whether they hold what they should."""
    layers = ["landlock", "seccomp"] if sys.platform == "linux" else []
    if sys.platform == "linux":
        layers.insert(0, BUBBLEWRAP if shutil.which("bwrap") else "namespaces")
    while True:
        found = _probe(Tier(tuple(layers)))
        if found is not None and found[0] == "tried":
            return Tier(tuple(layers), tuple(found[1:]))
        refused = found[1] if found is not None else BUBBLEWRAP
        if refused not in layers:
            raise RuntimeError(f"the sandbox cannot even be tried here: {found}")
        layers.remove(refused)
        if refused == BUBBLEWRAP:
            layers.insert(0, "namespaces")


def _probe(held: Tier) -> list[str] | None:
    verdicts, said = os.pipe()
    with tempfile.NamedTemporaryFile(prefix="redraft-") as outside:
        given = {"verdicts": said, "outside": outside.name}
        with _Child("probe", held, Job(""), given):
            os.close(said)
            found = _Reader(verdicts).line(PATIENCE)
        os.close(verdicts)
        shutil.rmtree(f"{outside.name}.made", ignore_errors=True)
    return found


def interpreter() -> str:
    return os.path.realpath(sys.executable)


@cache
def packages() -> list[str]:
    """Where installed packages are: programs may import them."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages") and Path(path).is_dir()]


@cache
def readable() -> list[str]:
    """The standard library, the packages and what they are linked with: nothing of the user's."""
    home = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    linked = [str(sysconfig.get_config_var("LIBDIR") or ""), str(Path(sys.base_prefix) / "lib")]
    paths = [*home, *linked, *packages(), *LIBRARIES]
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if path and os.path.exists(path)))


def _bubble(scratch: str) -> list[str]:
    """bubblewrap's command line: a file system that holds nothing else, no network, no other processes."""
    shown = [*LIBRARIES, interpreter(), str(INSIDE), *readable()]
    binds = [part for path in dict.fromkeys(shown) if os.path.exists(path) for part in ("--ro-bind", path, path)]
    return ["bwrap", *BUBBLE.split(), *binds, "--size", str(64 * 2**20), "--tmpfs", scratch, "--chdir", scratch]
