from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from dqlab.log import Fenced, Files, LockUnsupported, Log, LogOptions, OwnerStillAlive
from dqlab.log.directory import epoch_name
from dqlab.log.files import Lock
from dqlab.log.options import SyncMode
from dqlab.testing import FakeClock


class Elsewhere(Files):
    """As another host sees the directory: the lock there says what it is told to say, and nobody waits."""

    def __init__(self, lock: Lock, filesystem: str = "ext4") -> None:
        self._lock = lock
        self._filesystem = filesystem
        self.pauses = 0

    def lock(self, descriptor: int) -> Lock:
        return self._lock

    def filesystem(self, directory: Path) -> str:
        return self._filesystem

    def pause(self, seconds: float) -> None:
        self.pauses += 1


def test_a_second_opener_in_one_process_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path / "log")
    with Log.open(tmp_path / "log") as log:
        for path in ("log", "alias", "../" + tmp_path.name + "/log"):
            with pytest.raises(OwnerStillAlive) as caught:
                Log.open(tmp_path / path)
            assert (caught.value.host, caught.value.pid) == (socket.gethostname(), os.getpid())
        log.append(16, [b"x"])
        assert log.commit() == 1


def test_takeover_ends_the_epoch_of_an_owner_that_only_slept(tmp_path: Path) -> None:
    old = Log.open(tmp_path / "log")
    old.append(16, [b"confirmed"])
    old.commit()
    old.append(16, [b"not confirmed"])
    files = Elsewhere("refused")
    with Log.open(tmp_path / "log", files=files, takeover=True) as new:
        assert new.recovery.lock == "bypassed"
        assert files.pauses == 50 + 1  # for the lock, and for what the other still confirms
        assert [bytes(record.body) for record in new.replay()] == [b"confirmed"]
        for call in (old.commit, old.sync, lambda: old.append(16, [b"y"])):
            with pytest.raises(Fenced, match="epoch 1"):
                call()
        assert old.durable == 1
        old.close()
        with pytest.raises(OwnerStillAlive):
            Log.open(tmp_path / "log")
        new.append(16, [b"z"])
        assert new.commit() == 1


def test_an_owner_that_slept_through_two_takeovers_is_fenced_too(tmp_path: Path) -> None:
    old = Log.open(tmp_path / "log")
    old.append(16, [b"not confirmed"])
    for _ in range(2):
        Log.open(tmp_path / "log", files=Elsewhere("refused"), takeover=True).close()
    assert not (tmp_path / "log" / "EPOCH-0000000002").exists()
    with pytest.raises(Fenced):
        old.commit()
    old.close()


def test_a_fenced_owner_deletes_and_publishes_nothing(tmp_path: Path) -> None:
    old = Log.open(tmp_path / "log")
    old.append(16, [b"x"])
    mark = old.mark()
    with Log.open(tmp_path / "log", files=Elsewhere("refused"), takeover=True):
        before = sorted(path.name for path in (tmp_path / "log").iterdir())
        with pytest.raises(Fenced):
            old.checkpoint(mark, b"state")
        with pytest.raises(Fenced):
            old.collect()
        assert sorted(path.name for path in (tmp_path / "log").iterdir()) == before
    old.close()


def test_no_takeover_over_a_network(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        with pytest.raises(OwnerStillAlive):
            Log.open(tmp_path / "log", files=Elsewhere("refused", "nfs4"), takeover=True)
        assert log.commit() == 0
        with pytest.raises(OwnerStillAlive):  # still registered as open here
            Log.open(tmp_path / "log")


def test_without_locks_a_log_opens_only_when_told_that_this_is_safe(tmp_path: Path) -> None:
    files = Elsewhere("unsupported", "lustre")
    with pytest.raises(LockUnsupported, match="lustre"):
        Log.open(tmp_path / "log", files=files)
    with Log.open(tmp_path / "log", files=files, options=LogOptions(unsafe_no_lock=True)) as log:
        assert log.recovery.lock == "unsupported"
        assert log.recovery.filesystem == "lustre"


def test_the_loser_of_a_race_for_an_epoch_backs_off(tmp_path: Path) -> None:
    class Late(Files):
        def create(self, path: Path) -> int:
            if path.name.startswith("EPOCH"):
                raise FileExistsError(errno.EEXIST, "somebody was faster")
            return super().create(path)

    with pytest.raises(OwnerStillAlive):
        Log.open(tmp_path / "log", files=Late())
    Log.open(tmp_path / "log").close()


@pytest.mark.parametrize(("sync", "unnoticed"), [("always", 0), ("interval", 0), ("os", 2)])
def test_an_owner_notices_a_takeover_before_its_successor_reads(
    tmp_path: Path, clock: FakeClock, sync: SyncMode, unnoticed: int
) -> None:
    """Where a commit takes microseconds it looks every 10 ms only; the successor waits 50 ms."""
    log = Log.open(tmp_path / "log", options=LogOptions(sync=sync), clock=clock)
    log.append(16, [b"first"])
    log.commit()
    (tmp_path / "log" / epoch_name(log.epoch + 1)).touch()
    for _ in range(unnoticed):
        log.append(16, [b"still confirmed"])
        log.commit()
    clock.advance(0.02)
    log.append(16, [b"too late"])
    with pytest.raises(Fenced):
        log.commit()
    log.close()
