from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.log.log import Log
from dqlab.log.records import Position, Record
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
