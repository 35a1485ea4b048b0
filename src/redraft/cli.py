"""The command `redraft`: the commands are in `redraft/commands`, one a file; here is what they share.

Whatever a user got wrong is one sentence on stderr and exit code 2, without a traceback (REDRAFT_TRACEBACK=1 shows it).
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from redraft.commands.compare import compare
from redraft.commands.console import err, plain, write
from redraft.commands.demo import demo
from redraft.commands.doctor import doctor
from redraft.commands.eval import evaluate
from redraft.commands.frequencies import frequencies
from redraft.commands.generate import generate
from redraft.commands.lm_eval import lm_eval
from redraft.commands.pretrain import pretrain
from redraft.commands.replay import replay
from redraft.commands.samplers import samplers
from redraft.commands.sweep import sweep
from redraft.commands.train import train

REFUSED = 2
INTERRUPTED = 130  # as shells have it: 128 + SIGINT
# Reached through typer, which builds on click in its older versions and on a copy of it in its newer ones.
Misused: Any = typer.BadParameter.__mro__[2]
assert Misused.__name__ == "ClickException"

app = typer.Typer(
    name="redraft",
    help="Text generation by masked diffusion models that can change their mind.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: long options whole, brackets kept
)
for command in (generate, replay, train, pretrain, samplers, frequencies, doctor, compare, sweep, demo):
    app.command()(command)
app.command("eval")(evaluate)
app.command("lm-eval", context_settings={"ignore_unknown_options": True}, add_help_option=False)(lm_eval)


def _version(wanted: bool) -> bool:
    if wanted:
        from redraft import __version__

        write(f"redraft {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    pass


def main() -> None:
    try:
        code = app(standalone_mode=False)
    except Misused as wrong:
        code = _refuse(_misuse(wrong)) if type(wrong).__name__ != "NoArgsIsHelpError" else _help(wrong)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except (ValueError, OSError, MemoryError) as wrong:
        if os.environ.get("REDRAFT_TRACEBACK"):
            traceback.print_exc()
        code = _refuse(_sentence(wrong))
    if code == INTERRUPTED:
        err.print("interrupted")
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(sentence: str) -> int:
    err.print(f"[bold red]redraft:[/] {plain(' '.join(sentence.split()))}")
    return REFUSED


def _help(bare: Any) -> int:
    bare.show()
    return REFUSED


def _misuse(wrong: Any) -> str:
    """A wrong option or command. Typer names parameters as Python does: put the option's own name there."""
    said = wrong.format_message().rstrip(".")
    spelt = getattr(getattr(wrong, "param", None), "opts", [])
    if spelt and spelt[0].startswith("-"):
        said = f"{spelt[0]}: {wrong.message.rstrip('.')}"
    command = wrong.ctx.command_path if getattr(wrong, "ctx", None) else "redraft"
    return f"{said} (see `{command} --help`)"


def _sentence(wrong: Exception) -> str:
    if isinstance(wrong, FileNotFoundError) and wrong.filename:
        return f"there is no file {wrong.filename}"
    if isinstance(wrong, OSError) and wrong.strerror:
        return f"{wrong.filename}: {wrong.strerror}" if wrong.filename else f"{wrong.strerror} (while writing)"
    return str(wrong) or type(wrong).__name__
