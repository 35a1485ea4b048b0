"""What the test_reference_*.py files share: a small network, the authors' functions on it, and golden traces.

Nothing of the authors' code is kept here: it is read from a clone, and only while golden files are written. The network
is that of test_reference.py, float32, and never predicts the mask: the published loops would write it and lose count.
"""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from redraft.decoding import Canvas, Reading, Sampler, derive, walk
from redraft.samplers import parse
from test_reference import EOS, EOT, MASK, PAD, PROMPTS, VOCABULARY, network

__all__ = ["EOS", "EOT", "MASK", "PAD", "PROMPTS", "VOCABULARY"]
GOLDEN = Path(__file__).parent / "golden"
History = list[list[list[int]]]  # [step][row][column of the canvas]
LARGEST = 200_000  # bytes of a golden file


def logits_of(seed: int, tokens: torch.Tensor, **context: Any) -> torch.Tensor:
    with torch.no_grad():
        logits = network(seed)(tokens, **context).logits.clone()
    logits[..., MASK] = -1e4  # finite, for the sake of guidance
    return logits


def canvas_of(setting: dict[str, Any]) -> Canvas:
    """Of all the setting's prompts, or of that which `row` says, with the seed that it has among all."""
    numbers = range(len(prompts_of(setting))) if "row" not in setting else [setting["row"]]
    rows, seeds = [prompts_of(setting)[row] for row in numbers], [derive(0, row) for row in numbers]
    return Canvas.of(rows, setting["length"], mask_id=MASK, pad_id=PAD, seeds=seeds)


def prompts_of(setting: dict[str, Any]) -> list[list[int]]:
    return PROMPTS[setting.get("prompts", "one")]


def rows_of(setting: dict[str, Any]) -> list[dict[str, Any]]:
    """The same for each prompt alone: for code that takes one row at a time."""
    return [{**setting, "row": row} for row in range(len(prompts_of(setting)))]


def ours(setting: dict[str, Any], seed: int, trembling: torch.Generator | None = None) -> History | list[History]:
    """The canvas after each step of our sampler; with noise of 1e-4 on the logits, if given a generator.

    Where a setting says `by_row`, the rows are decoded together and told apart: for each row the canvases, without
    padding, after the steps that it took.
    """

    def denoiser(tokens, *, attend=None, positions=None, columns=slice(None)):
        logits = logits_of(seed, tokens, attention_mask=attend, position_ids=positions, columns=columns)
        return logits if trembling is None else logits + 1e-4 * torch.randn(logits.shape, generator=trembling)

    reading = Reading(eos_ids=(EOS, EOT), **{"eos": "none", **setting.get("reading", {})})
    canvas, shape = canvas_of(setting), {"steps": setting["steps"], "block": setting.get("block")}
    steps = list(walk(denoiser, canvas, sampler_of(setting), reading=reading, **shape))
    if "row" in setting or not setting.get("by_row"):
        return [step.result.tokens.tolist() for step in steps]
    first = [canvas.start - len(prompt) for prompt in prompts_of(setting)]
    return [
        [[step.result.tokens[row, pad:].tolist()] for step in steps if row in step.rows]
        for row, pad in enumerate(first)
    ]


def sampler_of(setting: dict[str, Any]) -> Sampler:
    return parse(setting["sampler"].replace("GOLDEN", str(GOLDEN)))


def remasked(canvases: History) -> int:
    """How many tokens of the first row were masked again."""
    return sum(a != MASK == b for old, new in pairwise(canvases) for a, b in zip(old[0], new[0], strict=True))


def histories(case: dict[str, Any]) -> list[History]:
    """What a case holds, row by row where its rows were told apart."""
    return case["canvases"] if case["setting"].get("by_row") else [case["canvases"]]


@cache
def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text())


# --- running the authors' code ---


class Recorded:
    """The network as their code calls one. It keeps what it was shown: the canvas after each step but the last."""

    device = torch.device("cpu")

    def __init__(self, seed: int) -> None:
        self.seed, self.shown = seed, []

    def __call__(self, tokens, attention_mask=None, position_ids=None):
        self.shown.append(tokens.clone())
        attend = None if attention_mask is None else attention_mask.bool()
        positions = None if position_ids is None else position_ids.view(1, -1)
        return SimpleNamespace(logits=logits_of(self.seed, tokens, attention_mask=attend, position_ids=positions))


class Torch:
    """torch, but for what is put in its place."""

    def __init__(self, **instead: Any) -> None:
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def clone_of(folder: str) -> Callable[..., str]:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout

    return git


def functions(source: str, names: Sequence[str], *, pretend: Torch | None = None, **known: Any) -> SimpleNamespace:
    """Some functions or methods of a file, without the rest of it and its imports."""
    import numpy as np
    import torch.nn.functional as F

    for theirs, own in {"126336": MASK, "126081": EOS, "126348": EOT}.items():
        source = source.replace(theirs, str(own))
    tree = ast.parse(source)
    tree.body = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    assert len(tree.body) == len(names)
    scope = {"torch": pretend or torch, "F": F, "np": np, **known}
    exec(compile(tree, "reference.py", "exec"), scope)
    return SimpleNamespace(**{name: scope[name] for name in names}, scope=scope)


def steady(setting: dict[str, Any], seed: int) -> bool:
    """Whether no other machine's rounding can turn a case."""
    trembling = torch.Generator().manual_seed(0)
    return all(ours(setting, seed, trembling) == ours(setting, seed) for _ in range(3))


def write(
    name: str,
    folder: str,
    source: str,
    settings: dict[str, dict[str, Any]],
    reference: Callable[[Callable[..., str], dict[str, Any], int], History],
    telling: Callable[[str, dict[str, Any], int, History], bool],
) -> None:
    """Run the reference on the first telling seed of each setting, compare, and keep what it wrote."""

    def run(setting: dict[str, Any], seed: int) -> History | list[History]:
        return (
            [reference(git, row, seed) for row in rows_of(setting)]
            if by_row(setting)
            else reference(git, setting, seed)
        )

    def tells(title: str, setting: dict[str, Any], seed: int, theirs: Any) -> bool:
        parts = zip(rows_of(setting), theirs, strict=True) if by_row(setting) else [(setting, theirs)]
        return all(telling(title, part, seed, history) for part, history in parts)

    def by_row(setting: dict[str, Any]) -> bool:
        return setting.get("by_row", False)

    git, cases, all_equal = clone_of(folder), {}, True
    for title, setting in settings.items():
        seeds = (seed for seed in range(200) if steady(setting, seed))
        seed, theirs = next(
            (seed, theirs) for seed in seeds if tells(title, setting, seed, theirs := run(setting, seed))
        )
        equal = theirs == ours(setting, seed)
        all_equal &= equal
        print(f"{title}: seed {seed}, {len(theirs)} steps, {'equal' if equal else 'DIFFERENT'}")
        cases[title] = {"setting": setting, "seed": seed, "canvases": theirs}
    head = {"source": source, "commit": git("rev-parse", "HEAD").strip()}
    lines = [f"  {json.dumps(title)}: {json.dumps(case, separators=(',', ':'))}" for title, case in cases.items()]
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    assert len(text) < LARGEST
    (GOLDEN / f"{name}.json").write_text(text)
    print("all equal" if all_equal else "NOT ALL EQUAL")
