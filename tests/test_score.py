"""Evaluations into folders: the same bytes after any interruption and with any number of processes, or a refusal."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass, replace

import pytest
import torch

from evaluating import TOY
from redraft.decoding import Reading
from redraft.evals.processes import Processes, processes
from redraft.evals.protocol import differing, protocol, subject
from redraft.evals.records import read_run
from redraft.evals.run import Evaluation, evaluate
from redraft.evals.score import score
from redraft.evals.subsets import items_of
from redraft.evals.summary import summarize
from redraft.evals.watcher import Watcher
from redraft.generation import Plan
from redraft.models.standin import random_llada

PLAN = Plan.of("d3im", length=16, steps=4, reading=Reading(temperature=0.9))


@pytest.fixture(scope="module")
def evaluation():
    return Evaluation(random_llada(dtype=torch.float64), TOY, TOY.items(count=11), PLAN, seed=3, batch_size=2)


@pytest.fixture(scope="module")
def card(evaluation):
    return card_of(evaluation)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def records_of(evaluation):
    return evaluate(evaluation.model, TOY, evaluation.items, PLAN, seed=3)


def card_of(evaluation):
    return {
        "subject": subject(evaluation, model="random", adapter=None, revision=None),
        "protocol": protocol(evaluation, split="test", subset="first-11", shots=0, sandbox=None),
    }


@pytest.fixture(scope="module")
def whole(evaluation, card, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    score(evaluation, card, folder)
    return folder


class Killed(Exception):
    pass


@dataclass
class Kill(Watcher):
    """Stops a run after so many batches."""

    after: int
    batches: int = 0
    known: int | None = None

    def begin(self, forecast, done):
        self.known = done

    def batch(self, graded):
        self.batches += 1
        if self.batches > self.after:
            raise Killed


@dataclass(frozen=True)
class Together(Processes):
    """A process that is a thread."""

    board: object = None

    def gather(self, mine):
        barrier, slots = self.board
        slots[self.rank] = deepcopy(mine)
        barrier.wait()
        found = list(slots)
        barrier.wait()
        return found


def together(world, work):
    """What `work(group)` returns in each of several threads that are processes to one another."""
    board = threading.Barrier(world, timeout=60), [None] * world
    with ThreadPoolExecutor(world) as pool:
        running = [pool.submit(work, Together(rank, world, rank, board)) for rank in range(world)]
        return [one.result() for one in running]


def test_a_finished_folder_holds_all_there_is_to_know(whole, evaluation, card):
    assert names_in(whole) == ["batches.jsonl", "card.json", "items.jsonl", "summary.json"]
    lines = [json.loads(line) for line in (whole / "items.jsonl").read_text().split("\n")[:-1]]
    assert lines == [asdict(record) for record in records_of(evaluation)]
    assert json.loads((whole / "card.json").read_text()) == card
    batches = [json.loads(line) for line in (whole / "batches.jsonl").read_text().splitlines()]
    assert sum(batch["items"] for batch in batches) == 11
    assert read_run(whole) == (card, records_of(evaluation))


@pytest.mark.parametrize("after", [0, 2, 4])
def test_an_interrupted_run_goes_on(whole, evaluation, card, tmp_path, after):
    with pytest.raises(Killed):
        score(evaluation, card, tmp_path, watcher=Kill(after))
    assert not (tmp_path / "items.jsonl").exists()
    with pytest.raises(ValueError, match="is not finished: repeat its command"):
        read_run(tmp_path)
    again = Kill(99)
    score(evaluation, card, tmp_path, watcher=again)
    assert again.known == 2 * (after + 1)
    assert again.batches == 6 - (after + 1)
    assert (tmp_path / "items.jsonl").read_bytes() == (whole / "items.jsonl").read_bytes()


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_write_the_same_file(whole, evaluation, card, tmp_path, world):
    summaries = together(world, lambda group: score(evaluation, card, tmp_path, group))
    assert (tmp_path / "items.jsonl").read_bytes() == (whole / "items.jsonl").read_bytes()
    assert names_in(tmp_path) == names_in(whole)
    assert summaries == [summaries[0]] * world
    batches = [json.loads(line) for line in (tmp_path / "batches.jsonl").read_text().splitlines()]
    assert {batch["process"] for batch in batches} == set(range(world))


@pytest.mark.parametrize(("before", "after"), [(3, 1), (3, 2), (1, 2)])
def test_a_run_goes_on_with_more_or_fewer_processes(whole, evaluation, card, tmp_path, before, after):
    def interrupted(group):
        with pytest.raises(Killed):
            score(evaluation, card, tmp_path, group, watcher=Kill(0))

    together(before, interrupted)
    watchers = [Kill(99) for _ in range(after)]
    together(after, lambda group: score(evaluation, card, tmp_path, group, watcher=watchers[group.rank]))
    assert [one.known for one in watchers] == [2 * before] * after
    assert sum(one.batches for one in watchers) == 6 - before
    assert (tmp_path / "items.jsonl").read_bytes() == (whole / "items.jsonl").read_bytes()
    assert names_in(tmp_path) == names_in(whole)


def test_processes_on_machines_of_their_own_disks(whole, evaluation, card, tmp_path):
    together(2, lambda group: score(evaluation, card, tmp_path / str(group.rank), group))
    assert (tmp_path / "0" / "items.jsonl").read_bytes() == (whole / "items.jsonl").read_bytes()
    assert list((tmp_path / "1").iterdir()) == []


def test_overwrite_leaves_nothing_of_the_run_before(whole, evaluation, card, tmp_path):
    def interrupted(group):
        with pytest.raises(Killed):
            score(evaluation, card, tmp_path, group, watcher=Kill(0))

    together(3, interrupted)
    fresh = Kill(99)
    score(evaluation, card, tmp_path, overwrite=True, watcher=fresh)
    assert (fresh.known, fresh.batches) == (0, 6)
    assert names_in(tmp_path) == names_in(whole)


def test_another_run_is_never_mixed_in(evaluation, card, tmp_path):
    with pytest.raises(Killed):
        score(evaluation, card, tmp_path, watcher=Kill(1))
    other = replace(evaluation, plan=Plan.of("unmask", length=16, steps=4))
    with pytest.raises(ValueError, match=r"with other settings \(sampler, temperature\)"):
        score(other, card_of(other), tmp_path)
    score(evaluation, card, tmp_path)
    with pytest.raises(ValueError, match="holds a finished run: give another --out"):
        score(evaluation, card, tmp_path)


def test_where_one_process_is_refused_all_stop(evaluation, card, tmp_path):
    (tmp_path / "1").write_text("a file")

    def attempt(group):
        with pytest.raises((ValueError, SystemExit)) as stopped:
            score(evaluation, card, tmp_path / str(group.rank), group)
        return stopped.value

    first, second = together(2, attempt)
    assert "is a file" in str(first)
    assert isinstance(second, SystemExit)
    assert second.code == 2
    assert list((tmp_path / "0").iterdir()) == []


def test_prompts_that_do_not_fit_are_refused_before_there_is_a_folder(evaluation, card, tmp_path):
    long = replace(evaluation, items=[replace(evaluation.items[0], prompt="x" * 10_000)])
    with pytest.raises(ValueError, match="shorten the prompt or the length"):
        score(long, card, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_without_a_launcher_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with processes() as group:
        assert (group.rank, group.world, group.first, group.gather("x")) == (0, 1, True, ["x"])
        assert group.device(None) is None


def test_a_damaged_folder_is_said_to_be_damaged(whole, tmp_path):
    with pytest.raises(ValueError, match="is not the folder of a run"):
        read_run(tmp_path)
    (tmp_path / "items.jsonl").write_bytes((whole / "items.jsonl").read_bytes())
    (tmp_path / "card.json").write_text('{"subject": {}}')
    with pytest.raises(ValueError, match="is damaged: 'protocol'"):
        read_run(tmp_path)


# --- the card ---


def test_the_card_tells_apart_what_must_be_told_apart(evaluation, card):
    def changed(**fields):
        return card_of(replace(evaluation, **fields))

    for half, name, other in [
        ("subject", "sampler", changed(plan=replace(PLAN, sampler=Plan.of("unmask", length=16, steps=4).sampler))),
        ("subject", "steps", changed(plan=replace(PLAN, steps=8))),
        ("subject", "fingerprint", changed(model=random_llada(1, dtype=torch.float64))),
        ("protocol", "dtype", changed(model=random_llada(dtype=torch.float32))),
        ("protocol", "block", changed(plan=replace(PLAN, block=8))),
        ("protocol", "temperature", changed(plan=replace(PLAN, reading=Reading(temperature=0.5)))),
        ("protocol", "eos", changed(plan=replace(PLAN, reading=Reading(temperature=0.9, eos="none")))),
        ("protocol", "golds", changed(items=[replace(item, gold=7) for item in evaluation.items])),
        ("protocol", "prompts", changed(items=[replace(item, prompt="?") for item in evaluation.items])),
        ("protocol", "template", changed(chat=False)),
        ("protocol", "filter", changed(filter="odd")),
        ("protocol", "seed", changed(seed=4)),
        ("protocol", "batch_size", changed(batch_size=3)),
        ("protocol", "until", changed(task=replace(TOY, until=("x",)))),
        ("protocol", "version", changed(task=replace(TOY, version=2))),
    ]:
        found = {"subject": {}, "protocol": {}} | {half: differing(card[half], other[half]) for half in card}
        assert list(found[half]) == [name]
        if name not in ("fingerprint", "dtype"):
            assert not any(found[half] for half in found if name not in found[half])


def test_differences_are_named_to_the_last_level():
    assert differing({"a": 1, "p": {"x": 1, "y": 2}}, {"a": 1, "p": {"x": 3, "y": 2}, "b": 0}) == {
        "p.x": (1, 3),
        "b": (None, 0),
    }


# --- the summary ---


def test_the_summary_counts_right(evaluation):
    records = records_of(evaluation)[:4]
    ends = [3, 8, 16, 7]
    records = [replace(one, correct=i < 3, verdict=("passed", "wrong")[i > 2], first_eos=ends[i], calls=i + 1,
                       filters={"even": i < 3, "odd": i == 3}) for i, one in enumerate(records)]  # fmt: skip
    batches = [{"seconds": 0.5, "new_tokens": 11}, {"seconds": 1.5, "new_tokens": 16}]
    found = summarize(records, batches, length=16)
    assert (found["items"], found["correct"], found["accuracy"]) == (4, 3, 0.75)
    assert found["interval"] == pytest.approx([0.3006, 0.9544], abs=1e-4)
    assert found["filters"]["odd"]["accuracy"] == 0.25
    assert found["verdicts"] == {"passed": 3, "wrong": 1}
    assert found["examples"]["wrong"] == records[3].id
    assert found["calls_per_item"] == 2.5
    assert found["new_tokens"] == 34
    assert found["tokens_per_second"] == 13.5
    assert found["ends"] == {"mean_first": 8.5, "early": 0.5, "truncated": 0.25}
    assert summarize(records, [], length=16)["tokens_per_second"] is None


# --- subsets ---


def test_subsets_are_what_their_names_say():
    items = items_of(TOY)
    assert items_of(TOY, "first-3") == items[:3]
    five, three = items_of(TOY, "drawn-5"), items_of(TOY, "drawn-3")
    assert len(five) == 5
    assert set(map(id_of, three)) < set(map(id_of, five))
    assert [id_of(item) for item in items if item in five] == [id_of(item) for item in five]
    assert items_of(TOY, "drawn-5-seed-0") == five
    assert {tuple(map(id_of, items_of(TOY, f"drawn-5-seed-{seed}"))) for seed in range(9)} != {tuple(map(id_of, five))}
    for wrong in ("drawn", "first-0", "last-3", "drawn-3-seed"):
        with pytest.raises(ValueError, match="write first-200, drawn-200 or drawn-200-seed-7"):
            items_of(TOY, wrong)
    with pytest.raises(ValueError, match="the test split of 'toy' has only 8 items"):
        items_of(TOY, "drawn-9")


def id_of(item):
    return item.id
