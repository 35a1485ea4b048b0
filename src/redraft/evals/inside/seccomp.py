"""System calls that a confined process may not make: a seccomp filter (linux/filter.h, linux/seccomp.h).

What files may be touched is Landlock's concern, except where Landlock is silent: modes, owners and times of files.
Calls newer than this list do not exist inside, which covers clone3, io_uring, pidfds and whatever comes next.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import NamedTuple

from .kernel import PR_SET_SECCOMP, prctl

NEWEST = 424  # the first number of the calls that are alike on all machines, which began with pidfd_send_signal

# name: (x86_64, aarch64); None where a machine has no such call. From asm/unistd_64.h and asm-generic/unistd.h.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # no processes, and nothing done to those of others
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "unshare": (272, 97),
    "setns": (308, 268), "setsid": (112, 157), "setpgid": (109, 154), "ptrace": (101, 117), "kcmp": (312, 272),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # no network; pairs of sockets are further below
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
    # no memory that the limits do not count, and none shared with others
    "memfd_create": (319, 279), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181), "io_setup": (206, 0),
    # no kernel
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "swapon": (167, 224),
    "swapoff": (168, 225), "reboot": (169, 142), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "sethostname": (170, 161),
    "setdomainname": (171, 162), "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "syslog": (103, 116), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "quotactl": (179, 60), "ioperm": (173, None), "iopl": (172, None), "modify_ldt": (154, None),
    "personality": (135, 92), "lookup_dcookie": (212, 18), "vhangup": (153, 58), "nfsservctl": (180, 42),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "inotify_init": (253, None), "inotify_init1": (294, 26),
    # no changes to files outside that Landlock does not see
    "truncate": (76, 45), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip

# These say that they succeeded and do nothing: shutil and tempfile call them on the program's own files. And whoever
# waits for the disks makes all others wait.
PRETENDED: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "sync": (162, 81), "syncfs": (306, 267),
}  # fmt: skip

CLONE_THREAD = 0x10000
SOCK_STREAM, SOCK_TYPES = 1, 0xF
O_ACCMODE, O_TRUNC = 0o3, 0o1000
PR_SET_PDEATHSIG = 1
OWNERS = (8, 10, 15, 1024, 1026)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY: signals on another's behalf
TERMINAL = (0x5412, 0x541C, 0x8901, 0x8902)  # TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP

LOAD, AND, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # BPF_LD+W+ABS, ALU+AND, JMP+JEQ, +JGE, RET
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; of an argument the low half is enough for us
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
MODE_FILTER = 2
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1), "arm64": (0xC00000B7, 1)}  # AUDIT_ARCH_*, column


class Instruction(NamedTuple):
    code: int
    value: int
    equal: int = 0  # how many instructions to skip where the comparison holds
    other: int = 0


def program(pid: int) -> list[Instruction]:
    """The filter of the process `pid`, which may signal itself and nobody else."""
    machine, column = MACHINES[platform.machine()]
    refuse, absent, pretend = (Instruction(RETURN, ERROR | code) for code in (errno.EPERM, errno.ENOSYS, 0))
    lines = [
        Instruction(LOAD, MACHINE),
        Instruction(JUMP_EQUAL, machine, 1, 0),
        Instruction(RETURN, KILL),
        Instruction(LOAD, NUMBER),
        Instruction(JUMP_AT_LEAST, NEWEST, 0, 1),
        absent,
    ]
    for calls, verdict in ((DENIED, refuse), (PRETENDED, pretend)):
        for number in (numbers[column] for numbers in calls.values()):
            lines += [Instruction(JUMP_EQUAL, number, 0, 1), verdict] if number is not None else []

    def when(numbers: tuple[int | None, int | None], body: list[Instruction]) -> list[Instruction]:
        number = numbers[column]
        return [] if number is None else [Instruction(JUMP_EQUAL, number, 0, len(body)), *body]

    def argument(place: int) -> Instruction:
        return Instruction(LOAD, ARGUMENTS + 8 * place)

    def only(place: int, *values: int) -> list[Instruction]:
        """Allowed with one of these values of an argument, refused with others."""
        allowed = [
            line for value in values for line in (Instruction(JUMP_EQUAL, value, 0, 1), Instruction(RETURN, ALLOW))
        ]
        return [argument(place), *allowed, refuse]

    def never(place: int, *values: int) -> list[Instruction]:
        refused = [line for value in values for line in (Instruction(JUMP_EQUAL, value, 0, 1), refuse)]
        return [argument(place), *refused, Instruction(RETURN, ALLOW)]

    def masked(place: int, mask: int, value: int, same: Instruction, other: Instruction) -> list[Instruction]:
        """One verdict where the bits of an argument are these, another where they are not."""
        return [argument(place), Instruction(AND, mask), Instruction(JUMP_EQUAL, value, 0, 1), same, other]

    allow = Instruction(RETURN, ALLOW)

    return [
        *lines,
        *when((56, 220), masked(0, CLONE_THREAD, CLONE_THREAD, allow, refuse)),  # clone: threads only
        # socketpair: connected, so no other address can be sent to
        *when((53, 199), masked(1, SOCK_TYPES, SOCK_STREAM, allow, refuse)),
        # open and openat: a file opened for reading may not be emptied, which early versions of Landlock do not see
        *when((2, None), masked(1, O_TRUNC | O_ACCMODE, O_TRUNC, refuse, allow)),
        *when((257, 56), masked(2, O_TRUNC | O_ACCMODE, O_TRUNC, refuse, allow)),
        *when((62, 129), only(0, pid)),  # kill
        *when((234, 131), only(0, pid)),  # tgkill
        *when((302, 261), only(0, 0, pid)),  # prlimit64
        *when((157, 167), never(0, PR_SET_PDEATHSIG)),  # prctl: it dies with us
        *when((72, 25), never(1, *OWNERS)),  # fcntl
        *when((16, 29), never(1, *TERMINAL)),  # ioctl
        Instruction(RETURN, ALLOW),
    ]


def install() -> None:
    """From here on, in every thread to come, for good. Needs no_new_privs."""
    if platform.machine() not in MACHINES or struct.calcsize("P") != 8:
        raise OSError(f"no filter is written for {platform.machine()}")
    lines = program(os.getpid())
    code = b"".join(struct.pack("=HBBI", line.code, line.equal, line.other, line.value) for line in lines)
    held = ctypes.create_string_buffer(code, len(code))
    packed = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(held)))
    prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.addressof(packed))
