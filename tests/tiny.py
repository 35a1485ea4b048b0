"""Small random models, for tests of everything around a model: nothing hangs on what one has learnt."""

from redraft.models import Model
from redraft.models.standin import random_llada

WORDS = [*"0123456789", "+", "=", "?"]


def often_ending(**options) -> Model:
    """Its end tokens are likely here and unlikely there, so that answers end, and each policy for them tells."""
    model = random_llada(1, **options)
    model.network.get_output_embeddings().weight.data[list(model.eos_ids)] *= 2
    return model


def of_words() -> Model:
    """It reads whole words, and has few: any other becomes its unknown token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<end>", "<hole>", "<unknown>", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", unk_token="<unknown>")
    network = random_llada().network
    network.config.update({"mask_token_id": 1, "eos_token_id": 0, "pad_token_id": 0})
    return Model.of(network, tokenizer, "of-words")
