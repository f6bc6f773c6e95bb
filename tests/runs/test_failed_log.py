"""A log that fails under a run: whoever waits for it is told, at once and in words."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.log import LogFailed
from dqlab.testing import Gate


def asked(client: Client, name: str, question: Callable[[Any], Any]) -> Any:
    """Return what is answered by the worker that holds a queue's shard."""

    def ask(dask_worker: Any) -> Any:
        found = [held for key, held in dask_worker.state.actors.items() if str(key).startswith(f"dq-queue/{name}/0-")]
        return question(found[0]) if found else None

    return next(answer for answer in client.run(ask).values() if answer is not None)


def break_disk(actor: Any) -> bool:
    """Let nothing be written to a shard's log any more."""

    def refuse(*_: Any) -> Any:
        raise OSError(errno.EIO, "the cable")

    files = actor._store.log._writer._files
    files.write = files.sync = refuse
    return True


def waiting(actor: Any) -> int:
    """Return how many calls wait at a shard."""
    return len(actor._changed._waiting)


def test_every_wait_for_a_queue_whose_log_fails_raises_that(client: Client, queue_name: str, tmp_path: Path) -> None:
    """None of them has a limit of its own, and nothing would ever come."""
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
        run.results,
        lambda: list(run.as_completed()),
        put.results,
        consumers.join,
    ]
    with ThreadPoolExecutor(len(waits)) as threads:
        asked_for = [threads.submit(wait) for wait in waits]
        while asked(client, queue_name, waiting) < len(waits):
            pass
        asked(client, queue_name, break_disk)
        with pytest.raises(LogFailed, match="the cable"):
            assert pool.put(1).ids
        for each in asked_for:
            with pytest.raises(LogFailed, match="the cable"):
                each.result(timeout=30)
    gate.open()
    consumers.cancel()
    pool.close(force=True)
