"""Files, ports and signals that a confined process may reach: a Landlock ruleset (linux/landlock.h)."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable

from .kernel import syscall

CREATE, ADD, RESTRICT = 444, 445, 446  # landlock_create_ruleset, landlock_add_rule, landlock_restrict_self
VERSION_ONLY = 1
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READING = READ_FILE | READ_DIR
BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # rights over files that each version knows; the fifth has them all
TCP = 0b11  # binding and connecting, from version 4
SCOPES = 0b11  # abstract sockets and signals, from version 6


def version() -> int:
    """0 where the kernel has no Landlock."""
    try:
        return syscall(CREATE, None, 0, VERSION_ONLY)
    except OSError:
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str], folders: Iterable[str]) -> None:
    """From here on, for good: these files and folders may be read, these files written, these folders used at will."""
    known = version()
    if not known:
        raise OSError("this kernel has no Landlock")
    everything = (1 << BITS[min(known, max(BITS))]) - 1
    asked = struct.pack("=QQQ", everything, TCP, SCOPES)
    ruleset = syscall(CREATE, asked, 8 if known < 4 else 16 if known < 6 else 24, 0)
    rules = [(READING, readable), (READ_FILE | WRITE_FILE, writable), (everything & ~EXECUTE, folders)]
    for rights, paths in rules:
        for path in paths:
            _allow(ruleset, path, rights & everything)
    syscall(RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there, or not for us, needs no rule
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= ON_FILES
    syscall(ADD, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    os.close(place)
