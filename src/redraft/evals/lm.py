"""Redraft's models and samplers inside lm-evaluation-harness, as the model `redraft`.

    redraft lm-eval --model_args pretrained=bundled,sampler=d3im,length=256,steps=64 --tasks gsm8k_cot

What the harness asks is honoured: stop strings, `max_gen_toks`, chat templates, assistant turns that were begun for the
model, temperature where a task samples. Options of decoding are the model's arguments; `--gen_kwargs` overrides them. A
sampler with several options is written with semicolons there, `sampler=d3im(t2t=False;t2m=False)`, for the harness
splits at commas. Processes of one launcher share the requests among themselves: the harness sees one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from redraft.decoding import Canvas, Reading, derive
from redraft.evals.likelihood import DRAWS, log_likelihood
from redraft.evals.processes import processes
from redraft.evals.run import buckets, cut, hash_of
from redraft.generation import Batch, Plan, Tally
from redraft.models import Model, load
from redraft.models.fingerprint import fingerprint
from redraft.models.tokens import Guard, control_texts, encode_pieces
from redraft.samplers import parse

T = TypeVar("T")
LENGTH = 256  # tokens of a response, where neither the arguments nor the task say
MARK = "\ue0f1\ue0f2\ue0f1"  # private use: begins rendered conversations, and keeps the text of special tokens text
ALIASES = {"gen_length": "length", "block_length": "block", "max_new_tokens": "max_gen_toks"}
MEANINGLESS = ("do_sample", "num_beams", "use_cache")  # here; any other key that is not known is refused


def given(request: Instance) -> tuple[Any, ...]:
    """(context, generation arguments), (context, continuation) or (text,)."""
    return request.args


@register_model("redraft")
class Redraft(LM):
    def __init__(
        self,
        pretrained: str | Model = "bundled",
        *,
        adapter: str | None = None,
        revision: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        batch_size: int | str = 16,
        seed: int = 0,
        sampler: str = "d3im",
        length: int | None = None,  # None: what a task's max_gen_toks says
        steps: int | None = None,  # None: a quarter of the length
        block: int | None = None,
        eos: str | None = "sampler",  # its own policy; None is "none", which the harness makes None of
        overflow: str = "strict",
        rank: str = "probability",
        temperature: float = 0.0,
        top_p: float = 1.0,
        guidance: float = 0.0,
        precision: str = "float32",
        draws: int = DRAWS,  # of a likelihood
        greedy: bool = False,  # whether likelihoods also say if greedy decoding gives the text: a call a token
    ) -> None:
        super().__init__()
        self.options: dict[str, Any] = {
            "sampler": sampler, "length": length, "steps": steps, "block": block, "eos": eos, "overflow": overflow,
            "rank": rank, "temperature": temperature, "top_p": top_p, "guidance": guidance, "precision": precision,
        }  # fmt: skip
        self.plan({})  # refuses what cannot be, before a model is loaded
        self.seed, self.draws, self.greedy = seed, draws, greedy
        self.batch_size = int(batch_size) if str(batch_size).isdecimal() else 16
        self.group = ExitStack().enter_context(processes())
        if isinstance(pretrained, Model):
            self.model = pretrained
        else:
            # The harness's command line says cuda:0 where nobody said anything, to every process and on any computer.
            place = self.group.device(None if device == "cuda:0" else device)
            self.model = load(pretrained, adapter=adapter, revision=revision, dtype=dtype, device=place)
        self._device = self.model.device  # 0.4.12 and later: the property cannot be set
        tokenizer = self.model.tokenizer
        controls = control_texts(tokenizer, {self.model.mask_id, self.model.pad_id, *self.model.eos_ids})
        self.guard = Guard(controls.values())

    def get_model_info(self) -> dict[str, Any]:
        """For the harness's results: what they are results of."""
        weights = hash_of(fingerprint(self.model)["tensors"])
        return {"redraft": {"model": self.model.name, "fingerprint": weights, "seed": self.seed, **self.options}}

    # --- how to decode ---

    def plan(self, asked: dict[str, Any]) -> tuple[Plan, tuple[str, ...]]:
        """A plan and stop strings, from the model's arguments and what a task asks."""
        asked = {ALIASES.get(name, name): value for name, value in asked.items()}
        until = asked.pop("until", None) or ()
        most = asked.pop("max_gen_toks", None)
        if not asked.get("do_sample", True) or not asked.get("temperature", 0.0):
            for name in ("temperature", "top_p"):  # a greedy task says so to models that sample unless told not to
                asked.pop(name, None)
        for name in MEANINGLESS:
            asked.pop(name, None)
        if unknown := sorted(asked.keys() - self.options.keys()):
            raise ValueError(f"generation arguments {', '.join(unknown)} mean nothing here: there are "
                             f"until, max_gen_toks, {', '.join(self.options)}")  # fmt: skip
        chosen = self.options | asked
        rule = parse(str(chosen["sampler"]).replace(";", ","))
        length, steps, block = (chosen[name] for name in ("length", "steps", "block"))
        wanted = length or most or LENGTH
        length = min(wanted, most or wanted)
        if steps is not None and length < wanted:
            steps = max(1, steps * length // wanted)  # as many tokens a step
        words = {name: chosen[name] for name in ("overflow", "rank", "temperature", "top_p", "guidance")}
        words["eos"] = rule.eos if chosen["eos"] == "sampler" else chosen["eos"] or "none"
        reading = Reading(**words, dtype=chosen["precision"])
        each = None if steps is not None else -(-(block or length) // 4)
        plan = Plan.of(rule, length=length, steps=steps, steps_per_block=each, block=block, reading=reading)
        return plan, (until,) if isinstance(until, str) else tuple(until)

    # --- text and tokens ---

    @property
    def tokenizer_name(self) -> str:
        return f"{self.model.name}-{hash_of(self.model.template)}".replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.model.template

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation up to the assistant's turn, which stays open where it was begun (the last message)."""
        if not self.model.template:
            raise ValueError(f"{self.model.name} has no chat template: leave out --apply_chat_template")
        marked = [{**message, "content": self.guard.mark(message["content"], MARK)} for message in chat_history]
        rendered = self.model.tokenizer.apply_chat_template(
            marked,
            chat_template=self.model.template,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )
        return MARK + rendered

    def encode(self, text: str) -> list[int]:
        """A rendered conversation's special tokens are special; those in any other text are text."""
        if text.startswith(MARK):
            return encode_pieces(self.model.tokenizer, text, MARK)
        return self.model.encode(text, chat=False)

    def encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Spaces between the two belong to the continuation: tokenizers put them before words, not after."""
        if context.startswith(MARK):
            continuation = self.guard.mark(continuation, MARK)
        spaces = len(context) - len(context.rstrip(" "))
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        before = self.encode(context)
        return before, self.encode(context + continuation)[len(before) :]

    def check_fits(self, *parts: Sequence[int], more: int = 0) -> None:
        size = sum(map(len, parts)) + more
        if size > self.model.context:
            raise ValueError(
                f"a request needs {size} tokens, of which {more} are to be written, but {self.model.name} reads "
                f"at most {self.model.context}: take fewer worked examples, or a shorter length"
            )

    # --- what the harness calls ---

    def generate_until(self, requests: list[Instance]) -> list[str]:
        contexts = [given(request)[0] for request in requests]
        encoded = [self.encode(context) for context in contexts]
        asked = [self.plan(given(request)[1]) for request in requests]
        for ids, (plan, _) in zip(encoded, asked, strict=True):
            self.check_fits(ids, more=plan.length)
        seeds = self.seeds(requests)
        jobs = []
        for plan in dict.fromkeys(plan for plan, _ in asked):
            members = [index for index, (its, _) in enumerate(asked) if its == plan]
            batches = buckets([encoded[index] for index in members], self.batch_size)
            jobs += [(plan, [members[place] for place in batch]) for batch in batches]

        def decode(job: tuple[Plan, list[int]]) -> dict[int, str]:
            plan, batch = job
            canvas = Canvas.of(
                [encoded[index] for index in batch],
                plan.length,
                mask_id=self.model.mask_id,
                pad_id=self.model.pad_id,
                seeds=[seeds[index] for index in batch],
                device=self.model.device,
            )
            tally = Tally(Batch(batch, canvas))
            for step in plan.walk(self.model, canvas):
                tally.add(step)
            answers = tally.answers(self.model, contexts)
            return {answer.index: cut(answer.text, asked[answer.index][1]) for answer in answers}

        texts = self.shared(decode, jobs, "decoding")
        found = [texts[index] for index in range(len(requests))]
        for request, text in zip(requests, found, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return found

    def seeds(self, requests: list[Instance]) -> list[int]:
        """Of a document's place in its task, as `redraft eval` has it; a request that is repeated gets others."""
        found, met = [], {}
        for request in requests:
            key = request.task_name, request.doc_id, request.idx
            repeat = met[key] = met.get(key, -1) + 1
            found.append(derive(self.seed if repeat == 0 else derive(self.seed, repeat), request.doc_id or 0))
        return found

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        pairs = [self.encode_pair(*given(request)) for request in requests]
        for request, (before, after) in zip(requests, pairs, strict=True):
            self.check_fits(before, after)
            if not after:
                raise ValueError(f"the continuation {given(request)[1]!r} has no tokens: there is nothing to score")

        def score(index: int) -> dict[int, tuple[float, bool]]:
            before, after = pairs[index]
            # One seed for all that follows one context: choices are compared under the same noise.
            seed = derive(self.seed, zlib.crc32(repr(before).encode()))
            return {index: (self.likelihood(before, after, seed), self.greedy and self.is_greedy(before, after))}

        scores = self.shared(score, list(range(len(requests))), "likelihoods")
        found = [scores[index] for index in range(len(requests))]
        for request, pair in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, pair)
        return found

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Of whole texts; longer ones are cut into pieces of the model's context, each by itself."""

        def score(index: int) -> dict[int, float]:
            ids, size = self.encode(given(requests[index])[0]), self.model.context
            pieces = [ids[first : first + size] for first in range(0, len(ids), size)]
            return {index: sum(self.likelihood([], piece, derive(self.seed, at)) for at, piece in enumerate(pieces))}

        scores = self.shared(score, list(range(len(requests))), "likelihoods")
        found = [scores[index] for index in range(len(requests))]
        for request, value in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, value)
        return found

    def likelihood(self, before: list[int], after: list[int], seed: int) -> float:
        return log_likelihood(self.model, before, after, draws=self.draws, seed=seed, batch_size=self.batch_size)

    def is_greedy(self, before: list[int], after: list[int]) -> bool:
        """Whether revealing the surest token one by one gives exactly this text."""
        n, model = len(after), self.model
        plan = Plan.of("unmask", length=n, steps=n, reading=Reading(eos="none"))
        canvas = Canvas.of([before], n, mask_id=model.mask_id, pad_id=model.pad_id, seeds=[0], device=model.device)
        for step in plan.walk(model, canvas):
            canvas = step.result
        return canvas.response[0].tolist() == after

    def shared(self, work: Callable[[Any], dict[int, T]], jobs: Sequence[Any], what: str) -> dict[int, T]:
        """The results of all jobs, each done by one process and known to all."""
        mine: dict[int, T] = {}
        for job in tqdm(jobs[self.group.rank :: self.group.world], desc=what, disable=not self.group.first):
            mine |= work(job)
        return {index: result for found in self.group.gather(mine) for index, result in found.items()}
