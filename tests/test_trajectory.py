"""What is recorded of a decoding, what can be asked of it, and what survives a file."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fakes import EOS, MASK, READING, Chaos, Script, fresh, pin, responses
from redraft.decoding import Event, Trajectory, walk
from redraft.samplers import D3IM

A, B, C, E = 0, 1, 2, EOS[0]
FIELDS = ("tokens", "confidence", "candidates", "stage", "tick", "window", "calls", "processed")


def told(*responses: list[list[int]]) -> Trajectory:
    """A trajectory of which only the responses matter."""
    steps = len(responses) - 1
    tokens = np.array(responses, dtype=np.int32)
    shape = tokens[1:].shape
    plain = {"stage": np.zeros(steps, np.int32), "tick": np.arange(1, steps + 1, dtype=np.int32)}
    return Trajectory(
        tokens=tokens,
        confidence=np.zeros(shape, np.float32),
        candidates=np.zeros(shape, np.int32),
        window=np.tile(np.array([0, shape[2]], np.int32), (steps, 1)),
        calls=np.ones(shape[:2], np.int32),
        processed=np.ones(shape[:2], np.int64),
        mask_id=MASK,
        eos_ids=EOS,
        **plain,
    )


def recorded(about=None) -> tuple[list, Trajectory]:
    canvas = pin(fresh(6, [[1, 2], [3], [4]]), {(1, 2): 7, **{(2, position): 8 for position in range(3)}})
    steps = list(walk(Chaos(), canvas, D3IM(), steps=6, block=3, reading=READING))
    return steps, Trajectory.of(steps, eos_ids=EOS, about=about)


WORKED = told([[MASK] * 4], [[A, MASK, MASK, MASK]], [[B, B, MASK, MASK]], [[MASK, B, A, A]], [[C, C, A, E]])


def test_events_of_the_worked_example():
    """Methods 2.7: A___, BB__, _BAA, CCAE."""
    assert list(WORKED.events()) == [
        Event(0, 0, 0, "reveal", MASK, A),
        Event(0, 1, 0, "overwrite", A, B),
        Event(0, 1, 1, "reveal", MASK, B),
        Event(0, 2, 0, "demotion", B, MASK),
        Event(0, 2, 2, "reveal", MASK, A),
        Event(0, 2, 3, "reveal", MASK, A),
        Event(0, 3, 0, "reveal", MASK, C),
        Event(0, 3, 1, "overwrite", B, C),
        Event(0, 3, 3, "overwrite", A, E),
    ]
    assert WORKED.counts() == {"reveal": 5, "overwrite": 3, "demotion": 1}
    assert WORKED.changes("reveal").tolist() == [[2, 1, 1, 1]]
    assert WORKED.changes("overwrite").tolist() == [[1, 1, 0, 1]]
    assert WORKED.changes("demotion").tolist() == [[1, 0, 0, 0]]


def test_events_of_one_row():
    two = told([[MASK, MASK], [MASK, MASK]], [[A, MASK], [MASK, B]], [[A, B], [C, B]])
    assert [event.row for event in two.events()] == [0, 1, 0, 1]
    assert list(two.events(1)) == [Event(1, 0, 1, "reveal", MASK, B), Event(1, 1, 0, "reveal", MASK, C)]
    assert two.counts(0)["reveal"] == 2


@pytest.mark.parametrize(
    ("history", "oscillates"),
    [
        ([A, B, A], True),
        ([A, B, C, B], True),
        ([A, B, C], False),  # changed twice, never came back
        ([A, B], False),
        ([A, MASK, A], False),  # masked and revealed again: no token was overwritten
        ([A, B, MASK, A], False),  # came back through the mask, after one overwrite
    ],
)
def test_oscillations(history, oscillates):
    trajectory = told([[MASK, MASK]], *([[token, C]] for token in history))
    assert trajectory.oscillations(0) == ([0] if oscillates else [])


def test_first_end_token():
    ends = told([[MASK] * 3] * 3, [[A, EOS[1], EOS[0]], [A, B, C], [EOS[0], A, A]])
    assert [ends.first_eos(row) for row in range(3)] == [1, 3, 0]
    assert replace(ends, eos_ids=()).first_eos(0) == 3


def test_what_a_walk_leaves_behind():
    steps, trajectory = recorded()
    assert (len(trajectory), trajectory.rows) == (6, 3)
    assert trajectory.tokens[0].tolist() == steps[0].canvas.response.tolist()
    assert trajectory.tokens[1:].tolist() == responses(steps)
    assert trajectory.stage.tolist() == [0, 0, 0, 1, 1, 1]
    assert trajectory.tick.tolist() == [1, 2, 3, 1, 2, 3]
    assert trajectory.window.tolist() == [[0, 3]] * 3 + [[3, 6]] * 3
    # the third row is given in full in the first block, so that it takes no step there
    assert trajectory.calls.tolist() == [[1, 1, 0]] * 3 + [[1, 1, 1]] * 3
    assert trajectory.processed.tolist() == [[8, 7, 0]] * 3 + [[8, 7, 7]] * 3


def test_candidates_and_confidences_are_those_of_the_window():
    steps, trajectory = recorded()
    for number, step in enumerate(steps):
        start, stop = trajectory.window[number]
        inside = trajectory.candidates[number, step.rows, start:stop]
        assert inside.tolist() == step.predictions[0].tokens.tolist()
        outside = np.delete(trajectory.confidence[number], range(start, stop), axis=1)
        assert np.isnan(outside).all()
    assert np.isnan(trajectory.confidence[0, 2]).all()
    assert (trajectory.candidates[0, 2] == MASK).all()


def test_an_empty_walk_is_nothing_to_record():
    with pytest.raises(ValueError, match="took no step"):
        Trajectory.of([])


def test_the_script_of_the_worked_example_gives_its_events():
    script = Script([[{A: 0.9}, {B: 0.6}], [{B: 0.7}, {B: 0.8}]], start=3)
    trajectory = Trajectory.of(walk(script, fresh(2), D3IM(), steps=2, reading=READING))
    assert trajectory.tokens[:, 0].tolist() == [[MASK, MASK], [A, MASK], [B, B]]
    assert trajectory.confidence[0, 0] == pytest.approx(np.log([0.9, 0.6]))


# --- files ---


def test_a_file_brings_back_everything(tmp_path):
    about = {"sampler": "d3im", "prompt": "naïve", "seeds": [1, 2], "nested": {"x": None}}
    _, trajectory = recorded(about)
    trajectory.save(tmp_path / "run.npz")
    again = Trajectory.load(tmp_path / "run.npz")
    for name in FIELDS:
        kept, loaded = getattr(trajectory, name), getattr(again, name)
        assert loaded.dtype == kept.dtype
        assert np.array_equal(loaded, kept, equal_nan=name == "confidence")
    assert (again.mask_id, again.eos_ids, again.about) == (MASK, EOS, about)
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_texts_of_every_token_go_along(tmp_path):
    trajectory = recorded({"model": "small"})[1]
    assert trajectory.texts is None
    spelled = trajectory.with_texts(lambda ids: [f" {token}\u2028" for token in ids])
    assert spelled.texts == {int(token): f" {token}\u2028" for token in np.unique(trajectory.tokens)}
    assert MASK in spelled.texts
    assert trajectory.texts is None, "the other one is as it was"
    spelled.save(tmp_path / "run.npz")
    again = Trajectory.load(tmp_path / "run.npz")
    assert again.texts == spelled.texts
    assert again.about["model"] == "small"


def test_a_file_holds_no_pickle(tmp_path):
    recorded()[1].save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_a_failed_save_leaves_what_was_there(tmp_path):
    _, trajectory = recorded()
    trajectory.save(tmp_path / "run.npz")
    before = (tmp_path / "run.npz").read_bytes()
    with pytest.raises(TypeError):
        replace(trajectory, about={"model": object()}).save(tmp_path / "run.npz")
    assert (tmp_path / "run.npz").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def rewrite(path, header=None, **arrays):
    with np.load(path) as file:
        contents = {name: file[name] for name in file.files} | arrays
    if header is not None:
        contents["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **contents)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("tokens"),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-200]),
    "a flipped byte": lambda path: path.write_bytes(flipped(path.read_bytes(), 300)),
    "one array": lambda path: path.write_bytes(one_array(path)),
    "another archive": lambda path: np.savez(path, x=np.zeros(3)),
    "pickled objects": lambda path: rewrite(path, tokens=np.array([{"a": 1}], dtype=object)),
    "another header": lambda path: rewrite(path, header=[1, 2]),
    "a header without a format": lambda path: rewrite(path, header={}),
}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


def one_array(path) -> bytes:
    np.save(path.with_suffix(".npy"), np.zeros(3))
    return path.with_suffix(".npy").read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "run.npz"
    recorded()[1].save(path)
    DAMAGES[damage](path)
    with pytest.raises(ValueError, match=r"run.npz is not a trajectory, or is damaged"):
        Trajectory.load(path)


def test_a_file_of_another_format_says_which(tmp_path):
    path = tmp_path / "run.npz"
    recorded()[1].save(path)
    rewrite(path, header={"format": 9})
    with pytest.raises(ValueError, match="format 9; this version reads format 1"):
        Trajectory.load(path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        Trajectory.load(tmp_path / "none.npz")
