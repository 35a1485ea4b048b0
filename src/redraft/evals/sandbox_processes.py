"""The processes of the sandbox: started with what they need and nothing else, and gone when they are left."""

from __future__ import annotations

import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds that processes may take to start
BUBBLEWRAP = "bubblewrap"
INSIDE = Path(__file__).parent / "inside"
# Imports the package `inside` from its folder alone: none of its neighbours can be taken for the standard library.
BOOT = (
    "import sys, types; package = sys.modules['inside'] = types.ModuleType('inside');"
    f"package.__path__ = [{str(INSIDE)!r}]; import inside.__main__"
)
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
BUBBLE = ("--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL")
SCRATCH_SIZE = 64 * 2**20  # as inside.confine has it
SCRATCH_FILES = 4096
MOST_THREADS = 1024  # the kernel would let a program of root's have as many as the machine can have
CHANNELS = ("line", "verdicts")  # what a process may be given to talk through
FLAGS = ("-s", "-P", "-S")  # no packages of the user's, nothing of the working directory, no site
# Sets have the same order every time, so that verdicts are the same again; and threads share their memory: each would
# reserve 64 MiB for itself, of the little that there is.
VARIABLES = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2"}


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


class Reader:
    """Lines of JSON from a pipe, each within a time: None where it is too late, empty where there are no more."""

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
                return []
            self.buffer += data
        first, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(first)


class Child:
    """A process of the sandbox and its scratch folder: both are gone at the end of the `with`."""

    def __init__(
        self, role: str, held: Tier, given: dict[str, Any], *, seconds: float, memory_mb: int, stdin: str = ""
    ) -> None:
        self.scratch = os.path.realpath(tempfile.mkdtemp(prefix="redraft-"))
        self.on_disk = not {BUBBLEWRAP, "namespaces"} & {*held.layers}  # elsewhere the scratch folder is in memory
        self.told: int | None = None  # where bubblewrap tells what it started
        terms = {
            "layers": [layer for layer in held.layers if layer != BUBBLEWRAP],
            "scratch": self.scratch,
            "readable": readable(),
            "seconds": math.ceil(seconds) + 1,
            "memory_mb": memory_mb,
            "parent": None if BUBBLEWRAP in held.layers else os.getpid(),
        }
        command = [interpreter(), *FLAGS, "-c", BOOT, role, json.dumps({**given, "terms": terms})]
        try:
            self.process = self._started(command, held, [given[name] for name in CHANNELS if name in given], stdin)
        except BaseException:
            _remove(self.scratch)
            raise

    def _started(self, command: list[str], held: Tier, channels: list[int], stdin: str) -> subprocess.Popen[bytes]:
        with ExitStack() as stack:
            given: Any = subprocess.DEVNULL
            if stdin:
                given = stack.enter_context(tempfile.TemporaryFile())  # not a pipe: nobody need read it for us to go on
                given.write(stdin.encode())
                given.seek(0)
            if BUBBLEWRAP in held.layers:
                self.told, tell = os.pipe()
                stack.callback(os.close, tell)
                command, channels = [*_bubble(self.scratch), "--info-fd", str(tell), *command], [*channels, tell]
            return subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=VARIABLES,
                pass_fds=channels,
                start_new_session=True,
            )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        if self.told is not None:
            os.close(self.told)
        _remove(self.scratch)

    def end(self) -> int:
        """Kill it if it still runs; its exit status."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            if self.told is None:  # where it could start others, those are of its session
                with suppress(OSError):
                    os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()

    @cached_property
    def pid(self) -> int:
        """With bubblewrap, the first process inside: with it goes everything inside, and bubblewrap follows."""
        if self.told is not None and select.select([self.told], [], [], PATIENCE)[0]:
            found = re.search(rb'"child-pid": (\d+)', os.read(self.told, 4096))
            if found:
                return int(found[1])
        return self.process.pid

    def tasks(self) -> list[str]:
        """Its threads, as folders in /proc. bubblewrap's first process is not Python yet: that is a child of its."""
        pids, found = [str(self.pid)], []
        with suppress(OSError):
            pids += Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split() if self.told else []
        for pid in pids:
            with suppress(OSError):
                found += [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
        return found

    def excess(self) -> str:
        """What it has too much of, where the kernel does not see to it."""
        if len(self.tasks()) > MOST_THREADS:
            return "it started more threads than it may"
        return "it wrote more than it may" if self.on_disk and self._spilled() else ""

    def _spilled(self) -> bool:
        size = files = 0
        for folder, _, names in os.walk(self.scratch):
            for name in (".", *names):
                with suppress(OSError):
                    size += os.lstat(os.path.join(folder, name)).st_blocks * 512
                files += 1
                if size > SCRATCH_SIZE or files > SCRATCH_FILES:
                    return True
        return False


def _remove(folder: str) -> None:
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # folders without permissions, or thousands of them within one another
        subprocess.run(["chmod", "-R", "u+rwX", folder], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)


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
    shown = [path for path in (*LIBRARIES, interpreter(), str(INSIDE), *readable()) if os.path.exists(path)]
    binds = [word for path in dict.fromkeys(shown) for word in ("--ro-bind", path, path)]
    devices = [word for path in DEVICES for word in ("--dev-bind", path, path)]
    folder = ["--size", str(SCRATCH_SIZE), "--tmpfs", scratch, "--remount-ro", "/", "--chdir", scratch]
    variables = [word for name, value in VARIABLES.items() for word in ("--setenv", name, value)]
    return [str(shutil.which("bwrap")), *BUBBLE, *variables, *binds, *devices, *folder]
