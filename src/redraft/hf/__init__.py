"""Redraft's models and samplers in Hugging Face's manner.

    import redraft.hf  # that is all: AutoModel knows the families now
    from transformers import AutoModelForMaskedLM

    model = AutoModelForMaskedLM.from_pretrained("GSAI-ML/LLaDA-8B-Instruct")
    model.generate(**inputs, sampler="d3im(t2t=False)", max_new_tokens=128, steps=32)

`import redraft` does not bring this in. docs/hugging-face.md has the rest.
"""

from redraft.hf.answering import RedraftGenerationOutput
from redraft.hf.configuration import RedraftGenerationConfig
from redraft.hf.generation import RedraftGenerationMixin
from redraft.hf.networks import DreamForMaskedLM, LLaDAForMaskedLM, attach, register
from redraft.hf.streaming import Draft, DraftStreamer

register()

__all__ = [
    "Draft",
    "DraftStreamer",
    "DreamForMaskedLM",
    "LLaDAForMaskedLM",
    "RedraftGenerationConfig",
    "RedraftGenerationMixin",
    "RedraftGenerationOutput",
    "attach",
    "register",
]
