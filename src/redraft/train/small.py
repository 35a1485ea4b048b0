"""A small LLaDA trained from scratch on a CPU in under a minute, on running sums (`redraft.evals.sums`).

The plain masked objective of LLaDA's fine-tuning: the prompt is never masked, the answer is, at a rate drawn for each
row, and the loss is the mean cross-entropy of the masked tokens. `python -m redraft.train.small FOLDER` writes the
bundled model. `post_train` then shows it its own mistakes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.evals import sums
from redraft.models import Model
from redraft.shapes import Int
from redraft.train.batch import Batch
from redraft.train.recipes import parse

STEPS = 900
BATCH = 64
LEARNING_RATE = 4e-3
WARM_UP = 50
LOWEST_RATE = 0.05  # of masking; a row with no mask teaches nothing
POST_RECIPE = "scope(temperature=2.0, share=0.8)"  # at the paper's 1.5 and 0.3, text so plain has few wrong commits
POST_STEPS = 250
POST_LEARNING_RATE = 2e-3
POST_WARM_UP = 20


class Progress(NamedTuple):
    step: int
    loss: float


def untrained(seed: int = 0) -> Model:
    """174 thousand parameters, and a tokenizer that knows numbers up to 45 and four signs."""
    from redraft.models.llada.configuration import LLaDAConfig
    from redraft.models.llada.modeling import LLaDAForMaskedLM

    tokenizer = word_tokenizer(sums.WORDS)
    ids = tokenizer.get_vocab()
    torch.manual_seed(seed)
    config = LLaDAConfig(
        d_model=64,
        n_layers=3,
        n_heads=4,
        n_kv_heads=4,
        mlp_hidden_size=192,
        max_sequence_length=256,
        vocab_size=len(sums.WORDS),
        embedding_size=len(sums.WORDS),
        mask_token_id=ids[sums.MASK],
        eos_token_id=ids[sums.END],
        pad_token_id=ids[sums.PAD],
    )
    return Model.of(LLaDAForMaskedLM(config), tokenizer, name="small")


def word_tokenizer(words: tuple[str, ...]) -> Any:
    """One token a word."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in words if "<|" in word])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=sums.END,
        pad_token=sums.PAD,
        mask_token=sums.MASK,
        unk_token="<|unknown|>",
        clean_up_tokenization_spaces=False,
    )


def train(model: Model, *, steps: int = STEPS, seed: int = 0) -> Iterator[Progress]:
    """Train in place, yielding after every step. Data, masks and order are functions of (seed, step)."""
    network = model.network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP) * (1 - step / steps) ** 0.5
        prompt, answer = examples(model, seed, step)
        noise = torch.Generator().manual_seed(seed * 1_000_003 + step)
        rate = torch.rand(len(answer), 1, generator=noise).clamp_min(LOWEST_RATE)
        masked = torch.rand(answer.shape, generator=noise) < rate
        corrupted = torch.cat([prompt, answer.masked_fill(masked, model.mask_id)], dim=1)
        logits = network(corrupted, columns=slice(prompt.shape[1], None)).logits
        loss = F.cross_entropy(logits[masked], answer[masked])
        _descend(network, optimizer, loss)
        yield Progress(step + 1, loss.item())
    network.eval()


def post_train(model: Model, *, steps: int = POST_STEPS, seed: int = 0) -> Iterator[Progress]:
    """SCOPE, in place and of all weights: the model is shown its own committed guesses, and learns the truth there."""
    network, recipe = model.network.train(), parse(POST_RECIPE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=POST_LEARNING_RATE, betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = POST_LEARNING_RATE * min(1.0, (step + 1) / POST_WARM_UP) * (1 - step / steps) ** 0.5
        prompt, answer = examples(model, seed + 1, step)  # problems that the training did not see
        tokens = torch.cat([prompt, answer], dim=1)
        eligible = torch.zeros_like(tokens, dtype=torch.bool)
        eligible[:, prompt.shape[1] :] = True
        batch = Batch(tokens, eligible, None, torch.arange(step * BATCH, (step + 1) * BATCH))
        loss, _ = recipe.loss(model, batch, step=step, steps=steps, seeds=batch.seeds(seed))
        _descend(network, optimizer, loss)
        yield Progress(step + 1, loss.item())
    network.eval()


def _descend(network: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()


def examples(model: Model, seed: int, step: int) -> tuple[Int[Tensor, "b p"], Int[Tensor, "b l"]]:
    """The training problems of one step, as tokens."""
    ids = model.tokenizer.get_vocab()
    problems = [sums.problem(seed, step * BATCH + row) for row in range(BATCH)]
    prompts = [[ids[word] for word in one.question.split()] for one in problems]
    answers = [[ids[word] for word in f"{one.solution} {sums.END}".split()] for one in problems]
    return torch.tensor(prompts), torch.tensor(answers)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the small model and save it.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = untrained(options.seed)
    for progress in train(model, steps=options.steps, seed=options.seed):
        if progress.step % 100 == 0:
            print(f"step {progress.step} of {options.steps}, loss {progress.loss:.3f}", flush=True)
    model.save_pretrained(options.folder)


if __name__ == "__main__":
    main()
