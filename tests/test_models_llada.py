"""LLaDA's network: the published layout, the reference's numbers, and what samplers and training rely on."""

import json
import math
from pathlib import Path

import pytest
import torch

from redraft.models.layers import RMSNorm, key_choice, rotary_tables, rotate
from redraft.models.llada.configuration import LLaDAConfig
from redraft.models.llada.modeling import LLaDAForMaskedLM
from redraft.models.loading import wanted_shapes
from redraft.models.standin import random_llada, seeded_weights

# The config.json of GSAI-ML/LLaDA-8B-Instruct, all of it.
PUBLISHED = {
    "activation_type": "silu",
    "alibi": False,
    "alibi_bias_max": 8.0,
    "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "auto_map": {
        "AutoConfig": "configuration_llada.LLaDAConfig",
        "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        "AutoModel": "modeling_llada.LLaDAModelLM",
    },
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": 4096,
    "embedding_dropout": 0.0,
    "embedding_size": 126464,
    "eos_token_id": 126081,
    "flash_attention": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": 126336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "mlp_ratio": 4,
    "model_type": "llada",
    "multi_query_attention": None,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126081,
    "precision": "amp_bf16",
    "residual_dropout": 0.0,
    "rms_norm_eps": 1e-05,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "transformers_version": "4.46.3",
    "use_cache": False,
    "vocab_size": 126464,
    "weight_tying": False,
}


@pytest.fixture(scope="module")
def model():
    return random_llada(n_kv_heads=2, dtype=torch.float64)


@pytest.fixture
def tokens():
    return torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(0))


def close(a, b, tolerance=1e-9):
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def test_layout_of_the_published_checkpoint():
    shapes = wanted_shapes(LLaDAForMaskedLM, LLaDAConfig.from_dict(PUBLISHED))
    assert len(shapes) == 291
    parameters = sum(map(math.prod, shapes.values()))
    assert parameters == 8_015_581_184
    assert 2 * parameters == 16_031_162_368  # the size of the six bfloat16 shards, in bytes
    assert shapes["model.transformer.wte.weight"] == (126464, 4096)
    assert shapes["model.transformer.ff_out.weight"] == (126464, 4096)
    assert shapes["model.transformer.ln_f.weight"] == (4096,)
    layer = {name.split(".31.")[1]: shape for name, shape in shapes.items() if ".blocks.31." in name}
    assert layer == {
        "attn_norm.weight": (4096,),
        "q_proj.weight": (4096, 4096),
        "k_proj.weight": (4096, 4096),
        "v_proj.weight": (4096, 4096),
        "attn_out.weight": (4096, 4096),
        "ff_norm.weight": (4096,),
        "ff_proj.weight": (12288, 4096),
        "up_proj.weight": (12288, 4096),
        "ff_out.weight": (4096, 12288),
    }


def test_published_config_survives_a_round_trip(tmp_path):
    LLaDAConfig.from_dict(PUBLISHED).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    del saved["transformers_version"]
    unsaved = ("auto_map", "transformers_version")  # the code it names is never run, so it is not passed on
    assert saved == {key: value for key, value in PUBLISHED.items() if key not in unsaved}


def test_default_config_is_the_published_one():
    unset = ("architectures", "auto_map", "transformers_version")
    default = LLaDAConfig().to_dict()
    assert {key: default[key] for key in PUBLISHED if key not in unset} == {
        key: value for key, value in PUBLISHED.items() if key not in unset
    }


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("d_model", -3, "d_model must be a whole number from 1 to"),
        ("d_model", "4096", "d_model must be a whole number"),
        ("d_model", 4096.0, "d_model must be a whole number"),
        ("n_layers", True, "n_layers must be a whole number"),
        ("n_layers", 10**9, "n_layers must be a whole number"),
        ("n_heads", 5, "5 heads do not split a width of 4096"),
        ("n_heads", 4096, "4096"),
        ("n_kv_heads", 5, "cannot share 5 key-value heads"),
        ("vocab_size", 0, "vocab_size"),
        ("embedding_size", 126463, "embedding_size must be a whole number from 126464"),
        ("mask_token_id", 126464, "mask_token_id must be a whole number from 0 to 126463"),
        ("eos_token_id", None, "eos_token_id must be a whole number"),
        ("rope_theta", float("nan"), "rope_theta must be a positive number"),
        ("rms_norm_eps", "1e-5", "rms_norm_eps must be a positive number"),
        ("include_qkv_bias", "no", "include_qkv_bias must be true or false"),
        ("alibi", True, "alibi=True is not built here"),
        ("rope", False, "rope=False is not built here"),
        ("block_type", "sequential", "block_type='sequential' is not built here"),
        ("activation_type", "swiglu", "activation_type='swiglu' is not built here"),
        ("layer_norm_type", "default", "layer_norm_type='default' is not built here"),
        ("weight_tying", True, "weight_tying=True is not built here"),
        ("attention_layer_norm", True, "attention_layer_norm=True is not built here"),
        ("residual_dropout", 0.1, "residual_dropout=0.1 is not built here"),
        ("block_group_size", 4, "block_group_size=4 is not built here"),
    ],
)
def test_config_refuses(field, value, words):
    with pytest.raises(ValueError, match="LLaDA config: ") as caught:
        LLaDAConfig.from_dict({**PUBLISHED, field: value})
    assert words in str(caught.value)


def test_same_logits_as_the_reference():
    golden = json.loads((Path(__file__).parent / "golden" / "llada_logits.json").read_text())
    network = seeded_weights(LLaDAForMaskedLM(LLaDAConfig(**golden["config"])), golden["seed"]).eval()
    with torch.no_grad():
        logits = network(
            torch.tensor(golden["tokens"]),
            attention_mask=torch.tensor(golden["attention_mask"]),
            columns=torch.tensor(golden["columns"]),
        ).logits
    wanted = torch.tensor(golden["logits"])
    assert close(logits[..., : wanted.shape[-1]], wanted, 1e-5 * float(wanted.abs().max()))


def test_gate_and_value_are_not_interchangeable(tokens):
    model = random_llada()
    before = model(tokens)
    for block in model.network.model.transformer.blocks:
        block.ff_proj, block.up_proj = block.up_proj, block.ff_proj
    assert (model(tokens) - before).abs().max() > 0.01


def test_looks_ahead(model, tokens):
    changed = tokens.clone()
    changed[:, -1] += 1
    assert (model(tokens) - model(changed))[:, 0].abs().max() > 1e-3


def test_left_padding_changes_nothing(model, tokens):
    short, pad = tokens[1:, :7], torch.full((1, 5), model.pad_id)
    batch = torch.cat((tokens[:1], torch.cat((pad, short), dim=1)))
    attend = torch.ones_like(batch, dtype=torch.bool)
    attend[1, :5] = False
    together = model(batch, attend=attend)
    assert close(together[:1], model(tokens[:1]))
    assert close(together[1:, 5:], model(short))
    assert not close(model(batch)[1:, 5:], model(short))  # and the mask is what does it


def test_any_pairs_may_be_hidden(model, tokens):
    """Two halves that do not see each other are two sequences."""
    pairs = torch.zeros(2, 12, 12, dtype=torch.bool)
    pairs[:, :6, :6] = pairs[:, 6:, 6:] = True
    apart = model(tokens, attend=pairs)
    assert close(apart[:, :6], model(tokens[:, :6]))
    assert close(apart[:, 6:], model(tokens[:, 6:]))
    one_way = pairs.clone()
    one_way[:, 6:, :6] = True  # the first half stays alone
    assert close(model(tokens, attend=one_way)[:, :6], apart[:, :6])
    assert not close(model(tokens, attend=one_way)[:, 6:], apart[:, 6:])
    with torch.no_grad():
        four = model.network(tokens, attention_mask=pairs[:, None].int()).logits
    assert torch.equal(four, apart)


def test_all_true_masks_are_no_mask(model, tokens):
    everything = torch.ones(2, 12, dtype=torch.bool)
    assert close(model(tokens, attend=everything), model(tokens))
    assert close(model(tokens, attend=everything[:, None].expand(2, 12, 12)), model(tokens))


def test_a_query_without_keys_harms_nobody(model, tokens):
    pairs = torch.ones(2, 12, 12, dtype=torch.bool)
    pairs[:, -1] = False
    pairs[:, :, -1] = False
    logits = model(tokens, attend=pairs)
    assert close(logits[:, :-1], model(tokens[:, :-1]))
    assert logits.isfinite().all()
    nothing = model(tokens, attend=torch.zeros(2, 12, dtype=torch.bool))
    assert nothing.isfinite().all()


def test_no_kernel_is_given_a_query_without_keys():
    """Some return zeros for one, some NaN; this does not leave it to them."""
    pairs = torch.tensor([[[True, False], [False, False]]])
    assert key_choice(pairs).tolist() == [[[[True, False], [True, True]]]]
    assert key_choice(torch.zeros(1, 2, dtype=torch.int64)).all()
    assert key_choice(None) is None


def test_norms_round_after_float32_and_before_the_weight():
    norm = RMSNorm(64, 1e-6).to(torch.bfloat16)
    source = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 64, generator=source).to(torch.bfloat16)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(64, generator=source))
        exact = hidden.float() / (hidden.float().square().mean(-1, keepdim=True) + 1e-6).sqrt()
        wanted = norm.weight * exact.to(torch.bfloat16)
        assert (norm(hidden) == wanted).float().mean() > 0.99  # a last bit of the square root may differ
        assert ((norm.weight * exact).to(torch.bfloat16) == wanted).float().mean() < 0.9
        double = hidden.double()
        exact = double / (double.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        assert close(norm.double()(double), norm.weight * exact, 1e-12)  # and float64 is not cut to float32


@pytest.mark.parametrize("columns", [slice(3, 7), slice(-2, None), slice(None, None, 3), torch.tensor([5, 0, 11, 5])])
def test_columns_are_a_choice_of_the_logits(model, tokens, columns):
    assert close(model(tokens, columns=columns), model(tokens)[:, columns])


def test_positions_count_only_by_their_differences(model, tokens):
    line = torch.arange(12)[None]
    assert torch.equal(model(tokens, positions=line), model(tokens))
    assert close(model(tokens, positions=line + 300), model(tokens))
    each = torch.stack((line[0], line[0] * 2))
    assert close(model(tokens, positions=each)[0], model(tokens)[0])
    assert not close(model(tokens, positions=each)[1], model(tokens)[1], 1e-4)


@pytest.mark.parametrize("columns", [slice(4, 9), torch.tensor([9, 2, 3])])
def test_soft_tokens(model, tokens, columns):
    ids = torch.stack((tokens[:, columns], (tokens[:, columns] + 1) % 256), dim=-1)
    certain = torch.zeros(ids.shape)
    certain[..., 0] = 1
    assert torch.equal(model(tokens, columns=columns, soft=(ids, certain)), model(tokens, columns=columns))
    halves = model(tokens, columns=columns, soft=(ids, torch.full(ids.shape, 0.5)))
    table = model.network.get_input_embeddings().weight.detach()
    hidden = table[tokens]
    hidden[:, columns] = (table[ids[..., 0]] + table[ids[..., 1]]) / 2
    with torch.no_grad():
        wanted = model.network(inputs_embeds=hidden, columns=columns).logits
    assert close(halves, wanted)
    assert not close(halves, model(tokens, columns=columns), 1e-3)


def test_gradient_checkpointing_recomputes_and_gives_the_same_gradients(tokens):
    def gradients(checkpointing):
        network = random_llada(3).network.train()
        calls = []
        network.model.transformer.blocks[0].q_proj.register_forward_hook(lambda *_: calls.append(1))
        if checkpointing:
            network.gradient_checkpointing_enable()
        network(tokens).logits.square().mean().backward()
        return {name: parameter.grad for name, parameter in network.named_parameters()}, len(calls)

    plain, once = gradients(False)
    recomputed, twice = gradients(True)
    assert (once, twice) == (1, 2)
    assert all(torch.equal(plain[name], recomputed[name]) for name in plain)
    assert min(float(gradient.abs().max()) for gradient in plain.values()) > 0


def test_a_fresh_network_starts_small():
    network = random_llada().network
    fresh = type(network)(network.config)
    gains = [p for name, p in fresh.named_parameters() if "norm" in name or "ln_f" in name]
    assert all(torch.equal(gain, torch.ones_like(gain)) for gain in gains)
    assert abs(float(fresh.get_input_embeddings().weight.detach().std()) - network.config.init_std) < 0.002


def test_half_precision_rotates_in_float32():
    cos, sin = rotary_tables(torch.tensor([[0, 4095]]), 8, 500000.0, torch.bfloat16)
    assert abs(float(cos[0, 0, 1, 0]) - math.cos(4095)) < 1e-3  # bfloat16 would round 4095 to 4096
    assert abs(float(sin[0, 0, 1, 1]) - math.sin(4095 / 500000.0**0.25)) < 1e-3
    heads = torch.randn(1, 2, 2, 8, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    rotated = rotate(heads, (cos, sin))
    assert torch.equal(rotated, rotate(heads.float(), (cos, sin)).to(torch.bfloat16))


def test_half_precision_agrees_to_its_two_digits(tokens):
    wanted = random_llada()(tokens)
    halved = random_llada(dtype=torch.bfloat16)(tokens)
    assert halved.dtype == torch.bfloat16
    assert float((halved.float() - wanted).abs().max() / wanted.abs().max()) < 0.04


def test_wrong_inputs_are_named(model, tokens):
    with pytest.raises(ValueError, match="not floating point"):
        model.network(tokens, attention_mask=torch.ones(2, 12))
    with pytest.raises(ValueError, match=r"\[b, n\], \[b, q, k\]"):
        model.network(tokens, attention_mask=torch.ones(2, 4, 12, 12, dtype=torch.bool))
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model.network()


def test_calling_a_model_leaves_no_graph(model, tokens):
    assert not model(tokens).requires_grad
    assert model.network(tokens).logits.requires_grad  # the network itself trains
