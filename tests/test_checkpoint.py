"""Saved states: whole or not there, checked before they are believed."""

import json

import pytest
import torch

from redraft.train import checkpoint

CONTENT = {"a.safetensors": {"x": torch.arange(6.0).view(2, 3), "n": torch.tensor(3)}, "b.json": {"step": 4, "t": 0.1}}


def states(place):
    return [state.step for state in checkpoint.saved(place)]


def test_what_is_written_is_read(tmp_path):
    folder = checkpoint.save(tmp_path / "c", 50, CONTENT, keep=2)
    assert folder.name == "step-000050"
    state = checkpoint.newest(tmp_path / "c", print)
    assert state.step == 50
    assert state.record("b.json") == {"step": 4, "t": 0.1}
    assert torch.equal(state.tensors("a.safetensors")["x"], CONTENT["a.safetensors"]["x"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == {"a.safetensors", "b.json"}
    assert all(len(said["sha256"]) == 64 for said in manifest["files"].values())


def test_the_last_few_are_kept_and_what_kills_left_is_swept(tmp_path):
    (tmp_path / ".step-000003-abcd").mkdir(parents=True)
    (tmp_path / ".step-000003-abcd" / "half").write_text("x")
    for step in (1, 2, 3, 10, 1_000_000):
        checkpoint.save(tmp_path, step, CONTENT, keep=2)
    assert states(tmp_path) == [1_000_000, 10]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000010", "step-1000000"]


def test_files_can_be_read_by_others(tmp_path):
    folder = checkpoint.save(tmp_path, 1, CONTENT, keep=1)
    assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o644"}


class Explosion(Exception):
    pass


@pytest.mark.parametrize("moment", ["a.safetensors", "b.json", "manifest.json", "rename"])
def test_a_failure_at_any_moment_leaves_the_states_before_it(tmp_path, monkeypatch, moment):
    checkpoint.save(tmp_path, 1, CONTENT, keep=1)
    write = checkpoint._write_file

    def failing(path, value):
        write(path, value)
        if path.name == moment:
            raise Explosion

    def flushing(path):
        if moment == "rename" and path.name.startswith(".step"):
            raise Explosion

    monkeypatch.setattr(checkpoint, "_write_file", failing)
    monkeypatch.setattr(checkpoint, "flush", flushing)
    with pytest.raises(Explosion):
        checkpoint.save(tmp_path, 2, CONTENT, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert checkpoint.newest(tmp_path, print).step == 1


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


DAMAGES = {
    "a.safetensors is missing": lambda folder: (folder / "a.safetensors").unlink(),
    "instead of": lambda folder: (folder / "a.safetensors").write_bytes(b""),
    "a.safetensors is not what was written": lambda folder: flip(folder / "a.safetensors"),
    "b.json is not what was written": lambda folder: flip(folder / "b.json"),
    "manifest.json is missing": lambda folder: (folder / "manifest.json").unlink(),
    "manifest.json cannot be read": lambda folder: (folder / "manifest.json").write_text("{"),
}


@pytest.mark.parametrize("words", DAMAGES)
def test_a_damaged_state_is_named_and_the_one_before_it_is_used(tmp_path, words):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, CONTENT, keep=5)
    DAMAGES[words](tmp_path / "step-000002")
    said = []
    assert checkpoint.newest(tmp_path, said.append).step == 1
    assert len(said) == 1
    assert words in said[0]
    assert "step-000002 is damaged" in said[0]
    assert said[0].endswith("and is passed over")


def test_nothing_but_damaged_states_is_an_error_and_no_state_is_none(tmp_path):
    assert checkpoint.newest(tmp_path / "none", print) is None
    folder = checkpoint.save(tmp_path, 1, CONTENT, keep=1)
    (folder / "b.json").unlink()
    with pytest.raises(ValueError, match=r"every saved state in .* is damaged: --overwrite"):
        checkpoint.newest(tmp_path, lambda said: None)


def test_a_damaged_state_is_written_over(tmp_path):
    folder = checkpoint.save(tmp_path, 1, CONTENT, keep=1)
    (folder / "b.json").unlink()
    checkpoint.save(tmp_path, 1, CONTENT, keep=1)
    assert checkpoint.damage(folder) is None


def test_other_folders_are_no_states(tmp_path):
    for name in ("step-1", "step-00000x", ".step-000001-ab", "steps"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-000007").write_text("a file")
    assert checkpoint.saved(tmp_path) == []
