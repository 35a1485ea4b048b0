"""Reading logits: which token each position proposes, how sure the model is, and what may not be said yet.

Temperature, ranking measure, EOS policy, overflow, guidance and precision are decided here and nowhere else, so they
mean the same for every sampler. Confidence always comes from temperature-1 logits (LLaDA, `generate.py`): the noise of
sampling must not leak into the order in which tokens are revealed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal, NamedTuple, get_args, no_type_check

import torch
from torch import Tensor

from redraft.decoding.noise import gumbel
from redraft.shapes import Bool, Float, Int

Rank = Literal["probability", "margin", "entropy", "random"]
EosPolicy = Literal[
    "none", "confidence", "logit_nonfinal", "logit_all", "llada_confidence", "llada_logits", "llada_both"
]
Overflow = Literal["strict", "fill"]
Precision = Literal["float32", "float64", "bfloat16"]
Nucleus = Literal["reach", "within"]
Noise = Callable[[str, tuple[int, ...]], Tensor]  # (stream, size) -> uniforms [b, *size]


@no_type_check  # __post_init__ refuses wrong values in words, and the checker of tests would come before it
@dataclass(frozen=True)
class Reading:
    """How logits become candidates and confidences.

    `eos`, before a stage's last step (LLaDA's two flags act at every step):
      none              end tokens compete like any other
      confidence        a position whose candidate is an end token has no confidence and cannot be kept (the paper's)
      logit_nonfinal    end tokens cannot be predicted
      logit_all         end tokens cannot be predicted, last step included
      llada_logits      LLaDA's `logits_eos_inf`: end-of-text alone cannot be predicted
      llada_confidence  LLaDA's `confidence_eos_eot_inf`, with the aliasing of its code: at temperature 0 end tokens are
                        still candidates, of probability 0, and all others are renormalised without them; at any other
                        temperature only end-of-turn is
      llada_both        both of LLaDA's flags
    `overflow`, where `confidence` leaves fewer candidates than the schedule keeps:
      strict            keep fewer
      fill              end tokens get the lowest finite score, so that they fill the quota, lowest position first
    `top_p` below 1 leaves each position its most probable tokens, renormalised, for choice and confidence alike, at the
    temperature of the choice; `nucleus` says which: the fewest whose mass is more than top_p (reach), or the most
    whose mass is at most top_p, and always one (within, ReMDM's code).
    """

    temperature: float = 0.0
    rank: Rank = "probability"
    eos: EosPolicy = "confidence"
    overflow: Overflow = "strict"
    guidance: float = 0.0
    dtype: Precision = "float32"  # of the ranking; at least the logits' own, but bfloat16 rounds on purpose (parity)
    eos_ids: tuple[int, ...] = ()  # end-of-text first, then end-of-turn
    forbid_mask: bool = True  # the mask may not be predicted; False only for parity with code that allows it
    top_p: float = 1.0
    nucleus: Nucleus = "reach"
    eos_penalty: float = 1.0  # end-of-text's logit is divided by it, a negative one too (Tolerator's code)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is 0 or more, not {self.temperature}")
        if not 0 <= self.guidance < float("inf"):
            raise ValueError(f"guidance is 0 or more, not {self.guidance}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is more than 0 and at most 1, not {self.top_p}")
        if not 0 < self.eos_penalty < float("inf"):
            raise ValueError(f"eos_penalty is more than 0, not {self.eos_penalty}")

    @property
    def eot_ids(self) -> tuple[int, ...]:
        return self.eos_ids[1:]


_CHOICES = {"rank": get_args(Rank), "eos": get_args(EosPolicy), "overflow": get_args(Overflow)}
_CHOICES |= {"dtype": get_args(Precision), "nucleus": get_args(Nucleus)}
assert set(_CHOICES) <= {field.name for field in fields(Reading)}


class Prediction(NamedTuple):
    """What the model proposes for each position of the window, and how sure it is."""

    tokens: Int[Tensor, "b w"]
    confidence: Float[Tensor, "b w"]  # of `tokens`, in the ranking measure; -inf: may not be kept
    vetoed: Bool[Tensor, "b w"]  # the candidate is an end token that may not be kept yet
    logits: Float[Tensor, "b w v"] | None  # after the EOS policy; None once recorded in a Step
    score_of: Callable[[Tensor], Tensor] | None = None

    def probability(self, ids: Int[Tensor, "b w"]) -> Float[Tensor, "b w"]:
        """log p of any tokens at temperature 1, whatever the ranking measure: for thresholds, take its exp."""
        assert self.logits is not None, "a recorded prediction keeps no logits"
        return log_probability(self.logits, ids)

    def argmax(self) -> Int[Tensor, "b w"]:
        """The most probable tokens, whatever the temperature."""
        assert self.logits is not None, "a recorded prediction keeps no logits"
        return self.logits.argmax(-1)

    def score(self, ids: Int[Tensor, "b w"]) -> Float[Tensor, "b w"]:
        """What `confidence` would be, had `ids` been the candidates: one scale for old and new tokens."""
        assert self.score_of is not None, "a recorded prediction keeps no logits"
        return self.score_of(ids)

    def forget(self) -> Prediction:
        """The same without its logits, fit to be kept (64 steps of LLaDA-8B would hold 8 GB)."""
        return self._replace(logits=None, score_of=None)


def predict(
    logits: Float[Tensor, "b w v"], reading: Reading, *, mask_id: int, final: Bool[Tensor, "b 1"], noise: Noise
) -> Prediction:
    """Candidates and confidences of one forward pass. Pure: the given logits are never written to."""
    logits = logits.to(_arithmetic(reading, logits.dtype), copy=True)  # ours now, so that bans may be written in place
    if reading.forbid_mask:
        logits[..., mask_id] = -torch.inf
    for token in reading.eos_ids[:1]:
        logits[..., token] /= reading.eos_penalty
    for token in reading.eos_ids:
        of_text = reading.eos in ("llada_logits", "llada_both") and token not in reading.eot_ids
        if reading.eos == "logit_all" or of_text:
            logits[..., token] = -torch.inf
        elif reading.eos == "logit_nonfinal":
            logits[..., token] = torch.where(final, logits[..., token], -torch.inf)

    if reading.top_p < 1:
        logits = logits.masked_fill(~_nucleus(logits / (reading.temperature or 1), reading), -torch.inf)
    noised = logits
    if reading.temperature > 0:
        noised = logits + reading.temperature * gumbel(noise("gumbel", tuple(logits.shape[1:])))
    tokens = noised.argmax(-1)  # the first of equals

    if reading.eos in ("llada_confidence", "llada_both"):
        for token in reading.eos_ids if reading.temperature == 0 else reading.eot_ids:
            logits[..., token] = -torch.inf

    # Partial functions, not closures: those would be made anew, and with their checks in tests, at every call.
    vetoed = partial(_vetoed, reading=reading, final=final)
    lowest = torch.finfo(logits.dtype).min
    scores, floor = _scores(logits, reading, noise), -torch.inf if reading.overflow == "strict" else lowest
    score_of = partial(_score, scores=scores, vetoed=vetoed, lowest=lowest, floor=floor)
    return Prediction(tokens, score_of(tokens), vetoed(tokens), logits, score_of)


def _vetoed(ids: Tensor, reading: Reading, final: Tensor) -> Tensor:
    """Where a token is one that may not be kept yet."""
    if reading.eos != "confidence":
        return torch.zeros_like(ids, dtype=torch.bool)
    return is_any(ids, reading.eos_ids) & ~final


def _score(ids: Tensor, scores: Callable[..., Tensor], vetoed: Callable[..., Tensor], lowest: float, floor: float):
    """The ranking measure as samplers see it.

    A candidate of probability 0 (llada_confidence) is the worst there is, but still one; and +inf, which a margin may
    overflow to, is for samplers to say that a position must stay.
    """
    return torch.where(vetoed(ids), floor, scores(ids).clamp(lowest, -lowest))


def _nucleus(logits: Float[Tensor, "b w v"], reading: Reading) -> Bool[Tensor, "b w v"]:
    """The most probable tokens that `top_p` leaves."""
    p, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
    mass = p.cumsum(-1)
    kept = mass <= reading.top_p
    if reading.nucleus == "reach":
        kept = kept.roll(1, dims=-1)  # a token stays unless those before it are already more than enough
    kept[..., 0] = True
    return torch.zeros_like(kept).scatter(-1, order, kept)


def is_any(ids: Tensor, among: tuple[int, ...]) -> Tensor:
    """Where `ids` is one of a few tokens."""
    hit = torch.zeros_like(ids, dtype=torch.bool)
    for token in among:
        hit = hit | (ids == token)
    return hit


def log_probability(logits: Float[Tensor, "b w v"], ids: Int[Tensor, "b w"]) -> Float[Tensor, "b w"]:
    """log p of `ids`, with the sum kept apart from the maximum.

    (z - z_max) - log1p(sum over all but the argmax of exp(z_j - z_max)) resolves confidences that
    exp(z_max - logsumexp) rounds to the same number; D3IM ranks exactly those.
    """
    if logits.dtype == torch.bfloat16:  # parity with code that takes its softmax in the model's dtype: ties and all
        return logits.softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1).float().log()
    peak, tail = _peak_and_tail(logits)
    return (logits.gather(-1, ids.unsqueeze(-1)) - peak).squeeze(-1) - torch.log1p(tail)


def _peak_and_tail(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit, kept as a dimension, and the sum of exp(z_j - peak) over all the others."""
    peak, at = logits.max(-1, keepdim=True)
    return peak, (logits - peak).exp().scatter(-1, at, 0).sum(-1)


def _scores(logits: Tensor, reading: Reading, noise: Noise) -> Callable[[Tensor], Tensor]:
    """The ranking measure as a function of the tokens to be ranked; higher is surer."""
    if reading.rank == "probability":
        return lambda ids: log_probability(logits, ids)
    if reading.rank == "margin":
        return lambda ids: _margin(logits, ids)
    if reading.rank == "entropy":
        log_p = logits.log_softmax(-1)
        negative_entropy = (log_p.exp() * log_p).nan_to_num(0).sum(-1)  # 0 log 0 is 0
        return lambda ids: negative_entropy
    lottery = noise("rank", tuple(logits.shape[1:2])).to(logits.dtype)
    return lambda ids: lottery


def _margin(logits: Tensor, ids: Tensor) -> Tensor:
    """-log(1 - (p(id) - p(best other))): a monotone map of the margin that does not saturate near certainty."""
    mine = ids.unsqueeze(-1)
    peak, tail = _peak_and_tail(logits)
    own = (logits.gather(-1, mine) - peak).squeeze(-1).exp()
    best_other = (logits.scatter(-1, mine, -torch.inf).amax(-1) - peak.squeeze(-1)).exp()
    without_own = torch.where(own == 1, tail, 1 + tail - own)  # the mass of everything else, exactly where it is small
    return torch.log1p(tail) - torch.log(without_own + best_other)


def _arithmetic(reading: Reading, given: torch.dtype) -> torch.dtype:
    wanted = getattr(torch, reading.dtype)
    return wanted if reading.dtype == "bfloat16" else torch.promote_types(given, wanted)
