"""A log that fails under a run: a waiting client gets a readable error at once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import ActorGone, CallTimeout
from dqlab.log.errors import LogFailed
from dqlab.testing import Gate
from tests.kit.disks import asked, break_disk, unplugged


def waiting(actor: Any) -> int:
    """Return how many calls wait at a shard."""
    return len(actor._changed._waiting)


def test_wait_for_a_queue_whose_log_fails_loses_nothing_when_it_is_opened_again(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    """A disk that refuses twice ended every run of its queue, and a wait for one never ended."""
    gate = Gate(tmp_path)

    def hold(x: int) -> int:
        gate.wait(x)
        return x

    pool = dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path / "store")
    consumers = dq.ConsumerPool(client, pool, n_consumers=1)
    put = pool.batch_submit([(hold, (1,))] * 10)
    run = pool.map(hold, range(100), name=queue_name, consumers=None)
    assert run.submitter is not None
    assert run.submitter.join(30)
    assert len(put.ids) == 10
    consumers.start()
    gate.until_arrived(1)

    waits: list[Callable[[], Any]] = [
        run.wait,
        lambda: list(run.results()),
        lambda: sorted(value for _, value in run.as_completed()),
        put.results,
        consumers.join,
    ]
    with ThreadPoolExecutor(len(waits)) as threads:
        asked_for = [threads.submit(wait) for wait in waits]
        while asked(client, queue_name, waiting) < len(waits):
            time.sleep(0.05)
        asked(client, queue_name, break_disk)
        late = pool.put(1)
        assert len(late.ids) == 1
        gate.open()
        _, results, streamed, singles, _ = [each.result(timeout=60) for each in asked_for]
    assert results == streamed == list(range(100))
    assert singles == [(1,)] * 10
    consumers.cancel()
    pool.close(force=True)


@pytest.mark.slow
def test_every_call_to_a_queue_whose_log_cannot_be_opened_again_says_why(
    client: Client, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a minute is for a disk that comes back; after that no call waits for one that does not."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.HOPELESS_AFTER", 1.0)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.LONGEST_PAUSE", 0.5)
    pool = dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path / "store")
    run = pool.map(abs, range(100), name=queue_name, consumers=None)
    assert run.submitter is not None
    assert run.submitter.join(30)

    with unplugged(client, tmp_path / "store"):
        asked(client, queue_name, break_disk)
        with pytest.raises((ActorGone, CallTimeout, LogFailed)):
            assert pool.put(1).ids
        for wait in (run.wait, run.results, lambda: list(run.as_completed())):
            with pytest.raises(ActorGone, match=r"the cable.*opened again by itself"):
                wait()
    again = dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path / "store")
    assert again.counts()["ready"] == 100
    again.close(force=True)


@pytest.mark.parametrize("deleted", ["store", "shard"])
def test_queue_whose_directory_was_deleted_says_so_and_is_not_made_again_in_silence(
    client: Client, queue_name: str, tmp_path: Path, deleted: str
) -> None:
    """An empty log took its place: runs were not found, and what was put then could not be opened any more."""
    store = tmp_path / "store"
    pool = dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=store)
    run = pool.map(abs, range(100), name=queue_name, consumers=None)
    assert run.submitter is not None
    assert run.submitter.join(30)

    shutil.rmtree(store if deleted == "store" else next(store.glob("*/000"), store / "000"))
    asked(client, queue_name, break_disk)
    for call in (lambda: pool.put(1).ids, run.wait, run.results, lambda: list(run.as_completed()), lambda: run.counts):
        with pytest.raises((ActorGone, LogFailed), match=r"/000 (is gone: it was deleted|failed: .*the cable)"):
            call()
    with pytest.raises(ActorGone, match=r"/000 is gone: it was deleted") as gone:
        run.wait()
    # It said "if it was durable, they are in its store".
    assert f"Run {queue_name!r} was kept in those files alone" in str(gone.value)
    assert f"When they are back, lab.attach({queue_name!r}) finds it" in str(gone.value)
    assert "in its store" not in str(gone.value)
    assert list(tmp_path.rglob("*.seg")) == []

    again = dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=store)
    assert again.put(1).ids
    again.close(force=True)
    last = dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=store)
    assert last.counts()["ready"] == 1
    last.close(force=True)
