"""Published settings by name: `paper` (arXiv 2606.01026) and LLaDA's own (`llada`, `llada-blocks`).

What a paper does not say is said here to be inferred. The sampler stays free: it is what one compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from redraft.decoding.notation import suggest
from redraft.decoding.reading import EosPolicy


@dataclass(frozen=True)
class Preset:
    chat: bool
    length: int
    steps: int
    block: int | None  # None is one block
    eos: EosPolicy


def _paper(length: int = 256, *, chat: bool = False) -> Preset:
    """The paper's inference settings and its EOS policy. It runs 64, 128 and 256 steps: 64 unless --steps says so.

    Its templates are not given. Inferred: plain text for the three tasks that lm-evaluation-harness asks as plain text
    (its rows without SCOPE match LLaDA's under that harness), the chat template for MATH-500's instruction.
    """
    return Preset(chat=chat, length=length, steps=64, block=None, eos="confidence")


def _llada(length: int, eos: EosPolicy, block: int | None = None) -> Preset:
    """LLaDA-8B-Instruct as its authors run it (ML-GSAI/LLaDA, EVAL.md): a chat, one token a step.

    Their prompts are OpenCompass's, which are not ours: a GSM8K of 4 shots, for one.
    """
    return Preset(chat=True, length=length, steps=length, block=block, eos=eos)


PRESETS: dict[str, dict[str, Preset]] = {
    "paper": {
        "gsm8k": _paper(),
        "gsm8k-answer-first": _paper(),
        "math500": _paper(512, chat=True),
        "humaneval": _paper(),
        "mbpp": _paper(),
    },
    "llada": {
        "gsm8k": _llada(512, "llada_confidence"),
        "math500": _llada(512, "llada_confidence"),
        "humaneval": _llada(512, "llada_logits"),
        "mbpp": _llada(256, "llada_confidence"),
    },
    "llada-blocks": {
        "gsm8k": _llada(256, "none", block=8),
        "math500": _llada(512, "none", block=64),
    },
}


def preset(name: str, task: str) -> Preset:
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}{suggest(name, PRESETS)}; there are: {', '.join(PRESETS)}")
    if task not in PRESETS[name]:
        raise ValueError(
            f"the preset {name!r} has no settings for {task!r}: it has them for {', '.join(PRESETS[name])}"
        )
    return PRESETS[name][task]
