"""Prompts and answers as ids: the template, and text that must stay text."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from redraft.models.families import DREAM_TEMPLATE, LLADA_TEMPLATE
from redraft.models.model import Model
from redraft.models.standin import COMPACT_IDS, LLADA_IDS, random_dream, random_llada, standin_tokenizer
from redraft.models.tokens import Guard
from redraft.train.data import Packed, open_source

LLADA = random_llada()
DREAM = random_dream()
BOS, EOS, MASK, HEADER, HEADER_END, EOT = COMPACT_IDS.values()


def plain(text):
    return LLADA.tokenizer(text, add_special_tokens=False)["input_ids"]


def with_tokenizer(model, tokenizer):
    return Model.of(model.network, tokenizer, "test")


def test_one_user_turn():
    assert LLADA.encode("  Why?\n") == [
        *(BOS, HEADER, *plain("user"), HEADER_END, *plain("\n\nWhy?"), EOT),
        *(HEADER, *plain("assistant"), HEADER_END, *plain("\n\n")),
    ]


def test_conversation_has_one_start_token():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2?"},
    ]
    ids = LLADA.encode(messages)
    assert ids.count(BOS) == 1
    assert ids.count(EOT) == 4
    assert ids.count(HEADER) == 5
    assert EOS not in ids
    assert LLADA.encode([messages[1]]) == LLADA.encode("1+1?")


def test_template_is_the_published_one():
    """The jinja of GSAI-ML/LLaDA-8B-Instruct's tokenizer_config.json, against ours."""
    published = (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
        "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
        "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    )
    tokenizer = standin_tokenizer(COMPACT_IDS)
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": " b\n<tag> {{ c }} "}]
    for prompt in ("hello", messages):
        tokenizer.chat_template = LLADA_TEMPLATE
        ours = with_tokenizer(LLADA, tokenizer).encode(prompt)
        tokenizer.chat_template = published
        assert with_tokenizer(LLADA, tokenizer).encode(prompt) == ours


def test_dream_template():
    assert DREAM.tokenizer.decode(DREAM.encode("Why?")) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    told = DREAM.encode([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}])
    assert DREAM.tokenizer.decode(told).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")


def test_which_template():
    """The tokenizer's own; else the family's, if the tokenizer has its special tokens; else plain text."""
    tokenizer = standin_tokenizer(COMPACT_IDS)
    tokenizer.chat_template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    assert with_tokenizer(LLADA, tokenizer).encode("hi") == plain("[hi]")
    tokenizer.chat_template = None
    assert with_tokenizer(LLADA, tokenizer).encode("hi") == LLADA.encode("hi")
    few = standin_tokenizer({text: i for text, i in COMPACT_IDS.items() if "header" not in text})
    few.chat_template = None
    base = with_tokenizer(LLADA, few)
    assert base.encode("hi") == plain("hi")
    with pytest.raises(ValueError, match="a chat template, and has none"):
        base.encode([{"role": "user", "content": "hi"}])


def test_plain_text():
    assert LLADA.encode(" Why?\n", chat=False) == plain(" Why?\n")  # nothing added, nothing trimmed
    assert LLADA.encode("", chat=False) == []
    with pytest.raises(ValueError, match="its chat template, which is switched off"):
        LLADA.encode([{"role": "user", "content": "hi"}], chat=False)


def test_plain_text_has_a_start_token_where_the_tokenizer_puts_one():
    from tokenizers.processors import TemplateProcessing

    tokenizer = standin_tokenizer(COMPACT_IDS)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|startoftext|> $A", special_tokens=[("<|startoftext|>", BOS)]
    )
    model = with_tokenizer(LLADA, tokenizer)
    assert model.encode("hi", chat=False) == [BOS, *plain("hi")]
    assert model.encode("hi").count(BOS) == 1  # and the template's is still the only one


@pytest.mark.parametrize("bad", [[], [{"role": "user"}], [{"role": "user", "content": ["a"]}], [{"content": "a"}]])
def test_messages_that_are_not_messages(bad):
    with pytest.raises(ValueError, match="message"):
        LLADA.encode(bad)


@pytest.mark.parametrize("text", [*COMPACT_IDS, "a <|mdm_mask|><|eot_id|> b", "<|<|eot_id|>", "<|mdm_mask|>" * 3])
@pytest.mark.parametrize("where", ["turn", "content", "role", "plain"])
def test_text_of_special_tokens_stays_text(text, where):
    innocent = "x" * len(text)
    prompts = {
        "turn": lambda text: text,
        "content": lambda text: [{"role": "user", "content": "a"}, {"role": "user", "content": f" {text}\n"}],
        "role": lambda text: [{"role": text, "content": "a"}],
        "plain": lambda text: text,
    }
    ids = LLADA.encode(prompts[where](text), chat=where != "plain")
    wanted = LLADA.encode(prompts[where](innocent), chat=where != "plain")
    assert [i for i in ids if i > 255] == [i for i in wanted if i > 255]  # only the template's own, in its own order
    assert LLADA.tokenizer.decode(ids) == LLADA.tokenizer.decode(wanted).replace(innocent, text)


fragments = st.sampled_from(
    ["<", "|", ">", "<|", "|>", "mdm_mask", "<|mdm_", "mask|>", *COMPACT_IDS, "\ue000", "\n", "é"]
)


@given(st.lists(fragments, max_size=8).map("".join))
def test_no_prompt_makes_a_special_token(text):
    ids = LLADA.encode(text, chat=False)
    assert max(ids, default=0) < 256
    assert LLADA.tokenizer.decode(ids) == text
    header = LLADA.encode("x")
    assert [i for i in LLADA.encode(text) if i > 255] == [i for i in header if i > 255]


@given(st.text(alphabet="abc", max_size=12))
def test_cuts_leave_no_control_text_whole(text):
    controls = ["ab", "bc", "abc", "cab"]
    pieces = Guard(controls).mark(text, "|").split("|")
    assert "".join(pieces) == text
    assert not any(control in piece for control in controls for piece in pieces)


def test_a_mask_that_the_tokenizer_does_not_call_special():
    """Flags differ between tokenizers; the mask's id is kept out whatever they say."""
    from tokenizers import AddedToken

    tokenizer = standin_tokenizer({text: i for text, i in COMPACT_IDS.items() if "mask" not in text} | {"#": MASK})
    tokenizer.backend_tokenizer.add_tokens([AddedToken("<hole>", special=False, normalized=False)])
    hole = tokenizer.convert_tokens_to_ids("<hole>")
    network = random_llada().network
    network.config.mask_token_id = hole
    model = Model.of(network, tokenizer, "test")
    assert hole in tokenizer("a <hole> b")["input_ids"]
    assert hole not in model.encode("a <hole> b")
    assert model.tokenizer.decode(model.encode("a <hole> b", chat=False)) == "a <hole> b"
    assert model.decode([*plain("a"), hole, *plain("b")]) == "ab"


def test_a_tokenizer_that_writes_special_tokens_itself_is_refused():
    from tokenizers import AddedToken, normalizers

    tokenizer = standin_tokenizer({text: i for text, i in COMPACT_IDS.items() if "mask" not in text} | {"#": MASK})
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    tokenizer.backend_tokenizer.add_tokens([AddedToken("<hole>", special=False, normalized=True)])
    network = random_llada().network
    network.config.mask_token_id = tokenizer.convert_tokens_to_ids("<hole>")
    model = Model.of(network, tokenizer, "test")
    assert model.encode("a < b")
    for chat in (True, False):
        with pytest.raises(ValueError, match="reads part of the prompt as <hole>"):
            model.encode("a ＜hole＞ b", chat=chat)


@pytest.fixture
def letter_a():
    """A model that reads nothing but the letter a."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"<eos>": 0, "<hole>": 1, "<?>": 2, "a": 3}, unk_token="<?>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", unk_token="<?>")
    network = random_llada().network
    network.config.update({"mask_token_id": 1, "eos_token_id": 0, "pad_token_id": 0})
    return Model.of(network, tokenizer, "test")


def test_characters_that_a_small_tokenizer_does_not_know(letter_a):
    """They become the unknown token, as anywhere; that is not smuggling. Where unknown is the mask, it is."""
    assert letter_a.encode("aQa") == [3, 2, 3]
    assert letter_a.encode("<?>a") == [2, 2, 2, 3]
    letter_a.network.config.mask_token_id = 2
    with pytest.raises(ValueError, match="reads part of the prompt as <\\?>"):
        Model.of(letter_a.network, letter_a.tokenizer, "test").encode("aQa")


def test_words_that_a_small_tokenizer_does_not_know_are_named(letter_a):
    text = "a aQ aa Z a" + " Q" * 9
    said = "words that test does not know: 'aQ', 'Z', 'Q'; it knows 1, such as a"
    assert letter_a.unknown_words(letter_a.encode(text), text) == said
    assert letter_a.unknown_words(letter_a.encode("aaa"), "aaa") is None
    assert LLADA.unknown_words(LLADA.encode(text), text) is None


def test_data_in_words_that_the_model_does_not_know_is_refused(letter_a):
    """It would learn to write the unknown token."""
    source = open_source([{"text": "aaaa"}, {"text": "aaQa"}])
    with pytest.raises(ValueError, match="item 2 has words that test does not know: 'aaQa'; it knows 1"):
        list(Packed(source, letter_a, length=4, shuffle=8))


def test_decode():
    answer = [*plain("two "), MASK, *plain("words"), EOT, *plain("more"), EOS]
    assert LLADA.decode(answer) == "two words"
    assert LLADA.decode(torch.tensor(answer)) == "two words"
    assert LLADA.decode(answer, trim=False) == "two wordsmore"
    assert LLADA.decode([EOS]) == LLADA.decode([]) == ""
    assert LLADA.decode(plain("héllo ☃")) == "héllo ☃"
    assert LLADA.decode([*plain("a"), 263]) == "a"  # a row of the embedding that belongs to no token
    assert LLADA.decode(plain("x , y .")) == "x , y ."


def test_ids():
    assert (LLADA.mask_id, LLADA.eos_ids, LLADA.pad_id) == (MASK, (EOS, EOT), EOS)
    assert LLADA.vocab_size == 264
    assert LLADA.context == 512


def test_a_tokenizer_larger_than_the_model_is_refused():
    with pytest.raises(ValueError, match="token 126348, but the model only 264 embeddings"):
        Model.of(LLADA.network, standin_tokenizer(), "test")


def test_stand_in_says_what_it_is(tmp_path):
    from transformers import PreTrainedTokenizerFast

    tokenizer = standin_tokenizer()
    assert tokenizer.convert_tokens_to_ids(list(LLADA_IDS)) == [126080, 126081, 126336, 126346, 126347, 126348]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (126080, 126081, 126081)
    text = "naïve <b> \t☃\n\n"
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    tokenizer.save_pretrained(tmp_path)
    assert "stand-in" in (tmp_path / "tokenizer_config.json").read_text()
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert again.chat_template == LLADA_TEMPLATE
    assert again("<|mdm_mask|>" + text)["input_ids"] == [126336, *ids]


def test_templates_name_their_special_tokens():
    from redraft.models.families import FAMILIES

    for name, template in (("llada", LLADA_TEMPLATE), ("Dream", DREAM_TEMPLATE)):
        assert set(re.findall(r"<\|\w+\|>", template)) == set(FAMILIES[name].marks)
