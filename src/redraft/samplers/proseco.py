"""ProSeCo: standard unmasking, and every few steps a corrector that rewrites the filled canvas until it stands still.

Schiff et al., Learn from Your Mistakes (arXiv 2602.11590); kuleshov-group/proseco, `llada/generate.py`. The corrector
reads the response with every mask filled by its candidate, answers with the argmax up to the block's end, and reads
that again, `s` times at most. What was visible takes its last answer, and the step reveals by its last confidence.
Differs from the reference: a row's correction ends when its own tokens stand still (there: all rows', nearly); a block
that ends in EOS does not end the text; where the EOS policy vetoes a correction the old token stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.decoding import Block, Clock, Denoise, Sampler, Stage, equal_blocks, register, top
from redraft.shapes import Bool


@register
@dataclass(frozen=True, repr=False)
class ProSeCo(Sampler):
    """Reveal the most confident masks; every `n` steps, rewrite what is visible by up to `s` passes of a corrector."""

    s: int = 4  # passes of the corrector, at most
    n: int = 2  # steps from one correction to the next
    region: Literal["window", "response"] = "response"  # what may be rewritten; response: finished blocks too
    block: int = 32  # where no --block is given and the response is longer

    citation = "Schiff et al. 2026, Learn from Your Mistakes, arXiv 2602.11590 (ProSeCo)"
    provenance = "repository: kuleshov-group/proseco @ 69fe45d, tokens equal to it; region=window is ours"

    @property
    def channels(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"m2t", "t2t"} if self.s > 0 else {"m2t"})

    @property
    def reach(self) -> Literal["block", "response"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "response" if self.region == "response" and self.s > 0 else "block"

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        return sum(stage.steps + stage.steps // self.n * self.s for stage in self.stages(length, steps, block))

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        if self.s < 0 or self.n < 1:
            raise ValueError(f"s is 0 or more and n at least 1, not {self.s} and {self.n}")
        plan = equal_blocks(self, length, steps, min(length, self.block) if block is None else block)
        return [stage._replace(window=self.reach) for stage in plan]

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        window, width = denoise.columns, block.tokens.shape[1]
        canvas = denoise.canvas.place(block, window.start)
        context = {"attend": canvas.attend, "positions": canvas.positions, "given": canvas.given}
        logits = denoise.look(canvas.tokens, columns=slice(window.start, None), **context)  # and right of the window
        pred = denoise.read(logits[:, :width])
        tokens, guess, score = block.tokens, pred.tokens, pred.confidence
        live = clock.step % self.n == 0  # rows whose correction has not come to rest
        if self.s and live.any():
            right = denoise.read(logits[:, width:], aside=True)
            filled = torch.cat([canvas.tokens[:, : window.start], pred.argmax(), right.argmax()], dim=-1)
            draft = torch.where((canvas.tokens == block.mask_id) & ~canvas.given, filled, canvas.tokens)
            last = logits[:, :width]
            for _ in range(self.s):
                own = live.squeeze(-1)
                last = torch.where(live.unsqueeze(-1), denoise.look(draft, columns=window, live=own, **context), last)
                pred = denoise.read(last)
                better = torch.where(block.active & live, pred.argmax(), draft[:, window])
                may = pred.score(better) > torch.finfo(score.dtype).min  # an end token may have to wait
                tokens = torch.where(live & block.visible, torch.where(may, better, block.tokens), tokens)
                guess, score = torch.where(live, pred.tokens, guess), torch.where(live, pred.confidence, score)
                live = live & (better != draft[:, window]).any(-1, keepdim=True)
                draft = draft.slice_scatter(better, 1, window.start, window.stop)
                if not live.any():
                    break
        revealed = top(score, clock.increment(block, "front"), among=block.masked)
        return block.write(torch.where(revealed | (block.masked & clock.final), guess, tokens))

    def done(self, block: Block) -> Bool[Tensor, " b"]:
        return ~block.masked.any(-1)
