"""`redraft generate`: prompts from anywhere, every option, and runs that are interrupted and go on."""

import json
import os
import pty
import random
import re
import signal
import subprocess
import threading
import time
from dataclasses import asdict

import numpy as np
import pytest

from redraft.commands import console
from redraft.decoding import Trajectory
from redraft.generation import generate
from redraft.models import load
from running import COMMAND, QUESTION, QUESTIONS, SHORT, ask, environment, run, start
from tiny import often_ending


def records(text):
    """JSON lines: cut at line feeds, and at none of the other characters that `splitlines` takes for one."""
    return [json.loads(line) for line in text.split("\n") if line]


def answers(*arguments, **options):
    return [record["text"] for record in records(ask(*arguments, "--json", **options).out)]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A random model, with LLaDA's chat template."""
    return often_ending().save_pretrained(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def bundled():
    return load("bundled")


# --- where prompts come from, and where answers go ---


def test_a_prompt_is_answered_on_stdout_and_nothing_else_is(bundled):
    done = ask(QUESTION, "--sampler", "unmask", *SHORT)
    (answer,) = generate(bundled, QUESTION, "unmask", length=24, steps=12)
    assert done.out == f"{answer.text}\n"
    assert done.err == ""


@pytest.fixture(scope="module")
def expected():
    return answers(*QUESTIONS[:2], *SHORT)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", f"{QUESTIONS[0]}\n\n{QUESTIONS[1]}\n"),
        ("x.txt", f"\ufeff{QUESTIONS[0]}\r\n{QUESTIONS[1]}"),  # as an editor on Windows saves it
        ("x.jsonl", "\n".join(json.dumps({"prompt": one, "id": 7}) for one in QUESTIONS[:2])),
        ("x.jsonl", "\n".join(json.dumps(one) for one in QUESTIONS[:2])),
    ],
)
def test_a_file_of_prompts(tmp_path, expected, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert answers("--prompts", tmp_path / name, *SHORT) == expected


@pytest.mark.parametrize("dash", [(), ("-",)])
def test_prompts_on_stdin(expected, dash):
    assert answers(*dash, *SHORT, stdin="\n".join(QUESTIONS[:2])) == expected


def test_lines_are_cut_at_line_feeds_alone(tmp_path, small):
    """A JSON string may hold characters at which Python's splitlines cuts."""
    path, prompt = tmp_path / "x.jsonl", "7 + 5\u2028+ 9 = ?"
    path.write_text(json.dumps({"prompt": prompt}, ensure_ascii=False), encoding="utf-8")
    (record,) = records(ask("--prompts", path, "--json", "--model", small, *SHORT).out)
    assert record["prompt"] == prompt


def test_messages_are_put_into_the_chat_template(tmp_path, small):
    path = tmp_path / "x.jsonl"
    turns = [{"role": "user", "content": "Hello"}]
    path.write_text(json.dumps({"messages": turns}) + "\n")
    model = ("--model", small, "--length", "8")
    (record,) = records(ask("--prompts", path, "--json", *model).out)
    assert record["prompt"] == turns
    (as_user,) = records(ask("Hello", "--json", *model).out)
    (as_text,) = records(ask("Hello", "--json", "--no-chat", *model).out)
    assert record["ids"] == as_user["ids"]
    assert as_user["processed"] > as_text["processed"] == 2 * (len("Hello") + 8)


def test_json_lines_hold_everything_about_an_answer(bundled):
    (record,) = records(ask(QUESTION, "--json", "--sampler", "unmask", *SHORT).out)
    (answer,) = generate(bundled, QUESTION, "unmask", length=24, steps=12)
    assert record == asdict(answer)
    assert set(record) == {"index", "prompt", "text", "ids", "first_eos", "calls", "processed"}
    assert (record["index"], record["prompt"], len(record["ids"])) == (0, QUESTION, 24)
    assert (record["calls"], record["processed"]) == (12, 12 * (len(bundled.encode(QUESTION)) + 24))


def test_json_stays_pure_whatever_else_is_said(tmp_path):
    extras = ("--watch", "--out", tmp_path / "x.jsonl", "--trajectory", tmp_path / "x.npz", "--steps", "48")
    done = ask(*QUESTIONS[:3], "--json", "--length", "24", *extras)
    assert [record["index"] for record in records(done.out)] == [0, 1, 2]
    assert "note: 48 steps for 24 tokens" in done.err
    assert "answers saved" in done.err
    assert records((tmp_path / "x.jsonl").read_text()) == records(done.out)


def test_text_is_printed_as_it_is(monkeypatch):
    """rich would make an emoji of :smile:, markup of brackets, and spaces of tabs."""
    said = "a\t[b] :smile: \x0b" + "long " * 40
    monkeypatch.setattr("redraft.models.Model.decode", lambda self, ids: said)
    done = ask(QUESTION, *SHORT)
    assert done.out == said + "\n"
    assert records(ask(QUESTION, *SHORT, "--json").out)[0]["text"] == said


# --- options ---


@pytest.mark.parametrize(
    ("given", "same_as"),
    [
        (["--gen-length", 24, "--diffusion-steps", 12], SHORT),
        (["--max-new-tokens", 24, "--steps", 12], SHORT),
        (["-l", 24], ["--length", 24, "--steps", 6]),  # four tokens a step
        (["-l", 24, "--block-length", 8], ["--length", 24, "--steps", 6, "--block", 8]),
        (["-l", 24, "--block", 8, "--steps-per-block", 4], ["--length", 24, "--block", 8, "--steps", 12]),
        ([*SHORT, "--block-size", 24], SHORT),
        ([*SHORT, "--remasking", "low_confidence"], [*SHORT, "--sampler", "unmask"]),
        ([*SHORT, "-s", "d3im(t2t=false)"], [*SHORT, "--sampler", "d3im(t2t=False)"]),
        ([*SHORT, "--cfg-scale", 1.5], [*SHORT, "--guidance", 1.5]),
        ([*SHORT, "--eos", "confidence", "--overflow", "strict", "--rank", "probability"], SHORT),
        ([*SHORT, "--temperature", 0, "--seed", 5], SHORT),
    ],
)
def test_options_that_mean_the_same(given, same_as):
    assert answers(*QUESTIONS[:2], *given) == answers(*QUESTIONS[:2], *same_as)


@pytest.fixture(scope="module")
def varied(small):
    return (*[f"{a} + {b} + 9 = ?" for a in (1, 4, 6, 8) for b in (2, 7)], "--json", "--model", small, *SHORT)


@pytest.fixture(scope="module")
def by_default(varied):
    return [record["ids"] for record in records(ask(*varied).out)]


@pytest.mark.parametrize(
    "option",
    [
        ("--sampler", "unmask"),
        ("--sampler", "d3im(t2t=False)"),
        ("--length", "12"),
        ("--steps", "4"),
        ("--block", "6"),
        ("--eos", "none"),
        ("--eos", "logit_all"),
        ("--eos", "logit_nonfinal"),
        ("--eos", "llada_logits"),
        ("--eos", "llada_confidence"),
        ("--overflow", "fill"),
        ("--temperature", "1"),
        ("--rank", "margin"),
        ("--rank", "entropy"),
        ("--rank", "random"),
        ("--guidance", "2"),
        ("--precision", "bfloat16"),
        ("--dtype", "bfloat16"),
    ],
)
def test_options_reach_the_decoding(varied, by_default, option):
    """Each of them changes some tokens of some answers."""
    assert [record["ids"] for record in records(ask(*varied, *option).out)] != by_default


def test_llada_flags_do_what_they_say(small, varied, by_default):
    end, _ = load(small).eos_ids
    assert any(end in ids for ids in by_default)
    assert not any(end in record["ids"] for record in records(ask(*varied, "--eos", "llada_logits").out))


def test_seeds_matter_where_there_is_noise(small):
    common = (*QUESTIONS, "--model", small, *SHORT, "--temperature", 1)
    assert answers(*common, "--seed", 1) == answers(*common, "--seed", 1) != answers(*common, "--seed", 2)


def test_answers_do_not_depend_on_the_batch_size(small):
    common = (*QUESTIONS, "--model", small, *SHORT, "--temperature", 0.5, "--dtype", "float64")
    assert answers(*common, "--batch-size", 1) == answers(*common, "--batch-size", 3) == answers(*common)


def test_help_names_the_options():
    for command, words in {
        "generate": ("--sampler", "--gen-length", "--steps-per-block", "--eos", "--trajectory", "--watch", "--json"),
        "samplers": ("--json",),
        "doctor": ("--model", "--json"),
        "demo": ("--problems", "--replay"),
    }.items():
        done = run(command, "--help")
        assert done.code == 0
        for word in words:
            assert word in done.out, f"{command} --help does not mention {word}"


def test_version_and_no_command():
    from redraft import __version__

    assert run("--version") == (0, f"redraft {__version__}\n", "")
    bare = run()
    assert (bare.code, bare.out) == (2, "")
    assert "generate" in bare.err


def test_samplers_table_and_json():
    done = run("samplers")
    assert done.code == 0
    for word in ("d3im", "unmask", "overwrite (t2t)", "2606.01026", "t2m=True"):
        assert word in done.out
    listed = {one["name"]: one for one in json.loads(run("samplers", "--json").out)}
    assert {"d3im", "unmask"} <= listed.keys()
    for one in listed.values():
        assert {"summary", "options", "channels", "reach", "calls", "eos", "citation", "provenance"} <= one.keys()
        assert one["citation"]
        assert one["provenance"]
    assert listed["d3im"]["channels"] == ["m2t", "t2t", "t2m"]
    assert listed["d3im"]["options"]["t2t"] == {"default": True, "type": "True or False"}
    assert listed["unmask"]["channels"] == ["m2t"]


# --- trajectories and drawings ---


def test_trajectories_agree_with_the_answers(tmp_path):
    path = tmp_path / "x.npz"
    found = records(ask(*QUESTIONS, "--json", *SHORT, "--trajectory", path).out)
    trajectory = Trajectory.load(path)
    assert np.array_equal(trajectory.tokens[-1], [record["ids"] for record in found])
    assert [trajectory.first_eos(row) for row in range(5)] == [record["first_eos"] for record in found]
    assert trajectory.calls.sum(0).tolist() == [record["calls"] for record in found]
    assert trajectory.processed.sum(0).tolist() == [record["processed"] for record in found]
    texts = trajectory.about.pop("texts")
    assert trajectory.about == {
        "model": "bundled", "sampler": "d3im", "rank": "probability", "prompts": list(QUESTIONS)
    }  # fmt: skip
    assert set(texts) == {str(token) for token in np.unique(trajectory.tokens)}
    assert len(trajectory) == 12
    assert run("generate", *QUESTIONS, *SHORT, "--trajectory", path).code == 2
    ask(*QUESTIONS[:1], *SHORT, "--trajectory", path, "--overwrite")
    assert Trajectory.load(path).rows == 1


def test_watch_falls_back_to_text_off_a_terminal():
    assert ask(QUESTION, *SHORT, "--watch") == ask(QUESTION, *SHORT)


def on_a_terminal(*arguments, columns="80"):
    """Exit code and all that a terminal was sent."""
    ours, theirs = pty.openpty()
    env = environment() | {"COLUMNS": columns, "LINES": "24"}
    process = subprocess.Popen([COMMAND, *map(str, arguments)], env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 65536):
            sent += part
    except OSError:  # Linux says so when the other side has closed
        pass
    os.close(ours)
    return process.wait(), sent.decode()


def test_watch_draws_in_colour_on_a_terminal():
    code, sent = on_a_terminal("generate", *QUESTIONS, "--length", 24, "--steps", 6, "--watch")
    assert code == 0
    for style in ("\x1b[1;32m", "\x1b[1;30;43m", "\x1b[1;31m"):  # revealed, overwritten, demoted
        assert style in sent
    assert "step 6 of 6" in sent
    assert "masked again so far" in sent
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    fifth = answers(*QUESTIONS, "--length", 24, "--steps", 6)[4]
    assert plain.rstrip().endswith(fifth), "an answer that was not drawn is printed"
    assert plain.count(fifth) == 1
    assert "loading bundled" in plain


# --- runs that are interrupted ---

LONG_RUN = [f"{a} + {b} + 3 + 8 + 1 = ?" for a, b in ((1, 2), (3, 4), (5, 6), (7, 8), (9, 1), (2, 9))]
SLOWLY = (*LONG_RUN, "--length", 48, "--steps", 48, "--batch-size", 1, "--temperature", 0.4)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "x.jsonl"
    ask(*SLOWLY, "--out", path)
    return path.read_bytes()


def whole_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.005)


def test_an_interrupted_run_goes_on(tmp_path, uninterrupted):
    path, part = tmp_path / "x.jsonl", tmp_path / "x.jsonl.part"
    process = start("generate", *SLOWLY, "--out", path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: whole_lines(part) >= 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"of 6 answers are in {part}; the same command goes on from there" in err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert sorted(tmp_path.iterdir()) == [part]
    first, *saved = records(part.read_text())
    assert first["run"]["prompts"] == LONG_RUN
    assert [record["index"] for record in saved] == list(range(len(saved)))

    other = run("generate", *SLOWLY, "--seed", 1, "--out", path)
    assert other.code == 2
    assert "unfinished run with other settings (seed)" in other.err

    done = ask(*SLOWLY, "--json", "--out", path)
    assert [record["index"] for record in records(done.out)] == list(range(len(saved), 6)), "only what was missing"
    assert path.read_bytes() == uninterrupted
    assert sorted(tmp_path.iterdir()) == [path]

    again = run("generate", *SLOWLY, "--out", path)
    assert again.code == 2
    assert "--overwrite" in again.err
    assert path.read_bytes() == uninterrupted
    ask(QUESTION, *SHORT, "--out", path, "--overwrite")
    assert whole_lines(path) == 1


@pytest.mark.parametrize(("out", "hint"), [(True, "starts anew"), (False, "--out x.jsonl")])
def test_an_interruption_before_the_first_answer_leaves_nothing(tmp_path, monkeypatch, out, hint):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("redraft.generation.Tally.add", interrupted)
    done = run("generate", QUESTION, *SHORT, *(("--out", tmp_path / "x.jsonl") if out else ()))
    assert done.code == 130
    assert hint in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_killed_runs_go_on(tmp_path, uninterrupted, seed):
    """Killed at random moments until it is through; nobody gets a chance to tidy up."""
    path, rng = tmp_path / "x.jsonl", random.Random(seed)
    for _ in range(4):
        process = start("generate", *SLOWLY, "--out", path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        had = whole_lines(tmp_path / "x.jsonl.part")
        wait_for(lambda had=had, one=process: whole_lines(tmp_path / "x.jsonl.part") > had or one.poll() is not None)
        threading.Event().wait(rng.random() * 0.5)
        process.kill()
        process.wait()
        if path.exists():
            break
    else:
        ask(*SLOWLY, "--out", path)
    assert path.read_bytes() == uninterrupted


def test_progress_off_a_terminal_is_a_line_with_an_estimate():
    done = ask(QUESTION, *SHORT, reports=0.0)
    assert re.fullmatch(r"steps: 1 of 12, about \d+ s left\n", done.err)


@pytest.mark.parametrize(("seconds", "words"), [(3.4, "3 s"), (89.0, "89 s"), (600.0, "10 min"), (7200.0, "2.0 h")])
def test_durations_in_words(seconds, words):
    from redraft.commands.console import duration

    assert duration(seconds) == words


def test_progress_on_a_terminal_is_a_bar_with_an_estimate(monkeypatch):
    """And it makes room for each batch of answers."""
    monkeypatch.setattr("redraft.commands.console.err._force_terminal", True)
    monkeypatch.setattr("redraft.commands.console.err.is_interactive", True)
    before = []

    def spy(text):
        before.append(console.err.file.getvalue())  # what the terminal shows where the answer comes
        console.write(text)

    monkeypatch.setattr("redraft.commands.generate.write", spy)
    done = ask(*QUESTIONS[:2], *SHORT, "--batch-size", 1)
    assert "loading bundled ..." in done.err
    assert "left:" in done.err
    assert "24/24" in done.err
    assert [said.endswith("\x1b[2K") for said in before] == [True, True], "the line of the bar is erased"
    assert done.out == "".join(f"{text}\n" for text in answers(*QUESTIONS[:2], *SHORT))
