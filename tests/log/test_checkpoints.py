from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.log.files import Directory, Files
from dqlab.log.recovery import Checkpoint, read_checkpoint

UUID = "00112233445566778899aabbccddeeff"
NAME = "ckpt-0000000001-0000000001"


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    body = b"state" * 1000
    data = Checkpoint.encode(UUID, 3, 400, body)
    (tmp_path / NAME).write_bytes(data)
    found = read_checkpoint(Directory(tmp_path, Files()), NAME, UUID)
    assert found == (Checkpoint(NAME, 3, 400, len(data)), body)


def test_a_damaged_cut_missing_or_foreign_checkpoint_is_none(tmp_path: Path) -> None:
    directory = Directory(tmp_path, Files())
    data = Checkpoint.encode(UUID, 3, 400, b"state")
    for n in range(len(data)):
        for bad in (data[:n], data[:n] + bytes([data[n] ^ 128]) + data[n + 1 :]):
            (tmp_path / NAME).write_bytes(bad)
            assert read_checkpoint(directory, NAME, UUID) is None
    (tmp_path / NAME).write_bytes(data)
    assert read_checkpoint(directory, NAME, "f" * 32) is None
    (tmp_path / NAME).unlink()
    assert read_checkpoint(directory, NAME, UUID) is None


def test_a_small_file_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that somebody sends may be looked at: a thousandth of what comes out of it says how much that is."""
    monkeypatch.setattr("dqlab.log.recovery._LARGE", 1 << 20)
    directory, body = Directory(tmp_path, Files()), bytes(10 << 20)

    monkeypatch.setattr("dqlab.log.recovery._RATIO", 1 << 20)
    (tmp_path / NAME).write_bytes(Checkpoint.encode(UUID, 3, 400, body))
    monkeypatch.setattr("dqlab.log.recovery._RATIO", 100)
    assert read_checkpoint(directory, NAME, UUID) is None

    (tmp_path / NAME).write_bytes(Checkpoint.encode(UUID, 3, 400, body))  # our own is written so that it is read
    found = read_checkpoint(directory, NAME, UUID)
    assert found is not None
    assert found[1] == body
