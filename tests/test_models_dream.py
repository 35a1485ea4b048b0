"""Dream's network: the published layout, the reference's numbers, and the shift by one, undone inside."""

import json
import math
from pathlib import Path

import pytest
import torch

from redraft.models import load
from redraft.models.dream.configuration import DreamConfig
from redraft.models.dream.modeling import DreamForMaskedLM
from redraft.models.loading import wanted_shapes
from redraft.models.standin import random_dream, seeded_weights


@pytest.fixture(scope="module")
def model():
    return random_dream(dtype=torch.float64)


@pytest.fixture
def tokens():
    return torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(0))


def close(a, b, tolerance=1e-9):
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def raw(model, tokens):
    """Logits as the published code returns them: at position i about the token at i + 1."""
    network, last = model.network, []
    handle = network.model.layers[-1].register_forward_hook(lambda _, inputs, output: last.append(output))
    with torch.no_grad():
        network(tokens)
        handle.remove()
        return network.lm_head(network.model.norm(last[0]))


def test_layout_of_the_published_checkpoint():
    shapes = wanted_shapes(DreamForMaskedLM, DreamConfig())
    assert len(shapes) == 339  # 12 a layer (three biases), embedding, norm, head
    assert sum(map(math.prod, shapes.values())) == 7_615_616_512  # Qwen2.5-7B's
    assert shapes["lm_head.weight"] == shapes["model.embed_tokens.weight"] == (152064, 3584)
    layer = {name.split(".27.")[1]: shape for name, shape in shapes.items() if ".layers.27." in name}
    assert layer == {
        "input_layernorm.weight": (3584,),
        "self_attn.q_proj.weight": (3584, 3584),
        "self_attn.q_proj.bias": (3584,),
        "self_attn.k_proj.weight": (512, 3584),
        "self_attn.k_proj.bias": (512,),
        "self_attn.v_proj.weight": (512, 3584),
        "self_attn.v_proj.bias": (512,),
        "self_attn.o_proj.weight": (3584, 3584),
        "post_attention_layernorm.weight": (3584,),
        "mlp.gate_proj.weight": (18944, 3584),
        "mlp.up_proj.weight": (18944, 3584),
        "mlp.down_proj.weight": (3584, 18944),
    }


def test_same_logits_as_the_reference():
    golden = json.loads((Path(__file__).parent / "golden" / "dream_logits.json").read_text())
    network = seeded_weights(DreamForMaskedLM(DreamConfig(**golden["config"])), golden["seed"]).eval()
    with torch.no_grad():
        logits = network(
            torch.tensor(golden["tokens"]),
            attention_mask=torch.tensor(golden["attention_mask"]),
            columns=torch.tensor(golden["columns"]),
        ).logits
    wanted = torch.tensor(golden["logits"])
    assert close(logits[..., : wanted.shape[-1]], wanted, 1e-5 * float(wanted.abs().max()))


def test_logits_are_about_their_own_position(model, tokens):
    unshifted = raw(model, tokens)
    logits = model(tokens)
    assert close(logits[:, 1:], unshifted[:, :-1])
    assert close(logits[:, :1], unshifted[:, :1])
    assert not close(logits[:, 1:], unshifted[:, 1:], 1e-2)


@pytest.mark.parametrize("columns", [slice(3, 7), slice(0, 2), slice(-2, None), torch.tensor([5, 0, 11, 1])])
def test_columns_are_a_choice_of_the_shifted_logits(model, tokens, columns):
    assert close(model(tokens, columns=columns), model(tokens)[:, columns])


def test_looks_ahead(model, tokens):
    changed = tokens.clone()
    changed[:, -1] += 1
    assert (model(tokens) - model(changed))[:, 1].abs().max() > 1e-3


def test_left_padding_changes_nothing(model, tokens):
    short, pad = tokens[1:, :7], torch.full((1, 5), model.pad_id)
    batch = torch.cat((tokens[:1], torch.cat((pad, short), dim=1)))
    attend = torch.ones_like(batch, dtype=torch.bool)
    attend[1, :5] = False
    together = model(batch, attend=attend)
    assert close(together[:1], model(tokens[:1]))
    # A row's first token has no left neighbour, padded or not: its logits mean nothing in either case.
    assert close(together[1:, 6:], model(short)[:, 1:])


def test_soft_tokens_that_are_certain_are_hard(model, tokens):
    ids = tokens[:, 4:9, None]
    soft = model(tokens, columns=slice(4, 9), soft=(ids, torch.ones(ids.shape)))
    assert torch.equal(soft, model(tokens, columns=slice(4, 9)))


def test_gradient_checkpointing_gives_the_same_gradients(tokens):
    def gradients(checkpointing):
        network = random_dream(3).network.train()
        if checkpointing:
            network.gradient_checkpointing_enable()
        network(tokens).logits.square().mean().backward()
        return {name: parameter.grad for name, parameter in network.named_parameters()}

    plain, recomputed = gradients(False), gradients(True)
    assert all(torch.equal(plain[name], recomputed[name]) for name in plain)


def test_save_and_load(tmp_path, tokens):
    model = random_dream(1)
    again = load(model.save_pretrained(tmp_path / "dream"))
    assert torch.equal(again(tokens), model(tokens))
    assert (again.family, again.mask_id, again.eos_ids, again.pad_id) == ("Dream", 259, (256, 258), 256)


def test_context_is_what_it_was_trained_on():
    assert DreamConfig().context == 2048
    assert DreamConfig(max_position_embeddings=512).context == 512


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("hidden_size", "3584", "hidden_size must be a whole number"),
        ("num_hidden_layers", 0, "num_hidden_layers must be a whole number"),
        ("num_attention_heads", 5, "do not split"),
        ("num_key_value_heads", 3, "cannot share 3"),
        ("mask_token_id", 152064, "mask_token_id"),
        ("rope_theta", -1.0, "rope_theta must be a positive number"),
        ("tie_word_embeddings", True, "tie_word_embeddings=True is not built here"),
        ("rope_scaling", {"type": "yarn", "factor": 4.0}, "is not built here"),
        ("use_sliding_window", True, "use_sliding_window=True is not built here"),
        ("hidden_act", "gelu", "hidden_act='gelu' is not built here"),
    ],
)
def test_config_refuses(field, value, words):
    with pytest.raises(ValueError, match="Dream config: ") as caught:
        DreamConfig(**{field: value})
    assert words in str(caught.value)
