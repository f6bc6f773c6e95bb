from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.log.files import Directory, Files
from dqlab.log.log import Log
from dqlab.log.records import Position, Record
from dqlab.log.recovery import Checkpoint, read_checkpoint
from dqlab.log.writer import LogOptions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def crashed(path: Path, n: int, *, segment_bytes: int = 1 << 20) -> list[Position]:
    """Leave a log of `n` records whose owner died after its last commit."""
    log = Log.open(path, options=LogOptions(segment_bytes=segment_bytes))
    positions = [log.append(16, [bytes([k]) * 100], count=1, base=k) for k in range(n)]
    log.commit()
    log.close(clean=False)
    return positions


def reopened(path: Path) -> tuple[Log, list[Record]]:
    log = Log.open(path)
    records = list(log.replay())
    log.close()
    return log, records


def change(file: Path, offset: int, data: bytes) -> None:
    old = file.read_bytes()
    file.write_bytes(old[:offset] + data + old[offset + len(data) :])


def test_damage_to_the_last_record_is_corruption_once_it_was_known_to_be_synced(path: Path) -> None:
    log = Log.open(path)
    position = log.append(16, [b"confirmed"], base=7, count=1)
    log.commit()
    log.note_synced()
    log.close(clean=False)
    change(path / "0000000001-0000000001.seg", position.offset + 50, b"rot")
    log, records = reopened(path)
    assert records == []
    assert [found.base for found in log.corrupt] == [7]


@pytest.mark.parametrize("size", [0, 10, 64, 112])
def test_a_last_segment_without_records_never_existed(path: Path, size: int) -> None:
    crashed(path, 3)
    Log.open(path).close(clean=False)
    file = path / "0000000002-0000000002.seg"
    file.write_bytes(file.read_bytes()[:size] if size else b"")
    log, records = reopened(path)
    assert len(records) == 3
    assert not log.corrupt
    assert not file.exists()


def test_a_log_cut_before_its_checkpoint_says_what_is_missing(path: Path) -> None:
    log = Log.open(path)
    positions = [log.append(16, [b"x" * 100]) for _ in range(3)]
    log.checkpoint(log.mark(), b"state")
    log.close(clean=False)
    file = path / "0000000001-0000000001.seg"
    file.write_bytes(file.read_bytes()[: positions[2].offset])
    log, records = reopened(path)
    assert log.recovery.checkpoint == b"state"
    assert records == []
    assert [(found.offset, found.nbytes) for found in log.corrupt] == [(positions[2].offset, positions[2].size)]


def test_leftovers_go_and_strangers_stay(path: Path) -> None:
    crashed(path, 3)
    for name in ("0000000009-0000000001.seg", "ckpt-0000000001-0000000009", "MANIFEST-0000000001.tmp", "notes.txt"):
        (path / name).write_bytes(b"?")
    _, records = reopened(path)
    assert len(records) == 3
    assert not (path / "0000000009-0000000001.seg").exists()
    assert not list(path.glob("ckpt*")) + list(path.glob("*.tmp"))
    assert (path / "notes.txt").exists()
    assert [file.name for file in path.glob("MANIFEST*")] == ["MANIFEST-0000000002"]
    assert [file.name for file in path.glob("EPOCH*")] == ["EPOCH-0000000002"]


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
