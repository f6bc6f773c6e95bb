"""Actors that are made within seconds share one client of their worker, and forks leave its signals as they were."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport.internals import NoSuchActor
from dqlab.cluster.worker import plugin
from dqlab.cluster.worker.plugin import SharedClient


class FakeClient:
    """Counts itself, and waits for `may_open` before it is open."""

    made: list[FakeClient]
    may_open: asyncio.Event
    refused = False

    def __init__(self, *_: Any, **__: Any) -> None:
        self.status = "connecting"
        self.made.append(self)

    def __await__(self) -> Any:
        return self._open().__await__()

    async def _open(self) -> FakeClient:
        await self.may_open.wait()
        if self.refused:
            raise OSError("nothing listens there")
        self.status = "running"
        return self

    async def close(self) -> None:
        self.status = "closed"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> SharedClient:
    monkeypatch.setattr(plugin, "PatientClient", FakeClient)
    monkeypatch.setattr(plugin, "security_of", lambda worker: None)
    FakeClient.made, FakeClient.may_open, FakeClient.refused = [], asyncio.Event(), False
    worker: Any = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://nowhere"))
    return SharedClient(worker)


def test_the_client_is_closed_when_no_actor_was_made_for_a_while(
    shared: SharedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It polls the scheduler as long as it is open; on each worker of a large cluster that would be a load."""
    monkeypatch.setattr(plugin, "LINGER_S", 0.01)

    async def scenario() -> list[str]:
        FakeClient.may_open.set()
        async with shared.borrowed(), shared.borrowed():
            await asyncio.sleep(0.05)  # twice as long as it lingers: somebody has it
            before = FakeClient.made[0].status
        while FakeClient.made[0].status != "closed":  # noqa: ASYNC110 - the client signals nothing when it is closed
            await asyncio.sleep(0.001)
        async with shared.borrowed():
            return [before, *(client.status for client in FakeClient.made)]

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == ["running", "closed", "running"]


def test_a_client_that_has_lost_the_scheduler_is_replaced_and_closed(shared: SharedClient) -> None:
    async def scenario() -> list[str]:
        FakeClient.may_open.set()
        async with shared.borrowed() as client:
            client.status = "connecting"
        async with shared.borrowed():
            pass
        await shared.close()
        return [client.status for client in FakeClient.made]

    assert asyncio.run(scenario()) == ["closed", "closed"]


def test_a_client_that_is_being_opened_while_its_worker_closes_is_closed_too(shared: SharedClient) -> None:
    """It was opened after that, for a worker that was gone, and polled the scheduler from then on."""

    async def make() -> None:
        async with shared.borrowed():
            raise AssertionError("its worker is closed")

    async def scenario() -> list[str]:
        making = asyncio.create_task(make())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await shared.close()
        FakeClient.may_open.set()
        with pytest.raises((NoSuchActor, asyncio.CancelledError)):
            await making
        with pytest.raises(NoSuchActor):
            await make()
        return [client.status for client in FakeClient.made]

    assert asyncio.run(scenario()) == ["closed"]


def test_a_client_that_cannot_be_opened_is_one_error_for_all_who_wait_for_it(shared: SharedClient) -> None:
    """Each of them tried again in turn, for the whole time that connecting may take."""

    async def make() -> str:
        try:
            async with shared.borrowed() as client:
                return client.status
        except OSError as error:
            return str(error)

    async def scenario() -> tuple[list[str], str, list[str]]:
        FakeClient.refused = True
        making = [asyncio.create_task(make()) for _ in range(3)]
        await asyncio.sleep(0)
        FakeClient.may_open.set()
        failed = await asyncio.gather(*making)
        FakeClient.refused = False
        later = await make()
        return failed, later, [client.status for client in FakeClient.made]

    expected = ["nothing listens there"] * 3, "running", ["closed", "running"]
    assert asyncio.run(scenario()) == expected


def test_opening_queues_in_a_row_opens_one_client_on_each_worker(lab: dq.Lab, client: Client, queue_name: str) -> None:
    """One for each actor took more than half of the time in which a queue opens."""
    queues = [lab.queue(f"{queue_name}-{number}") for number in range(4)]
    for queue in queues:
        queue.map(abs, [1]).wait(timeout=30)

    def spawning(dask_scheduler: Any) -> list[str]:
        return [name for name in dask_scheduler.clients if "dqlab-spawn" in name]

    assert 1 <= len(client.run_on_scheduler(spawning)) <= len(client.scheduler_info()["workers"])
    for queue in queues:
        queue.close()


@pytest.fixture
def signals() -> Iterator[None]:
    """The handlers and the mask of this process, restored."""
    handler = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.signal(signal.SIGTERM, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.usefixtures("signals")
def test_a_fork_leaves_no_signal_blocked_where_a_user_had_a_handler_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker of a process with a user's handler registered the same hooks again, and a second pair of them took
    the blocked signals for those of before: from the first fork on, the process ignored SIGTERM."""
    before: list[Callable[[], None]] = []
    after: list[Callable[[], None]] = []

    def register(**hooks: Any) -> None:
        before.insert(0, hooks["before"])
        after.append(hooks["after_in_parent"])

    monkeypatch.setattr(os, "register_at_fork", register)
    monkeypatch.setattr(plugin, "_own", {})
    monkeypatch.setattr(plugin, "_watch_forks", cache(plugin._watch_forks.__wrapped__))

    async def workers() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        assert not plugin.on_sigterm(lambda: None)
        assert not plugin.on_sigterm(lambda: None)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert plugin.on_sigterm(lambda: None)

    asyncio.run(workers())
    for hook in (*before, *after):
        hook()

    assert before
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
