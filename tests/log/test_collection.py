from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.errors import UsageError
from dqlab.log.log import Log, Needed, removable
from dqlab.log.manifest import Manifest, SegmentEntry
from dqlab.log.records import Position
from dqlab.log.recovery import Checkpoint
from dqlab.log.writer import LogOptions

SMALL = LogOptions(segment_bytes=1000, reserve_bytes=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def segments(path: Path) -> list[int]:
    return sorted(int(file.name[:10]) for file in path.glob("*.seg"))


def put(log: Log, n: int) -> list[Position]:
    positions = [log.append(16, [bytes([k]) * 100], needed=100) for k in range(n)]
    log.commit()
    return positions


def test_a_segment_goes_when_it_is_not_needed_and_two_checkpoints_lie_behind_it(path: Path) -> None:
    with Log.open(path, options=SMALL) as log:
        positions = put(log, 20)
        assert segments(path) == [1, 2, 3, 4]
        for position in positions:
            if position.segment != 2:
                log.free(position.segment, 100)
        assert log.collect() == 0
        log.checkpoint(log.mark(), b"1")
        assert segments(path) == [1, 2, 3, 4]
        log.checkpoint(log.mark(), b"2")
        assert segments(path) == [2, 4]
        for position in positions:
            if position.segment == 2:
                assert len(log.read(position)) == 100
                log.free(2, 100)
        assert log.collect() == 1
        assert log.collect() == 0
        assert segments(path) == [4]


def test_nothing_is_deleted_before_the_journal_has_said_what_it_needs(path: Path) -> None:
    """A count that begins at 0 would let every segment go."""
    with Log.open(path, options=SMALL) as log:
        positions = put(log, 20)
        log.checkpoint(log.mark(), b"1")
    with Log.open(path, options=SMALL) as log:
        assert list(log.replay()) == []
        for call in (log.mark, log.collect):
            with pytest.raises(UsageError, match="call `needs` first"):
                call()
        log.needs({position.segment: 100 for position in positions} | {99: 100})
        assert log.usage().needed == 100 * len({position.segment for position in positions})
        log.checkpoint(log.mark(), b"2")
        assert all(len(log.read(position)) == 100 for position in positions)
        for segment in {position.segment for position in positions}:
            log.free(segment, 100)
        log.checkpoint(log.mark(), b"3")
        log.checkpoint(log.mark(), b"4")
        assert len(segments(path)) == 1


def test_sealed_segments_that_are_needed_little_are_named_for_compaction(path: Path) -> None:
    with Log.open(path, options=SMALL) as log:
        positions = put(log, 20)
        for position in positions[1:6]:
            log.free(position.segment, 100)
        assert log.victims() == [1]
        assert log.victims(below=1.0) == [1, 2, 3]
        log.free(1, log._needed[1])
        assert log.victims() == []


def test_a_checkpoint_of_what_is_only_in_memory_makes_it_durable_first(path: Path) -> None:
    log = Log.open(path, options=LogOptions(sync="os"))
    position = log.append(16, [b"x"], needed=1)
    mark = log.mark()
    log.append(16, [b"later"])
    log.checkpoint(mark, b"state")
    log.close(clean=False)
    with Log.open(path) as log:
        assert [bytes(record.body) for record in log.replay()] == [b"later"]
        assert log.read(position) == b"x"


# --- which segments may go --------------------------------------------------------------------


def checkpoint(segment: int) -> Checkpoint:
    return Checkpoint("c", segment, 64, 100)


def free(entries: list[SegmentEntry], checkpoints: list[Checkpoint], **needed: int) -> list[int]:
    table = Needed()
    for name, nbytes in needed.items():
        table.add(int(name[1:]), nbytes)
    manifest = Manifest("", 1, 10, tuple(entries))
    return [entry.seq for entry in removable(manifest, checkpoints, table)]


PLAIN = [SegmentEntry(1, 1, length=500), SegmentEntry(2, 1, length=500), SegmentEntry(3, 1)]


def test_no_segment_goes_that_a_recovery_may_start_in() -> None:
    assert free(PLAIN, [checkpoint(2), checkpoint(3)]) == [1]
    assert free(PLAIN, [checkpoint(3), checkpoint(3)]) == [1, 2]
    assert free(PLAIN, [checkpoint(3)]) == []
    assert free(PLAIN, [checkpoint(3), checkpoint(3)], s1=1) == [2]
