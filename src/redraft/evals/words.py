"""`words`: grade-school word problems with a worked solution that ends in the answer, the small mirror of GSM8K.

A problem is a story of two to six operations with distractors; its solution says every operation in one of many ways.
Problems are made here, from (split, index) alone; version 1 is frozen.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from redraft.evals.generated import Problem, asked, draws, split_of, until
from redraft.evals.task import Grade, Task

NAME, VERSION = "words", 1

NAMES = {
    "she": [
        "Mia",
        "Anna",
        "Lena",
        "Sara",
        "Nora",
        "Ella",
        "Zoe",
        "Ruth",
        "Ivy",
        "Lucy",
        "Emma",
        "Rosa",
        "Clara",
        "Dana",
        "Tess",
        "Vera",
    ],
    "he": [
        "Tom",
        "Ben",
        "Max",
        "Leo",
        "Sam",
        "Jack",
        "Omar",
        "Paul",
        "Finn",
        "Noah",
        "Adam",
        "Eric",
        "Hugo",
        "Karl",
        "Luis",
        "Nils",
    ],
}
OWNED = [
    "pens",
    "marbles",
    "stickers",
    "cards",
    "shells",
    "coins",
    "stamps",
    "beads",
    "apples",
    "cookies",
    "books",
    "toys",
    "buttons",
    "stones",
]
SOLD = ["pens", "hats", "mugs", "lamps", "cakes", "bags", "shirts", "books", "kites", "bowls", "plants", "tickets"]
MADE = ["toys", "bolts", "chairs", "bottles", "lamps", "bricks", "bikes", "cups", "balls", "shoes"]
HOLDERS = ["boxes", "bags", "packs", "jars", "baskets"]
COLORS = ["red", "blue", "green", "old", "new", "small"]
AN = {"hour": "an", "minute": "a", "day": "a", "week": "a"}
PLACES = ["park", "market", "school", "beach", "museum", "library"]

Kinds = tuple[str, ...]  # a skeleton: the scenario, then the templates of its sentences


class Story:
    """A problem being told: sentences of the question on one side, operations of the solution on the other."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.told: list[str] = []
        self.worked: list[str] = []
        self.numbers: list[int] = []
        self.pronoun = rng.choice(("she", "he"))
        self.name, self.friend = rng.sample(NAMES[self.pronoun], 2)
        self.style = rng.randrange(4)
        self.clear = False  # whether a pronoun would be understood

    def number(self, low: int, high: int) -> int:
        """A number of the problem; ValueError where there is none."""
        self.numbers.append(value := self.rng.randint(low, high))
        return value

    def among(self, values: list[int]) -> int:
        """One of these; IndexError where there is none."""
        self.numbers.append(value := self.rng.choice(values))
        return value

    def say(self, *variants: str) -> None:
        """One of the ways to tell it; `@` is the person."""
        variant = self.rng.choice(variants)
        sentence = variant.replace("@", self.pronoun if self.clear and self.rng.random() < 0.7 else self.name)
        self.told.append(sentence[0].upper() + sentence[1:])
        self.clear = self.friend not in sentence and (self.clear or "@" in variant)

    def work(self, left: int, sign: str, right: int, thing: str, *reasons: str) -> int:
        """An operation, in the words of this solution; the result, and ValueError where it is none to speak of."""
        result = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]
        if result < 2:
            raise ValueError(f"{left} {sign} {right} leaves no plural")
        sum_ = f"{left} {sign} {right} = {result}"
        why = self.rng.choice(reasons)
        first = not self.worked
        link = self.rng.choice(("First,", "To begin,") if first else ("Then", "Next,", "After that,", "Now"))
        self.worked.append(
            (
                f"{sum_}.",
                f"{why[0].upper()}{why[1:]}: {sum_} {thing}.",
                f"{link} {why}, so {sum_}.",
                f"{link} {sum_} {thing}.",
            )[self.style if self.rng.random() < 0.85 else self.rng.randrange(4)]
        )
        return result

    def distract(self) -> None:
        """A sentence with a number that nothing depends on."""
        k = self.rng.randint(2, 28)
        self.say(
            f"{self.friend} is {k} years old.",
            f"The {self.rng.choice(PLACES)} is {k} minutes away.",
            f"{self.friend} has {k} {self.rng.choice(COLORS)} hats.",
            f"It is day {k} of the month.",
        )

    def problem(self, question: str, answer: int, kinds: Kinds) -> Problem:
        ends = ("The answer is {}.", "So the answer is {}.")
        end = self.rng.choice(ends).format(answer)
        asked_for = question.replace("@", self.name)
        return Problem(
            " ".join([*self.told, asked_for]), " ".join([*self.worked, end]), answer, kinds, tuple(self.numbers)
        )


# --- holdings: somebody has things, and events change how many ---


def buys(story: Story, have: int, thing: str) -> int:
    k = story.number(3, 60)
    story.say(
        f"@ buys another {k} {thing}.", f"@ buys {k} more {thing}.", f"Then @ gets {k} {thing} from {story.friend}."
    )
    return story.work(
        have, "+", k, thing, f"{k} more come", f"add the {k} new ones", f"@ gets {k}".replace("@", story.name)
    )


def gives(story: Story, have: int, thing: str) -> int:
    k = story.number(2, have - 1)
    story.say(
        f"@ gives {k} {thing} to {story.friend}.", f"@ gives {k} {thing} away.", f"{story.friend} takes {k} {thing}."
    )
    return story.work(have, "-", k, thing, f"{k} are given away", f"take away {k}", f"give away {k}")


def loses(story: Story, have: int, thing: str) -> int:
    k = story.number(2, min(have - 1, 40))
    story.say(f"@ loses {k} of the {thing}.", f"Then {k} {thing} are lost.", f"{k} {thing} go missing.")
    return story.work(have, "-", k, thing, f"{k} are gone", f"take away the {k} lost ones", f"{k} are lost")


def packs(story: Story, have: int, thing: str) -> int:
    n, k, holder = story.number(2, 9), story.number(3, 20), story.rng.choice(HOLDERS)
    story.say(
        f"@ buys {n} {holder} of {k} {thing} each.",
        f"@ gets {n} {holder} with {k} {thing} in each.",
        f"Then @ finds {n} {holder}, each with {k} {thing}.",
    )
    more = story.work(n, "*", k, thing, f"{n} {holder} hold {k} each", f"count the {holder}", "count the new ones")
    return story.work(have, "+", more, thing, f"add the {more}", f"{more} more come", "put them together")


def hands_out(story: Story, have: int, thing: str) -> int:
    n = story.number(2, 6)
    k = story.number(2, (have - 1) // n)
    story.say(f"@ gives {k} {thing} to each of {n} friends.", f"{n} friends take {k} {thing} each.")
    less = story.work(n, "*", k, thing, f"{n} friends get {k} each", "count what is given away")
    return story.work(have, "-", less, thing, f"take away {less}", f"{less} are gone", f"{less} are given away")


def multiplies(story: Story, have: int, thing: str) -> int:
    k = story.among([2, 3])
    word = {2: "doubles", 3: "triples"}[k]
    story.say(f"Then @ {word} the number of {thing}.", f"The next day the number of {thing} {word}.")
    return story.work(have, "*", k, thing, f"the number {word}", f"{k} times as many")


def shares(story: Story, have: int, thing: str) -> int:
    k = story.among([d for d in range(2, 10) if have % d == 0])
    story.say(
        f"@ shares the {thing} equally among {k} people and keeps one share.",
        f"@ splits the {thing} into {k} equal piles and keeps one.",
    )
    return story.work(have, "/", k, thing, f"{k} equal shares", f"split by {k}")


EVENTS = {event.__name__: event for event in (buys, gives, loses, packs, hands_out, multiplies, shares)}
OPERATIONS = {"packs": 2, "hands_out": 2}


def holdings(story: Story, kinds: Kinds) -> Problem:
    thing = story.rng.choice(OWNED)
    have = story.number(8, 90)
    story.say(f"@ has {have} {thing}.", f"@ starts with {have} {thing}.", f"There are {have} {thing} in @'s room.")
    for kind in kinds[1:]:
        have = EVENTS[kind](story, have, thing) if kind in EVENTS else (story.distract(), have)[1]
    question = story.rng.choice(
        (
            f"How many {thing} does @ have now?",
            f"How many {thing} are left with @?",
            f"How many {thing} does @ have in the end?",
        )
    )
    return story.problem(question, have, kinds)


def holdings_plan(rng: random.Random) -> Kinds:
    kinds: list[str] = []
    wanted = rng.randint(2, 5)
    while sum(OPERATIONS.get(kind, 1) for kind in kinds) < wanted:
        kind = rng.choice(list(EVENTS))
        if kind in ("multiplies", "shares") and kind in kinds:
            continue
        kinds.append(kind)
    return with_distractor(rng, ["holdings", *kinds])


def with_distractor(rng: random.Random, kinds: list[str]) -> Kinds:
    if rng.random() < 0.3:
        kinds.insert(rng.randint(1, len(kinds)), "distractor")
    return tuple(kinds)


# --- shopping: prices times amounts, a discount, the change ---


def shopping(story: Story, kinds: Kinds) -> Problem:
    total = 0
    things = story.rng.sample(SOLD, len(kinds))
    for kind in kinds[1:]:
        if kind == "distractor":
            story.distract()
        elif kind == "item":
            thing = things.pop()
            n, price = story.number(2, 9), story.number(2, 15)
            story.say(
                f"@ buys {n} {thing} at {price} dollars each.",
                f"@ pays {price} dollars each for {n} {thing}.",
                f"{n} {thing} cost {price} dollars each, and @ buys them.",
            )
            cost = story.work(n, "*", price, "dollars", f"{n} {thing} at {price} each", f"find the cost of the {thing}")
            total = story.work(total, "+", cost, "dollars", "add it up", f"add {cost}") if total else cost
        elif kind == "single":
            thing, price = things.pop().removesuffix("s"), story.number(3, 40)
            story.say(f"@ also buys a {thing} for {price} dollars.", f"@ adds a {thing} for {price} dollars.")
            total = story.work(total, "+", price, "dollars", f"add the {thing}", f"add {price}") if total else price
        elif kind == "coupon":
            k = story.number(2, min(20, total - 1))
            story.say(f"A coupon takes {k} dollars off.", f"The shop takes {k} dollars off the price.")
            total = story.work(total, "-", k, "dollars", f"{k} dollars off", "use the coupon")
        elif kind == "tip":
            k = story.number(2, 12)
            story.say(f"@ also pays {k} dollars for delivery.", f"Delivery costs {k} dollars.")
            total = story.work(total, "+", k, "dollars", "add the delivery", f"add {k}")
        elif kind == "change":
            bill = story.among([b for b in (20, 50, 100, 200, 500) if b > total])
            story.say(f"@ pays with {bill} dollars.", f"@ hands over {bill} dollars.")
            total = story.work(bill, "-", total, "dollars", "find the change", f"take it from {bill}")
    ask = "How many dollars does @ get back?" if kinds[-1] == "change" else "How many dollars does @ pay in all?"
    return story.problem(ask, total, kinds)


def shopping_plan(rng: random.Random) -> Kinds:
    kinds = ["shopping", "item", *rng.sample(["item", "single", "coupon", "tip", "single"], rng.randint(1, 3))]
    kinds = [*with_distractor(rng, kinds)]
    return (*kinds, "change") if rng.random() < 0.4 else tuple(kinds)


# --- production: a rate over time, waste, packing, selling ---


def production(story: Story, kinds: Kinds) -> Problem:
    thing, holder = story.rng.choice(MADE), story.rng.choice(HOLDERS)
    rate, time = story.number(4, 30), story.number(2, 9)
    unit = story.rng.choice(("hour", "day"))
    story.say(
        f"A machine makes {rate} {thing} {AN[unit]} {unit}.",
        f"Every {unit}, a machine makes {rate} {thing}.",
        f"A machine makes {rate} {thing} each {unit}.",
    )
    story.say(f"It runs for {time} {unit}s.", f"It works {time} {unit}s.")
    made, ask = story.work(rate, "*", time, thing, f"{time} {unit}s of {rate}", "count what is made"), thing
    for kind in kinds[1:]:
        if kind == "distractor":
            story.distract()
        elif kind == "second":
            k = story.number(5, 60)
            story.say(f"Another machine makes {k} {thing}.", f"A worker makes {k} more {thing} by hand.")
            made = story.work(made, "+", k, thing, f"add the other {k}", f"{k} more")
        elif kind == "broken":
            k = story.number(2, min(made - 1, 30))
            story.say(f"{k} of the {thing} are broken.", f"{k} {thing} must be thrown away.")
            made = story.work(made, "-", k, thing, f"{k} are broken", f"take away {k}")
        elif kind == "packed":
            k = story.among([d for d in range(2, 13) if made % d == 0])
            story.say(f"The {thing} are packed in {holder} of {k}.", f"The {thing} go into {holder}, {k} in each.")
            made, ask = story.work(made, "/", k, holder, f"{k} in each", f"fill {holder} of {k}"), holder
        elif kind == "sold":
            k = story.number(2, 9)
            story.say(f"Each of the {ask} is sold for {k} dollars.", f"The {ask} are sold at {k} dollars each.")
            made, ask = story.work(made, "*", k, "dollars", f"{k} dollars each", "count the money"), "dollars"
    question = {"dollars": "How many dollars is that in all?"}.get(ask, f"How many {ask} are there in the end?")
    return story.problem(question, made, kinds)


def production_plan(rng: random.Random) -> Kinds:
    kinds = [kind for kind in ("second", "broken", "packed", "sold") if rng.random() < 0.5]
    if not kinds:
        kinds = [rng.choice(("second", "broken", "packed", "sold"))]
    if kinds[:2] == ["second", "broken"] and rng.random() < 0.5:
        kinds[:2] = ["broken", "second"]
    return with_distractor(rng, ["production", *kinds])


# --- comparison: each person has more, fewer or times as many as the one before ---


def comparison(story: Story, kinds: Kinds) -> Problem:
    thing = story.rng.choice(OWNED)
    count = len([kind for kind in kinds[2:] if kind != "distractor"]) + 1
    people = story.rng.sample(NAMES["she"] + NAMES["he"], count)
    has = [story.number(4, 40)]
    story.told.append(f"{people[0]} has {has[0]} {thing}.")
    for kind in kinds[2:]:
        if kind == "distractor":
            story.distract()
            continue
        who, other, last = people[len(has)], people[len(has) - 1], has[-1]
        if kind == "more":
            k = story.number(2, 30)
            story.say(f"{who} has {k} more {thing} than {other}.", f"{who} has {k} {thing} more than {other} has.")
            value = story.work(last, "+", k, thing, f"{who} has {k} more", f"{k} more than {other}")
        elif kind == "fewer":
            k = story.number(2, last - 2)
            story.say(f"{who} has {k} fewer {thing} than {other}.", f"{who} has {k} {thing} fewer than {other}.")
            value = story.work(last, "-", k, thing, f"{who} has {k} fewer", f"{k} fewer than {other}")
        elif kind == "half":
            if last % 2:
                raise ValueError(f"{last} has no half")
            story.say(f"{who} has half as many {thing} as {other}.", f"{other} has twice as many {thing} as {who}.")
            value = story.work(last, "/", 2, thing, f"{who} has half of that", f"half of {last}")
        else:
            k = story.among([2, 3, 4])
            story.say(f"{who} has {k} times as many {thing} as {other}.", f"{who} has {k} times what {other} has.")
            value = story.work(last, "*", k, thing, f"{who} has {k} times that", f"{k} times {last}")
        has.append(value)
    if kinds[1] == "last":
        return story.problem(f"How many {thing} does {people[-1]} have?", has[-1], kinds)
    if kinds[1] == "ends":
        low, high = sorted((has[0], has[-1]))
        answer = story.work(high, "-", low, thing, "find the difference", "compare the two")
        return story.problem(f"What is the difference between what {people[0]} and {people[-1]} have?", answer, kinds)
    total = has[0]
    for value in has[1:]:
        total = story.work(total, "+", value, thing, "add them up", f"add {value}")
    return story.problem(f"How many {thing} do they have together?", total, kinds)


def comparison_plan(rng: random.Random) -> Kinds:
    asks = rng.choice(("last", "ends", "all"))
    relations = [
        rng.choice(("more", "fewer", "times", "half")) for _ in range(rng.randint(1 if asks == "all" else 2, 3))
    ]
    tail = with_distractor(rng, ["", *relations])[1:]
    return ("comparison", asks, *tail)


# --- pages, roads and wages: rates over spans, then what is left to a goal ---

SPANS = {
    "reading": ("pages", "day", "reads", "read", (5, 30)),
    "driving": ("miles", "hour", "drives", "drive", (10, 60)),
    "saving": ("dollars", "week", "saves", "save", (5, 40)),
    "walking": ("steps", "minute", "walks", "walk", (20, 60)),
}
GOALS = {
    "reading": ("The book has {} pages.", "@ wants to finish a book of {} pages."),
    "driving": ("The trip is {} miles long.", "It is a trip of {} miles."),
    "saving": ("A bike costs {} dollars.", "@ wants a bike for {} dollars."),
    "walking": ("The path is {} steps long.", "It is a path of {} steps."),
}


def spans(story: Story, kinds: Kinds) -> Problem:
    unit, time, verb, bare, (low, high) = SPANS[kinds[0]]
    total = 0
    for kind in kinds[1:]:
        if kind == "distractor":
            story.distract()
        elif kind == "span":
            rate, n = story.number(low, high), story.number(2, 9)
            story.say(
                f"@ {verb} {rate} {unit} {AN[time]} {time} for {n} {time}s.",
                f"For {n} {time}s, @ {verb} {rate} {unit} each {time}.",
            )
            part = story.work(rate, "*", n, unit, f"{n} {time}s of {rate} {unit}", f"{rate} {unit} in each {time}")
            total = story.work(total, "+", part, unit, "add it", f"add {part}") if total else part
        elif kind == "extra":
            k = story.number(3, 50)
            story.say(f"Then @ {verb} {k} {unit} more.", f"@ {verb} another {k} {unit}.")
            total = story.work(total, "+", k, unit, f"add {k}", f"{k} {unit} more") if total else k
        elif kind == "goal":
            k = total + story.number(3, 99)
            story.numbers.append(k)
            story.say(*(goal.format(k) for goal in GOALS[kinds[0]]))
            answer = story.work(k, "-", total, unit, "find what is left", f"take it from {k}")
            return story.problem(f"How many {unit} are left to {bare}?", answer, kinds)
    return story.problem(f"How many {unit} does @ {bare} in all?", total, kinds)


def spans_plan(rng: random.Random) -> Kinds:
    kinds = ["span", *(rng.choice(("span", "extra")) for _ in range(rng.randint(1, 2)))]
    tail = list(with_distractor(rng, ["", *kinds])[1:])
    return (rng.choice(list(SPANS)), *tail, *(["goal"] if rng.random() < 0.5 else []))


# --- rows: seats, shelves and fields, some of them empty or taken ---

ROWS = {
    "hall": ("halls", "rows", "seats"),
    "library": ("libraries", "shelves", "books"),
    "field": ("fields", "rows", "trees"),
    "garage": ("garages", "floors", "cars"),
}


def rows(story: Story, kinds: Kinds) -> Problem:
    places, outer, inner = ROWS[kinds[0]]
    n, k = story.number(3, 12), story.number(4, 25)
    story.say(
        f"A {kinds[0]} has {n} {outer} with {k} {inner} each.",
        f"There are {n} {outer} of {k} {inner} in the {kinds[0]}.",
    )
    total = story.work(n, "*", k, inner, f"{n} {outer} of {k}", f"count the {inner}")
    those = f"the {inner}"
    for kind in kinds[1:]:
        if kind == "distractor":
            story.distract()
        elif kind == "removed":
            r = story.number(2, min(60, total - 1))
            story.say(f"{r} of {those} are taken away.", f"{r} of {those} are gone.")
            total = story.work(total, "-", r, inner, f"{r} are gone", f"take away {r}")
        elif kind == "added":
            r = story.number(2, 60)
            story.say(f"{r} {inner} are added.", f"Then {r} more {inner} come.")
            total = story.work(total, "+", r, inner, f"{r} come", f"add {r}")
        elif kind == "copies":
            r, those = story.among([2, 3]), f"all the {inner}"
            story.say(f"The town has {r} such {places}.", f"In all, there are {r} {places} like this.")
            total = story.work(total, "*", r, inner, f"{r} such {places}", f"{r} times that")
        elif kind == "split":
            r = story.among([d for d in range(2, 10) if total % d == 0])
            story.say(f"{r} groups share {those} equally.", f"{those} are shared equally by {r} groups.")
            total = story.work(total, "/", r, inner, f"{r} equal parts", f"split by {r}")
            return story.problem(f"How many {inner} does each group get?", total, kinds)
    return story.problem(f"How many {inner} are there in the end?", total, kinds)


def rows_plan(rng: random.Random) -> Kinds:
    kinds = [rng.choice(("removed", "added", "copies")) for _ in range(rng.randint(1, 3))]
    if kinds.count("copies") > 1:
        kinds = ["copies", "removed"]
    kinds = [rng.choice(list(ROWS)), *kinds, *(["split"] if rng.random() < 0.3 else [])]
    return tuple(kinds) if kinds[-1] == "split" else with_distractor(rng, kinds)


PLANS: tuple[tuple[Callable[[random.Random], Kinds], int], ...] = (
    (holdings_plan, 4), (shopping_plan, 3), (production_plan, 2), (comparison_plan, 3), (spans_plan, 3), (rows_plan, 2),
)  # fmt: skip
TELLERS: dict[str, Callable[[Story, Kinds], Problem]] = {
    "holdings": holdings, "shopping": shopping, "production": production, "comparison": comparison,
    **dict.fromkeys(SPANS, spans), **dict.fromkeys(ROWS, rows),
}  # fmt: skip
LARGEST = 999  # of any number in a solution
LONGEST = 290  # characters of a solution: some 110 tokens


def problem(split: str, index: int) -> Problem:
    """Problem `index` of a split: a function of these two and the version."""
    rng = draws(NAME, VERSION, split, index)
    plans, weights = zip(*PLANS, strict=True)
    while True:
        kinds = until(lambda: rng.choices(plans, weights)[0](rng), lambda kinds: kinds, split)
        for _ in range(40):  # few skeletons may allow no numbers of this split
            story = Story(rng)
            try:
                told = TELLERS[kinds[0]](story, kinds)
            except (ValueError, IndexError):  # no number is left that this story could have
                continue
            if split_of(told.numbers) == split and proper(told):
                return told


def proper(told: Problem) -> bool:
    """Two to six operations, no huge numbers, short enough."""
    found = [int(number) for number in re.findall(r"\d+", told.solution)]
    return 2 <= told.solution.count("=") <= 6 and max(found) <= LARGEST and len(told.solution) <= LONGEST


ANSWER = re.compile(r"answer is\s*\$?\s*(-?\d[\d,]*(?:\.\d+)?)", re.IGNORECASE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def grade(response: str, gold: int) -> Grade:
    """The number after the last "answer is", else the last number of the response; the way there is not judged."""
    found = ANSWER.findall(response) or NUMBER.findall(response)
    if not found:
        return Grade("no_answer")
    value = found[-1].replace(",", "")
    return Grade("passed" if len(value) < 30 and float(value) == gold else "wrong", value)


TASK = Task(
    name=NAME,
    version=VERSION,
    citation="Redraft's own; the small mirror of GSM8K (Cobbe et al. 2021, arXiv 2110.14168)",
    items=asked(problem, NAME, VERSION),
    grade=grade,
    length=128,
)
