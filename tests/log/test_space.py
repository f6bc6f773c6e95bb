from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.log.errors import DiskFull
from dqlab.log.files import Files
from dqlab.log.log import Log, Needed
from dqlab.log.writer import LogOptions
from dqlab.testing import FakeClock


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
