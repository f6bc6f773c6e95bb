from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dqlab.log.errors import Fenced, LogFailed, NoDescriptors, OwnerStillAlive
from dqlab.log.files import Files, Lock, epoch_name
from dqlab.log.log import Log
from dqlab.log.writer import LogOptions, SyncMode
from dqlab.testing import FakeClock


class Elsewhere(Files):
    """As another host sees the directory: the lock there says what it is told to say, and nothing waits."""

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


def test_takeover_ends_the_epoch_of_an_owner_that_only_slept(tmp_path: Path) -> None:
    old = Log.open(tmp_path / "log")
    old.append(16, [b"confirmed"])
    old.commit()
    old.append(16, [b"not confirmed"])
    files = Elsewhere("refused")
    with Log.open(tmp_path / "log", files=files, takeover=True) as new:
        assert new.lock == "bypassed"
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


NETWORKED = ["nfs4", "lustre", "dvs", "wekafs", "panfs", "gfs2", "virtiofs", "9p", ""]
IN_USER_SPACE = ["fuse.glusterfs", "fuse.ceph-fuse", "fuse.sshfs", "fuse.juicefs"]


@pytest.mark.parametrize("filesystem", NETWORKED + IN_USER_SPACE)
def test_no_takeover_where_another_machine_may_hold_the_lock(tmp_path: Path, filesystem: str) -> None:
    """Two machines would write one log. A type that is not known here counts as shared."""
    with Log.open(tmp_path / "log") as log:
        with pytest.raises(OwnerStillAlive):
            Log.open(tmp_path / "log", files=Elsewhere("refused", filesystem), takeover=True)
        assert log.commit() == 0
        with pytest.raises(OwnerStillAlive):  # still registered as open here
            Log.open(tmp_path / "log")


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


class Cached(Files):
    """A file server's client: it goes on saying that a name is not there until the directory is opened again."""

    def __init__(self, filesystem: str) -> None:
        self._filesystem = filesystem
        self._missing: set[Path] = set()

    def filesystem(self, directory: Path) -> str:
        return self._filesystem

    def refresh(self, directory: Path) -> None:
        super().refresh(directory)
        self._missing.clear()

    def exists(self, path: Path) -> bool:
        if path in self._missing:
            return False
        there = super().exists(path)
        if not there:
            self._missing.add(path)
        return there


def test_an_owner_on_a_file_server_notices_a_takeover_that_its_cache_does_not_know(tmp_path: Path) -> None:
    """That the next epoch has not begun is the normal answer, and cached for up to a minute."""
    with Log.open(tmp_path / "log", files=Cached("fuse.glusterfs")) as log:
        log.append(16, [b"first"])
        log.commit()
        (tmp_path / "log" / epoch_name(log.epoch + 1)).touch()
        log.append(16, [b"too late"])
        with pytest.raises(Fenced):
            log.commit()


class Troubled(Files):
    """So many looks at whether names exist fail, from `begin` on."""

    def __init__(self, number: int, times: int) -> None:
        self._number, self._times, self.begun = number, times, False

    def exists(self, path: Path) -> bool:
        if self.begun and self._times:
            self._times -= 1
            raise OSError(self._number, os.strerror(self._number))
        return super().exists(path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE])
def test_one_look_for_a_takeover_that_fails_ends_no_log(tmp_path: Path, number: int) -> None:
    """The records are written; whether they may be confirmed is found out by looking again."""
    files = Troubled(number, times=1)
    with Log.open(tmp_path / "log", files=files) as log:
        files.begun = True
        log.append(16, [b"x"])
        assert log.commit() == 1


def test_a_process_without_descriptors_confirms_nothing_and_goes_on_when_it_has_some(tmp_path: Path) -> None:
    """A user's function that leaks files is not to end the queue that its documents are in."""
    files = Troubled(errno.EMFILE, times=6)
    with Log.open(tmp_path / "log", files=files) as log:
        files.begun = True
        log.append(16, [b"x"])
        for _ in range(3):
            with pytest.raises(NoDescriptors, match=r"Too many open files.*tries again every second"):
                log.commit()
        log.append(16, [b"y"])
        assert log.commit() == 2


def test_a_look_that_is_refused_twice_is_no_confirmation(tmp_path: Path) -> None:
    files = Troubled(errno.EIO, times=2)
    log = Log.open(tmp_path / "log", files=files)
    files.begun = True
    log.append(16, [b"x"])
    for _ in range(2):
        with pytest.raises(LogFailed, match="Input/output error"):
            log.commit()
    assert log.durable == 0
    log.close()


def test_a_roll_without_descriptors_is_made_later(tmp_path: Path) -> None:
    """What a new segment needs to be opened is there again at some time, and the records wait in memory."""

    class Full(Files):
        full = False

        def create(self, path: Path) -> int:
            if self.full:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().create(path)

    files = Full()
    with Log.open(tmp_path / "log", files=files) as log:
        log.append(16, [b"first"])
        log.commit()
        files.full = True
        log.append(16, [b"second"])
        with pytest.raises(NoDescriptors):
            log.roll()
        files.full = False
        log.append(16, [b"third"])
        log.sync()
        assert log.durable == 3
    with Log.open(tmp_path / "log") as log:
        assert [bytes(record.body) for record in log.replay()] == [b"first", b"second", b"third"]
