"""`redraft frequencies`: how often each token occurs in a corpus, as the sampler `pc` weighs its candidates by."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from redraft.commands.console import err, loading, out, plain


def frequencies(
    data: Annotated[
        str, typer.Option(help="hf:owner/name/config:split (streamed), a .jsonl, .parquet or .txt file, a folder.")
    ],
    out_file: Annotated[Path, typer.Option("--out", "-o", help="The table, a .json file.")],
    model: Annotated[str, typer.Option("--model", "-m", help="Whose tokens: a hub name, a folder, or 'bundled'.")] = (
        "bundled"
    ),
    tokens: Annotated[int | None, typer.Option(min=1, help="Stop after so many.  [default: the whole corpus]")] = None,
    text_column: Annotated[str | None, typer.Option(help="Column of plain text.")] = None,
    prompt_column: Annotated[str | None, typer.Option(help="Column of prompts.")] = None,
    response_column: Annotated[str | None, typer.Option(help="Column of responses.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out.")] = False,
) -> None:
    """Count the tokens of a corpus for `--sampler "pc(frequencies='table.json')"`."""
    from redraft.models.folders import resolve
    from redraft.models.tokens import open_tokenizer
    from redraft.output import check_writable
    from redraft.train.sources import open_source

    if out_file.exists() and not overwrite:
        raise ValueError(f"{out_file} exists: give another --out, or --overwrite to replace it")
    check_writable(out_file)
    if tokens is None and data.startswith("tasks:"):
        raise ValueError("generated tasks never end: give --tokens")
    source = open_source(data, text_column=text_column, prompt_column=prompt_column, response_column=response_column)
    with loading(model):
        tokenizer = open_tokenizer(resolve(model))
    counts = counted(source, tokenizer, tokens)
    total = sum(counts.values())
    if not total:
        raise ValueError(f"{data} holds no text")
    table = {  # the names are PC-Sampler's
        "num_token": total,
        "p_baseline_dict": {str(token): counts[token] for token in sorted(counts)},
        "model": model,
        "data": data,
    }
    out_file.write_text(json.dumps(table) + "\n")
    frequent = ", ".join(f"{tokenizer.decode([token])!r} {n / total:.1%}" for token, n in counts.most_common(5))
    out.print(f"{total:,} tokens, {len(counts):,} different; the most frequent: {plain(frequent)}")
    err.print(f"[dim]saved in {plain(str(out_file))}[/]")


def counted(source: Any, tokenizer: Any, most: int | None) -> Counter[int]:
    """Tokens of a source's texts, of a dialogue what is said; the document that reaches `most` is counted whole."""
    from redraft.train.examples import understood

    counts, total = Counter[int](), 0
    for record in source.reader.read(None):
        said = understood(record, source.columns)
        texts = [said] if isinstance(said, str) else [*_prompts(said.prompt), said.response]
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False)
            counts.update(ids)
            total += len(ids)
        if most is not None and total >= most:
            break
    return counts


def _prompts(prompt: str | list[dict]) -> list[str]:
    return [prompt] if isinstance(prompt, str) else [str(message["content"]) for message in prompt]
