"""A decoding as a page: every state of it is in there, two runs are of the same prompts, and the command's refusals."""

import json
from dataclasses import replace
from itertools import takewhile

import numpy as np
import pytest

from fakes import EOS, MASK, Chaos, fresh
from redraft.decoding import Reading, Trajectory, walk
from redraft.replay import page, save
from redraft.samplers import parse
from running import ask, run
from test_page import HOSTILE, data_of

PROMPTS = ["one </script>", "two & more", [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]
TEXTS = {EOS[0]: "<end>", MASK: "<mask>", 0: HOSTILE[0], 1: HOSTILE[4], 2: "\u202e"}


def pieces(ids):
    return [TEXTS.get(token, f" t{token}") for token in ids]


def recorded(sampler="d3im", *, rank="probability", model="small", length=8, **about) -> Trajectory:
    reading = Reading(eos_ids=EOS, rank=rank)
    steps = walk(Chaos(), fresh(length, [[1], [2, 3], [4]]), parse(sampler), steps=8, block=4, reading=reading)
    told = {"model": model, "sampler": sampler, "rank": rank, "prompts": PROMPTS, **about}
    return Trajectory.of(steps, eos_ids=EOS, about=told).with_texts(pieces)


RUN = recorded()


def shown(*runs, **options):
    return data_of(page(runs, **options))["runs"]


def states(run, row):
    """What the script makes of a row: the first state, and each after its changes."""
    found = [run["rows"][row]["start"]]
    for changed in run["rows"][row]["changes"]:
        state = found[-1].copy()
        for position, token in zip(changed[::2], changed[1::2], strict=True):
            assert state[position] != token
            state[position] = token
        found.append(state)
    return found


def test_every_state_of_every_row_is_in_the_page():
    (run,) = shown(RUN)
    for row in range(3):
        assert states(run, row) == RUN.tokens[:, row].tolist()
    assert (run["steps"], run["length"], run["mask"], run["ends"]) == (8, 8, MASK, list(EOS))
    assert run["windows"] == [[0, 4]] * 4 + [[4, 8]] * 4
    assert [row["prompt"] for row in run["rows"]] == [*PROMPTS[:2], "user: a\nassistant: b"]


def test_confidences_are_percentages_where_there_are_any():
    (run,) = shown(RUN)
    for row in range(3):
        given = np.array(run["rows"][row]["confidence"])
        known = ~np.isnan(RUN.confidence[:, row])
        assert given[known] == pytest.approx(100 * np.exp(RUN.confidence[:, row][known]), abs=0.51)
        assert (given[~known] == -1).all()
        assert known.any()
        assert not known.all()


def test_the_measures_of_another_ranking_are_no_percentages():
    (run,) = shown(recorded(rank="margin"))
    assert {value for step in run["rows"][0]["confidence"] for value in step} == {-1}


def test_tokens_are_spelled_and_nothing_spelled_is_drawn_over_its_neighbours():
    (run,) = shown(RUN)
    assert set(run["texts"]) == {str(token) for token in np.unique(RUN.tokens)}
    assert run["texts"][str(MASK)] == "<mask>"
    assert {run["texts"][name] for name in "012" if name in run["texts"]} <= {
        HOSTILE[0],
        "\ufffd\ufffd\ufffd\ufffd[31m",
        "\ufffd",
    }


def test_runs_of_two_models_keep_their_own_spellings():
    other = recorded(model="other").with_texts(lambda ids: [f"other {token}" for token in ids])
    one, two = shown(RUN, other)
    assert one["texts"] != two["texts"]
    assert [one["title"], two["title"]] == ["small", "other"]


@pytest.mark.parametrize(
    ("runs", "titles"),
    [
        ([RUN], ["small"]),
        ([RUN, recorded("unmask")], ["d3im", "unmask"]),
        ([RUN, recorded("unmask", model="base")], ["small", "base"]),
        ([RUN, RUN], ["run 1", "run 2"]),
        ([replace(RUN, about={"texts": RUN.about["texts"]})], ["run 1"]),
    ],
)
def test_titles_are_what_tells_runs_apart(runs, titles):
    assert [run["title"] for run in shown(*runs)] == titles


def test_given_titles_and_verdicts_stand_there():
    (run,) = shown(recorded(verdicts=["right", "wrong", ""]), titles=["<i>mine</i>"])
    assert run["title"] == "<i>mine</i>"
    assert run["about"] == "small, d3im, 8 steps"
    assert [row["verdict"] for row in run["rows"]] == ["right", "wrong", ""]
    assert "<i>mine</i>" not in page([RUN], titles=["<i>mine</i>"])


def test_without_scripts_the_answers_are_there_in_plain_text():
    written = page([RUN])
    plain = written[written.index("<noscript>") : written.index("</noscript>")]
    for row in RUN.tokens[-1]:
        for token in set(row.tolist()) - {0, 1, 2, *EOS}:
            assert f" t{token}" in plain
    assert "</script>" not in plain
    assert "\u202e" not in plain


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match="one run or two, not 3"):
        page([RUN] * 3)
    with pytest.raises(ValueError, match="different prompts"):
        page([RUN, recorded(prompts=["a", "b", "c"])])
    with pytest.raises(ValueError, match="how its tokens are spelled"):
        page([replace(RUN, about={})])


def test_a_page_is_written_in_one_move(tmp_path, monkeypatch):
    path = save(tmp_path / "x.html", [RUN])
    assert path.read_text(encoding="utf-8") == page([RUN])
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        save(path, [recorded("unmask")])
    assert path.read_text(encoding="utf-8") == page([RUN])
    assert len(list(tmp_path.iterdir())) == 1


# --- the command ---


def test_the_command_makes_a_page_of_what_generate_recorded(tmp_path):
    npz = tmp_path / "run.npz"
    said = ask("4 + 4 = ?", "8 + 1 + 6 = ?", "--length", "12", "--steps", "6", "--trajectory", npz, "--json")
    assert "`redraft replay` makes a page of it" in said.err
    done = run("replay", npz)
    assert done.code == 0, done.err
    assert f"{tmp_path / 'run.html'}: open it in a browser" in done.err
    (shown,) = data_of((tmp_path / "run.html").read_text())["runs"]
    for row, line in enumerate(said.out.splitlines()):
        answer = json.loads(line)
        assert states(shown, row)[-1] == answer["ids"]
        written = takewhile(lambda token: token not in shown["ends"], answer["ids"])
        assert "".join(shown["texts"][str(token)] for token in written).strip() == answer["text"].strip()
    assert [row["prompt"] for row in shown["rows"]] == ["4 + 4 = ?", "8 + 1 + 6 = ?"]


def test_recordings_without_texts_are_spelled_by_the_models_tokenizer(tmp_path):
    ask("4 + 4 = ?", "--length", "12", "--steps", "6", "--trajectory", tmp_path / "new.npz")
    new = Trajectory.load(tmp_path / "new.npz")
    texts = new.about.pop("texts")
    new.save(tmp_path / "old.npz")
    done = run("replay", tmp_path / "old.npz")
    assert done.code == 2
    assert "old.npz does not say how its tokens are spelled: name its model with --model" in done.err
    assert run("replay", tmp_path / "old.npz", "--model", "bundled").code == 0
    assert data_of((tmp_path / "old.html").read_text())["runs"][0]["texts"] == texts


@pytest.fixture
def files(tmp_path):
    RUN.save(tmp_path / "a.npz")
    recorded("unmask").save(tmp_path / "b.npz")
    recorded(prompts=["x", "y", "z"]).save(tmp_path / "c.npz")
    (tmp_path / "d.npz").write_text("no trajectory")
    (tmp_path / "there.html").write_text("old")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["none.npz"], "there is no file none.npz"),
        (["d.npz"], "d.npz is not a trajectory, or is damaged"),
        (["a.npz", "c.npz"], "different prompts"),
        (["a.npz", "b.npz", "--title", "one"], "give --title once for each run: 2, not 1"),
        (["a.npz", "--out", "there.html"], "there.html exists: give another --out, or --overwrite to replace it"),
        (["a.npz", "--out", "no/such.html"], "the folder no does not exist"),
        ([], "Missing argument"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(files, monkeypatch, given, said):
    monkeypatch.chdir(files)
    done = run("replay", *given)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (files / "a.html").exists()
    assert (files / "there.html").read_text() == "old"


def test_two_runs_stand_side_by_side(files, monkeypatch):
    monkeypatch.chdir(files)
    done = run("replay", "a.npz", "b.npz", "--title", "mine", "--title", "theirs", "--out", "there.html", "--overwrite")
    assert done.code == 0, done.err
    runs = data_of((files / "there.html").read_text())["runs"]
    assert [one["title"] for one in runs] == ["mine", "theirs"]
    assert json.dumps(runs[0]["rows"]) != json.dumps(runs[1]["rows"])
