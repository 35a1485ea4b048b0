"""The config.json of Dream-7B (Ye et al. 2025, arXiv:2508.15487), with its own names."""

from __future__ import annotations

from transformers import PretrainedConfig

from redraft.models import checks

# What the published files say and the only thing built here.
ONLY_BUILT = {
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_mrope": False,
    "use_sliding_window": False,
}

# max_position_embeddings says 131072, inherited from Qwen2.5; Dream itself was trained on 2048 tokens.
TRAINED_CONTEXT = 2048


class DreamConfig(PretrainedConfig):
    """Defaults are Dream-7B's. Values that are not built here, and absurd ones, are refused in one sentence."""

    model_type = "Dream"

    # No types on the numbers: they come from a file, and their types are the first thing checked.
    def __init__(
        self,
        vocab_size=152064,
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        max_position_embeddings=131072,
        initializer_range=0.02,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        mask_token_id=151666,
        eos_token_id=151643,
        pad_token_id=151643,
        **rest,
    ):
        checks.only("Dream config", rest, ONLY_BUILT)
        for field, value, high in (
            ("vocab_size", vocab_size, 2**22),
            ("hidden_size", hidden_size, 2**16),
            ("intermediate_size", intermediate_size, 2**18),
            ("num_hidden_layers", num_hidden_layers, 2**10),
            ("num_attention_heads", num_attention_heads, 2**10),
            ("max_position_embeddings", max_position_embeddings, 2**24),
        ):
            checks.whole("Dream config", field, value, 1, high)
        key_heads = num_attention_heads if num_key_value_heads is None else num_key_value_heads
        checks.whole("Dream config", "num_key_value_heads", key_heads, 1, 2**10)
        checks.heads("Dream config", hidden_size, num_attention_heads, key_heads)
        for field, value in (("mask", mask_token_id), ("eos", eos_token_id), ("pad", pad_token_id)):
            checks.whole("Dream config", f"{field}_token_id", value, 0, vocab_size - 1)
        for field, value in (
            ("rope_theta", rope_theta),
            ("rms_norm_eps", rms_norm_eps),
            ("initializer_range", initializer_range),
        ):
            checks.positive("Dream config", field, value)

        rest.pop("auto_map", None)  # names code to be run from the hub: never run, so never passed on
        rest.pop("rope_scaling", None)  # null, and transformers 5 treats the very name as deprecated
        super().__init__(**rest)
        for field, value in ONLY_BUILT.items():
            if field != "rope_scaling":
                setattr(self, field, rest.get(field, value))
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = key_heads
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.rms_norm_eps = rms_norm_eps
        self.rope_theta = rope_theta
        self.mask_token_id = mask_token_id
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def context(self) -> int:
        """Longest sequence the model was trained on, in tokens."""
        return min(self.max_position_embeddings, TRAINED_CONTEXT)
