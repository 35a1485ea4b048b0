"""The command `redraft`: the commands are in `redraft/commands`, one a file; here is what they share.

Whatever a user got wrong is one sentence on stderr and exit code 2, without a traceback (REDRAFT_TRACEBACK=1 shows it).
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import click
import typer

from redraft.commands.console import err, out, plain
from redraft.commands.demo import demo
from redraft.commands.doctor import doctor
from redraft.commands.generate import generate
from redraft.commands.samplers import samplers

REFUSED = 2
INTERRUPTED = 130  # as shells have it: 128 + SIGINT

app = typer.Typer(
    name="redraft",
    help="Text generation by masked diffusion models that can change their mind.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (generate, samplers, doctor, demo):
    app.command()(command)


def _version(wanted: bool | None) -> None:
    if wanted:
        from redraft import __version__

        out.print(f"redraft {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = None,
) -> None:
    pass


def main() -> None:
    try:
        code = app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as bare:
        bare.show()
        code = REFUSED
    except click.ClickException as wrong:
        code = _refuse(wrong.format_message())
    except (click.Abort, KeyboardInterrupt):
        err.print("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (ValueError, OSError) as wrong:
        if os.environ.get("REDRAFT_TRACEBACK"):
            traceback.print_exc()
        code = _refuse(_sentence(wrong))
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(sentence: str) -> int:
    err.print(f"[bold red]redraft:[/] {plain(' '.join(sentence.split()))}", soft_wrap=True)
    return REFUSED


def _sentence(wrong: Exception) -> str:
    if isinstance(wrong, FileNotFoundError) and wrong.filename:
        return f"there is no file {wrong.filename}"
    if isinstance(wrong, OSError) and wrong.filename and wrong.strerror:
        return f"{wrong.filename}: {wrong.strerror}"
    return str(wrong)
