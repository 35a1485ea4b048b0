"""The config.json of LLaDA (Nie et al. 2025, arXiv:2502.09992) and LLaDA-1.5 (arXiv:2505.19223), in their own names."""

from __future__ import annotations

from transformers import PretrainedConfig

from redraft.models import checks
from redraft.models.families import family_of

# What the published files say and the only thing built here. Every one of these changes what the network computes.
ONLY_BUILT = {
    "activation_type": "silu",
    "alibi": False,
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "embedding_dropout": 0.0,
    "include_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "multi_query_attention": None,
    "residual_dropout": 0.0,
    "rope": True,
    "rope_full_precision": True,
    "scale_logits": False,
    "weight_tying": False,
}

# Published too, but without an effect on the network: kept, so that a saved file reads like the published one.
INERT = {
    "alibi_bias_max": 8.0,
    "attention_layer_norm_with_affine": True,
    "flash_attention": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "mlp_ratio": 4,
    "precision": "amp_bf16",
    "use_cache": False,
}


class LLaDAConfig(PretrainedConfig):
    """Defaults are LLaDA-8B's. Values that are not built here, and absurd ones, are refused in one sentence."""

    model_type = "llada"
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}

    # No types on the numbers: they come from a file, and their types are the first thing checked.
    def __init__(
        self,
        d_model=4096,
        n_layers=32,
        n_heads=32,
        n_kv_heads=None,
        mlp_hidden_size=12288,
        vocab_size=126464,
        embedding_size=None,
        max_sequence_length=4096,
        rope_theta=500000.0,
        rms_norm_eps=1e-5,
        include_qkv_bias=False,
        init_std=0.02,
        mask_token_id=126336,
        eos_token_id=126081,
        pad_token_id=126081,
        **rest,
    ):
        family_of({**rest, "model_type": self.model_type}, "LLaDA config")  # not LLaDA-MoE, which may share the name
        checks.only("LLaDA config", rest, ONLY_BUILT)
        for field, value, high in (
            ("d_model", d_model, 2**16),
            ("n_layers", n_layers, 2**10),
            ("n_heads", n_heads, 2**10),
            ("mlp_hidden_size", mlp_hidden_size, 2**18),
            ("vocab_size", vocab_size, 2**22),
            ("max_sequence_length", max_sequence_length, 2**24),
        ):
            checks.whole("LLaDA config", field, value, 1, high)
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        checks.whole("LLaDA config", "n_kv_heads", n_kv_heads, 1, 2**10)
        checks.heads("LLaDA config", d_model, n_heads, n_kv_heads)
        embedding_size = vocab_size if embedding_size is None else embedding_size
        checks.whole("LLaDA config", "embedding_size", embedding_size, vocab_size, 2**22)
        for field, value in (("mask", mask_token_id), ("eos", eos_token_id), ("pad", pad_token_id)):
            checks.whole("LLaDA config", f"{field}_token_id", value, 0, embedding_size - 1)
        for field, value in (("rope_theta", rope_theta), ("rms_norm_eps", rms_norm_eps), ("init_std", init_std)):
            checks.positive("LLaDA config", field, value)
        checks.switch("LLaDA config", "include_qkv_bias", include_qkv_bias)

        rest.pop("auto_map", None)  # names code to be run from the hub: never run, so never passed on
        super().__init__(**rest)
        for field, value in {**ONLY_BUILT, **INERT}.items():
            setattr(self, field, rest.get(field, value))
        self.d_model = d_model
        self.n_layers = n_layers
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.mlp_hidden_size = mlp_hidden_size
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.max_sequence_length = max_sequence_length
        self.rope_theta = rope_theta
        self.rms_norm_eps = rms_norm_eps
        self.include_qkv_bias = include_qkv_bias
        self.init_std = init_std
        self.mask_token_id = mask_token_id
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id

    @property
    def head_size(self) -> int:
        return self.d_model // self.n_heads

    @property
    def context(self) -> int:
        """Longest sequence the model was trained on, in tokens."""
        return self.max_sequence_length
