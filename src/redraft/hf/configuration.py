"""What `model.generate` takes, as a `GenerationConfig` of transformers: checked, and saved beside the weights.

An option that is None is unset: `generate` fills it from the model's own generation_config.json, then from `Options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, get_args

from transformers import GenerationConfig

from redraft.decoding import Reading, Sampler
from redraft.decoding.notation import check_options, option_types, suggest
from redraft.decoding.reading import EosPolicy, Nucleus, Overflow, Precision, Rank
from redraft.generation import Plan
from redraft.samplers import Dream, parse


@dataclass(frozen=True)
class Options:
    """Every option, its type, and its value where neither the caller nor the model says anything."""

    name: ClassVar[str] = "generate"  # in messages

    sampler: str = "d3im"  # the notation: "d3im(t2t=False)"
    max_new_tokens: int = 128
    steps: int | None = None  # None: a step for every four tokens
    block_length: int | None = None  # None: the whole response at once
    seed: int = 0
    # How logits become tokens: the fields of `Reading`.
    temperature: float = 0.0
    rank: Rank = "probability"
    eos: EosPolicy | None = None  # None: the sampler's own policy
    overflow: Overflow = "strict"
    guidance: float = 0.0
    precision: Precision = "float32"
    forbid_mask: bool = True
    top_p: float = 1.0
    nucleus: Nucleus = "reach"
    eos_penalty: float = 1.0
    # What comes back.
    return_dict_in_generate: bool = True
    output_history: bool = False
    pad_after_eos: bool = False
    # Token ids; None: the model's config.
    mask_token_id: int | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None  # kept, not used
    eos_token_id: tuple[int, ...] | None = None  # end of text first, then end of turn


NAMES = tuple(field.name for field in fields(Options))
READING = {field.name: {"dtype": "precision"}.get(field.name, field.name) for field in fields(Reading)}
READING.pop("eos_ids")
METADATA = ("transformers_version", "_cls_name", "_commit_hash", "_from_model_config", "_original_object_hash")
ALIASES = {
    "gen_length": "max_new_tokens",
    "length": "max_new_tokens",
    "num_inference_steps": "steps",
    "diffusion_steps": "steps",
    "max_denoising_steps": "steps",
    "block_size": "block_length",
    "block": "block_length",
    "sampler_config": "sampler",
    "remasking": "sampler",
    "alg": "sampler",
    "eos_policy": "eos",
    "cfg_scale": "guidance",
    "histories": "output_history",
    "history": "output_history",
}
DREAM_ALG = get_args(option_types(Dream)["alg"])
HINTS = {
    "do_sample": "temperature above 0 samples, and 0 does not",
    "guidance_scale": "guidance=0 is none, one less than a guidance_scale",
    "max_length": "max_new_tokens counts the tokens to be written",
    "min_new_tokens": "exactly max_new_tokens are written",
    "num_beams": "there are no beams",
    "num_return_sequences": "repeat the prompt instead: each row has noise of its own",
    "top_k": "top_p is built",
}


class RedraftGenerationConfig(GenerationConfig):
    """Options of `generate`, by our names or by those of other toolkits; any other name is refused."""

    def __init__(self, **options: Any) -> None:
        # Not the parent's: its options are those of writing left to right.
        metadata = {name: options.pop(name) for name in METADATA if name in options}
        found = canonical(options)
        for name in NAMES:
            setattr(self, name, found.get(name))
        for name, value in metadata.items():
            setattr(self, name, value)
        self.validate()

    @classmethod
    def from_model_config(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a model's config.json holds no options of generation")

    @property
    def sampler_config(self) -> Sampler | None:
        """The sampler itself, a dataclass with its options as fields."""
        notation = self.options().get("sampler")
        return None if notation is None else parse(notation)

    def options(self) -> dict[str, Any]:
        """What is set."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in found.items() if value is not None}

    def validate(self, *_: Any, **__: Any) -> None:
        """Refuse what cannot be, in one sentence, whatever an option that is unset may become later."""
        given = self.options()
        check_options(Options, {**given, "eos_token_id": end_ids(given.get("eos_token_id"))})
        for name in ("max_new_tokens", "steps", "block_length"):
            if given.get(name, 1) < 1:
                raise ValueError(f"{name} is at least 1, not {given[name]}")
        reading_of(settle(given))
        if "max_new_tokens" in given:  # otherwise a length to come may fit the rest
            plan_of(settle(given))

    def update(self, defaults_only: bool = False, allow_custom_entries: bool = False, **options: Any) -> dict[str, Any]:
        """As the parent's, for aliases too; a name that is not known raises and is not handed back."""
        return super().update(defaults_only=defaults_only, **canonical(options))

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "_cls_name": "RedraftGenerationConfig"}  # known again beside a model's weights

    def to_diff_dict(self) -> dict[str, Any]:
        """What is set. The parent would leave out what equals a default of its own, which need not be ours."""
        return {name: value for name, value in self.to_dict().items() if value is not None}


def canonical(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options under our names, with values as they are stored; a name that is not known is refused."""
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for word, value in given.items():
        name = ALIASES.get(word, word)
        if name not in NAMES and word != "alg_temp":
            hint = f": {HINTS[word]}" if word in HINTS else suggest(word, [*NAMES, *ALIASES])
            raise ValueError(f"generate has no option {word!r}{hint}; there are {', '.join(NAMES)}")
        if value is None:
            continue
        if name in found:
            raise ValueError(f"{name} is given twice, as {said[name]} and as {word}: leave one out")
        found[name], said[name] = value, word
    if "sampler" in found:
        found["sampler"], rank = sampler_text(found["sampler"], said["sampler"], found.pop("alg_temp", None))
        if rank is not None:
            found.setdefault("rank", rank)
    elif "alg_temp" in found:
        raise ValueError("alg_temp belongs to Dream's alg: give alg as well")
    if "eos_token_id" in found:
        found["eos_token_id"] = list(end_ids(found["eos_token_id"]) or ())  # as JSON gives it back
    return found


def sampler_text(value: Any, word: str, alg_temp: float | None) -> tuple[str, str | None]:
    """The notation of a sampler, and the ranking that comes with LLaDA's `remasking="random"`."""
    if isinstance(value, Sampler):
        return repr(value), None
    if isinstance(value, Mapping):  # a dataclass as transformers writes it
        options = dict(value)
        name = str(options.pop("_cls_name", ""))
        inside = ", ".join(f"{option}={setting!r}" for option, setting in options.items())
        return repr(parse(f"{name.lower()}({inside})")), None
    if not isinstance(value, str):
        raise ValueError(f"{word} is a sampler or its notation, as 'd3im(t2t=False)', not {value!r}")
    if word == "remasking" and value == "random":
        return "unmask", "random"
    if word == "alg" and value in DREAM_ALG:
        return repr(parse(f"dream(alg={value}, alg_temp={alg_temp or 0.0})")), None
    if alg_temp is not None:
        raise ValueError(f"alg_temp belongs to Dream's alg ({', '.join(DREAM_ALG)}), not to {word}={value!r}")
    return repr(parse(value)), None


def end_ids(value: Any) -> tuple[int, ...] | None:
    """One end token or several, as a tuple."""
    several = (value,) if type(value) is int else value
    if several is None:
        return None
    if not isinstance(several, list | tuple) or not all(type(token) is int for token in several):
        raise ValueError(f"eos_token_id is a token's id, or a list of ids, not {value!r}")
    return tuple(several)


def settle(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Every option with a value: later layers win over earlier ones, and `Options` has the rest."""
    found = asdict(Options())
    for layer in layers:
        found |= layer
    return found


def reading_of(options: Mapping[str, Any]) -> Reading:
    words = {theirs: options[ours] for theirs, ours in READING.items()}
    words["eos"] = options["eos"] or parse(options["sampler"]).eos
    return Reading(**words, eos_ids=end_ids(options["eos_token_id"]) or ())


def plan_of(options: Mapping[str, Any]) -> Plan:
    """How to decode with these options, all of them settled."""
    length, block, steps = options["max_new_tokens"], options["block_length"], options["steps"]
    each = None if steps is not None else -(-(block or length) // 4)
    rule, reading = parse(options["sampler"]), reading_of(options)
    return Plan.of(rule, length=length, steps=steps, steps_per_block=each, block=block, reading=reading)
