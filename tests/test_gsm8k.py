"""GSM8K: the number that a response gives, beside lm-evaluation-harness's own filters; prompts; hostile responses."""

import random
import time
from pathlib import Path

import lm_eval
import pytest
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter

from published import DATA, needs_data, rows
from redraft.evals import gsm8k
from redraft.evals.gsm8k import FILTERS, examples, grade, grade_answer_first
from redraft.evals.tasks import find

RIGHT = [
    ("The answer is 18.", 18),
    ("The answer is 18", "She sells 9 * 2.\n#### 18"),
    ("#### 18", "18"),
    ("The answer is 18.0000", 18),
    ("The answer is 18", "18.00"),
    ("The answer is $18.00.", "$18"),
    ("The answer is $1,234.", 1234),
    ("The answer is 1,234,567 miles.", "1,234,567"),
    ("The answer is 5%.", 5),
    ("The answer is −5.", -5),
    ("The answer is -$5.", -5),
    ("The answer is $-5.", -5),
    ("The answer is 1/2.", 0.5),
    ("The answer is .5", 0.5),
    ("The answer is 1e3.", 1000),
    ("**Answer: 18**", 18),
    ("The final answer is: 18", 18),
    ("The answer is: $18$.", 18),
    (r"The answer is \(18\).", 18),
    (r"Therefore, the answer is $\boxed{18}$.", 18),
    (r"\boxed{18 \text{ dollars}}", 18),
    (r"\boxed{\$1{,}234}", 1234),
    (r"\boxed{\frac{36}{2}}", 18),
    ("The answer is 9 * 2 = 18.", 18),
    ("The answer is 18 (9 times 2).", 18),
    ("The answer is 18 (18 = 9*2).", 18),
    ("The answer is 18 (9*2 = 18, with x = 2).", 18),
    ("The answer is (9*2 = 18).", 18),
    ("It costs 20 dollars. The answer is 18 because 20 - 2 = 18.", 18),
    ("The answer is 17. Wait, no: the answer is 18.", 18),
    ("The answer is 18.\n\nQ: How many? A: The answer is 7.", 18),
    ("The answer is 18<|eot_id|>assistant 7", 18),
    ("She makes 9 * 2 = $18 every day.", 18),
    ("There are 3 cats and 18 dogs", 18),
    ("18", 18),
    ("The answer is not 17 but 18.", 18),
    ("The answer is 18, not 17.", 18),
    ("The answer is 1\u00a0000.", 1000),
    ("They meet at 6:30. The answer is 18.", 18),
]
WRONG = [
    ("The answer is 180.", 18),
    ("The answer is 118.", 18),
    ("The answer is -18.", 18),
    ("The answer is 1.8.", 18),
    ("The answer is 18.5.", 18),
    ("The answer is 18,000.", 18),
    ("The answer is 1e18", 18),
    ("The answer is 1/8", 18),
    ("18 apples. The answer is 3.", 18),
    ("The answer is 3. There are 18 cats", 18),
    (r"\boxed{17} and 18 cats", 18),
    ("1e999", 18),
    ("The answer is 1*8.", 18),
    ("They have 1*8", 18),
    ("They have 1**8", 18),
    ("The answer is not 18 but 19.", 18),
]


@pytest.mark.parametrize(("response", "gold"), RIGHT)
def test_the_number_counts_however_it_is_written(response, gold):
    found = grade(response, gold)
    assert found
    assert found.correct
    assert found.verdict == "passed"


@pytest.mark.parametrize(("response", "gold"), WRONG)
def test_another_number_is_wrong(response, gold):
    found = grade(response, gold)
    assert not found
    assert found.verdict == "wrong"
    assert found.extracted


@pytest.mark.parametrize(
    "response",
    ["", "no number at all", "(((", "nan", "inf", "\x00\ud800", "Q: 18"],
)
def test_without_a_number_there_is_no_answer(response):
    assert grade(response, 19).verdict in ("no_answer", "wrong")
    assert grade(response.replace("18", ""), 18).verdict == "no_answer"


@pytest.mark.parametrize("response", ["The answer is 18:30.", "The answer is 6:18"])
def test_a_time_of_day_is_no_number(response):
    assert grade(response, 18).verdict == grade(response, 6).verdict == "no_answer"


def test_a_gold_answer_without_a_number_is_refused():
    with pytest.raises(ValueError, match="is no number to compare an answer with"):
        grade("18", "eighteen")


@pytest.mark.usefixtures("unchecked_shapes")
def test_an_unknown_filter_is_refused():
    with pytest.raises(ValueError, match="no filter 'loose': there are numeric, strict, flexible"):
        grade("18", 18, filter="loose")


# --- the harness's filters ---


@pytest.fixture(scope="module")
def harness():
    """`grade` as the harness's own task does it: (response, target, filter) to what it extracts and says."""
    task = yaml.load((Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k-cot.yaml").read_text(), yaml.SafeLoader)
    filters = {}
    for one in task["filter_list"]:
        options = {name: value for name, value in one["filter"][0].items() if name != "function"}
        filters[one["name"].split("-")[0]] = RegexFilter(**options)
    (metric,) = task["metric_list"]
    ignored = {name: metric[name] for name in ("regexes_to_ignore", "ignore_case", "ignore_punctuation")}

    def graded(response, target, filter):
        extracted = filters[filter].apply([[response]], [{}])[0][0]
        return extracted, bool(exact_match_hf_evaluate([extracted], [target], **ignored)["exact_match"])

    return graded


def agree(harness, response, target):
    for filter in ("strict", "flexible"):
        ours = grade(response, target, filter)
        assert (ours.extracted or "[invalid]", ours.correct) == harness(response, target, filter), (response, filter)


PIECES = (
    "The answer is ", "the answer is ", "The answer is", "The answer is -", " ", "\n", "\r\n", "$", "$$", "18", "18.\n",
    "1,234", "-5", "3.14", ".", ",", "...", "%", "#### ", "####", "##", "answer", "So ", "Q:", "**", "0", ".5", "1e5",
    "$1,234.00", "-$5", "٣", "²", "x", "\\boxed{", "}", "\u2028", "Ä",
)  # fmt: skip
GOLDS = ("18", "1,234", "-5", "3.14", "5", "0", "$18", "18.", "3.0", "1,234,567")


def test_strict_and_flexible_are_the_harness_s_on_random_texts(harness):
    rng = random.Random(0)
    for _ in range(4000):
        agree(harness, "".join(rng.choices(PIECES, k=rng.randint(0, 10))), rng.choice(GOLDS))


def test_strict_and_flexible_are_the_harness_s_on_written_responses(harness):
    for response, gold in RIGHT + WRONG:
        agree(harness, response, str(gold).split("####")[-1].strip())


def test_what_the_filters_do_not_take():
    assert grade("The answer is 18", 18, "strict") == gsm8k.Grade("wrong", "1")
    assert grade("The answer is $18.", 18, "strict").verdict == "no_answer"
    assert grade("The answer is 18.", 18, "strict")
    assert grade("The answer is 18", 18, "flexible")
    assert not grade("The answer is 18.00", 18, "flexible")


@needs_data
def test_every_gold_answer_passes_every_filter(harness):
    for row in rows("gsm8k_test"):
        gold = row["answer"]
        number = gold.split("#### ")[1]
        assert grade(gold, gold)
        assert grade(gold, number)
        for filter in FILTERS:
            assert grade(f"{gold.split('####')[0]}The answer is {number}.", gold, filter)
            assert not grade(f"The answer is {number}1.", gold, filter)
        agree(harness, gold, number)


# --- hostile responses ---


@pytest.mark.parametrize(
    "piece",
    ["9", "1.", "1,", "1/", "1e1", "-", "$", "-$", "#### ", "The answer is ", "answer ", "answer\n", "answer is\t",
     "\nQ ", "\\boxed{", "{", "Q:", "result" + "a" * 40],
)  # fmt: skip
def test_a_hundred_thousand_characters_take_no_time(piece):
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    for filter in FILTERS:
        assert not grade(text, 18, filter)
    assert not grade_answer_first(text, 18)
    assert time.process_time() - started < 2


def test_a_remark_without_end_takes_no_time():
    started = time.process_time()
    assert grade("The answer is 18 (" + "=" * 100_000, 18)
    assert grade("The answer is 18 " + "(=" * 50_000, 18)
    assert time.process_time() - started < 2


# --- how it is asked ---


def test_the_eight_examples_are_those_of_the_harness(tmp_path):
    """It holds them; a file beside the data holds the same."""
    assert len(examples()) == 8
    if DATA.is_dir():
        assert examples(DATA) == examples() == examples(tmp_path)


@needs_data
def test_answer_first_turns_the_examples_round():
    (item,) = find("gsm8k-answer-first").items(count=1, data=DATA)
    (plain,) = find("gsm8k").items(count=1, data=DATA)
    worked, question = item.prompt.rsplit("\n\nQ: ", 1)
    assert question == plain.prompt.rsplit("\n\nQ: ", 1)[1]
    shots = worked.split("\n\n")
    assert len(shots) == 8
    for shot, original in zip(shots, plain.prompt.split("\n\n"), strict=False):
        answer, reasoning = shot.split("\nA: ")[1].split(". ", 1)
        assert f"{reasoning} {answer}." == original.split("\nA: ")[1]
    assert item.id == "gsm8k-answer-first-1/test/0"
    assert item.gold == plain.gold == "18"


def test_answer_first_reads_the_first_statement():
    text = "The answer is 18. 9 * 2 = 18, and the answer is 3."
    assert grade_answer_first(text, 18)
    assert not grade(text, 18)
    assert grade_answer_first(text, 18, "strict")


@needs_data
@pytest.mark.parametrize("task", ["gsm8k", "gsm8k-answer-first"])
def test_shots_are_none_to_eight(task):
    assert find(task).items(count=1, shots=0, data=DATA)[0].prompt.startswith("Q: Janet")
    assert find(task).items(count=1, shots=3, data=DATA)[0].prompt.count("Q: ") == 4
    with pytest.raises(ValueError, match="shots is 0 to 8, not 9"):
        find(task).items(count=1, shots=9, data=DATA)
