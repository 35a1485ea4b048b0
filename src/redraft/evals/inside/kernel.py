"""The few calls to the Linux kernel that Python does not have, each of which raises OSError when refused."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38  # linux/prctl.h

_library = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: int | bytes | None) -> int:
    _library.syscall.restype = ctypes.c_long
    done = _library.syscall(ctypes.c_long(number), *map(_word, arguments))
    return _checked(done, f"system call {number}")


def prctl(option: int, *arguments: int) -> int:
    padded = [*arguments, *[0] * (4 - len(arguments))]
    return _checked(_library.prctl(option, *map(ctypes.c_ulong, padded)), f"prctl {option}")


def capset(header: bytes, data: bytes) -> None:
    _checked(_library.capset(header, data), "capset")


def unshare(flags: int) -> None:
    _checked(_library.unshare(flags), "unshare")


def mount_memory(at: str, options: str) -> None:
    """A file system in memory over a folder, seen by this mount namespace alone."""
    _checked(_library.mount(b"tmpfs", at.encode(), b"tmpfs", ctypes.c_ulong(0b110), options.encode()), f"mount on {at}")


def _word(argument: int | bytes | None) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(done: int, what: str) -> int:
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return done
