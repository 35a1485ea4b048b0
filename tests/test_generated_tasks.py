"""Words, algebra and code: right answers, disjoint splits, graders that know right from wrong, and frozen problems."""

import ast
import hashlib
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from math import gcd, lcm

import pytest

from redraft.evals import algebra, code, words
from redraft.evals.generated import SIZE, Problem, split_of
from redraft.evals.task import Grade

TASKS = (words, algebra, code)
SPLITS = ("train", "validation", "test")
MANY = 2000
tasks = pytest.mark.parametrize("task", TASKS, ids=[task.NAME for task in TASKS])


@pytest.fixture(scope="module")
def problems():
    """By task and split, made by another process: checked types make them a hundred times as slow to make."""
    script = f"""
import pickle, sys
from redraft.evals import algebra, code, words
made = {{(task.NAME, split): [tuple(task.problem(split, index)) for index in range({MANY})]
        for task in (words, algebra, code) for split in {SPLITS}}}
sys.stdout.buffer.write(pickle.dumps(made))"""
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout
    made = pickle.loads(told)
    return {(task, split): [Problem(*one) for one in made[task.NAME, split]] for task in TASKS for split in SPLITS}


# --- splits ---


@tasks
def test_splits_share_neither_skeletons_nor_numbers(task, problems):
    seen = {split: problems[task, split] for split in SPLITS}
    for split, some in seen.items():
        assert all(split_of(one.skeleton) == split == split_of(one.numbers) for one in some)
    for one, other in (("train", "test"), ("train", "validation"), ("validation", "test")):
        for part in ("skeleton", "numbers", "question"):
            shared = {getattr(p, part) for p in seen[one]} & {getattr(p, part) for p in seen[other]}
            assert not shared, (one, other, part)


@tasks
def test_a_thousand_different_test_items(task, problems):
    assert SIZE >= 1000
    assert len({one.question for one in problems[task, "test"][:SIZE]}) > 0.95 * SIZE
    items = task.TASK.items("test", count=20)
    assert items[17].id == f"{task.NAME}-1/test/17"
    assert [item.prompt[0]["content"] for item in items] == [one.question for one in problems[task, "test"][:20]]
    assert task.TASK.items("test", count=3) == items[:3], "a problem does not depend on how many are asked for"


@tasks
def test_worked_examples_are_training_problems(task):
    shown = task.TASK.items("test", count=4, shots=3)
    plain = task.TASK.items("test", count=4)
    trained = {task.problem("train", 10_000_000 + index).question for index in range(16 * 4)}
    for item, bare in zip(shown, plain, strict=True):
        assert [turn["role"] for turn in item.prompt] == ["user", "assistant"] * 3 + ["user"]
        assert item.prompt[-1:] == bare.prompt
        assert item.gold == bare.gold
        assert {turn["content"] for turn in item.prompt[:-1:2]} <= trained


@tasks
def test_an_unknown_split_and_a_data_file_are_refused(task):
    with pytest.raises(ValueError, match="there is no split 'dev'"):
        task.problem("dev", 0)
    with pytest.raises(ValueError, match="leave out the data file"):
        task.TASK.items(data="here.jsonl")


# The problems of version 1, for ever. Another digest is another task: raise VERSION, and measure everything again.
FROZEN = {
    ("words", "train"): "d914524f79bac6e2",
    ("words", "validation"): "f84cd6c92570a6c8",
    ("words", "test"): "f3272c5473781298",
    ("algebra", "train"): "3a4666cfb9b4f1a0",
    ("algebra", "validation"): "fe342076ca573943",
    ("algebra", "test"): "2ae4e5edfc4a209b",
    ("code", "train"): "5e82e5ace91a3f54",
    ("code", "validation"): "f376e9e27b45fa67",
    ("code", "test"): "5b8a8a7061f5090b",
}


@tasks
@pytest.mark.parametrize("split", SPLITS)
def test_version_1_is_frozen(task, split, problems):
    first = [*problems[task, split][:1000], *(task.problem(split, index) for index in (12_345, 10_000_003))]
    told = repr([tuple(one) for one in first])
    assert task.VERSION == 1
    assert hashlib.sha256(told.encode()).hexdigest()[:16] == FROZEN[task.NAME, split]


# --- what can be asked for, and how ---


def test_words_vary(problems):
    test = problems[words, "test"]
    operations = Counter(one.solution.count("=") for one in test)
    assert sorted(operations) == [2, 3, 4, 5, 6]
    assert min(operations.values()) > MANY * 0.02
    assert {one.skeleton[0] for one in test} == set(words.TELLERS), "every scenario is tested"
    assert 0.15 < sum("distractor" in one.skeleton for one in test) / MANY < 0.5
    assert len({one.skeleton for one in problems[words, "train"]}) > 0.3 * MANY
    openings = Counter(re.sub(r"\d+", "#", one.solution).split()[0] for one in test)
    assert len(openings) > 12, "solutions begin in many ways"


def test_every_kind_of_algebra_is_tested_as_often_as_another(problems):
    for split in SPLITS:
        kinds = Counter(one.skeleton[0] for one in problems[algebra, split])
        assert set(kinds) == set(algebra.KINDS)
        assert max(kinds.values()) < 1.7 * min(kinds.values())


def test_code_varies(problems):
    test = problems[code, "test"]
    assert {one.skeleton[0] for one in test} == {*code.SOURCES, "choice"}
    assert len({one.skeleton for one in test}) > 100, "functions"
    assert len({one.question.split()[0] for one in test}) == 3, "write, implement, complete"


# --- right answers ---


@pytest.mark.parametrize("split", SPLITS)
def test_every_operation_of_a_word_problem_is_right(problems, split):
    for one in problems[words, split]:
        found = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", one.solution)
        assert len(found) == one.solution.count("=")
        for left, sign, right, result in found:
            assert valued(f"{left} {sign} {right}") == int(result), one
        known = {int(n) for n in re.findall(r"\d+", one.question)} | {1, 2, 3}  # half, doubles, triples
        for left, _, right, result in found:  # nothing comes from nowhere
            assert {int(left), int(right)} <= known, one
            known.add(int(result))
        assert one.gold == int(found[-1][-1]), "the last operation gives the answer"
        assert one.solution.endswith(f"answer is {one.gold}.")


@pytest.mark.parametrize("split", SPLITS)
def test_every_equation_of_numbers_in_algebra_is_right(problems, split):
    checked = Counter()
    for one in problems[algebra, split]:
        for line in re.split(r"[.,] |: |\.$| \([a-z]", one.solution):
            sides = line.split(" = ")
            if len(sides) > 1 and not re.search(r"[a-z]", line.replace("frac", "")):
                assert len({valued(side) for side in sides}) == 1, one
                checked[one.skeleton[0]] += 1
    letters = {"linear", "linear_fraction", "both_sides", "bracket", "quadratic", "proportion", "system"}
    assert set(checked) == set(algebra.KINDS) - letters - {"multiply_fractions"}


@pytest.mark.parametrize("split", SPLITS)
def test_answers_of_algebra_stand_when_put_into_the_question(problems, split):
    for one in problems[algebra, split][:700]:
        assert stands(one.skeleton[0], one.question, one.gold), one
        assert one.solution.count("\\boxed") == 1
        assert f"\\boxed{{{one.gold}}}" in one.solution


def stands(kind: str, question: str, gold: str) -> bool:
    """Whether an answer is right, worked out from the question alone."""
    shown = [int(n) for n in re.findall(r"\d+", question)]
    formula = max(re.findall(r"[-+*/^=().{}\\\da-z ]*[-\d(][-+*/^=(){}\\\da-z ]*", plain(question)), key=len).strip(
        " ."
    )
    match kind:
        case "linear" | "linear_fraction" | "both_sides" | "bracket" | "proportion" | "quadratic":
            left, right = formula.split(" = ")
            letter = re.search(r"[a-z]", (left + right).replace("frac", ""))[0]
            roots = [n for n in range(-40, 41) if valued(left, {letter: n}) == valued(right, {letter: n})]
            best = {"smaller": min, "larger": max}
            which = next((best[word] for word in best if word in question), None)
            return valued(left, {letter: valued(gold)}) == valued(right, {letter: valued(gold)}) and (
                which is None or which(roots) == int(gold)
            )
        case "add_fractions" | "multiply_fractions" | "order" | "power":
            return valued(formula) == valued(gold)
        case "evaluate":
            (letter, value) = re.search(r"([a-z]) = (\d+)", question).groups()
            polynomial = max(re.findall(r"[-+^\da-z ]*\^2[-+^\da-z ]*\d", plain(question)), key=len)
            return valued(polynomial.strip(), {letter: int(value)}) == int(gold)
        case "expand" | "collect":
            letter = re.search(r"[a-z]", formula)[0]
            return (
                all(valued(formula, {letter: n}) == valued(gold, {letter: n}) for n in range(-2, 4)) and "(" not in gold
            )
        case "system":
            total, difference = (int(n) for n in re.findall(r"= (-?\d+)", question))
            return int(gold) * 2 == (total + difference if re.search(r"(find|for) x", question) else total - difference)
        case "percent":
            return valued(gold) == Fraction(shown[0] * shown[1], 100)
        case "divisor":
            multiple = re.search("multiple|lcm|that both", question)
            return int(gold) == (lcm if multiple else gcd)(*shown)
        case "remainder":
            return int(gold) == shown[0] % shown[1]
        case "sequence":
            first, second, third = (int(n) for n in re.search(r"(-?\d+), (-?\d+), (-?\d+)", question).groups())
            place = int(re.search(r"term (?:number )?(\d+)", question)[1])
            return third - second == second - first and int(gold) == first + (place - 1) * (second - first)
    raise AssertionError(kind)


def plain(question: str) -> str:
    """Without the words round the formula."""
    words = r"\b(?!frac)[A-Za-z]{2,}\b|[A-Z]|\?"
    return re.sub(words, ";", re.sub(r"\b(What|Find|Let|Give) [a-z] |\bis [a-z] |\bFind [a-z]\.|,", ";", question))


def valued(text: str, letters: dict[str, int | Fraction] | None = None) -> Fraction:
    """What an expression is worth: + - * / ^, brackets, \\frac, and letters with what stands beside them."""
    text = re.sub(r"\\frac\{([^{}]+)\}\{([^{}]+)\}", r"((\1) / (\2))", text).strip()
    text = re.sub(r"(?<=[\da-z)])(?=[a-z(])", " * ", text).replace("^", "**")

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(int(n)):
                return Fraction(n)
            case ast.Name(letter):
                return Fraction((letters or {})[letter])
            case ast.UnaryOp(ast.USub(), inner):
                return -value(inner)
            case ast.BinOp(left, ast.Add(), right):
                return value(left) + value(right)
            case ast.BinOp(left, ast.Sub(), right):
                return value(left) - value(right)
            case ast.BinOp(left, ast.Mult(), right):
                return value(left) * value(right)
            case ast.BinOp(left, ast.Div(), right):
                return value(left) / value(right)
            case ast.BinOp(left, ast.Pow(), right):
                return value(left) ** int(value(right))
        raise AssertionError(f"no expression: {text}")

    return value(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("split", SPLITS)
def test_functions_do_what_is_asked(problems, split):
    for one in problems[code, split]:
        assert passes(one.solution, one.gold), one
        assert len(one.solution.splitlines()) <= 6


def passes(program: str, gold: dict[str, str]) -> bool:
    """Runs references, which are ours."""
    space: dict[str, object] = {}
    try:
        exec(program + "\n" + gold["tests"], space)
    except Exception:
        return False
    return True


def test_a_function_that_does_something_else_fails(problems):
    """Tests tell apart what differs: the solution of one problem seldom passes for another."""
    test, told_apart = problems[code, "test"], Counter()
    pairs = [(one, other) for one in test[:300] for other in test[300:340]]
    for one, other in pairs:
        header = one.solution.split("(", 1)[1].split(":")[0]
        if one.skeleton != other.skeleton and header == other.solution.split("(", 1)[1].split(":")[0]:
            named = other.solution.replace(f"def {other.gold['entry_point']}(", f"def {one.gold['entry_point']}(")
            told_apart[passes(named, one.gold)] += 1
    assert told_apart.total() > 1000
    assert told_apart[True] < 0.01 * told_apart.total()


# --- the graders ---


def test_words_are_graded_by_the_last_answer(problems):
    for one in problems[words, "test"][:500]:
        assert words.grade(one.solution, one.gold).correct
        assert words.grade(
            one.solution.replace(f"answer is {one.gold}", f"answer is {one.gold + 1}"), one.gold
        ) == Grade("wrong", str(one.gold + 1))


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("The answer is 42.", "passed"),
        ("the ANSWER is $42", "passed"),
        ("6 * 7 = 42.", "passed"),  # nothing said: the last number
        ("The answer is 42.0", "passed"),
        ("The answer is 41. So the answer is 42.", "passed"),
        ("The answer is 42. Or was it 43?", "passed"),
        ("The answer is 4 2", "wrong"),
        ("The answer is -42.", "wrong"),
        ("The answer is 1,042.", "wrong"),
        ("42 " * 30 + "1" * 400, "wrong"),
        ("The answer is unknown", "no_answer"),
        ("", "no_answer"),
    ],
)
def test_grading_words(response, verdict):
    assert words.grade(response, 42).verdict == verdict


def test_algebra_is_graded_by_the_last_box(problems):
    for one in problems[algebra, "test"][:500]:
        assert algebra.grade(one.solution, one.gold).correct, one
        other = one.gold + " + 1"
        assert algebra.grade(one.solution.replace(f"{{{one.gold}}}", f"{{{other}}}"), one.gold).verdict == "wrong"
    assert algebra.grade("\\boxed{0.5}", "\\frac{1}{2}").correct, "compared by value"
    assert algebra.grade("\\boxed{1} no, \\boxed{2}", "2").correct
    assert algebra.grade("so it is 2", "2").verdict == "no_answer"


def test_code_is_graded_in_the_sandbox(problems):
    draw = random.Random(0)
    for one in draw.sample(problems[code, "test"], 4):
        assert code.grade(one.solution, one.gold).correct, one
        fenced = f"Here it is:\n```python\n{one.solution}\n```\nDone."
        assert code.grade(fenced, one.gold).correct
        assert code.grade(one.solution.split(":")[0] + ":\n    return None", one.gold).verdict == "wrong"
    assert code.grade("def other(x):\n    return x", {"entry_point": "f", "tests": ""}).verdict == "no_code"
    assert code.grade("def f(x):\n    return (", {"entry_point": "f", "tests": "assert f(1)"}).verdict == "syntax"
