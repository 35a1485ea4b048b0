"""PC-Sampler: its order, its table of frequencies, the command that counts one, and the whole rule by hand."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, MASK, NO_EOS, READING, VOCABULARY, Chaos, Script, decode
from redraft.samplers import PC, Unmask, parse
from redraft.samplers.pc import surprise
from running import run
from test_papers import CUMULATIVE, best, log_softmax, logits_of

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def table(folder, counts, total=None):
    path = folder / "table.json"
    content = {"num_token": total or sum(counts.values()), "p_baseline_dict": {str(k): n for k, n in counts.items()}}
    path.write_text(json.dumps(content))
    surprise.cache_clear()
    return str(path)


# --- what makes it itself ---


@pytest.mark.parametrize("shape", [(12, 12, None), (12, 6, 4), (14, 4, None)])
def test_without_place_and_calibration_it_is_unmask(shape, tmp_path):
    equal = table(tmp_path, dict.fromkeys(range(VOCABULARY), 5))
    for sampler in (PC(decay=0), PC(equal, decay=0)):
        assert decode(sampler, Chaos(), *shape) == decode(Unmask(), Chaos(), *shape)


def test_a_large_decay_writes_from_left_to_right():
    states = [state[0] for state in decode(PC(decay=50), Chaos(), 12, 12, 6)]
    assert [state.index(MASK) if MASK in state else 12 for state in states] == list(range(1, 13))


def test_places_far_to_the_right_are_still_told_apart():
    """In float32, exp(-0.25 j) is 0 from j = 416 on, and all those places would be equal."""

    def falling(tokens, *, columns=slice(None), **context):
        import torch

        logits = torch.zeros(*tokens.shape, 16)
        logits[:, :, 5] = torch.arange(tokens.shape[1]) / 100.0
        return logits[:, columns]

    states = decode(PC(decay=0.25), falling, 600, 20)
    assert [state[0].index(MASK) if MASK in state[0] else 600 for state in states] == list(range(30, 601, 30))
    assert [state[0].count(MASK) for state in states] == list(range(570, -1, -30))


def test_common_tokens_are_put_off(tmp_path):
    """Token 0 is surer, but makes up 90 % of the corpus: 0.9 x 0.105 is less than 0.5 x 2.303."""
    script = [[{0: 0.9}, {1: 0.5}]] * 2
    common = PC(table(tmp_path, {0: 90, 1: 10}), decay=0)
    assert decode(common, Script(script, 3), 2, 2)[0] == [[MASK, 1]]
    assert decode(PC(decay=0), Script(script, 3), 2, 2)[0] == [[0, MASK]]


def test_no_token_is_worth_more_than_alpha(tmp_path):
    """Worth 0.9 x 4.6 and 0.7 x 9.2: with alpha = 4 they are equal, and the lower position goes first."""
    script = [[{0: 0.9}, {1: 0.7}]] * 2
    rare = table(tmp_path, {0: 100, 1: 1}, total=10_000)
    assert decode(PC(rare, decay=0), Script(script, 3), 2, 2)[0] == [[MASK, 1]]
    assert decode(PC(rare, decay=0, alpha=4), Script(script, 3), 2, 2)[0] == [[0, MASK]]


# --- the table ---


def test_tokens_that_the_corpus_lacks_count_as_seen_once(tmp_path):
    worth = surprise(table(tmp_path, {2: 60, 3: 40, 99: 1}, total=100), 5)
    assert worth.tolist() == pytest.approx([-math.log(p + 1e-9) for p in (0.01, 0.01, 0.6, 0.4, 0.01)], rel=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file .*table.json: `redraft frequencies` makes a table"),
        ("[]", "is not a table that `redraft frequencies` wrote"),
        ('{"num_token": 3}', "is not a table"),
        ('{"num_token": 0, "p_baseline_dict": {}}', "it counts no token"),
        ('{"num_token": 3, "p_baseline_dict": {"a": 1}}', "is not a table"),
        ("{", "is not a table"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_before_anything_is_decoded(tmp_path, content, message):
    path = tmp_path / "table.json"
    if content is not None:
        path.write_text(content)
    surprise.cache_clear()
    with pytest.raises(ValueError, match=message):
        PC(str(path)).stages(8, 4)


def test_a_file_name_survives_the_notation():
    sampler = parse("pc(frequencies='some folder/table-1.json', decay=0.5)")
    assert sampler == PC("some folder/table-1.json", decay=0.5)
    assert parse(repr(sampler)) == sampler


@pytest.mark.parametrize("option", ["decay=-1", "alpha=0"])
def test_nonsense_is_refused(option):
    with pytest.raises(ValueError, match="decay is 0 or more and alpha more than 0"):
        parse(f"pc({option})").stages(8, 4)


def test_the_command_counts_a_corpus(tmp_path):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "table.json"
    corpus.write_text('{"text": "7 + 5 = 12"}\n{"prompt": "7", "response": " ; 7"}\n')
    done = run("frequencies", "--data", corpus, "--out", out)
    assert done.code == 0, done.err
    made = json.loads(out.read_text())
    from redraft.models.folders import resolve
    from redraft.models.tokens import open_tokenizer

    tokenizer = open_tokenizer(resolve("bundled"))
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in ("7 + 5 = 12", "7", " ; 7")]
    assert made["num_token"] == sum(map(len, ids))
    assert {int(token): n for token, n in made["p_baseline_dict"].items()} == {
        token: sum(part.count(token) for part in ids) for part in ids for token in part
    }
    surprise.cache_clear()
    asked = run("generate", "7 + 5 + 9 = ?", "--sampler", f"pc(frequencies='{out}')", "--length", "16", "--steps", "8")
    assert asked.code == 0, asked.err


def test_the_command_stops_where_it_is_told_and_keeps_what_is_there(tmp_path):
    out = tmp_path / "table.json"
    assert run("frequencies", "--data", "tasks:words", "--out", out).code == 2  # they never end
    assert not out.exists()
    assert run("frequencies", "--data", "tasks:words", "--tokens", "50", "--out", out).code == 0
    assert 50 <= json.loads(out.read_text())["num_token"] < 500
    again = run("frequencies", "--data", "tasks:words", "--tokens", "50", "--out", out)
    assert again.code == 2
    assert "--overwrite" in again.err


# --- the rule, by hand ---


def pc_by_hand(model, prompt, length, steps, block, counts, decay, alpha, vetoed):
    """Methods 6.2."""
    x, history = [*prompt, *[MASK] * length], []
    each, total = steps // (length // block), sum(counts.values())
    for start in range(len(prompt), len(x), block):
        for t in range(1, each + 1):
            masks = [i for i in range(start, start + block) if x[i] == MASK]
            if not masks:
                break
            z, score, x0 = logits_of(model, x), {}, {}
            for i in masks:
                log_p = log_softmax(z[i], {MASK})
                x0[i] = log_p.index(max(log_p))
                f = counts.get(x0[i], 1) / total
                worth = min(-math.exp(log_p[x0[i]]) * math.log(f + 1e-9), alpha)
                score[i] = worth * math.exp(-decay * (i - start))
                if vetoed and x0[i] in EOS and t < each:
                    score[i] = -math.inf
            more = CUMULATIVE["front"](block, t, each) - CUMULATIVE["front"](block, t - 1, each)
            for i in masks if t == each else best(score, more):
                x[i] = x0[i]
            history.append(x[len(prompt) :])
    return history


@settings(max_examples=60)
@given(
    st.builds(Chaos, st.integers(0, 10**6), spread=st.sampled_from([6.0, 20.0]), eos=st.sampled_from([0.0, 2.0])),
    st.lists(st.integers(0, 11), max_size=3),
    st.sampled_from([(6, 6, 3), (6, 4, 6), (5, 5, 5), (9, 6, 3)]),
    st.dictionaries(st.integers(0, 11), st.integers(1, 1000), min_size=2, max_size=8),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.sampled_from([10, 2.0]),
    st.booleans(),
)
def test_position_by_position(tmp_path_factory, model, prompt, shape, counts, decay, alpha, vetoed):
    (length, steps, block), reading = shape, READING if vetoed else NO_EOS
    sampler = PC(table(tmp_path_factory.getbasetemp(), counts), decay=decay, alpha=alpha)
    ours = decode(sampler, model, length, steps, block, prompts=[prompt], reading=reading)
    theirs = pc_by_hand(model, prompt, length, steps, block, counts, decay, alpha, vetoed)
    assert [rows[0] for rows in ours] == theirs
