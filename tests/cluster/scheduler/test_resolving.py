"""Actors that are asked for, or closed, while their worker dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.scheduler.state import Entry, OpenQueue
from dqlab.cluster.statistics.known import Known
from dqlab.log.errors import DiskFull

pytestmark = pytest.mark.lowest

NAME = "queue/q/0"


def in_registry(scenario: Callable[[Registry, Entry], Awaitable[Any]]) -> Any:
    """Play something in a registry of one shard, which is made, and no worker."""

    async def inside() -> Any:
        registry = Registry()
        scheduler = SimpleNamespace(id="s", workers={}, clients={}, handlers={}, stream_handlers={}, rpc=None)
        await registry.start(scheduler)  # type: ignore[arg-type]
        registry.state.queues["q"] = OpenQueue(1)
        entry = registry.state.entries[NAME] = Entry(NAME, "q", "a", "k", 1, "host", args=("q", 0, 1, {"store": {}}))
        entry.made.set()
        try:
            return await asyncio.wait_for(scenario(registry, entry), 5)
        finally:
            await registry.close()

    return asyncio.run(inside())


def asked(meanwhile: Callable[[Entry], Awaitable[None]]) -> dict[str, Any]:
    """Return the answer to a question that comes before what happens meanwhile."""

    async def scenario(registry: Registry, entry: Entry) -> dict[str, Any]:
        answer = asyncio.create_task(registry.resolve(NAME))
        await meanwhile(entry)
        return await answer

    found: dict[str, Any] = in_registry(scenario)
    return found


def made_anew(entry: Entry) -> None:
    entry.address = "b"
    entry.made.set()


@pytest.mark.parametrize("turns", range(5))
def test_a_worker_that_dies_while_its_shard_is_asked_for_is_no_timeout(turns: int) -> None:
    """A client learns of the death at the same moment as the registry: the two meet on one event loop."""

    async def dies(entry: Entry) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        entry.made.clear()
        for _ in range(5):
            await asyncio.sleep(0)
        made_anew(entry)

    assert asked(dies)["address"] in ("a", "b")


def test_a_shard_that_is_lost_again_as_soon_as_it_is_made_is_waited_for() -> None:
    async def dies_twice(entry: Entry) -> None:
        entry.made.clear()
        await asyncio.sleep(0)
        entry.made.set()
        entry.made.clear()
        for _ in range(5):
            await asyncio.sleep(0)
        made_anew(entry)

    assert asked(dies_twice)["address"] == "b"


def test_a_shard_that_cannot_be_made_is_gone_for_those_who_asked_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were sent to an actor that never began: an AttributeError in the cell of a client that did not open it."""

    async def scenario(registry: Registry, entry: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
        fails = asyncio.Event()

        async def ask(*_: Any, **__: Any) -> None:
            await fails.wait()
            raise DiskFull(directory="/full", needed=1, free=0)

        monkeypatch.setattr("dqlab.cluster.scheduler.actors.ask_worker", ask)
        del registry.state.entries[NAME]
        making = asyncio.create_task(registry.actors.spawn(NAME, "q", "a", b"", ("q", 0, 1, {"store": {}})))
        await asyncio.sleep(0)
        answer = asyncio.create_task(registry.resolve(NAME))
        await asyncio.sleep(0)
        fails.set()
        with pytest.raises(DiskFull):
            await making
        return await answer, await registry.resolve(NAME)

    meanwhile, later = in_registry(scenario)
    assert later["gone"]
    assert "no room in /full" in meanwhile["gone"]


def test_closing_a_queue_whose_worker_has_just_died_asks_the_dead_for_nothing() -> None:
    """Each question to who is dead takes 3 s, and there were three."""

    async def scenario(registry: Registry, entry: Entry) -> tuple[list[str], str | None]:
        registry.supervisor.worker_left(entry.address)
        await asyncio.sleep(0)
        await registry.queues.close("q")
        return list(registry.state.entries), entry.gone

    assert in_registry(scenario) == ([], "its queue was closed while it was being recreated")


def test_the_next_name_for_a_run_is_found_without_going_through_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand unnamed runs of one function cost the scheduler's loop seconds: each began to count at 1."""
    looked, before = list[str](), {f"double-{number}" for number in range(1, 51)}

    def has_run(known: Known, name: str) -> bool:
        looked.append(name)
        return name in before

    monkeypatch.setattr(Known, "has_run", has_run)

    async def scenario(registry: Registry, entry: Entry) -> list[str]:
        names = [await registry.name_run("double")]
        looked.clear()
        for _ in range(20):
            before.add(names[-1])
            names.append(await registry.name_run("double"))
        return names

    assert in_registry(scenario) == [f"double-{number}" for number in range(51, 72)]
    assert len(looked) == 20
