"""`model.generate(...)` as transformers' users know it: padded `input_ids` in, sequences out, drafts to a streamer.

The protocol (drafts through `put_draft`, whole blocks through `put`) is that of transformers' diffusion models. The
tokens are those of `redraft.generate`: one loop, one set of samplers, and noise from (seed, place of the row).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.utils.hub import cached_file

from redraft.decoding import Canvas, derive
from redraft.hf.answering import Answering, RedraftGenerationOutput, settled_columns
from redraft.hf.configuration import RedraftGenerationConfig, canonical, end_ids, plan_of, settle
from redraft.models import Model
from redraft.models.families import FAMILIES
from redraft.models.folders import read_json
from redraft.models.tokens import open_tokenizer
from redraft.shapes import Bool

HUB = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
TOKENIZER = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json")


class RedraftGenerationMixin:
    """`generate` for a network of `redraft.models`, and a `from_pretrained` that is as strict as `redraft.load`."""

    generation_config_class = RedraftGenerationConfig
    generation_config: RedraftGenerationConfig
    config: Any
    get_input_embeddings: Callable[[], Any]

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        *,
        attention_mask: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        streamer: Any = None,
        logits_processor: Sequence[Callable[[Tensor, Tensor], Tensor]] | None = None,
        stopping_criteria: Sequence[Callable[..., Tensor]] | None = None,
        indices: Sequence[int] | None = None,
        token_type_ids: Tensor | None = None,  # many tokenizers return them; they mean nothing here
        **options: Any,
    ) -> RedraftGenerationOutput | Tensor:
        """Continue `input_ids`, padded on the left where `attention_mask` is 0, by max_new_tokens tokens.

        `options` are those of `RedraftGenerationConfig`, and win over `generation_config`, which wins over the model's.
        `logits_processor`: functions (tokens so far, logits [b, w, v] of the window) -> logits. `stopping_criteria`:
        asked after every finished block; a row that stops is filled up with padding, and `generate` ends when all have
        stopped. `indices`: the places of these rows in a longer list of prompts, for a row's noise comes from the seed
        and its place.
        """
        chosen = self._settled(generation_config, options)
        plan = plan_of(chosen)
        for note in plan.notes:
            warnings.warn(note, stacklevel=3)
        attend = self._checked(input_ids, attention_mask, chosen)
        places = list(range(len(input_ids))) if indices is None else [int(place) for place in indices]
        if len(places) != len(input_ids):
            raise ValueError(f"there are {len(places)} indices for {len(input_ids)} rows: give one for each")
        model = self._model(chosen)
        canvas = Canvas.of(
            [row[seen].tolist() for row, seen in zip(input_ids.cpu(), attend, strict=True)],
            plan.length,
            mask_id=model.mask_id,
            pad_id=model.pad_id,
            seeds=[derive(chosen["seed"], place) for place in places],
            device=model.device,
        )
        stages = plan.sampler.stages(plan.length, plan.steps, plan.block)
        answer = Answering(
            model, canvas, settled_columns(stages, plan.length), streamer, stopping_criteria or (), chosen
        )
        if streamer is not None:
            streamer.put(input_ids.cpu())
        try:
            for step in plan.walk(adjusted(model, logits_processor or ()), canvas):  # type: ignore[arg-type]
                if answer.turn(step.stage):
                    break
                answer.add(step, stages[step.stage].stop)
            answer.turn(len(stages))
        finally:
            if streamer is not None:  # also after an error, or whoever reads a queue waits for ever
                streamer.end()
        return answer.output(input_ids, attend)

    def _settled(self, generation_config: GenerationConfig | None, options: dict[str, Any]) -> dict[str, Any]:
        """Options from all the places where they can stand, each with a value."""
        ids = {name: getattr(self.config, name) for name in ("mask_token_id", "pad_token_id", "eos_token_id")}
        asked = settle(
            *(_options(config) for config in (self.generation_config, generation_config)), canonical(options)
        )
        RedraftGenerationConfig(**asked)  # whole, and so checked as a whole
        return asked | {name: value if asked[name] is None else asked[name] for name, value in ids.items()}

    def _checked(self, input_ids: Tensor, attention_mask: Tensor | None, chosen: dict[str, Any]) -> Bool[Tensor, "b n"]:
        """Which of the given tokens are the prompts', or why that cannot be."""
        if input_ids.ndim != 2 or input_ids.is_floating_point() or 0 in input_ids.shape:
            raise ValueError(f"input_ids are whole numbers [batch, length], at least one, not {_shape(input_ids)}")
        if attention_mask is None:
            attend = torch.ones_like(input_ids, dtype=torch.bool)
            if len(input_ids) > 1 and bool((input_ids[:, 0] == chosen["pad_token_id"]).any()):
                warnings.warn(
                    "some prompts begin with the padding token, and no attention_mask says whether it is padding: "
                    "hand the tokenizer's attention_mask to generate",
                    stacklevel=4,
                )
        else:
            if attention_mask.shape != input_ids.shape:
                raise ValueError(
                    f"attention_mask is {_shape(attention_mask)}, and input_ids {_shape(input_ids)}: they must agree"
                )
            attend = attention_mask.bool()
        attend = attend.cpu()
        if bool((attend[:, 1:] < attend[:, :-1]).any()):
            raise ValueError(
                "these prompts are padded on the right, where their answers are to stand: "
                'give the tokenizer padding_side="left"'
            )
        if not bool(attend[:, -1].all()):
            raise ValueError("a prompt is empty: attention_mask is 0 everywhere in its row")
        rows = self.get_input_embeddings().weight.shape[0]
        if not 0 <= int(input_ids.min()) <= int(input_ids.max()) < rows:
            raise ValueError(f"input_ids lie between 0 and {rows - 1}; these are another model's")
        longest = int(attend.sum(-1).max())
        if longest + chosen["max_new_tokens"] > self.config.context:
            raise ValueError(
                f"a prompt has {longest} tokens, and {chosen['max_new_tokens']} more are to be written, but this model "
                f"reads at most {self.config.context}: shorten the prompt or max_new_tokens"
            )
        return attend

    def _model(self, chosen: dict[str, Any]) -> Model:
        """This network as the denoiser that decoding knows; ids take the place of a tokenizer."""
        kind = self.config.model_type
        return Model(
            network=self,
            tokenizer=None,
            mask_id=chosen["mask_token_id"],
            eos_ids=end_ids(chosen["eos_token_id"]) or (),
            pad_id=chosen["pad_token_id"],
            context=self.config.context,
            name=self.config.name_or_path or kind,
            family=kind,
        )

    def prepare_inputs_for_generation(self, input_ids: Tensor, **inputs: Any) -> dict[str, Any]:
        """For PEFT, which asks it of any network whose adapter says CAUSAL_LM; nothing here calls it."""
        return {"input_ids": input_ids, **inputs}

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Any,
        *arguments: Any,
        generation_config: GenerationConfig | None = None,
        output_loading_info: bool = False,
        use_safetensors: bool = True,
        **options: Any,
    ) -> Any:
        """As transformers', but what the checkpoint lacks is an error and no log line, and pickles are not opened.

        The model's `generation_config` comes from generation_config.json, if that is one of ours; end of turn, which no
        config.json knows, comes from the tokenizer that lies beside the weights.
        """
        if not use_safetensors:
            raise ValueError("pickled weights can run code and are not opened: convert them to safetensors")
        parent: Any = super()
        network, report = parent.from_pretrained(
            pretrained_model_name_or_path, *arguments, output_loading_info=True, use_safetensors=True, **options
        )
        if leftovers := {key: value for key, value in report.items() if value}:
            raise ValueError(f"{pretrained_model_name_or_path} was not read completely: {leftovers}")
        hub = {name: options[name] for name in HUB if options.get(name) is not None}
        given = _options(generation_config) or _saved_options(pretrained_model_name_or_path, hub)
        if "eos_token_id" not in given:
            given["eos_token_id"] = _end_tokens(network.config, pretrained_model_name_or_path, hub)
        network.generation_config = RedraftGenerationConfig(**given)
        return (network, report) if output_loading_info else network


def adjusted(model: Model, functions: Sequence[Callable[[Tensor, Tensor], Tensor]]) -> Callable[..., Tensor]:
    """The model with functions on its logits, before anything is read from them."""
    if not functions:
        return model

    def denoise(tokens: Tensor, **context: Any) -> Tensor:
        logits = model(tokens, **context)
        for function in functions:
            logits = function(tokens, logits)
        return logits

    return denoise


def _options(config: GenerationConfig | None) -> dict[str, Any]:
    """What a config sets; of one of transformers' own, the names that fit, and others raise."""
    if config is None:
        return {}
    ours = isinstance(config, RedraftGenerationConfig)
    return (config if ours else RedraftGenerationConfig(**config.to_diff_dict())).options()


def _saved_options(place: Any, hub: dict[str, Any]) -> dict[str, Any]:
    """Of generation_config.json, if it is ours: those of published checkpoints are about writing left to right."""
    found = _beside(place, "generation_config.json", hub)
    stated = {} if found is None else read_json(found)
    ours = stated.get("_cls_name") == "RedraftGenerationConfig"
    return RedraftGenerationConfig(**stated).options() if ours else {}


def _end_tokens(config: Any, place: Any, hub: dict[str, Any]) -> list[int] | None:
    """End of text and end of turn, if there is a tokenizer to ask."""
    files = [found for name in TOKENIZER if (found := _beside(place, name, hub)) is not None]
    names = {path.name for path in files}
    if "tokenizer.json" not in names and not {"vocab.json", "merges.txt"} <= names:
        return None
    turn = open_tokenizer(files[0].parent).get_vocab().get(FAMILIES[config.model_type].turn_end)
    return [config.eos_token_id] if turn is None else [config.eos_token_id, turn]


def _beside(place: Any, name: str, hub: dict[str, Any]) -> Path | None:
    """A file beside a model's weights, in a folder or on the hub; None if there is none."""
    quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    found = cached_file(place, name, **hub, **quiet)
    return None if found is None else Path(found)


def _shape(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
