"""`redraft lm-eval`: lm-evaluation-harness's own command line, with our models known to it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

NOT_RUNS = ("ls", "validate", "-h", "--help")


def lm_eval(options: Annotated[list[str] | None, typer.Argument(help="The harness's own.")] = None) -> None:
    """Run lm-evaluation-harness with redraft's models; all its options can follow."""
    if find_spec("lm_eval") is None:
        raise ValueError("lm-evaluation-harness is not installed: pip install 'redraft[harness]'")
    from lm_eval.__main__ import cli_evaluate

    import redraft.evals.lm  # noqa: F401  registers the model

    sys.argv = ["lm-eval", *arguments(options or [])]
    cli_evaluate()


def arguments(given: list[str]) -> list[str]:
    """The harness's arguments; a run that names no model is a run of ours."""
    named = any(one in ("--model", "-M") or one.startswith("--model=") for one in given)
    return given if named or not given or given[0] in NOT_RUNS else [*given, "--model", "redraft"]
