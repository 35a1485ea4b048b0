"""lm-evaluation-harness itself, run with our model: its prompts, stop strings and grades are those of our runner.

Its own graders of programs are given our sandbox to run them in, by a metric of that name in the working directory.
"""

import hashlib
import json
from dataclasses import fields
from pathlib import Path

import pytest

from published import DATA, needs_data
from redraft.evals.run import buckets, evaluate
from redraft.evals.tasks import find
from redraft.generation import Plan
from redraft.models import Model, load
from redraft.models.standin import random_llada
from running import run

pytestmark = needs_data
PLAN = Plan.of("d3im", length=32, steps=4)
COUNT = 4

METRIC = """
import datasets
import evaluate
from redraft.evals import sandbox

class CodeEval(evaluate.Metric):
    def _info(self):
        texts = {"predictions": datasets.Sequence(datasets.Value("string")), "references": datasets.Value("string")}
        return evaluate.MetricInfo("", "", datasets.Features(texts))

    def _compute(self, predictions, references, k):
        runs = [sandbox.run(code, tests=tests) for (code,), tests in zip(predictions, references)]
        return {"pass@1": sum(run.passed for run in runs) / len(runs)}, {}
"""


def reference(task, mode):
    rows = map(json.loads, (DATA / "lm_eval_reference_prompts.jsonl").read_text().splitlines())
    return next(row for row in rows if (row["task"], row["mode"]) == (task, mode))


@pytest.mark.parametrize(("task", "theirs"), [("gsm8k", "gsm8k_cot"), ("mbpp", "mbpp"), ("humaneval", "humaneval")])
def test_every_prompt_is_the_harness_s(task, theirs):
    prompts = [item.prompt for item in find(task).items(data=DATA)]
    expected = reference(theirs, "plain")
    assert prompts[:2] == expected["first_two"]
    assert hashlib.sha256("\0".join(prompts).encode()).hexdigest() == expected["sha256_of_all_contexts_joined_by_NUL"]
    assert len(prompts) == expected["n_docs"]


class Scripted(Model):
    """A model whose answers are written for it, in the order in which they are decoded."""

    texts: list[str]

    @classmethod
    def of(cls, model, texts):
        made = cls(**{field.name: getattr(model, field.name) for field in fields(Model)})
        object.__setattr__(made, "texts", list(texts))
        return made

    def decode(self, ids, *, trim=True):
        return self.texts.pop(0)


@pytest.fixture(scope="module")
def model():
    return random_llada(max_sequence_length=8192)


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    """`simple_evaluate` on local files, in a folder that holds the metric for programs."""
    import lm_eval
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    here = tmp_path_factory.mktemp("harness")
    (here / "code_eval").mkdir()
    (here / "code_eval" / "code_eval.py").write_text(METRIC)
    rows = [json.loads(line) for line in (DATA / "mbpp.jsonl").read_text().splitlines()]
    (here / "mbpp_test.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows if 11 <= row["task_id"] <= 510)
    )
    stock = Path(lm_eval.__file__).parent / "tasks"
    files = {
        "gsm8k_cot": (stock / "gsm8k" / "gsm8k-cot.yaml", DATA / "gsm8k_test.jsonl"),
        "mbpp": (stock / "mbpp" / "mbpp.yaml", here / "mbpp_test.jsonl"),
        "mbpp_instruct": (stock / "mbpp" / "mbpp_instruct.yaml", here / "mbpp_test.jsonl"),
        "humaneval_instruct": (stock / "humaneval" / "humaneval_instruct.yaml", DATA / "humaneval.jsonl"),
    }
    for name, (yaml, data) in files.items():
        (here / f"{name}.yaml").write_text(
            f"include: {yaml}\ntask: local_{name}\ndataset_path: json\ndataset_name: null\n"
            f"dataset_kwargs:\n  data_files:\n    test: {data}\n"
        )
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(here)
        for name, value in {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_ALLOW_CODE_EVAL": "1"}.items():
            patched.setenv(name, value)
        patched.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
        patched.setattr("datasets.config.HF_DATASETS_CACHE", here / "cache")
        manager = TaskManager()

        def evaluated(lm, task, **options):
            found = simple_evaluate(
                lm, tasks=[str(here / f"{task}.yaml")], limit=COUNT, bootstrap_iters=0, task_manager=manager,
                confirm_run_unsafe_code=True, **options,
            )  # fmt: skip
            assert found is not None
            return found["samples"][f"local_{task}"]

        yield evaluated


TEXTS = {
    "gsm8k": [" She earns 9 * 2 = $18. The answer is 18.\n\nQ: What?", " The answer is $3.", " It is 70000", " 5 + 5"],
    "mbpp": ["def f(:\n[DONE] and more", "import math\n", "", "no code at all [DONE]"],
}


@pytest.mark.long
@pytest.mark.parametrize("task", ["gsm8k", "mbpp"])
@pytest.mark.parametrize("answers", ["random", "scripted", "bundled"])
def test_our_runner_and_the_harness_agree_on_every_item(harness, model, task, answers):
    from redraft.evals.lm import Redraft

    scripted = answers == "scripted"
    if answers == "bundled":
        model = load("bundled")
    ours = find(task)
    items = ours.items(count=COUNT, data=DATA)
    texts = TEXTS[task]
    if task == "mbpp" and scripted:  # two of the four are right
        texts = [texts[0], *(item.gold["code"] + "\n[DONE]\nprint(1)" for item in items[1:3]), texts[3]]
    order = [place for (place,) in buckets([model.encode(item.prompt, chat=False) for item in items], 1)]

    def fresh():
        return Scripted.of(model, [texts[place] for place in order]) if scripted else model

    records = evaluate(fresh(), ours, items, PLAN, batch_size=1)
    lm = Redraft(fresh(), length=32, steps=4, batch_size=1)
    samples = harness(lm, {"gsm8k": "gsm8k_cot"}.get(task, task))
    for record, item in zip(records, items, strict=True):
        for sample in (one for one in samples if one["doc_id"] == record.index):
            assert sample["arguments"][0][0] == item.prompt
            assert sample["resps"] == [[record.response]]
            if task == "gsm8k":
                name = {"strict-match": "strict", "flexible-extract": "flexible"}[sample["filter"]]
                assert bool(sample["exact_match"]) == record.filters[name]
            else:
                assert bool(sample["pass_at_1"]) == record.correct
    assert len(samples) == COUNT * (2 if task == "gsm8k" else 1)
    if scripted:
        assert 0 < sum(record.correct for record in records) < COUNT


@pytest.mark.long
@pytest.mark.parametrize("task", ["gsm8k_cot", "mbpp", "mbpp_instruct", "humaneval_instruct"])
@pytest.mark.parametrize("mode", ["chat_multiturn", "chat_singleturn"])
def test_conversations_reach_the_model_as_the_harness_means_them(harness, model, task, mode):
    from redraft.evals.lm import Redraft

    expected = reference(task, mode)["first_two"]
    asked = {}

    class Heard(Redraft):
        def apply_chat_template(self, chat_history, add_generation_prompt=True):
            rendered = super().apply_chat_template(chat_history, add_generation_prompt)
            asked[rendered] = {"messages": list(chat_history), "add_generation_prompt": add_generation_prompt}
            return rendered

        def generate_until(self, requests):
            return [""] * len(requests)

    samples = harness(
        Heard(model, length=32), task, apply_chat_template=True, fewshot_as_multiturn=mode == "chat_multiturn"
    )
    contexts = [next(one for one in samples if one["doc_id"] == place)["arguments"][0][0] for place in range(2)]
    assert [asked[context] for context in contexts] == expected
    begun = not expected[0]["add_generation_prompt"]
    assert begun == task.endswith("instruct")
    ids = Heard(model).encode(contexts[0])
    if begun:  # the answer goes on within the turn
        assert model.decode(ids, trim=False).endswith(expected[0]["messages"][-1]["content"].rstrip())
    else:
        assert ids == model.encode(expected[0]["messages"])


@pytest.mark.long
def test_the_command_runs_the_harness(harness, tmp_path):
    folder = random_llada(max_sequence_length=8192).save_pretrained(tmp_path / "random")
    args = f"pretrained={folder},sampler=d3im(t2t=False;t2m=False),steps=4,length=16"
    done = run("lm-eval", "--model_args", args, "--tasks", "gsm8k_cot.yaml", "--limit", "1", "--output_path", tmp_path)
    assert done.code == 0, done.err
    assert "strict-match" in done.out
    (results,) = tmp_path.rglob("results*.json")
    about = json.loads(results.read_text())["config"]
    assert about["model"] == "redraft"
    assert about["redraft"]["sampler"] == "d3im(t2t=False;t2m=False)"
