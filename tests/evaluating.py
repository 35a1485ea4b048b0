"""A small task for tests of evaluations: how many bytes of a kind a random model writes. No pytest in here."""

from redraft.evals.task import Grade, Item, Task

QUESTIONS = ["ab", "a longer question", "c", "what is it", "never mind " * 3, "x" * 9, "yes", "no, thank you"]


def items(split="test", *, count=None, shots=None, data=None):
    chosen = [QUESTIONS[place % len(QUESTIONS)] + "?" * (place // len(QUESTIONS)) for place in range(count or 8)]
    return [Item(f"toy-1/{split}/{place}", text, gold=place % 2) for place, text in enumerate(chosen)]


def grade(response, gold, filter="even"):
    """Correct if the number of characters is even (or odd: the other filter), whatever the gold says."""
    wanted = {"even": 0, "odd": 1}[filter]
    return Grade("passed" if len(response) % 2 == wanted else "wrong", str(len(response)))


TOY = Task("toy", 1, "nobody", items, grade, length=16, filters=("even", "odd"))
