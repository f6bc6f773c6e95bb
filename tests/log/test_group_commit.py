from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Queue

import pytest

from dqlab.log.errors import DiskFull, LogFailed
from dqlab.log.files import Buffer, Files
from dqlab.log.log import GroupCommit, Log
from dqlab.log.writer import LogOptions


class Held(Files):
    """Syncs wait while the test holds the gate; each is counted."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.syncing = threading.Semaphore(0)
        self.syncs = 0
        self.error: OSError | None = None

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.error is not None:
            raise self.error
        return super().write(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        self.syncing.release()
        assert self.gate.wait(30)
        super().sync(descriptor)


class Watched:
    """A log, its committing thread, and what both report."""

    def __init__(self, path: Path, files: Held, options: LogOptions) -> None:
        self.log = Log.open(path, files=files, options=options)
        self.said: Queue[int | Exception] = Queue()
        self.commits = GroupCommit(self.log, self._wake, on_durable=self.said.put, on_short=self.said.put)
        self.log.call_on_refusal(self._refused)

    @staticmethod
    def _wake(call: Callable[[], None]) -> None:
        call()

    def _refused(self) -> None:
        assert self.log.refusal is not None
        self.said.put(self.log.refusal)

    def hear(self) -> int | Exception:
        return self.said.get(timeout=30)


@pytest.fixture
def files() -> Held:
    return Held()


@pytest.fixture
def watched(tmp_path: Path, files: Held) -> Iterator[Watched]:
    made = Watched(tmp_path / "log", files, LogOptions())
    yield made
    made.commits.close()
    made.log.close(clean=False)


def test_one_sync_carries_all_that_waited_for_the_one_before(watched: Watched, files: Held) -> None:
    before = files.syncs
    while files.syncing.acquire(blocking=False):
        pass
    files.gate.clear()
    watched.log.append(16, [b"first"])
    watched.commits.wanted()
    assert files.syncing.acquire(timeout=30)
    for _ in range(128):
        watched.log.append(16, [b"waiting"])
        watched.commits.wanted()
    files.gate.set()
    assert watched.hear() == 1
    assert watched.hear() == 129
    assert files.syncs == before + 2


def test_interval_syncs_later_what_it_confirmed_at_once(tmp_path: Path, files: Held) -> None:
    watched = Watched(tmp_path / "log", files, LogOptions(sync="interval", interval=0.01))
    while files.syncing.acquire(blocking=False):
        pass
    watched.log.append(16, [b"x"])
    watched.commits.wanted()
    assert watched.hear() == 1
    assert files.syncing.acquire(timeout=30)
    watched.commits.close()
    watched.log.close()


def test_a_full_disk_is_reported_and_tried_again(watched: Watched, files: Held) -> None:
    files.error = OSError(errno.ENOSPC, "full")
    watched.log.append(16, [b"x"])
    watched.commits.wanted()
    assert isinstance(watched.hear(), DiskFull)
    files.error = None
    watched.commits.wanted()
    assert watched.hear() == 1


def test_a_failed_log_is_reported_once_and_confirms_nothing(watched: Watched, files: Held) -> None:
    files.error = OSError(errno.EIO, "dead")
    watched.log.append(16, [b"x"])
    watched.commits.wanted()
    assert isinstance(watched.hear(), LogFailed)
    watched.commits.wanted()
    watched.commits.close()
    assert watched.said.empty()
    assert watched.log.durable == 0


def test_an_unexpected_error_of_a_commit_is_the_reason_why_the_log_takes_no_more(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched.log, "commit", lambda: 1 / 0)
    watched.commits.wanted()
    error = watched.hear()
    assert isinstance(error, LogFailed)
    assert "ZeroDivisionError" in str(error)
    with pytest.raises(LogFailed, match="ZeroDivisionError"):
        watched.log.append(16, [b"x"])


def test_all_who_heard_of_a_commit_are_in_the_next_one(
    tmp_path: Path, files: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them that puts again does not start a commit for itself, which the others would wait for."""
    monkeypatch.setattr("dqlab.log.log._HANDLING_S", 30.0)
    calls: Queue[Callable[[], None]] = Queue()
    log = Log.open(tmp_path / "log", files=files, options=LogOptions())
    confirmed: list[int] = []
    in_one_commit: list[int] = []

    def put_again(durable: int) -> None:
        in_one_commit.append(durable - (confirmed[-1] if confirmed else 0))
        confirmed.append(durable)
        for _ in range(20):
            log.append(16, [b"again"])
            commits.wanted()

    commits = GroupCommit(log, calls.put, on_durable=put_again, on_short=calls.put)
    log.append(16, [b"first"])
    commits.wanted()
    while len(confirmed) < 5:
        calls.get(timeout=30)()
    while not calls.empty():
        calls.get()()
    commits.close()
    log.close()

    assert in_one_commit == [1, 20, 20, 20, 20]
