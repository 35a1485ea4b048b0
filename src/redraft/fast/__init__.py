"""Wrappers round a denoiser that give the same logits sooner. Only commands and tests choose them."""

from redraft.fast.reuse import Reuse

__all__ = ["Reuse"]
