"""The training loop: what a step is a function of, how a run goes on, and how it ends when it must."""

import json
import os
import signal

import pytest
import torch
from safetensors import SafetensorError

from redraft.models import load
from redraft.models.adapters import Lora
from redraft.models.standin import random_llada
from redraft.train import checkpoint
from redraft.train.data import collate
from redraft.train.loop import Stopped, _trimmed
from redraft.train.recipes import parse
from redraft.train.settings import Settings
from training import PAIRS, TEXTS, adapter, equal, gap, losses, make, trained


def finished(**options):
    run = make(**options)
    list(run)
    return run


def after_two(run, change):
    """The whole run, with something changed after its second step."""
    for record in run:
        if record["step"] == 2:
            change()


# --- what a step is ---


@pytest.fixture(scope="module")
def reference():
    return finished(dtype=torch.float64, batch=1, accumulate=4)


@pytest.mark.parametrize(
    ("dtype", "batch", "accumulate", "allowed"),
    [
        (torch.float64, 2, 2, 1e-12),
        (torch.float64, 4, 1, 1e-12),
        (torch.float32, 1, 4, 1e-5),
        (torch.float32, 2, 2, 1e-5),
    ],
)
def test_every_layout_of_the_same_examples_learns_the_same(reference, dtype, batch, accumulate, allowed):
    run = finished(dtype=dtype, batch=batch, accumulate=accumulate)
    # Losses are summed in float32 for the log, whatever the model is.
    assert losses(run) == pytest.approx(losses(reference), rel=1e-5)
    assert gap(trained(run), trained(reference)) < allowed
    for key in ("committed", "masked", "supervised", "self_conditioned", "tokens"):
        assert [r[key] for r in run.log.records] == [r[key] for r in reference.log.records]


def test_other_seeds_and_other_group_sizes_are_other_runs(reference):
    assert losses(finished(dtype=torch.float64, accumulate=4, seed=6)) != losses(reference)
    assert losses(finished(dtype=torch.float64, accumulate=2)) != losses(reference)


def test_a_step_is_the_mean_over_all_its_tokens_whatever_the_rows_lengths():
    """Against one plain backward pass over all rows of the step, by the pure loss on its own."""
    run = make(dtype=torch.float64, accumulate=4, steps=1, warmup=0, clip=1e9)
    other = make(dtype=torch.float64, accumulate=4, steps=1)
    batch = collate(other.stream.take(4), pad_id=other.model.pad_id)
    assert len({int(row.sum()) for row in batch.eligible}) > 1, "the rows should differ in length"
    loss, metrics = parse("scope").loss(other.network, batch, step=0, seeds=batch.seeds(5), steps=1)
    loss.backward()
    gradient = torch.cat([one.grad.flatten() for one in other.trained.parameters.values()])
    (record,) = run
    assert record["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert record["grad_norm"] == pytest.approx(float(gradient.norm()), rel=1e-9)
    assert record["supervised"] == int(metrics.count)


def test_the_learning_rate_is_a_function_of_the_step():
    settings = Settings(lr=2.0, warmup=4)
    assert [settings.rate(step) for step in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert Settings(lr=2.0, warmup=0).rate(0) == 2.0


def test_only_the_adapter_learns_and_learns_something():
    run = make(data=TEXTS, steps=25, lr=0.02, recipe="mdm", accumulate=2)
    frozen = {name: one.clone() for name, one in run.network.named_parameters() if not one.requires_grad}
    before = trained(run)
    list(run)
    assert not equal(before, trained(run))
    assert equal(frozen, {name: one for name, one in run.network.named_parameters() if not one.requires_grad})
    first, last = losses(run)[:5], losses(run)[-5:]
    assert sum(last) / 5 < 0.8 * sum(first) / 5


def test_padding_columns_that_no_row_of_a_part_needs_are_cut():
    run = make()
    batch = collate(run.stream.take(4), pad_id=run.model.pad_id)
    part = _trimmed(batch.rows(slice(0, 1)))
    assert part.attend is None
    assert part.tokens.shape[1] == int(batch.attend[0].sum()) <= batch.tokens.shape[1]
    whole = _trimmed(batch)
    assert torch.equal(whole.tokens, batch.tokens)


def test_a_bfloat16_model_learns_in_float32():
    run = make(dtype=torch.bfloat16, steps=3, recipe="scope(self_condition=1.0)")
    assert {one.dtype for one in run.trained.parameters.values()} == {torch.float32}
    # The pass without gradients and the one with them share an autocast: its cache would cut the adapter off.
    assert all(record["grad_norm"] > 1e-3 for record in run)
    model = run.result()
    assert model(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()  # outside of autocast too


@pytest.mark.parametrize("option", [{"gradient_checkpointing": True}, {"save_every": 1, "keep": 1}])
def test_what_changes_the_speed_changes_nothing_else(option):
    assert equal(trained(finished(dtype=torch.float64, **option)), trained(finished(dtype=torch.float64)))


def test_steering_moves_the_temperature():
    # A model of random weights is always wrong: the temperature sinks until it guesses as well as it can.
    run = finished(recipe="scope(error_rate=0.3)", steps=6)
    heat = [record["temperature"] for record in run.log.records]
    assert heat[0] == 1.5
    assert heat[-1] < 1.5
    assert heat == sorted(heat, reverse=True)


# --- going on ---


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data": TEXTS, "recipe": "scope(error_rate=0.3, rounds=2, share='linear(0.1,0.8)')"},
        {"lora": Lora(rank=4, dropout=0.4), "batch": 2, "accumulate": 1},
        {"lora": None, "recipe": "mdm(weight=inv_t)"},
        {"recipe": "xdlm"},
    ],
)
@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, options, stop):
    """Stopped after `stop` steps with states saved after every second: step 3 is computed twice, or 1 is lost."""
    whole = finished(out=tmp_path / "whole", **options)
    broken = make(out=tmp_path / "broken", **options)
    for record in broken:
        if record["step"] == stop:
            break
    again = make(out=tmp_path / "broken", **options)
    assert again.step == stop // 2 * 2
    list(again)
    assert equal(trained(again), trained(whole))
    volatile = ("seconds", "tokens_per_second", "memory_gib")
    kept = [[{k: v for k, v in r.items() if k not in volatile} for r in run.log.records] for run in (whole, again)]
    assert kept[0] == kept[1]
    assert [json.loads(line)["step"] for line in (tmp_path / "broken" / "log.jsonl").read_text().splitlines()] == [
        1,
        2,
        3,
        4,
    ]


def test_a_run_may_go_on_in_another_layout_of_the_same_examples(tmp_path):
    whole = finished(out=tmp_path / "whole", dtype=torch.float64)
    for _ in make(out=tmp_path / "broken", dtype=torch.float64):
        pass_on = (tmp_path / "broken" / "checkpoints" / "step-000002").is_dir()
        if pass_on:
            break
    again = finished(out=tmp_path / "broken", dtype=torch.float64, batch=2, accumulate=2)
    assert gap(trained(again), trained(whole)) < 1e-12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": 0.02}, "lr was 0.01, now 0.02"),
        ({"recipe": "mdm"}, "recipe was 'scope', now 'mdm'"),
        ({"accumulate": 2}, "rows was 4, now 2"),
        ({"seed": 6, "steps": 9}, "steps was 4, now 9; seed was 5, now 6"),
    ],
)
def test_a_run_with_other_settings_is_not_continued(tmp_path, options, words):
    finished(out=tmp_path, steps=4)
    with pytest.raises(ValueError, match="holds a run with other settings") as refused:
        make(out=tmp_path, **options)
    assert words in str(refused.value)


def test_a_damaged_newest_state_is_reported_and_the_one_before_is_used(tmp_path):
    whole = finished(out=tmp_path / "a")
    finished(out=tmp_path / "b")
    newest = tmp_path / "b" / "checkpoints" / "step-000004" / "optimizer.safetensors"
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    said = []
    again = make(out=tmp_path / "b", report=said.append)
    assert again.step == 2
    assert "optimizer.safetensors is not what was written" in said[0]
    list(again)
    assert equal(trained(again), trained(whole))
    assert checkpoint.damage(newest.parent) is None  # it was written again


def test_saved_states_are_few_and_hold_no_pickle(tmp_path):
    finished(out=tmp_path, steps=7, save_every=2, keep=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000006", "step-000007"]
    kinds = {path.suffix for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json"}


# --- ending early ---


def test_an_interrupt_ends_the_run_after_its_step_with_everything_saved(tmp_path):
    run, whole = make(out=tmp_path, steps=6, save_every=50), finished(steps=6)
    for record in run:
        if record["step"] == 2:
            os.kill(os.getpid(), signal.SIGINT)  # lands in step 3
    assert run.step == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = make(out=tmp_path, steps=6, save_every=50)
    assert again.step == 3
    list(again)
    assert equal(trained(again), trained(whole))


def test_a_loss_that_is_no_number_ends_the_run_with_the_last_good_state(tmp_path):
    run = make(out=tmp_path)

    def spoil():
        next(iter(run.trained.parameters.values())).data[0, 0] = float("nan")

    with pytest.raises(Stopped, match=r"the loss of step 3 is nan.* step 2 is kept") as stopped:
        after_two(run, spoil)
    assert "smaller lr" in str(stopped.value)
    assert [state.step for state in checkpoint.saved(tmp_path / "checkpoints")] == [2]
    (state,) = checkpoint.saved(tmp_path / "checkpoints")
    assert all(tensor.isfinite().all() for tensor in state.tensors("adapter_model.safetensors").values())


def test_an_infinite_gradient_does_too(tmp_path, monkeypatch):
    run = make(out=tmp_path)
    monkeypatch.setattr(run.accelerator, "clip_grad_norm_", lambda *_: torch.tensor(torch.inf))
    with pytest.raises(Stopped, match="the gradient of step 1 is inf, and nothing was learned from it; no state"):
        list(run)


def test_data_that_vanishes_ends_the_run_and_the_run_goes_on_when_it_is_back(tmp_path):
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in PAIRS[:10]))
    content = path.read_bytes()
    run = make(data=str(path), out=tmp_path / "run")
    with pytest.raises(Stopped, match=r"at step \d: cannot read .*few.jsonl: No such file.*same command goes on"):
        after_two(run, path.unlink)  # the second epoch opens it again
    path.write_bytes(content)
    again = make(data=str(path), out=tmp_path / "run")
    list(again)
    assert equal(trained(again), trained(finished(data=str(path))))


def test_a_full_disk_under_the_log_does_too(tmp_path, monkeypatch):
    run = make(out=tmp_path)

    def full(record):
        raise OSError(28, "No space left on device")

    with pytest.raises(Stopped, match=r"cannot write .*log.jsonl \(No space left on device\); the state after step 2"):
        after_two(run, lambda: monkeypatch.setattr(run.log, "add", full))
    assert equal(trained(finished(out=tmp_path)), trained(finished()))


def test_a_full_disk_ends_the_run_with_the_state_before(tmp_path, monkeypatch):
    run = make(out=tmp_path)

    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.raises(Stopped, match=r"cannot save step 4 in .* \(No space left on device\); the state after step 2"):
        after_two(run, lambda: monkeypatch.setattr("safetensors.torch.save_file", full))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]
    monkeypatch.undo()
    assert equal(trained(finished(out=tmp_path)), trained(finished()))


# --- the result ---


def test_the_result_is_an_adapter_a_card_and_a_record(tmp_path):
    run = finished(out=tmp_path)
    assert run.finish() == tmp_path / "adapter"
    assert {"README.md", "adapter_config.json", "adapter_model.safetensors"} == {
        p.name for p in (tmp_path / "adapter").iterdir()
    }
    assert adapter(tmp_path).keys() == {name.replace(".default", "") for name in trained(run)}
    protocol = json.loads((tmp_path / "protocol.json").read_text())
    assert protocol["run"]["recipe"] == "scope"
    assert protocol["trainable"] == sum(one.numel() for one in trained(run).values())
    assert protocol["tokens"] == sum(record["tokens"] for record in run.log.records)
    card = (tmp_path / "README.md").read_text()
    assert "| recipe | `scope` |" in card
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_full_training_saves_a_model_that_load_opens(tmp_path, dtype):
    run = finished(out=tmp_path, lora=None, dtype=dtype, lr=1e-3)
    assert {one.dtype for one in run.trained.parameters.values()} == {torch.float32}
    loaded = load(run.finish())
    assert loaded.dtype == dtype
    tokens = torch.arange(6)[None]
    assert not torch.equal(loaded(tokens), random_llada(dtype=dtype)(tokens))
    if dtype == torch.float32:
        assert torch.equal(loaded(tokens), run.result()(tokens))


def test_settings_that_make_no_sense_are_refused():
    for wrong in ({"steps": 0}, {"lr": float("nan")}, {"warmup": -1}, {"betas": (0.9, 1.0)}, {"clip": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Settings(**wrong)
