"""Making shards anew, beside a registry that only notes what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.cluster.supervisor import Entry, Supervisor


class Noting:
    """A registry of one shard."""

    def __init__(self, make: Callable[[Entry, str], Awaitable[None]]) -> None:
        self.entries: dict[str, Entry] = {}
        self.scheduler = SimpleNamespace(workers={})
        self.queues = {"q": {}}
        self.attachments = SimpleNamespace(cut_off=self._cut_off)
        self.made: list[str] = []
        self.told: list[str] = []
        self._make = make
        self.entry = Entry("queue/q/0", "q", "a", "k", 1, "host", b"", ("q", 0, 1, {"store": {}}))
        self.entry.made.set()
        self.entries[self.entry.name] = self.entry

    def plan(self) -> Any:
        return SimpleNamespace(queues=list(self.scheduler.workers))

    def addresses_of(self, host: str) -> list[str]:
        return [state.address for state in self.scheduler.workers.values() if state.name == host]

    async def hand_over(self, entry: Entry) -> None:
        self.told.append(f"hand over {entry.name}")

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.create_task(work)

    async def make_again(self, entry: Entry, address: str) -> None:
        self.made.append(address)
        entry.address = address
        await self._make(entry, address)

    async def _cut_off(self, queue: str) -> None:
        self.told.append(queue)

    def join(self, address: str, name: str = "host") -> None:
        self.scheduler.workers[address] = SimpleNamespace(address=address, name=name)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for wait in ("REPLACEMENT_WAIT", "TRANSIENT_WAIT"):
        monkeypatch.setattr(f"dqlab.cluster.supervisor.{wait}", 0.01)
    monkeypatch.setattr("dqlab.cluster.supervisor.TRY_AGAIN", 0.0)


async def fine(entry: Entry, address: str) -> None:
    """Nothing happens."""


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_shard_of_a_queue_that_was_closed_is_not_made_anew() -> None:
    """Nobody would ever close it, and whoever opens the queue again would find its log held."""

    async def scenario() -> tuple[list[str], bool, str | None]:
        registry = Noting(fine)
        supervisor = Supervisor(registry)  # type: ignore[arg-type]
        supervisor.worker_left(registry.entry)
        await settled()
        del registry.entries[registry.entry.name]
        supervisor.changed()
        registry.join("b")
        supervisor.changed()
        await asyncio.wait_for(registry.task, 5)
        return registry.made, registry.entry.made.is_set(), registry.entry.gone

    assert asyncio.run(scenario()) == ([], True, "its queue was closed while it was being made anew")


def test_a_worker_that_dies_as_soon_as_it_has_the_shard_is_replaced_too() -> None:
    async def scenario() -> tuple[list[str], str, list[str]]:
        registry = Noting(fine)
        supervisor = Supervisor(registry)  # type: ignore[arg-type]

        async def dies(entry: Entry, address: str) -> None:
            if address == "b":
                del registry.scheduler.workers["b"]
                supervisor.worker_left(entry)
                registry.join("c")

        registry._make = dies
        registry.join("b")
        supervisor.worker_left(registry.entry)
        await asyncio.wait_for(registry.task, 5)
        return registry.made, registry.entry.address, registry.told

    assert asyncio.run(scenario()) == (["b", "c"], "c", ["q"])


def test_a_shard_that_cannot_be_made_says_why_after_some_tries() -> None:
    """Callers hear the reason, and no new epoch is begun for ever."""

    async def breaks(entry: Entry, address: str) -> None:
        raise KeyError("what nobody thought of")

    async def scenario() -> tuple[int, str | None, bool]:
        registry = Noting(breaks)
        registry.join("b")
        Supervisor(registry).worker_left(registry.entry)  # type: ignore[arg-type]
        await asyncio.wait_for(registry.task, 5)
        return len(registry.made), registry.entry.gone, registry.entry.made.is_set()

    made, gone, answered = asyncio.run(scenario())
    assert made == 3
    assert gone is not None
    assert "what nobody thought of" in gone
    assert answered


def test_a_worker_out_of_reach_is_tried_until_another_comes() -> None:
    async def scenario() -> tuple[list[str], str | None]:
        registry = Noting(fine)

        async def unreachable(entry: Entry, address: str) -> None:
            if len(registry.made) < 5:
                raise OSError("connection refused")

        registry._make = unreachable
        registry.join("b")
        Supervisor(registry).worker_left(registry.entry)  # type: ignore[arg-type]
        await asyncio.wait_for(registry.task, 5)
        return registry.made, registry.entry.gone

    assert asyncio.run(scenario()) == (["b"] * 5, None)
