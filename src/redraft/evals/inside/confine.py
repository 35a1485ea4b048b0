"""How a process gives up all that a program under test has no need of, before it sees the first line of it."""

from __future__ import annotations

import os
import resource
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

from . import landlock, seccomp
from .kernel import PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, capset, mount_memory, prctl, unshare

SIGKILL = 9
MEBIBYTE = 2**20
FILE_SIZE = 64 * MEBIBYTE  # of any one file
SCRATCH_SIZE = 64 * MEBIBYTE  # of all of them, where the scratch folder is in memory
SCRATCH_FILES = 4096
OPEN_FILES = 64
STACK = 64 * MEBIBYTE  # of the main thread: deep recursion is honest
DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
SOURCES = ("/dev/urandom", "/dev/random")
NEW_USER, NEW_MOUNTS, NEW_NETWORK, NEW_IPC, NEW_HOSTNAME = 0x10000000, 0x20000, 0x40000000, 0x8000000, 0x4000000
CAPABILITIES_3 = 0x20080522


class Terms(TypedDict):
    """What a process is held to."""

    layers: list[str]  # of "namespaces", "landlock", "seccomp": those that must hold; limits always do
    scratch: str  # the one folder that may be written
    readable: list[str]
    seconds: int  # of processor time
    memory_mb: int
    parent: int | None  # whose end is the process's own; not seen from inside bubblewrap, which sees to it itself


class Refused(OSError):
    """The kernel does not grant a layer."""


def confine(terms: Terms) -> None:
    """Raises Refused, with the name of the layer, if one cannot be had: then nothing untrusted may run."""
    os.chdir(terms["scratch"])
    with _layer("namespaces", terms) as wanted:
        if wanted:
            _leave_namespaces(terms["scratch"])
    with _layer("landlock", terms) as wanted:
        if sys.platform == "linux":
            _drop_privileges(terms["parent"])
        if wanted:
            landlock.restrict([*terms["readable"], *SOURCES], DEVICES, [terms["scratch"]])
    _limit(terms["seconds"], terms["memory_mb"])
    with _layer("seccomp", terms) as wanted:
        if wanted:
            seccomp.install()


@contextmanager
def _layer(name: str, terms: Terms) -> Iterator[bool]:
    try:
        yield name in terms["layers"]
    except OSError as refused:
        raise Refused(name, str(refused)) from None


def _leave_namespaces(scratch: str) -> None:
    """A network without interfaces, no shared memory of others, and the scratch folder in memory."""
    user, group = os.geteuid(), os.getegid()
    apart = NEW_MOUNTS | NEW_NETWORK | NEW_IPC | NEW_HOSTNAME
    unshare(NEW_USER | apart)
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    mount_memory(scratch, f"size={SCRATCH_SIZE},nr_inodes={SCRATCH_FILES},mode=700")
    os.chdir(scratch)


def _drop_privileges(parent: int | None) -> None:
    """Root without capabilities is nobody in particular; nothing can be gained again; and it dies with its parent."""
    header = struct.pack("=Ii", CAPABILITIES_3, 0)
    capset(header, bytes(24))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if parent not in (None, os.getppid()):  # it ended before it could be told
        os._exit(1)


def _limit(seconds: int, memory_mb: int) -> None:
    for name, soft, hard in (
        ("CORE", 0, 0),
        ("CPU", seconds, seconds + 1),
        ("FSIZE", FILE_SIZE, FILE_SIZE),
        ("NOFILE", OPEN_FILES, OPEN_FILES),
        ("STACK", STACK, STACK),
        ("AS", memory_mb * MEBIBYTE, memory_mb * MEBIBYTE),
    ):
        which = getattr(resource, f"RLIMIT_{name}")
        ceiling = resource.getrlimit(which)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        try:
            resource.setrlimit(which, (soft, hard))
        except (OSError, ValueError):  # macOS has limits that it lets nobody set
            if sys.platform == "linux":
                raise
