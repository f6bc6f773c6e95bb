from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dqlab.errors import BadOption
from dqlab.log.errors import DiskFull, LogFailed
from dqlab.log.files import Buffer, Files
from dqlab.log.log import Log
from dqlab.log.writer import LogOptions
from dqlab.testing import FakeClock


class Failing(Files):
    """Calls fail as long as the test's functions say so; counts syncs of data."""

    def __init__(self) -> None:
        self.on_write: Callable[[int], int | OSError] = lambda size: size
        self.on_sync: Callable[[], OSError | None] = lambda: None
        self.on_truncate: Callable[[], OSError | None] = lambda: None
        self.syncs = 0
        self.synced: list[int] = []

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        allowed = self.on_write(len(data))
        if isinstance(allowed, OSError):
            raise allowed
        return super().write(descriptor, [data[:allowed]], offset) if allowed else 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        self.synced.append(descriptor)
        error = self.on_sync()
        if error is not None:
            raise error
        super().sync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        error = self.on_truncate()
        if error is not None:
            raise error
        super().truncate(descriptor, size)


def once(error: OSError) -> Callable[..., OSError | None]:
    errors = [error]
    return lambda *_: errors.pop() if errors else None


def bodies(directory: Path) -> list[bytes]:
    with Log.open(directory) as log:
        found = [bytes(record.body) for record in log.replay()]
        assert not log.corrupt
        return found


@pytest.fixture
def files() -> Failing:
    return Failing()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


# --- what a commit promises -------------------------------------------------------------------


def test_always_syncs_every_commit_once(path: Path, files: Failing) -> None:
    with Log.open(path, files=files) as log:
        before = files.syncs
        for _ in range(10):
            log.append(16, [b"x"])
        log.commit()
        log.commit()
        assert files.syncs == before + 1


def test_interval_confirms_first_and_syncs_when_the_interval_is_over(
    path: Path, files: Failing, clock: FakeClock
) -> None:
    with Log.open(path, files=files, clock=clock, options=LogOptions(sync="interval")) as log:
        before = files.syncs
        log.append(16, [b"x"])
        assert log.commit() == 1
        assert files.syncs == before
        clock.advance(0.06)
        log.commit()
        assert files.syncs == before + 1


def test_os_leaves_records_to_the_system_until_their_segment_is_full_or_a_sync_is_asked_for(
    path: Path, files: Failing, clock: FakeClock
) -> None:
    """A power cut may cost records of the open segment, never the log."""
    options = LogOptions(sync="os", segment_bytes=1000)
    with Log.open(path, files=files, clock=clock, options=options) as log:
        before = files.syncs
        for _ in range(5):
            log.append(16, [bytes(100)])
            log.commit()
            clock.advance(10.0)
        assert files.syncs == before
        for _ in range(3):
            log.append(16, [bytes(900)])
            log.commit()
        assert files.syncs == before + 3 * 3  # the full segment, of the new one the header, and the manifest
        for _ in range(2):
            log.sync()
            assert files.syncs == before + 3 * 3 + 1


# --- writes that fail -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_confirms_nothing_takes_no_puts_and_goes_on_with_room(
    path: Path, files: Failing, code: int
) -> None:
    log = Log.open(path, files=files)
    log.append(16, [b"settle"])
    files.on_write = lambda size: OSError(code, "full")
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.commit()
        assert (log.durable, log.room(1)) == (0, False)
    files.on_write = lambda size: size
    assert (log.commit(), log.room(1)) == (1, True)
    log.close()
    assert bodies(path) == [b"settle"]


# --- a file that cannot be trusted any more ---------------------------------------------------


def fail_sync(files: Failing) -> None:
    files.on_sync = once(OSError(errno.EIO, "sync failed"))


def fail_write(files: Failing) -> None:
    failure = once(OSError(errno.EIO, "write failed"))
    files.on_write = lambda size: failure() or size


def fail_truncate(files: Failing) -> None:
    sizes = [10]
    files.on_write = lambda size: sizes.pop() if sizes else size
    files.on_truncate = once(OSError(errno.EIO, "truncate failed"))


@pytest.mark.parametrize("fail", [fail_sync, fail_write, fail_truncate])
def test_a_failure_is_final_and_what_was_confirmed_is_there_at_the_next_open(
    path: Path, files: Failing, fail: Callable[[Failing], None]
) -> None:
    log = Log.open(path, files=files, options=LogOptions(segment_bytes=1000))
    expected = {log.append(16, [bytes([n]) * 100]): bytes([n]) * 100 for n in range(3)}
    log.commit()
    fail(files)
    log.append(16, [b"unconfirmed"])
    for call in (log.commit, log.commit, log.sync, log.collect, lambda: log.append(16, [b""])):
        with pytest.raises(LogFailed):
            call()
    assert log.durable == 3
    log.close()
    for _ in range(2):
        with Log.open(path) as log:
            assert {position: log.read(position) for position in expected} == expected
            assert [bytes(record.body) for record in log.replay()] == list(expected.values())
            assert not log.corrupt


def test_records_of_the_mode_os_survive_a_failed_sync(path: Path, files: Failing) -> None:
    """They are confirmed as written, so that the next open has them."""
    log = Log.open(path, files=files, options=LogOptions(sync="os"))
    for n in range(5):
        log.append(16, [bytes([n]) * 100])
        log.commit()
    fail_sync(files)
    with pytest.raises(LogFailed):
        log.sync()
    log.close()
    assert bodies(path) == [bytes([n]) * 100 for n in range(5)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
def test_a_failed_sync_of_what_is_in_memory_no_more_ends_the_log(number: int, tmp_path: Path) -> None:
    """The system drops what it could not write and reports it once: the next sync succeeds, and would confirm it."""
    files = Failing()
    log = Log.open(tmp_path / "log", options=LogOptions(sync="os", reserve_bytes=0), files=files)
    for _ in range(10):
        log.append(16, [bytes(1 << 20)])
        log.commit()
    files.on_sync = once(OSError(number, "once"))
    for _ in range(2):
        with pytest.raises(LogFailed, match="once"):
            log.sync()
    log.close(clean=False)


def test_a_commit_is_synced_unless_told_otherwise() -> None:
    assert LogOptions().sync == "always"


@pytest.mark.parametrize(
    "wrong",
    [
        {"sync": "never"},
        {"interval": -1.0},
        {"segment_bytes": 0},
        {"compact_below": 1.5},
        {"reserve_bytes": -1},
    ],
)
def test_an_option_out_of_range_names_itself(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadOption) as caught:
        LogOptions(**wrong)
    assert caught.value.option == next(iter(wrong))
