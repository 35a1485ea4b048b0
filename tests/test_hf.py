"""`redraft.hf`: transformers' ways in, and the tokens of `redraft.generate` out."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from threading import Thread

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    EosTokenCriteria,
    GenerationConfig,
    SuppressTokensLogitsProcessor,
    TextDiffusionStreamer,
    TextStreamer,
)

from redraft import Reading, generate, load, parse
from redraft.decoding import SAMPLERS
from redraft.hf import DraftStreamer, LLaDAForMaskedLM, RedraftGenerationConfig, attach
from redraft.hf.answering import settled_columns
from redraft.hf.configuration import ALIASES, NAMES, READING
from redraft.models.standin import COMPACT_IDS, random_dream, random_llada
from redraft.models.weights import WEIGHTS
from test_models_load import edit, weights

PAGE = Path(__file__).parent.parent / "docs" / "hugging-face.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
PROMPTS = ["seven times eight", "why", "the sky is blue"]
EOS, EOT, MASK = (COMPACT_IDS[text] for text in ("<|endoftext|>", "<|eot_id|>", "<|mdm_mask|>"))
SMALL = {"max_new_tokens": 16, "steps": 8}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return random_llada().save_pretrained(tmp_path_factory.mktemp("hf") / "llada")


@pytest.fixture
def folder(place, tmp_path):
    return shutil.copytree(place, tmp_path / "llada")


@pytest.fixture(scope="module")
def model(place):
    return AutoModelForMaskedLM.from_pretrained(place)


@pytest.fixture(scope="module")
def tokenizer(place):
    return AutoTokenizer.from_pretrained(place, padding_side="left")


@pytest.fixture(scope="module")
def inputs(tokenizer):
    return dict(tokenizer(PROMPTS, return_tensors="pt", padding=True))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    torch.manual_seed(0)
    settings = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    folder = tmp_path_factory.mktemp("hf") / "adapter"
    get_peft_model(random_llada().network, settings).save_pretrained(folder)
    return folder


def responses(output, inputs):
    return output.sequences[:, inputs["input_ids"].shape[1] :].tolist()


# --- opening ---


def test_auto_classes_open_both_families(place, tmp_path):
    dream = random_dream().save_pretrained(tmp_path / "dream")
    for folder, kind, made in ((place, "llada", random_llada()), (dream, "Dream", random_dream())):
        assert AutoConfig.from_pretrained(folder).model_type == kind
        for auto in (AutoModel, AutoModelForMaskedLM):
            network = auto.from_pretrained(folder)
            assert network.can_generate()
            assert network.generation_config.eos_token_id == list(made.eos_ids)
            tokens = torch.arange(12)[None]
            with torch.no_grad():
                assert torch.equal(network(tokens).logits, made(tokens))


def test_redraft_load_leaves_the_auto_classes_alone(place):
    load(place)
    assert type(AutoModel.from_pretrained(place)) is LLaDAForMaskedLM


def test_the_published_layout_opens_without_its_code(folder):
    (folder / "modeling_llada.py").write_text("raise SystemExit('remote code ran')")
    code = {
        "AutoConfig": "modeling_llada.X",
        "AutoModel": "modeling_llada.X",
        "AutoModelForCausalLM": "modeling_llada.X",
    }
    edit(folder / "config.json", auto_map=code, architectures=["LLaDAModelLM"], dtype=...)
    (folder / "generation_config.json").write_text('{"_from_model_config": true, "eos_token_id": 3, "top_k": 5}')
    network = AutoModel.from_pretrained(folder)
    assert network.generation_config == RedraftGenerationConfig(eos_token_id=[EOS, EOT])
    network.generate(torch.tensor([[1, 2]]), **SMALL)


@pytest.mark.parametrize("sign", [{"num_experts": 64}, {"architectures": ["LLaDAMoEModelLM"]}], ids=str)
def test_llada_moe_is_refused_although_its_type_is_llada(folder, sign):
    edit(folder / "config.json", **sign)
    for auto in (AutoConfig, AutoModel, AutoModelForMaskedLM):
        with pytest.raises(ValueError, match="LLaDA-MoE model: those are not built yet"):
            auto.from_pretrained(folder)


def test_a_checkpoint_that_lacks_something_is_refused(folder):
    weights(folder, **{"model.transformer.ln_f.weight": None})
    with pytest.raises(ValueError, match=r"not read completely.*ln_f.weight"):
        AutoModel.from_pretrained(folder)
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="not opened"):
        AutoModel.from_pretrained(folder, use_safetensors=False)
    (folder / WEIGHTS).unlink()
    with pytest.raises(OSError, match="safetensors"):
        AutoModel.from_pretrained(folder)


def test_without_a_tokenizer_end_of_turn_is_not_known(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    network, report = LLaDAForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert network.generation_config.eos_token_id is None
    assert not any(report.values())
    assert network.generate(torch.tensor([[1]]), **SMALL).sequences.shape == (1, 17)


def test_redraft_does_not_bring_it_in():
    code = "import sys, redraft; redraft.generate, redraft.load; print('redraft.hf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- the tokens ---


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_every_sampler_gives_the_tokens_of_redraft_generate(model, inputs, name):
    reading = Reading(temperature=0.8, eos="none", top_p=0.9)
    options = {"temperature": 0.8, "eos": "none", "top_p": 0.9, "seed": 3, "block_length": 8}
    output = model.generate(**inputs, sampler=name, **options, **SMALL)
    answers = generate(random_llada(), PROMPTS, name, length=16, steps=8, block=8, seed=3, reading=reading, chat=False)
    assert responses(output, inputs) == [answer.ids for answer in answers]
    assert output.calls.tolist() == [answer.calls for answer in answers]
    assert output.processed.tolist() == [answer.processed for answer in answers]
    assert output.first_eos.tolist() == [answer.first_eos for answer in answers]
    assert output.tokens_per_forward.tolist() == pytest.approx([a.first_eos / a.calls for a in answers])
    assert torch.equal(output.sequences[:, : inputs["input_ids"].shape[1]], inputs["input_ids"])


def test_the_defaults_are_those_of_redraft_generate(model, inputs):
    answers = generate(random_llada(), PROMPTS, length=128, steps=32, chat=False)
    assert responses(model.generate(**inputs), inputs) == [answer.ids for answer in answers]


def test_end_of_turn_counts_as_an_end(tmp_path):
    """Found beside the weights, for config.json does not have it; with a model that says nothing else."""
    made = random_llada()
    with torch.no_grad():
        made.network.model.transformer.ff_out.weight[EOT] *= 1.5  # so that some candidates are the end of a turn
    folder = made.save_pretrained(tmp_path / "ends")
    ids = torch.tensor([made.encode("why", chat=False)])
    network = AutoModel.from_pretrained(folder)
    (answer,) = generate(made, "why", length=16, steps=8, chat=False, reading=Reading(temperature=0.5))
    output = network.generate(ids, pad_after_eos=True, temperature=0.5, **SMALL)
    assert EOT in answer.ids
    assert output.first_eos.tolist() == [answer.first_eos]
    tail = [made.pad_id] * (15 - answer.first_eos)
    assert output.sequences[0, ids.shape[1] :].tolist() == [*answer.ids[: answer.first_eos + 1], *tail]
    blind = network.generate(ids, eos_token_id=EOS, temperature=0.5, **SMALL)
    assert blind.sequences[0, ids.shape[1] :].tolist() != answer.ids  # the policy vetoes end of turn as well


def test_a_row_is_the_same_alone_and_in_a_batch(inputs):
    wide = attach(random_llada(dtype=torch.float64))
    options = {"temperature": 1.0, "seed": 5, **SMALL}
    together = wide.generate(**inputs, **options)
    extra = {name: torch.nn.functional.pad(part, (4, 0)) for name, part in inputs.items()}  # padded more than needed
    assert responses(wide.generate(**extra, **options), extra) == responses(together, inputs)
    for row, seen in enumerate(inputs["attention_mask"].bool()):
        alone = wide.generate(inputs["input_ids"][row, seen][None], indices=[row], **options)
        assert alone.sequences[0, -16:].tolist() == together.sequences[row, -16:].tolist()
        assert alone.processed[0] == together.processed[row]


def test_a_mask_in_a_prompt_stays(model):
    ids = torch.tensor([[10, MASK, 11]])
    output = model.generate(ids, **SMALL)
    assert output.sequences[0, :3].tolist() == [10, MASK, 11]
    assert MASK not in output.sequences[0, 3:]


def test_plain_sequences_and_history(model, inputs):
    output = model.generate(**inputs, output_history=True, **SMALL)
    plain = model.generate(**inputs, return_dict_in_generate=False, **SMALL)
    assert torch.equal(plain, output.sequences)
    assert len(output.history) == 8
    assert output.history[-1].tolist() == responses(output, inputs)
    assert MASK in output.history[0]


def test_adapters(place, adapter, inputs):
    answers = generate(load(place, adapter=adapter), PROMPTS, length=16, steps=8, chat=False)
    wanted = [answer.ids for answer in answers]
    plain = PeftModel.from_pretrained(AutoModel.from_pretrained(place), str(adapter))
    assert responses(plain.generate(**inputs, **SMALL), inputs) == wanted
    assert responses(attach(load(place, adapter=adapter)).generate(**inputs, **SMALL), inputs) == wanted
    with plain.disable_adapter():
        assert responses(plain.generate(**inputs, **SMALL), inputs) != wanted
    merged = plain.merge_and_unload()
    assert len(merged.generate(**inputs, **SMALL).sequences) == len(PROMPTS)


def test_adapters_marked_for_left_to_right_models(place, adapter, inputs, tmp_path):
    marked = shutil.copytree(adapter, tmp_path / "marked")
    edit(marked / "adapter_config.json", task_type="CAUSAL_LM")
    wrapped = PeftModel.from_pretrained(AutoModel.from_pretrained(place), str(marked))
    plain = PeftModel.from_pretrained(AutoModel.from_pretrained(place), str(adapter))
    assert type(wrapped) is not type(plain)
    assert torch.equal(wrapped.generate(**inputs, **SMALL).sequences, plain.generate(**inputs, **SMALL).sequences)


# --- options ---


def test_there_is_an_option_for_every_field_of_a_reading():
    assert set(READING) == {field.name for field in fields(Reading)} - {"eos_ids"}
    assert set(READING.values()) <= set(NAMES)
    assert set(ALIASES.values()) <= set(NAMES)
    table = PAGE.read_text()
    for word in {*NAMES, *ALIASES} - {"bos_token_id"}:
        assert f"`{word}`" in table


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"num_inference_steps": 4}, {"steps": 4}),
        ({"diffusion_steps": 4}, {"steps": 4}),
        ({"max_denoising_steps": 4}, {"steps": 4}),
        ({"block_size": 8}, {"block_length": 8}),
        ({"gen_length": 8}, {"max_new_tokens": 8}),
        ({"cfg_scale": 1.5}, {"guidance": 1.5}),
        ({"remasking": "low_confidence"}, {"sampler": "unmask"}),
        ({"remasking": "random"}, {"sampler": "unmask", "rank": "random"}),
        ({"remasking": "random", "rank": "margin"}, {"sampler": "unmask", "rank": "margin"}),
        ({"alg": "margin"}, ValueError),
        ({"alg": "topk_margin", "alg_temp": 0.1}, {"sampler": "dream(alg=topk_margin, alg_temp=0.1)"}),
        ({"alg": "d3im( t2t = false )"}, {"sampler": "d3im(t2t=False)"}),
        ({"alg_temp": 0.1}, ValueError),
        ({"alg": "wino", "alg_temp": 0.1}, ValueError),
        ({"sampler_config": parse("d3im(t2m=False)")}, {"sampler": "d3im(t2m=False)"}),
        ({"sampler_config": {"_cls_name": "D3IM", "t2m": False}}, {"sampler": "d3im(t2m=False)"}),
        ({"histories": True}, {"output_history": True}),
        ({"eos_token_id": (1, 2)}, {"eos_token_id": [1, 2]}),
    ],
    ids=str,
)
def test_other_names(said, meant):
    if meant is ValueError:
        with pytest.raises(ValueError):  # noqa: PT011
            RedraftGenerationConfig(**said)
    else:
        assert RedraftGenerationConfig(**said).options() == meant


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_new_token": 4}, "no option 'max_new_token' .did you mean 'max_new_tokens'"),
        ({"do_sample": True}, "no option 'do_sample': temperature above 0 samples"),
        ({"steps": 4, "diffusion_steps": 4}, "steps is given twice, as steps and as diffusion_steps"),
        ({"sampler": "d3mi"}, "no sampler 'd3mi' .did you mean 'd3im'"),
        ({"sampler": 3}, "sampler is a sampler or its notation"),
        ({"steps": 0}, "steps is at least 1, not 0"),
        ({"steps": 2.5}, "'steps' of 'generate' is a whole number or None, not 2.5"),
        ({"temperature": -1.0}, "temperature is 0 or more"),
        ({"eos": "confidnce"}, "'eos' of 'generate' is one of none, confidence"),
        ({"seed": True}, "'seed' of 'generate' is a whole number"),
        ({"eos_token_id": "x"}, "eos_token_id is a token's id, or a list of ids, not 'x'"),
        ({"max_new_tokens": 16, "block_length": 5}, "blocks of 2 or 4 or 8 would fit"),
        ({"max_new_tokens": 8, "steps": 9, "sampler": "unmask"}, "at most 8 steps would fit"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(model, options, words):
    with pytest.raises(ValueError, match=words):
        RedraftGenerationConfig(**options)
    with pytest.raises(ValueError, match=words):
        model.generate(torch.tensor([[1]]), **options)


def test_a_length_to_come_may_fit_the_rest(model):
    config = RedraftGenerationConfig(block_length=24, steps=200, sampler="unmask")
    with pytest.raises(ValueError, match="not a whole number of blocks"):
        model.generate(torch.tensor([[1]]), generation_config=config)
    with pytest.raises(ValueError, match="at most 240 steps"):
        model.generate(torch.tensor([[1]]), generation_config=config, max_new_tokens=240, steps=250)


def test_configs_come_back_as_they_were(tmp_path):
    plain = GenerationConfig()
    for config in (
        RedraftGenerationConfig(),
        RedraftGenerationConfig(sampler="d3im(t2t=False)", temperature=1.0, top_p=1.0, max_new_tokens=20, steps=4),
        RedraftGenerationConfig(**{name: getattr(plain, name) for name in ("temperature", "top_p")}),  # their defaults
        RedraftGenerationConfig(eos_token_id=[1, 2], pad_token_id=0, output_history=False, rank="margin", seed=0),
    ):
        config.save_pretrained(tmp_path)
        again = RedraftGenerationConfig.from_pretrained(tmp_path)
        assert again == config
        assert again.options() == config.options()
        assert again.sampler_config == config.sampler_config
    changed = RedraftGenerationConfig.from_pretrained(tmp_path, gen_length=8)
    assert (changed.max_new_tokens, changed.rank) == (8, "margin")
    assert changed.update(block_size=4) == {}
    assert changed.block_length == 4
    with pytest.raises(ValueError, match="whole number of blocks"):
        changed.update(block_size=3)
    edit(tmp_path / "generation_config.json", top_k=50)
    with pytest.raises(ValueError, match="no option 'top_k'"):
        RedraftGenerationConfig.from_pretrained(tmp_path)


def test_later_words_win(model, inputs, place, tmp_path):
    def tokens(network, **options):
        return responses(network.generate(**inputs, **options), inputs)

    d3im, remdm = tokens(model, sampler="d3im", **SMALL), tokens(model, sampler="remdm", **SMALL)
    assert d3im != remdm
    own = AutoModel.from_pretrained(place, generation_config=RedraftGenerationConfig(sampler="remdm", **SMALL))
    assert own.generation_config.eos_token_id == [EOS, EOT]
    own.save_pretrained(tmp_path / "own")
    assert json.loads((tmp_path / "own" / "generation_config.json").read_text())["sampler"] == "remdm"
    again = AutoModel.from_pretrained(tmp_path / "own")
    assert tokens(again) == remdm
    config = RedraftGenerationConfig(sampler="d3im")
    assert tokens(again, generation_config=config) == d3im  # its length and steps are the model's
    assert tokens(again, generation_config=config, sampler="remdm") == remdm
    assert config.options() == {"sampler": "d3im"}  # left as it was
    assert tokens(again, generation_config=GenerationConfig(max_new_tokens=16), sampler="d3im") == d3im
    with pytest.raises(ValueError, match="no option 'num_beams'"):
        again.generate(**inputs, generation_config=GenerationConfig(num_beams=3))


def test_what_was_saved_opens_with_redraft_too(model, tokenizer, inputs, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    answers = generate(load(tmp_path / "saved"), PROMPTS, length=16, steps=8, chat=False)
    assert responses(model.generate(**inputs, **SMALL), inputs) == [answer.ids for answer in answers]


@pytest.mark.parametrize(
    ("ids", "attend", "words"),
    [
        ([1, 2], None, "whole numbers .batch, length."),
        ([[1.0]], None, "whole numbers .batch, length."),
        ([[1, 300]], None, "between 0 and 263"),
        ([[1, 2]], [[1]], "must agree"),
        ([[1, 2], [1, 2]], [[1, 1], [1, 0]], "padded on the right"),
        ([[1, 2], [1, 2]], [[1, 1], [0, 0]], "a prompt is empty"),
        ([[1] * 500], None, "reads at most 512"),
    ],
    ids=str,
)
def test_prompts_that_cannot_be(model, ids, attend, words):
    attend = None if attend is None else torch.tensor(attend)
    with pytest.raises(ValueError, match=words):
        model.generate(torch.tensor(ids), attention_mask=attend, **SMALL)


def test_unmasked_padding_and_vain_steps_are_noted(model):
    with pytest.warns(UserWarning, match="hand the tokenizer's attention_mask"):
        model.generate(torch.tensor([[EOS, 2], [1, 2]]), **SMALL)
    with pytest.warns(UserWarning, match="24 steps for 16 tokens"):
        model.generate(torch.tensor([[1]]), max_new_tokens=16, steps=24)
    with pytest.raises(ValueError, match="1 indices for 2 rows"):
        model.generate(torch.tensor([[1], [2]]), indices=[0])


# --- streams, stops, logits ---


class Recorder:
    def __init__(self):
        self.said = []

    def put(self, value):
        self.said.append(("put", value.tolist()))

    def put_draft(self, value):
        self.said.append(("draft", value.tolist()))

    def end(self):
        self.said.append(("end", None))


@pytest.mark.parametrize("sampler", ["d3im", "proseco", "tolerator", "editing", "xdlm"])
def test_a_stream_adds_up(model, inputs, sampler):
    """Drafts continue what is settled, and what is settled never changes."""
    stream = Recorder()
    output = model.generate(**inputs, sampler=sampler, block_length=8, streamer=stream, output_history=True, **SMALL)
    (first, prompt), *said, (last, _) = stream.said
    assert (first, prompt, last) == ("put", inputs["input_ids"].tolist(), "end")
    settled, history = [[] for _ in PROMPTS], iter(output.history)
    for kind, value in said:
        if kind == "put":
            settled = [old + new for old, new in zip(settled, value, strict=True)]
        else:
            seen = next(history)[:, : len(settled[0]) + len(value[0])].tolist()
            assert seen == [old + new for old, new in zip(settled, value, strict=True)]
    assert next(history, None) is None
    assert settled == responses(output, inputs)
    assert any(MASK in row for kind, value in said for row in value if kind == "draft")


def test_what_is_settled_after_each_stage():
    assert settled_columns(parse("d3im").stages(32, 8, 8), 32) == [8, 16, 24, 32]
    for name in SAMPLERS:
        stages = parse(name).stages(32, 16, 8)
        found = settled_columns(stages, 32)
        assert found == sorted(found)
        assert found[-1] == 32
        if parse(name).reach != "block":
            wider = [number for number, stage in enumerate(stages) if stage.window != "block"]
            assert all(bound == 0 for bound in found[: max(wider, default=0)])


def test_a_stream_ends_after_an_error_too(model):
    stream = Recorder()

    def broken(tokens, logits):
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        model.generate(torch.tensor([[1]]), streamer=stream, logits_processor=[broken], **SMALL)
    assert stream.said[-1] == ("end", None)


def test_streamers_of_transformers(model, tokenizer, capsys):
    ids = torch.tensor([[72, 73]])
    output = model.generate(ids, **SMALL)
    text = tokenizer.decode(output.sequences[0, 2:])
    model.generate(ids, streamer=TextStreamer(tokenizer, skip_prompt=True), **SMALL)
    assert capsys.readouterr().out == text + "\n"
    model.generate(ids, streamer=TextDiffusionStreamer(tokenizer, skip_prompt=True), **SMALL)
    drawn = capsys.readouterr().out
    assert drawn.count("\033[33m") == 8
    assert drawn.endswith(text + "\n")
    greedy = TextDiffusionStreamer(tokenizer)
    greedy._takes_logits = True
    with pytest.raises(ValueError, match="asks for the logits"):
        model.generate(ids, streamer=greedy, **SMALL)


def test_drafts_in_another_thread(model, tokenizer, inputs):
    streamer = DraftStreamer(tokenizer, model, mask="_", timeout=30)
    for _ in range(2):  # may be used again
        thread = Thread(target=model.generate, kwargs={**inputs, **SMALL, "block_length": 8, "streamer": streamer})
        thread.start()
        *drafts, final = list(streamer)
        thread.join()
        answers = generate(random_llada(), PROMPTS, length=16, steps=8, block=8, chat=False)
        assert final.texts == final.settled == [answer.text for answer in answers]
        assert final.final
        assert len(drafts) == 8 + 2
        assert all("_" in text for text in drafts[0].texts)
        assert drafts[0].settled == ["", "", ""]
        assert all(draft.texts[0].startswith(draft.settled[0]) for draft in drafts)
        assert not any(draft.final for draft in drafts)


def test_stopping_after_a_block(model, inputs):
    options = {"max_new_tokens": 32, "steps": 16, "block_length": 8, "eos": "none", "temperature": 1.0}
    free = model.generate(**inputs, **options)
    blocks = torch.tensor(responses(free, inputs))
    token = next(t for t in blocks[0, 8:16].tolist() if t not in blocks[0, :8])  # row 0 stops after its second block
    stops = torch.tensor([next((n for n in range(8, 33, 8) if token in row[:n]), 32) for row in blocks])
    assert stops[0] == 16
    rows = range(len(PROMPTS)) if len(set(stops.tolist())) > 1 else [0]
    stream = Recorder()
    output = model.generate(**inputs, stopping_criteria=[EosTokenCriteria(token)], streamer=stream, **options)
    width = int(stops.max())
    found = responses(output, inputs)
    for row in rows:
        stop = int(stops[row])
        assert found[row] == blocks[row, :stop].tolist() + [model.config.pad_token_id] * (width - stop)
    assert output.calls.tolist() == (stops // 2).tolist()
    assert sum(len(value[0]) for kind, value in stream.said[1:] if kind == "put") == width
    alone = {name: part[:1] for name, part in inputs.items()}
    output = model.generate(**alone, stopping_criteria=[EosTokenCriteria(token)], **options)
    assert responses(output, alone) == [blocks[0, :16].tolist()]


def test_logits_processors(model, inputs):
    common = torch.tensor(responses(model.generate(**inputs, **SMALL), inputs)).flatten().mode().values.item()
    banned = SuppressTokensLogitsProcessor([common], device="cpu")
    shapes = []

    def looked(tokens, logits):
        shapes.append((tokens.shape, logits.shape))
        return logits

    output = model.generate(**inputs, logits_processor=[banned, looked], block_length=8, **SMALL)
    assert common not in torch.tensor(responses(output, inputs))
    assert shapes[0] == ((3, inputs["input_ids"].shape[1] + 16), (3, 8, 264))


# --- the page ---


def test_the_page_runs(place, adapter, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for block in BLOCKS:
        block = block.replace('"GSAI-ML/LLaDA-8B-Instruct"', repr(str(place))).replace(
            '"run/adapter"', repr(str(adapter))
        )
        exec(compile(block, str(PAGE), "exec"), scope)
    assert len(BLOCKS) == 6
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 + 9 + 1
    assert said[-1].startswith("final")
    assert len(scope["output"].sequences) == 2
