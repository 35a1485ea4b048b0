"""What a sampler is: a frozen dataclass with one pure method, `step(denoise, block, clock) -> block`.

Write one in a file of its own, decorate it with `@register`, and every other room of the project can use it
(docs/adding-a-sampler.md). Samplers are final: they inherit this class and never one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from redraft.decoding.canvas import Block
from redraft.decoding.clock import Clock
from redraft.decoding.notation import Registry, check_options, spell
from redraft.decoding.reading import EosPolicy, Prediction
from redraft.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from redraft.decoding.walk import Denoise

Reach = Literal["block", "response", "canvas"]


class Stage(NamedTuple):
    """A rule applied for `steps` steps to response columns `start` to `stop`; a sampler's plan is a list of these.

    `window` widens what it sees and may write to the left: to the response's or the canvas's first column.
    """

    rule: Sampler
    start: int
    stop: int
    steps: int
    reading: Mapping[str, Any] = {}  # fields of the `Reading` that this stage has otherwise: {"temperature": 0.5}
    window: Reach = "block"


class Sampler:
    """A decoding rule. Fields are its options; the class variables below are its promises, each of them tested."""

    name: ClassVar[str]  # set by @register
    channels: ClassVar[frozenset[str]]  # the transitions it can make, and no others: m2t reveals, t2t overwrites,
    # t2m demotes; a property where they depend on the options
    reach: ClassVar[Reach] = "block"  # what it may write
    eos: ClassVar[EosPolicy] = "confidence"  # the policy it is meant to run with; adaptive samplers say "none"
    own_rank: ClassVar[bool] = False  # whether it ranks by a measure of its own, whatever the reading's is
    experimental: ClassVar[bool] = False  # a port to plain masked models that its authors did not make
    citation: ClassVar[str] = ""
    provenance: ClassVar[str] = ""  # paper, repository or inferred, and what was inferred
    source: ClassVar[str | None] = None  # the name and the hash of its file, where that lies outside the package

    def __post_init__(self) -> None:
        check_options(type(self), vars(self))

    def __repr__(self) -> str:
        return spell(self)

    @property
    def revises(self) -> bool:
        """Whether a visible token may change: only then can more steps than tokens be of use."""
        return bool(self.channels & {"t2m", "t2t"})

    def calls(self, length: int, steps: int, block: int | None = None) -> int:
        """At most so many denoiser calls (without guidance, which doubles them)."""
        return steps

    def stages(self, length: int, steps: int, block: int | None = None) -> list[Stage]:
        """Equal blocks, left to right, the steps divided over them (methods A1)."""
        return equal_blocks(self, length, steps, block)

    def begin(self, block: Block) -> Block:
        """The block as the first step of a stage finds it; the place to set up memory, or to take over `block.memory`,
        which is what the stage before remembered at its end."""
        return block.remember(None)

    def step(self, denoise: Denoise, block: Block, clock: Clock) -> Block:
        raise NotImplementedError

    def done(self, block: Block) -> Bool[Tensor, " b"] | None:
        """Which rows need no further step; None where no row ever ends early. The loop spends no calls on such rows."""
        return None


SAMPLERS: Registry[Sampler] = Registry("sampler")
register = SAMPLERS.register


def equal_blocks(rule: Sampler, length: int, steps: int, block: int | None) -> list[Stage]:
    block = length if block is None else block
    for name, value in (("length", length), ("steps", steps), ("block", block)):
        if value < 1:
            raise ValueError(f"{name} is at least 1, not {value}")
    if length % block:
        near = [size for size in range(1, length + 1) if length % size == 0]
        near = sorted(near, key=lambda size: abs(size - block))[:3]
        raise ValueError(
            f"a length of {length} is not a whole number of blocks of {block}: "
            f"blocks of {_either(sorted(near))} would fit"
        )
    count = length // block
    if steps % count:
        fits = sorted({max(count, steps // count * count), (steps // count + 1) * count})
        raise ValueError(
            f"{steps} steps cannot be divided equally over {count} blocks: {_either(fits)} would fit "
            f"(steps are for the whole response; --steps-per-block sets them for one block)"
        )
    if not rule.revises and steps > length:
        raise ValueError(
            f"{steps} steps are more than the {length} tokens to be revealed, and {rule!r} reveals each token once: "
            f"at most {length} steps would fit"
        )
    each = steps // count
    return [Stage(rule, number * block, (number + 1) * block, each) for number in range(count)]


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def top(scores: Float[Tensor, "b w"], k: int | Int[Tensor, "b 1"], among: Bool[Tensor, "b w"]) -> Bool[Tensor, "b w"]:
    """The k best of each row among some positions: ties go to the lowest position, and -inf never wins.

    Ranks come from a stable sort: no host synchronisation for a k that differs between rows, one order on any device.
    """
    scores = torch.where(among, scores, -torch.inf)
    order = scores.argsort(dim=-1, descending=True, stable=True)
    rank = order.argsort(dim=-1)  # the inverse permutation
    return (rank < k) & (scores > -torch.inf)


def candidates(pred: Prediction, block: Block) -> Bool[Tensor, "b w"]:
    """The masks that an adaptive sampler may fill: those whose candidate is not vetoed, or all, if a row has no others.

    A schedule ends with a last step, which accepts end tokens; a sampler that goes on until all is full would wait for
    them for ever.
    """
    free = block.masked & ~pred.vetoed
    return torch.where(free.any(-1, keepdim=True), free, block.masked)


def sure(pred: Prediction, block: Block, bar: float, *, reached: bool = False) -> Bool[Tensor, "b w"]:
    """The candidates of probability above `bar` (`reached`: or equal to it); where there are none, the surest one, so
    that every step makes progress."""
    free, log_p = candidates(pred, block), pred.probability(pred.tokens)
    above = free & (log_p.exp() >= bar if reached else log_p.exp() > bar)
    score = torch.where(pred.vetoed, log_p, pred.confidence)  # those vetoed are only ever compared with one another
    best = top(score.clamp_min(torch.finfo(score.dtype).min), 1, among=free)
    return torch.where(above.any(-1, keepdim=True), above, best)
