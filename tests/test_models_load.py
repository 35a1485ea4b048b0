"""Opening and saving: what goes in comes out, and whatever does not fit is one clear sentence."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from redraft.models import load, resolve
from redraft.models.fingerprint import check_fingerprint, fingerprint, save_fingerprint
from redraft.models.standin import random_dream, random_llada
from redraft.models.weights import INDEX, WEIGHTS

TOKENS = torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "llada"
    return random_llada().save_pretrained(folder)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "sharded"
    return random_llada().save_pretrained(folder, max_shard_size="40KB")


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "llada")


@pytest.fixture
def shards(sharded, tmp_path):
    return shutil.copytree(sharded, tmp_path / "sharded")


def edit(path, **changes):
    value = json.loads(path.read_text())
    path.write_text(json.dumps({key: item for key, item in {**value, **changes}.items() if item is not ...}))


def weights(folder, **changes):
    tensors = {**load_file(folder / WEIGHTS), **changes}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / WEIGHTS)


# --- what works ---


def test_loaded_is_what_was_saved(original, sharded):
    """Logits, not only weights: transformers leaves tables kept in non-persistent buffers uninitialised."""
    model = random_llada()
    assert not (original / INDEX).exists()
    assert len(list(sharded.glob("*.safetensors"))) > 3
    for place in (original, sharded):
        again = load(place)
        assert torch.equal(again(TOKENS), model(TOKENS))
        assert again.encode("a <|mdm_mask|>") == model.encode("a <|mdm_mask|>")
        assert (again.eos_ids, again.mask_id, again.pad_id) == (model.eos_ids, model.mask_id, model.pad_id)
        assert (again.context, again.family, again.name) == (512, "llada", str(place))
        assert not again.network.training


def test_save_is_a_rename_at_the_end(tmp_path, monkeypatch):
    model = random_llada()

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("redraft.models.fingerprint.save_fingerprint", fail)
        with pytest.raises(OSError, match="disk full"):
            model.save_pretrained(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    model.save_pretrained(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    with pytest.raises(ValueError, match="is already there"):
        model.save_pretrained(tmp_path / "model")


def test_precisions(folder):
    model = random_llada()
    assert load(folder).dtype == torch.float32
    assert load(folder, dtype="bfloat16").dtype == torch.bfloat16
    wide = load(folder, dtype=torch.float64)
    assert torch.allclose(wide(TOKENS), model(TOKENS).double(), atol=1e-5)
    assert not torch.equal(wide(TOKENS), model(TOKENS).double())  # rotations and norms are float64 too
    for dtype in ("half-ish", "int64", torch.int8):
        with pytest.raises(ValueError, match="dtype must be"):
            load(folder, dtype=dtype)


def test_precision_of_a_checkpoint_whose_config_is_silent(tmp_path):
    """As the published LLaDA's is."""
    folder = random_llada(dtype=torch.bfloat16).save_pretrained(tmp_path / "half")
    edit(folder / "config.json", dtype=...)
    assert "dtype" not in json.loads((folder / "config.json").read_text())
    assert load(folder).dtype == torch.bfloat16


def test_devices(folder):
    assert torch.equal(load(folder, device_map={"": "cpu"})(TOKENS), random_llada()(TOKENS))
    assert load(folder, device="cpu").device == torch.device("cpu")
    assert load(folder, device="cpu:0").device.type == "cpu"  # as one of several processes has it
    with pytest.raises(ValueError, match="not both"):
        load(folder, device="cpu", device_map="auto")


def test_small_models_come_without_progress_bars(folder, capfd):
    from transformers.utils import logging

    random_llada().save_pretrained(folder / "again")
    load(folder)
    assert capfd.readouterr() == ("", "")
    assert logging.is_progress_bar_enabled()  # only switched off for that long


def test_remote_code_is_never_run(folder):
    (folder / "modeling_llada.py").write_text("raise SystemExit('remote code ran')")
    code = {"AutoConfig": "modeling_llada.X", "AutoModel": "modeling_llada.X"}
    edit(folder / "config.json", auto_map=code, architectures=["LLaDAModelLM"])
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_llada.X", None]})
    assert torch.equal(load(folder)(TOKENS), random_llada()(TOKENS))


def test_importing_the_package_is_cheap():
    code = "import sys, redraft.models; print([m for m in ('torch', 'transformers', 'peft') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_dream_tokenizer_from_vocabulary_and_merges(tmp_path):
    """Dream ships vocab.json and merges.txt (and Python code for them) instead of tokenizer.json."""
    folder = random_dream().save_pretrained(tmp_path / "dream")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    special = {text: i for text, i in vocabulary.items() if i > 255}
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps({text: i for text, i in vocabulary.items() if i <= 255}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    added = {str(i): {"content": text, "special": True, "normalized": False} for text, i in special.items()}
    fields = {"added_tokens_decoder": added, "tokenizer_class": "DreamTokenizer", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    model = load(folder)
    assert model.encode("Wie geht's <|mask|>?") == random_dream().encode("Wie geht's <|mask|>?")
    assert model.decode(random_dream().encode("naïve", chat=False)) == "naïve"
    assert model.eos_ids == (256, 258)


# --- names that lead nowhere ---


def test_names(tmp_path):
    assert resolve(tmp_path) == tmp_path
    with pytest.raises(ValueError, match="neither a folder here, nor"):
        load("no-such-model")
    with pytest.raises(ValueError, match="neither a folder here, nor"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="owner/model is not a folder here, not in the hub's cache, and could not be"):
        load("owner/model")
    with pytest.raises(ValueError, match="has no 'bundled-nothing' weights"):
        load("bundled-nothing")
    with pytest.raises(ValueError, match=r"holds no config.json"):
        load(tmp_path)


# --- configs that are wrong ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "llama"}, "has model_type 'llama'; the families that can be opened are llada, Dream"),
        ({"model_type": ...}, "has model_type ''"),
        ({"model_type": "llada_moe"}, "LLaDA-MoE model: those are not built yet"),
        ({"architectures": ["LLaDAMoEModelLM"]}, "LLaDA-MoE model: those are not built yet"),
        ({"num_experts": 64}, "LLaDA-MoE model: those are not built yet"),
        ({"model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"]}, "LLaDA2 model"),
        ({"d_model": "32"}, "d_model must be a whole number from 1 to 65536, not '32'"),
        ({"n_layers": 10**9}, "n_layers must be a whole number from 1 to 1024"),
        ({"dtype": "float99"}, "float99"),
    ],
)
def test_configs_that_are_refused(folder, changes, words):
    edit(folder / "config.json", **changes)
    with pytest.raises(ValueError, match=r"config.json") as caught:
        load(folder)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_configs_that_are_not_json_objects(folder, text):
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config.json (is not JSON|holds a JSON list)"):
        load(folder)


def test_an_adapter_is_not_a_model(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/else"}')
    with pytest.raises(ValueError, match="is an adapter: load the model it was trained on"):
        load(folder)


def test_tokenizers_that_are_missing_or_broken(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer.json cannot be read as a tokenizer"):
        load(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"holds no tokenizer: tokenizer.json is missing"):
        load(folder)


# --- weights that are wrong ---

GATE = "model.transformer.blocks.0.ff_proj.weight"


def test_missing_extra_and_misshapen_tensors_are_named(folder):
    weights(folder, **{GATE: None, "model.transformer.wpe.weight": torch.zeros(2)})
    weights(folder, **{"model.transformer.ln_f.weight": torch.zeros(31)})
    with pytest.raises(ValueError, match="do not fit its config") as caught:
        load(folder)
    for words in (
        f"1 missing ({GATE})",
        "1 not asked for (model.transformer.wpe.weight)",
        "1 of another shape (model.transformer.ln_f.weight is [31] and should be [32])",
    ):
        assert words in str(caught.value)


def test_a_config_for_another_size_names_a_few_and_counts_the_rest(folder):
    edit(folder / "config.json", n_layers=9)
    with pytest.raises(ValueError, match=r"63 missing \(.*blocks.2.attn_norm.weight.*, \.\.\.\)"):
        load(folder)


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-1], lambda raw: raw[:100], lambda raw: raw[:4], lambda raw: raw + b"x"]
)
def test_files_that_are_cut_off(folder, change):
    path = folder / WEIGHTS
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=r"model.safetensors (is|has) .*; fetch it again"):
        load(folder)


def lie(path, change):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda header: header[GATE].update(shape=[64, 33]), "contradicts itself at"),
        (lambda header: header[GATE].update(data_offsets=[0, 8192]), "contradicts itself at"),
        (lambda header: header[GATE].update(dtype="U8"), "is U8; only F64, F32, F16, BF16 weights are opened"),
        (lambda header: header[GATE].pop("shape"), "damaged header"),
        (lambda header: header.update({GATE: 3}), "damaged header"),
        (lambda header: header[GATE].update(shape=["x"]), "damaged header"),
    ],
)
def test_headers_that_lie(folder, change, words):
    lie(folder / WEIGHTS, change)
    with pytest.raises(ValueError, match=r"model.safetensors") as caught:
        load(folder)
    assert words in str(caught.value)


def test_files_that_are_not_safetensors(folder):
    (folder / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")  # what git leaves without LFS
    with pytest.raises(ValueError, match="cut off or not a safetensors file"):
        load(folder)


def test_pickles_are_not_opened(folder):
    (folder / WEIGHTS).unlink()
    with pytest.raises(ValueError, match=r"holds no model.safetensors \(no weights\)"):
        load(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'echo'\ntR.")
    with pytest.raises(ValueError, match=r"only pytorch_model.bin: pickles.*Convert .*save_file"):
        load(folder)


def test_shards_that_are_missing(shards):
    gone = sorted(shards.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ValueError, match=f"{gone.name} is missing, although"):
        load(shards)


def test_shards_that_are_cut_off(shards):
    short = sorted(shards.glob("*.safetensors"))[2]
    short.write_bytes(short.read_bytes()[:-10])
    with pytest.raises(ValueError, match=f"{short.name} is .* bytes long, but its header describes"):
        load(shards)


@pytest.mark.parametrize("index", ["{}", '{"weight_map": 3}', '{"weight_map": {"a": 1}}', "{"])
def test_indexes_that_are_broken(shards, index):
    (shards / INDEX).write_text(index)
    with pytest.raises(ValueError, match=r"index.json (has no weight_map|is not JSON)"):
        load(shards)


def test_indexes_that_point_elsewhere(shards):
    places = json.loads((shards / INDEX).read_text())["weight_map"]
    edit(shards / INDEX, weight_map={**places, GATE: "../secrets.safetensors"})
    with pytest.raises(ValueError, match="which is not a file in the same folder"):
        load(shards)
    other = next(place for place in places.values() if place != places[GATE])
    edit(shards / INDEX, weight_map={**places, GATE: other})
    with pytest.raises(ValueError, match=f"disagree about {GATE}"):
        load(shards)


# --- fingerprints ---


def test_fingerprint_notices_a_changed_tensor(folder):
    before = load_file(folder / WEIGHTS)[GATE]
    weights(folder, **{GATE: before + 1e-3})
    with pytest.raises(ValueError, match=f"is not the model that .* describes; different: 1 of 21 tensors .{GATE}."):
        load(folder)
    weights(folder, **{GATE: before})
    load(folder, fingerprint=True)


def test_fingerprint_notices_what_no_tensor_shows(folder):
    edit(folder / "config.json", rope_theta=50.0)
    with pytest.raises(ValueError, match="different: the config's rope_theta; the logits of a fixed input"):
        load(folder)
    assert load(folder, fingerprint=False).network.config.rope_theta == 50.0


def test_fingerprint_notices_a_broken_network(folder, monkeypatch):
    """The transformers upgrade that leaves buffers uninitialised: same config, same tensors, other logits."""
    monkeypatch.setattr("redraft.models.layers.rotate", lambda heads, tables: heads)
    with pytest.raises(ValueError, match=r"different: the logits of a fixed input .by 0"):
        load(folder)


def test_fingerprint_samples_all_of_a_large_tensor(monkeypatch):
    monkeypatch.setattr("redraft.models.fingerprint.SAMPLE", 64)
    model = random_llada()
    before = fingerprint(model)["tensors"]
    weight = model.network.model.transformer.wte.weight
    with torch.no_grad():
        weight[weight.shape[0] // 2 :] += 1
    after = fingerprint(model)["tensors"]
    assert [name for name in before if before[name] != after[name]] == ["model.transformer.wte.weight"]


def test_fingerprint_holds_in_other_precisions(folder):
    for dtype in ("float64", "bfloat16", "float32"):
        load(folder, dtype=dtype, fingerprint=True)
    weights(folder, **{GATE: load_file(folder / WEIGHTS)[GATE] + 1e-3})
    with pytest.raises(ValueError, match="1 of 21 tensors"):
        load(folder, dtype="float64")  # float32 numbers in float64: still comparable to the bit


def test_fingerprints_elsewhere(folder, tmp_path):
    path = save_fingerprint(random_llada(1), tmp_path)
    with pytest.raises(ValueError, match="is not the model that"):
        load(folder, fingerprint=path)
    (folder / "fingerprint.json").unlink()
    load(folder)
    with pytest.raises(ValueError, match=r"holds no fingerprint.json"):
        load(folder, fingerprint=True)
    path.write_text("{}")
    with pytest.raises(ValueError, match="is not a fingerprint"):
        load(folder, fingerprint=path)
    with pytest.raises(ValueError, match="is not the model that"):
        check_fingerprint(random_llada(2), save_fingerprint(random_llada(1), tmp_path))


# --- adapters ---


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A plain PEFT adapter with weights that matter, and the network it was saved from."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    settings = LoraConfig(r=4, target_modules=["q_proj", "k_proj", "v_proj"], init_lora_weights=False)
    network = get_peft_model(random_llada().network, settings).eval()
    folder = tmp_path_factory.mktemp("adapters") / "lora"
    network.save_pretrained(folder)
    return network, folder


@pytest.fixture
def lora(adapted, tmp_path):
    return shutil.copytree(adapted[1], tmp_path / "lora")


def test_adapters_of_plain_peft_open(folder, adapted, lora, tmp_path):
    model = load(folder, adapter=lora)
    with torch.no_grad():
        wanted = adapted[0](input_ids=TOKENS).logits
    assert torch.equal(model(TOKENS), wanted)
    assert (wanted - random_llada()(TOKENS)).abs().max() > 0.01
    assert model.name == f"{folder}+{lora}"
    with pytest.raises(ValueError, match="carries an adapter: save"):
        model.save_pretrained(tmp_path / "never")
    merged = load(model.merged().save_pretrained(tmp_path / "merged"))
    assert torch.allclose(merged(TOKENS), wanted, atol=1e-5)
    with pytest.raises(ValueError, match="carries no adapter"):
        merged.merged()


def test_adapters_marked_as_causal_open(folder, adapted, lora):
    """As published ones often are; PEFT's own wrapper for those needs a network that generates left to right."""
    edit(lora / "adapter_config.json", task_type="CAUSAL_LM")
    with torch.no_grad():
        assert torch.equal(load(folder, adapter=lora)(TOKENS), adapted[0](input_ids=TOKENS).logits)
    edit(lora / "adapter_config.json", peft_type="PROMPT_TUNING")
    with pytest.raises(ValueError, match="of type 'PROMPT_TUNING'; only LORA is built"):
        load(folder, adapter=lora)


def test_adapter_targets_that_match_nothing(folder, lora):
    edit(lora / "adapter_config.json", target_modules=["q_proj", "o_proj"])  # Llama's name; LLaDA says attn_out
    with pytest.raises(
        ValueError, match=r"adapts 'o_proj', which this model does not have; it has attn_norm, attn_out"
    ):
        load(folder, adapter=lora)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("blocks.0.q_proj.lora_A", "blocks.9.q_proj.lora_A", "1 missing .*; 1 not asked for"),
        ("blocks.0.q_proj.lora_A", None, r"1 missing \(.*blocks.0.q_proj.lora_A.weight\)"),
    ],
)
def test_adapter_tensors_that_match_nothing(folder, lora, old, new, words):
    tensors = load_file(lora / "adapter_model.safetensors")
    kept = {name.replace(old, new or ""): tensor for name, tensor in tensors.items() if new or old not in name}
    save_file(kept, lora / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=words):
        load(folder, adapter=lora)


def test_adapters_of_another_size(folder, lora):
    edit(lora / "adapter_config.json", r=8)
    with pytest.raises(ValueError, match=r"of another shape .*lora_A.weight is \[4, 32\] and should be \[8, 32\]"):
        load(folder, adapter=lora)


def test_pickled_adapters_are_not_opened(folder, lora):
    (lora / "adapter_model.safetensors").rename(lora / "adapter_model.bin")
    with pytest.raises(ValueError, match=r"only adapter_model.bin, a pickle"):
        load(folder, adapter=lora)


def test_a_model_is_not_an_adapter(folder, original):
    with pytest.raises(ValueError, match=r"holds no adapter_config.json"):
        load(folder, adapter=original)
