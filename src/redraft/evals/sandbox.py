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
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redraft.evals.sandbox_processes import PATIENCE, Child, Reader, Tier, packages
from redraft.evals.sandbox_tier import tier as tier  # callers ask the sandbox for it
from redraft.evals.task import VERDICTS, Verdict

ALLOW_WEAK = "REDRAFT_ALLOW_WEAK_SANDBOX"  # in the environment, for processes that are started by others
SIGXCPU = 24  # which Windows has no name for
OUT_OF_TIME = (-SIGXCPU, 128 + SIGXCPU)  # exit statuses; the second as bubblewrap has it
LEAST_MEMORY = 64  # MiB; Python itself takes half of that
GLANCE = 0.1  # seconds between two looks at what a program has taken


@dataclass(frozen=True)
class Outcome:
    """What became of a program. Its truth value says whether it passed."""

    verdict: Verdict
    detail: str = ""  # the error, as far as there is one to tell; or that it passed without tests
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
    `entry_point`. Without tests the program is split where its own begin: at the asserts or the functions called at its
    end. What is not recognised there stays with the program, which passes by reaching its end; `detail` says so.
    timeout: seconds for both together; waiting for a processor is not counted, up to as long again.
    memory_mb: address space of each.
    allow_weak: run it even where the system leaves it ways out.
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
    except (SyntaxError, ValueError, MemoryError, RecursionError) as wrong:
        raise ValueError(f"the tests are not Python: {wrong}") from None
    if job.entry_point is None and re.search(r"^def check\(", job.tests, re.M) and job.tests.count("check(") == 1:
        raise ValueError("the tests define check and do not call it: name the function it is for as entry_point")


def _run(job: Job, held: Tier) -> Outcome:
    with ExitStack() as cleanup:
        start = partial(Child, held=held, seconds=job.timeout, memory_mb=job.memory_mb)
        line, other, verdicts, said = map(cleanup.enter_context, (*socket.socketpair(), *socket.socketpair()))
        worker = cleanup.enter_context(start("worker", given={"line": other.fileno(), "packages": packages()}))
        channels = {"line": line.fileno(), "verdicts": said.fileno(), "packages": packages()}
        asked = json.dumps({"program": job.program, "tests": job.tests, "entry_point": job.entry_point})
        driver = cleanup.enter_context(start("driver", given=channels, stdin=asked))
        for theirs in (line, other, said):
            theirs.close()
        reader = Reader(verdicts.fileno())
        started = reader.line(PATIENCE)
        if not started or started[0] != "ready":
            raise RuntimeError(f"the sandbox could not be set up: {': '.join(started or ['it takes too long'])}")
        begun = time.monotonic()
        found = _heard(reader, job.timeout, worker, driver)
        seconds = time.monotonic() - begun
        exhausted = {*OUT_OF_TIME} & {worker.end(), driver.end()}
    if found is None or (exhausted and (not found or found[0] == "killed")):
        return Outcome("timeout", f"{job.timeout:g} seconds were not enough", seconds, str(held))
    if len(found) != 2 or found[0] not in VERDICTS:
        return Outcome("killed", "the tests did not survive", seconds, str(held))
    return Outcome(_verdict(found[0]), found[1], seconds, str(held))


def _heard(reader: Reader, timeout: float, worker: Child, driver: Child) -> list[str] | None:
    """What the driver says, nothing if it is gone, None if it takes too long; unless the program takes too much."""
    begun, allowed = time.monotonic(), timeout
    while True:
        found = reader.line(min(begun + allowed - time.monotonic(), GLANCE))
        if excess := worker.excess():
            return ["killed", excess]
        if found is not None:
            return found
        if begun + allowed <= time.monotonic():
            longer = timeout + min(timeout, _starved(worker) + _starved(driver))
            if longer <= allowed:
                return None
            allowed = longer


def _starved(child: Child) -> float:
    """Seconds that a process waited for a processor because others had them: a loaded machine fails no program."""
    waited = 0
    for task in child.tasks():
        with suppress(OSError, IndexError):  # threads end while one reads
            waited += int(Path(task, "schedstat").read_text().split()[1])
    return waited / 1e9


def _verdict(said: str) -> Verdict:
    assert said in VERDICTS
    return said  # pyright: ignore[reportReturnType]
