"""Runs the command `redraft`: in this process where that shows the same, as a process of its own where it does not."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

COMMAND = Path(sys.executable).with_name("redraft")
QUESTION = "7 + 5 + 9 + 3 + 2 = ?"
QUESTIONS = (QUESTION, "1 + 2 + 3 + 4 + 5 = ?", "9 + 9 + 9 + 9 + 9 = ?", "4 + 4 = ?", "8 + 1 + 6 = ?")
SHORT = ("--length", "24", "--steps", "12")


class Run(NamedTuple):
    code: int
    out: str
    err: str


class Input(io.TextIOWrapper):
    """Standard input: piped, or a terminal at which nobody types."""

    typing = False

    def isatty(self) -> bool:
        return self.typing


def run(*arguments, stdin: str | bytes = b"", typing: bool = False, reports: float = float("inf")) -> Run:
    """`redraft` with these arguments, by way of `main`, off a terminal.

    `reports`: after so many seconds progress is said. Never, unless asked for: how long a test takes is chance.
    """
    from redraft.cli import main
    from redraft.commands import console

    raw = stdin.encode() if isinstance(stdin, str) else stdin
    out, err, code = io.StringIO(), io.StringIO(), None
    argv = patch.object(sys, "argv", ["redraft", *map(str, arguments)])
    source = Input(io.BytesIO(raw), encoding="utf-8")
    source.typing = typing
    with (
        argv,
        patch.object(console, "FIRST_LINE", reports),
        patch.object(sys, "stdin", source),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int), "main ends with an exit code"
    return Run(code, out.getvalue(), err.getvalue())


def ask(*arguments, **options) -> Run:
    """`redraft generate`, which must succeed."""
    done = run("generate", *arguments, **options)
    assert done.code == 0, done.err
    return done


def start(*arguments, **options) -> subprocess.Popen:
    return subprocess.Popen([COMMAND, *map(str, arguments)], env=environment(), text=True, **options)


def environment() -> dict[str, str]:
    unset = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    return {name: value for name, value in os.environ.items() if name not in unset} | {"TERM": "xterm-256color"}
