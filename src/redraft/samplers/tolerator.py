"""Tolerator: fill in a whole draft, then mask random parts of it again and again, and draw them anew.

Tian et al., Finish First, Perfect Later (arXiv 2510.05090); `llada_denoise.py` of Rachum-thu/tolerator, and defaults of
its `eval_llada_tolerator.sh`. Old and new tokens are never compared. `steps` counts both phases: 64 are 32 + 32.
Differs from the reference: where the EOS policy vetoes a token the old one stays; what is masked when a round begins
(in an edited draft) is drawn first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Number, Sampler, Stage, equal_blocks, register, top, uniform
from redraft.shapes import Bool, Int


@register
@dataclass(frozen=True, repr=False)
class Tolerator(Sampler):
    """Fill in a draft, then mask random parts of it, fewer each round, and draw them from one forward pass each."""

    rounds: int | None = None  # of refinement, among the steps; None: half of them; 0: only fill
    start: Number = 0.8  # share masked in the first round
    end: Number = 0.4  # and in the last
    decay: Literal["cosine", "exponential"] = "cosine"
    update_rate: Number = 1.0  # share of those that is drawn, the least supported first
    lock: int = 10  # a token drawn so often in a row stays for good; 0: never
    temperature: Number = 0.5  # of filling
    eos_penalty: Number = 1.2  # of filling: end-of-text's logit is divided by it
    refine_temperature: Number = 0.3

    reach = "response"
    citation = "Tian et al. 2025, Finish First, Perfect Later, arXiv 2510.05090 (Tolerator)"
    provenance = "repository: Rachum-thu/tolerator @ 7780338, tokens equal to it at every step given the same noise"

    @property
    def channels(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"m2t"} if self.rounds == 0 else {"m2t", "t2t"})

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if not (0 <= (self.rounds or 0) < steps or steps < 1):
            raise ValueError(f"of {steps} steps 0 to {steps - 1} can be rounds of refinement, not {self.rounds}")
        if self.lock < 0 or not all(0 < share <= 1 for share in (self.start, self.end, self.update_rate)):
            raise ValueError("start, end and update_rate are shares, above 0 and at most 1; lock is 0 (never) or more")
        blocks = max(1, length // max(1, block or length))  # filled one by one, refined together
        fill = -(-(steps - steps // 2) // blocks) * blocks if self.rounds is None else steps - self.rounds
        rounds, filling = steps - fill, {"temperature": self.temperature, "eos_penalty": self.eos_penalty}
        plan = equal_blocks(self, length, min(fill, steps), block)
        plan = [stage._replace(rule=replace(self, rounds=0), reading=filling) for stage in plan]
        refine = Stage(replace(self, rounds=rounds), 0, length, rounds, {"temperature": self.refine_temperature})
        return [*plan, refine] if rounds > 0 else plan

    def begin(self, block: Block) -> Block:
        none = torch.zeros_like(block.tokens)
        return block.remember((none, none))  # the token last drawn, and how many times in a row

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        if self.rounds == 0:
            pred, more = denoise(block.tokens), clock.increment(block, "front")
            return block.write(torch.where(top(pred.confidence, more, among=block.masked), pred.tokens, block.tokens))
        (last, repeats), width = block.memory, block.tokens.shape[1]
        free = block.visible & (repeats < (self.lock or torch.inf))
        keep, draw = (table.to(free.device) for table in self._counts(width))
        count = keep[(clock.step - 1).clamp(max=len(keep) - 1), free.sum(-1, keepdim=True)]
        hidden = block.masked | free & ~top(uniform(block, clock, "keep"), count, among=free)
        pred = denoise(torch.where(hidden, block.mask_id, block.tokens))
        least = top(-pred.probability(block.tokens), draw[hidden.sum(-1, keepdim=True)], among=hidden)
        drawn = least & ~pred.vetoed
        repeats = torch.where(drawn, torch.where(pred.tokens == last, repeats + 1, 1), repeats)
        last, tokens = (torch.where(drawn, pred.tokens, old) for old in (last, block.tokens))
        return block.write(tokens, (last, repeats))

    def _counts(self, width: int) -> tuple[Int[Tensor, "r n"], Int[Tensor, " n"]]:
        """Of n tokens, how many each round keeps and how many it draws; Python's floats, for the reference's counts."""
        rounds, start, end = self.rounds or 1, self.start, self.end
        done = [number / (rounds - 1) for number in range(rounds)] if rounds > 1 else [1.0]
        masked = [start * (end / start) ** t for t in done]
        if self.decay == "cosine":
            masked = [end + (start - end) * 0.5 * (1 + math.cos(math.pi * t)) for t in done]
        keep = [[int(n * (1.0 - share)) for n in range(width + 1)] for share in masked]
        return torch.tensor(keep), torch.tensor([max(1, int(n * self.update_rate)) for n in range(width + 1)])

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        locked = block.visible if self.rounds == 0 else block.visible & (block.memory[1] >= (self.lock or torch.inf))
        return ~(block.active & ~locked).any(-1)
