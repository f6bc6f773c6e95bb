"""Sets of consumers are completed when a worker answers again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.cluster.scheduler import consumer_sets
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.state import NoWorkers, OpenQueue, Plan
from dqlab.errors import CallTimeout

WORKERS = ("tcp://a", "tcp://b")


class Cluster:
    """Two workers; those in `stopped` make no actor in time."""

    def __init__(self) -> None:
        self.stopped: set[str] = set()
        self.entries: dict[str, Any] = {}
        self.queues = {"pages": OpenQueue(1)}
        self.tasks: list[asyncio.Task[Any]] = []
        self.missing = 0
        self.sets = ConsumerSets(self, self)  # type: ignore[arg-type]

    def plan(self) -> Plan:
        return Plan(queues=WORKERS, consumers=() if self.missing else WORKERS)

    def turn(self, queue: str) -> asyncio.Lock:
        return asyncio.Lock()

    def in_background(self, job: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.ensure_future(job))

    async def spawn(self, name: str, queue: str, address: str, sealed_class: bytes, args: Any) -> None:
        if address in self.stopped:
            raise CallTimeout(name=name, call="open", seconds=30.0)
        self.entries[name] = SimpleNamespace(address=address)

    async def retire(self, names: list[str]) -> dict[str, Any]:
        return {}

    async def rest(self) -> None:
        while self.tasks:
            await asyncio.gather(*[self.tasks.pop() for _ in list(self.tasks)])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_sets, "REPLACEMENT_WAIT", 0.0)
    monkeypatch.setattr(consumer_sets, "STOPPED_WAIT", 0.0)
    monkeypatch.setattr(consumer_sets, "MISSED_FOR", 0.0)


@pytest.mark.parametrize("n", [None, 2])
def test_set_beside_a_stopped_worker_is_there_and_is_completed_when_the_worker_goes_on(n: int | None) -> None:
    async def scenario() -> None:
        here = Cluster()
        here.stopped = {"tcp://b"}
        assert len(await here.sets.serve("pages", b"", {}, n)) == 1
        here.stopped.clear()
        await here.rest()
        assert sorted(entry.address for entry in here.entries.values()) == sorted(WORKERS)
        assert len(await here.sets.consumers("pages")) == 2

    asyncio.run(scenario())


def test_set_without_a_consumer_that_can_be_made_raises_and_is_made_when_the_workers_go_on() -> None:
    async def scenario() -> None:
        here = Cluster()
        here.stopped = set(WORKERS)
        with pytest.raises(CallTimeout, match="open"):
            await here.sets.serve("pages", b"", {})
        here.stopped.clear()
        await here.rest()
        assert len(await here.sets.consumers("pages")) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("n", [None, 2])
def test_set_that_is_made_while_workers_are_being_replaced_gets_its_consumers_when_none_has_come(n: int | None) -> None:
    """No worker comes where there is no nanny: it had none for good, and one of a fixed number was refused."""

    async def scenario() -> None:
        here = Cluster()
        here.missing = 2
        here.sets.worker_missed()
        assert await here.sets.serve("pages", b"", {}, n) == []
        assert await here.sets.scale("pages", n) == []
        here.missing = 0
        await here.rest()
        assert len(await here.sets.consumers("pages")) == 2

    asyncio.run(scenario())


def test_set_of_a_fixed_number_is_refused_without_workers_that_are_or_will_be() -> None:
    async def scenario() -> None:
        here = Cluster()
        here.plan = lambda: Plan(queues=(), consumers=())  # type: ignore[method-assign]
        with pytest.raises(NoWorkers):
            await here.sets.serve("pages", b"", {}, 2)

    asyncio.run(scenario())
