from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dqlab.errors import UsageError
from dqlab.log.errors import CannotOpen, DiskFull, LogClosed, RecordTooLarge
from dqlab.log.files import Files
from dqlab.log.log import Log, Needed
from dqlab.log.records import RecordType
from dqlab.log.writer import LogOptions
from dqlab.testing import FakeClock


def test_what_was_committed_is_replayed_as_it_was(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        positions = [
            log.append(RecordType.PUT, [b"x" * n, b"end"], count=n, base=1 << 50, aux=n << 40, flags=n)
            for n in range(100)
        ]
        assert log.commit() == log.end == log.durable == 100
    with Log.open(tmp_path / "log") as log:
        records = list(log.replay())
        assert [record.position for record in records] == positions
        assert [bytes(record.body) for record in records] == [b"x" * n + b"end" for n in range(100)]
        assert [tuple(record[:5]) for record in records] == [(16, n, n, 1 << 50, n << 40) for n in range(100)]
        assert log.recovery.clean
        assert log.epoch == 2


def test_appending_does_no_io_and_commits_nothing(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", options=LogOptions(segment_bytes=1000)) as log:
        before = {path.name: path.stat().st_size for path in (tmp_path / "log").iterdir()}
        position = [log.append(16, [b"x" * 100]) for _ in range(50)][-1]
        assert {path.name: path.stat().st_size for path in (tmp_path / "log").iterdir()} == before
        assert (log.end, log.durable) == (50, 0)
        assert log.pending_bytes >= 50 * 148
        assert log.cached(position) == b"x" * 100
        log.commit()
        assert (log.durable, log.pending_bytes) == (50, 0)


def test_a_buffer_may_be_changed_once_it_was_appended(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        buffer = bytearray(b"before")
        position = log.append(16, [buffer])
        buffer[:] = b"after!"
        log.commit()
        assert log.read(position) == b"before"


def test_a_record_above_the_limit_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        with pytest.raises(RecordTooLarge):
            log.append(16, [bytes(64 << 20), b"!"])
        log.append(16, [b"fits"])
        assert log.commit() == 1


def test_the_logs_own_types_are_not_for_the_journal(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log, pytest.raises(ValueError, match="own"):
        log.append(RecordType.SEAL, [b""])


@pytest.mark.parametrize("wrong", [{"count": 1 << 32}, {"base": 1 << 64}, {"aux": -1}, {"flags": 256}])
def test_what_a_header_cannot_hold_is_refused_and_leaves_no_trace(tmp_path: Path, wrong: dict[str, int]) -> None:
    with Log.open(tmp_path / "log", options=LogOptions(segment_bytes=200)) as log:
        log.append(16, [bytes(100)])
        with pytest.raises(ValueError, match="out of range"):
            log.append(16, [bytes(100)], **wrong)
        log.checkpoint(log.mark(), b"state")
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.checkpoint == b"state"


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    log.close()
    log.close()
    for call in (log.commit, log.sync, lambda: log.append(16, [b""]), log.collect):
        with pytest.raises(LogClosed):
            call()


def test_a_log_is_replayed_once_and_before_its_state_is_marked(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append(16, [b"x"])
    with Log.open(tmp_path / "log") as log:
        with pytest.raises(UsageError, match="replay"):
            log.mark()
        assert len(list(log.replay())) == 1
        with pytest.raises(UsageError, match="once"):
            list(log.replay())
        log.needs({})
        log.mark()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(CannotOpen, match=r"thesis\.tex"):
        Log.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_no_other_user_may_read_the_files(tmp_path: Path) -> None:
    with Log.open(tmp_path / "runs" / "log") as log:
        log.append(16, [b"secret"])
        log.checkpoint(log.mark(), b"state")
        assert stat.S_IMODE(log.directory.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in log.directory.iterdir()} == {0o600}


class Filling(Files):
    """A disk with as many free bytes as the test says."""

    free = 1 << 30
    looked = 0

    def free_bytes(self, directory: Path) -> int:
        self.looked += 1
        return self.free


def test_needed_bytes_are_counted_by_segment() -> None:
    needed = Needed()
    needed.add(1, 10)
    needed.add(2, 5)
    needed.take(1, 10)
    assert needed.table() == {2: 5}
    with pytest.raises(ValueError, match="6 bytes of segment 2 freed, 5 were needed"):
        needed.take(2, 6)


def test_a_full_disk_refuses_before_anything_is_written(tmp_path: Path) -> None:
    files = Filling()
    files.free = 14_000
    with Log.open(tmp_path / "log", files=files, options=LogOptions(reserve_bytes=1000)) as log:
        assert log.room(5000)
        log.append(16, [bytes(5000)])
        assert not log.room(5000)  # what waits to be written counts
        error = log.disk_full(5000)
        assert isinstance(error, DiskFull)
        assert error.needed > 6000, "1,000 bytes stay free for settlements"
        assert 0 < error.free < 14_000 - 5000


def test_a_commit_looks_at_the_disk_once_a_second_or_a_mebibyte(tmp_path: Path, clock: FakeClock) -> None:
    files = Filling()
    with Log.open(tmp_path / "log", files=files, clock=clock, options=LogOptions(reserve_bytes=0)) as log:
        looked = files.looked
        files.free = 50
        log.commit()
        assert log.room(100)
        clock.advance(1.0)
        log.commit()
        assert not log.room(100)
        assert files.looked == looked + 1
        files.free = 1 << 30
        clock.advance(1.0)
        log.commit()
        assert log.room(100)
        log.append(16, [bytes(1 << 20)])
        files.free = 50
        log.commit()
        assert not log.room(100)


def test_usage_agrees_with_the_directory(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", options=LogOptions(segment_bytes=1000)) as log:
        for n in range(30):
            log.append(16, [bytes(100)], needed=n)
        log.checkpoint(log.mark(), b"state")
        usage = log.usage()
        sizes = {path.name: path.stat().st_size for path in log.directory.iterdir()}
        assert usage.segments == sum(size for name, size in sizes.items() if name.endswith(".seg"))
        assert usage.checkpoints == sum(size for name, size in sizes.items() if name.startswith("ckpt"))
        assert usage.needed == sum(range(30))
        assert usage.total == usage.segments + usage.checkpoints
