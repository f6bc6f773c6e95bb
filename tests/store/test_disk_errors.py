"""What offline tools make of a disk that fails: an error that fits, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dqlab.frame import Frame, Kind
from dqlab.log.errors import DiskFailed, NoDescriptors
from dqlab.log.files import Directory
from dqlab.log.readonly import ReadOnlyLog
from dqlab.log.writer import LogOptions
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.store.directories import StoredQueue, keep_queue, queue_directory, shard_directory
from dqlab.store.durable_shard import DurableShard
from dqlab.store.offline import steadily
from dqlab.store.verbs import Level, check, show
from tests.kit.disks import no


@pytest.fixture
def shard(store: Path) -> Path:
    """A shard with a frame and two checkpoints, beside another queue."""
    for name in ("a", "b"):
        keep_queue(queue_directory(store, name), StoredQueue(name, 1, {}))
        path = shard_directory(queue_directory(store, name), 0)
        durable = DurableShard.open(path, name, 0, QueueOptions(), log_options=LogOptions(reserve_bytes=0))
        durable.ledger.shard.put(Frame.decode(Frame.encode([b"payload"] * 3, kind=Kind.VALUE)))
        for _ in range(2):
            durable.checkpoint()()
        durable.journal.log.close()
    return shard_directory(queue_directory(store, "a"), 0)


def refuse(monkeypatch: pytest.MonkeyPatch, method: str, bad: str, number: str = "EIO") -> None:
    """Let a method of `Directory` or `Path` fail for files whose names contain `bad`."""
    plain = getattr(Directory, method)

    def refusing(directory: Directory, name: str, *arguments: object) -> object:
        if bad in str(directory / name):
            raise no(number, directory / name)
        return plain(directory, name, *arguments)

    monkeypatch.setattr(Directory, method, refusing)


def test_one_description_that_cannot_be_read_hides_no_other_queue(
    shard: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "read", f"{queue_directory(store, 'b').name}/queue.json")
    queues = show(store)["queues"]
    assert [queue["error"] is None for queue in queues] == [True, False]
    assert "Input/output error" in str(queues[1]["error"])


def test_a_record_that_the_disk_refuses_is_lost_and_said_so(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(log: ReadOnlyLog, *_: object) -> bytes:
        with log.typed():
            raise no("EIO")

    monkeypatch.setattr(ReadOnlyLog, "read", refused)
    [found] = check(shard).shards()
    [lost] = [finding for finding in found.findings if finding.level is Level.LOST]
    assert "Input/output error" in lost.text
    assert "Nothing that was confirmed has changed" not in lost.text


def test_want_of_descriptors_loses_no_record(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(log: ReadOnlyLog, *_: object) -> bytes:
        raise NoDescriptors(directory=str(log.directory), reason="[Errno 24] Too many open files")

    monkeypatch.setattr(ReadOnlyLog, "read", refused)
    [found] = check(shard).shards()
    assert not found.lost
    assert [finding.level for finding in found.findings] == [Level.UNREADABLE]


def test_a_log_that_an_owner_takes_over_is_read_again(shard: Path) -> None:
    """Its manifest vanishes between the list and the reading, whether or not the owner is still there."""
    looks = 0

    def look(log: ReadOnlyLog) -> int:
        nonlocal looks
        looks += 1
        if looks == 1:
            log.read("MANIFEST-0000000099", 0, 1)
        return looks

    assert steadily(look, shard) == 2


def test_a_checkpoint_that_the_disk_refuses_is_an_error_of_the_disk(
    shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ReadOnlyLog(shard)
    refuse(monkeypatch, "read", "ckpt-")
    with pytest.raises(DiskFailed):
        log.body(log.checkpoints[-1])


def test_options_of_a_later_version_are_left_out(store: Path) -> None:
    queue = StoredQueue("q", 1, {"retry": {"retries": 7, "later": True}, "later": 1})
    assert queue.rules.retry == Retry(7)
    path = queue_directory(store, "q")
    keep_queue(path, queue)
    assert json.loads((path / "queue.json").read_text())["options"]["retry"]["later"]
    assert show(store)["queues"][0]["error"] is None
