"""HumanEval and MBPP: which part of a response is the program, and what becomes of it in the sandbox."""

import time

import pytest

from published import needs_data, rows
from redraft.evals import humaneval, mbpp
from redraft.evals.extract import fenced, program, text_of
from redraft.evals.humaneval import completion

SIGNATURE = "from typing import List\n\n\ndef add(numbers: List[int]) -> int:\n"
PROMPT = f'{SIGNATURE}    """ Add them up.\n    >>> add([1, 2])\n    3\n    """\n'
BODY = "    total = 0\n    for number in numbers:\n        total += number\n    return total"
WHOLE = f"{SIGNATURE}{BODY}"
PROBLEM = {
    "task_id": "HumanEval/-1",
    "prompt": PROMPT,
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate([1, 2, 3]) == 6\n    assert add([]) == 0\n",
}
SORT = "def sort_rows(rows):\n    return sorted(rows, key=sum)"
ROW = {
    "task_id": 12,
    "text": "Write a function to sort rows by their sums.",
    "code": SORT,
    "test_setup_code": "",
    "test_list": ["assert sort_rows([[3], [1, 1]]) == [[1, 1], [3]]", "assert sort_rows([]) == []"],
}


# --- HumanEval ---

CONTINUED = {
    "a body": BODY,
    "a body and a newline": f"{BODY}\n",
    "a body, then another function": f"{BODY}\n\ndef other():\n    raise SystemExit\n",
    "a body, then its use": f"{BODY}\n\nprint(add([1]))\n",
    "a body, then a comment": f"{BODY}\n# that is all\nexit()\n",
    "a body, then the main block": f"{BODY}\n\nif __name__ == '__main__':\n    exit()\n",
    "a body, then a closing fence": f"{BODY}\n```\nIt adds.",
    "a body, then prose": f"{BODY}\n\nThis loops over all of them, and adds.\nIt's fast.",
    "a body with a string at the margin, then prose": f"    text = '''\nNo code here\n'''\n{BODY}\nThat is all!",
    "carriage returns": BODY.replace("\n", "\r\n"),
}
REWRITTEN = {
    "the whole": WHOLE,
    "the whole without its imports": WHOLE.removeprefix("from typing import List\n\n\n"),
    "the prompt and a body": PROMPT + BODY,
    "prose, then the whole": f"Sure! Here you go:\n\n{WHOLE}",
    "the whole, then prose": f"{WHOLE}\nThis loops over all of them.\n",
    "between helpers": f"import math\n\n@staticmethod\ndef zero():\n    return 0\n\n{WHOLE}\n\ndef one():\n    pass\n",
    "behind calls": f"import sys\nsys.setrecursionlimit(10_000)\nprint(\n    1,\n)\n\n{WHOLE}",
    "a class before it": f"class Solution:\n    pass\n\n\n{WHOLE}",
    "a lambda": "add = lambda numbers: sum(numbers)",
    "after end tokens there is nothing": f"{WHOLE}<|eot_id|><|endoftext|>def add(numbers): return 1",
    "special tokens before it": f"<|start_header_id|>{WHOLE}",
}
FENCED = {
    "python": f"```python\n{WHOLE}\n```",
    "py": f"```py\n{WHOLE}\n```",
    "Python": f"```Python\n{WHOLE}\n```",
    "bare": f"```\n{WHOLE}\n```",
    "tildes": f"~~~python\n{WHOLE}\n~~~",
    "four ticks": f"````python\n{WHOLE}\n````",
    "unclosed": f"```python\n{WHOLE}",
    "a body": f"```python\n{BODY}\n```",
    "prose round it": f"Here is the function:\n\n```python\n{WHOLE}\n```\n\nIt works because it adds.",
    "after a shell": f"```bash\npip install numpy\n```\n```python\n{WHOLE}\n```",
    "before its output": f"```python\n{WHOLE}\n```\nOutput:\n```\n6\n```",
    "before its use": f"```python\n{WHOLE}\n```\nUse it so:\n```python\nraise SystemExit\n```",
    "after something else": f"First:\n```python\nprint('hello')\n```\nThen:\n```python\n{WHOLE}\n```",
    "in a list": "1. So:\n\n   ```python\n" + "".join(f"   {line}\n" for line in WHOLE.split("\n")) + "   ```\n",
    "indented from the start": "  ```python\n" + "".join(f"  {line}\n" for line in WHOLE.split("\n")) + "  ```\n",
    "in a tag": f"<answer>\n```python\n{WHOLE}\n```\n</answer>",
}


@pytest.mark.parametrize("response", [*CONTINUED.values(), *REWRITTEN.values(), *FENCED.values()],
                         ids=[*CONTINUED, *REWRITTEN, *(f"fence: {name}" for name in FENCED)])  # fmt: skip
def test_the_program_is_found(response):
    """Run here, for these programs are our own."""
    names = {"__name__": "solution"}
    exec(PROMPT + str(completion(text_of(response), "add")), names)
    assert names["add"]([1, 2, 3]) == 6


@pytest.mark.parametrize("response", [BODY, WHOLE, FENCED["python"]])
def test_what_is_found_is_run(response):
    found = humaneval.grade(response, PROBLEM)
    assert found
    assert found.extracted == completion(response, "add")


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("", "no_code"),
        ("<|endoftext|>" + BODY, "no_code"),
        ("I cannot do that.", "no_code"),
        ("```\n```", "no_code"),
        ("    return sum(numbers) +", "syntax"),
        ("\n".join(line.removeprefix("    ") for line in BODY.split("\n")), "syntax"),  # the margin is part of Python
        ("    return 6", "wrong"),
        ("    pass", "wrong"),
        ("    raise SystemExit(0)", "killed"),
        ("    while True: pass", "timeout"),
    ],
)
def test_what_is_no_right_program_is_told_apart(response, verdict):
    assert humaneval.grade(response, PROBLEM, timeout=0.5).verdict == verdict


def test_helpers_of_the_prompt_measure_and_cannot_be_redefined():
    """As in HumanEval 38: the test encodes with the prompt's own function what the program has to decode."""
    prompt = 'def encode(s):\n    return s[::-1]\n\n\ndef decode(s):\n    """Undo it."""\n'
    test = "def check(candidate):\n    assert candidate(encode('abc')) == 'abc'\n"
    problem = {"task_id": "", "prompt": prompt, "entry_point": "decode", "test": test}
    assert humaneval.grade("    return s[::-1]\n", problem)
    assert humaneval.grade("    return encode(s)\n", problem)
    cheat = "def encode(s):\n    return s\n\ndef decode(s):\n    return s\n"
    assert humaneval.grade(f"```python\n{cheat}```", problem).verdict == "wrong"


def test_a_body_is_not_moved():
    assert completion(BODY, "add") == BODY
    assert completion(f"\n{BODY}\n", "add") == f"\n{BODY}"


# --- MBPP ---


@pytest.mark.parametrize(
    "response",
    [
        SORT,
        f"{SORT}\n[DONE]\nYou are an expert Python programmer, and here is your task: [BEGIN]\nexit()",
        f"[BEGIN]\n{SORT}\n[DONE]",
        SORT.replace("\n", "\r\n"),
        f"\n\n{SORT}",
        f"```python\n{SORT}\n```",
        f"Sure:\n\n```python\n{SORT}\n```\nDone.",
        f"Sure, here it is:\n\n{SORT}\n\nHope this helps!",
        f"{SORT}\nassert sort_rows([]) == []",
        f"{SORT}\nprint(sort_rows([[1]]))",
        f"{SORT}\n\nif __name__ == '__main__':\n    exit()",
        f"```python\n{SORT}\n```\n```python\nexit()\n```",
        f"It is used so:\n```python\n>>> sort_rows([[1]])\n[[1]]\n```\nand is\n```python\n{SORT}\n```",
    ],
)
def test_mbpp_finds_the_program(response):
    names = {"__name__": "solution"}
    exec(str(mbpp.program(text_of(response))), names)
    assert names["sort_rows"]([[3], [1, 1]]) == [[1, 1], [3]]


def test_mbpp_runs_what_is_found():
    found = mbpp.grade(f"{SORT}\n[DONE]\nand more", ROW)
    assert found
    assert found.extracted == f"{SORT}\n"


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("", "no_code"),
        ("[DONE]", "no_code"),
        (f"[DONE]\n{SORT}", "no_code"),
        ("I do not know.", "no_code"),
        ("def sort_rows(:", "syntax"),
        ("def sort_rows(rows):\n    return rows", "wrong"),
        (f"{SORT}\nx = input()", "wrong"),
        (f"{SORT}\nraise SystemExit(0)", "killed"),
    ],
)
def test_mbpp_tells_apart_what_is_no_right_program(response, verdict):
    assert mbpp.grade(response, ROW).verdict == verdict


def test_set_up_code_is_run():
    classes = {**ROW, "test_setup_code": "class Rows(list):\n    pass", "test_list": ["assert sort_rows(Rows()) == []"]}
    assert mbpp.grade(SORT, classes)
    assert mbpp.grade(SORT, {name: value for name, value in ROW.items() if name != "test_setup_code"})


# --- the benchmarks themselves; all their solutions are run by test_sandbox_attacks.py ---


@needs_data
@pytest.mark.parametrize("place", [0, 32, 33, 38, 50, 163])
def test_gold_solutions_of_humaneval_that_trip_graders(place):
    row = rows("humaneval")[place]
    assert humaneval.grade(row["canonical_solution"], row)
    assert not humaneval.grade("    pass\n", row)


@needs_data
@pytest.mark.parametrize("task_id", [11, 40, 56, 88, 126, 349, 367, 510])
def test_gold_solutions_of_mbpp_that_trip_graders(task_id):
    """Functions called `check` and `sum`, a Counter for a dict, classes that the tests need first."""
    row = next(row for row in rows("mbpp") if row["task_id"] == task_id)
    assert mbpp.grade(row["code"], row)
    assert not mbpp.grade(f"def f():\n    return {task_id}", row)


# --- extraction ---


def test_blocks_of_other_languages_are_not_python():
    text = "```json\n{}\n```\n```python\na = 1\n```\n```\nb = 2\n```\n```text\nc\n```"
    assert fenced(text) == ["a = 1\n", "b = 2\n"]


def test_a_margin_of_a_fence_is_taken_off_its_block():
    assert fenced("  ```\n  a\n    b\n  ```") == ["a\n  b\n"]


def test_prose_is_no_program():
    assert program("A function is defined with def, and a class with class.") is None
    assert program("x = 1 is an assignment") is None
    assert program("def f():\n    pass\nf(x) does nothing.") == "def f():\n    pass"


def test_strings_may_reach_to_the_margin():
    text = 'def f():\n    return """\nThis is text.\n"""\n'
    assert program(f"{text}This is prose.") == text.rstrip("\n")


def test_texts_end_at_the_first_end_token():
    assert text_of("<s>a\r\nb<|mdm_mask|>c</s>d<|endoftext|>") == "a\nbc"


@pytest.mark.parametrize(
    "piece", ["```\n", "```python\n", "def f():\n", '"""', "'''\n", "import x\n", "    \n", "(", "@a\n"]
)
def test_a_hundred_thousand_characters_take_no_time(piece):
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    program(text, "f")
    completion(text, "f")
    assert time.process_time() - started < 2
