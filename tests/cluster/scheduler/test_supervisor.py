"""Recreating shards, beside a registry that only notes what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.cluster.scheduler.actors import Actors, Supervisor
from dqlab.cluster.scheduler.state import Entry
from dqlab.log.errors import LogFailed, ManifestCorrupt

pytestmark = pytest.mark.lowest


class Noting:
    """A registry of one shard."""

    def __init__(self, make: Callable[[Entry, str], Awaitable[None]]) -> None:
        self.entries: dict[str, Entry] = {}
        self.scheduler = SimpleNamespace(id="s", workers={})
        self.queues = {"q": {}}
        self.attachments = SimpleNamespace(cut_off=self._cut_off)
        self.made: list[str] = []
        self.told: list[str] = []
        self._make = make
        self.entry = Entry("queue/q/0", "q", "a", "k", 1, "host", args=("q", 0, 1, {"store": {}}))
        self.entry.made.set()
        self.entries[self.entry.name] = self.entry

    def supervisor(self) -> Supervisor:
        return Supervisor(self, self, self.attachments.cut_off)  # type: ignore[arg-type]

    def plan(self) -> Any:
        return SimpleNamespace(queues=list(self.scheduler.workers))

    def hosts_for(self, shard: Entry) -> Any:
        return self.plan().queues

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
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.REPLACEMENT_WAIT", 0.01)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.TRY_AGAIN", 0.0)


async def fine(entry: Entry, address: str) -> None:
    """Nothing happens."""


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_shard_whose_worker_is_restarted_is_made_once_that_worker_is_gone() -> None:
    """It is listed until its process has ended, and a replacement has a few seconds from then on."""

    async def scenario() -> tuple[list[str], list[str]]:
        registry = Noting(fine)
        supervisor = registry.supervisor()
        registry.join("a")
        registry.join("other", name="elsewhere")
        supervisor.worker_left("a")
        await asyncio.sleep(0.05)  # longer than a replacement is waited for
        before = list(registry.made)
        del registry.scheduler.workers["a"]
        supervisor.worker_left("a")
        registry.join("b")
        supervisor.changed()
        await asyncio.wait_for(registry.task, 5)
        return before, registry.made

    assert asyncio.run(scenario()) == ([], ["b"])


def test_a_shard_whose_host_comes_back_while_it_is_made_elsewhere_comes_home() -> None:
    """It would stay beside users' functions until the host of queues is lost once more."""

    async def scenario() -> list[str]:
        async def host_comes(entry: Entry, address: str) -> None:
            if address == "elsewhere":
                registry.join("home")
                supervisor.changed()
                supervisor.come_home()  # as when a worker joins: it passes over a shard that is being made
                await settled()

        registry = Noting(host_comes)
        supervisor = registry.supervisor()
        registry.plan = lambda: SimpleNamespace(  # type: ignore[method-assign]
            queues=registry.addresses_of("host") or list(registry.scheduler.workers)
        )
        registry.join("elsewhere", name="another")
        supervisor.worker_left("a")
        first = registry.task
        await asyncio.wait_for(first, 5)
        if registry.task is not first:
            await asyncio.wait_for(registry.task, 5)
            await settled()
            await asyncio.wait_for(registry.task, 5)
        return registry.made

    assert asyncio.run(scenario()) == ["elsewhere", "home"]


def test_a_shard_that_cannot_be_made_says_why_after_some_tries() -> None:
    """Callers hear the reason, and no new epoch is begun for ever."""

    async def breaks(entry: Entry, address: str) -> None:
        raise KeyError("what nobody thought of")

    async def scenario() -> tuple[int, str | None, bool]:
        registry = Noting(breaks)
        registry.join("b")
        registry.supervisor().worker_left(registry.entry.address)
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
        registry.supervisor().worker_left(registry.entry.address)
        await asyncio.wait_for(registry.task, 5)
        return registry.made, registry.entry.gone

    assert asyncio.run(scenario()) == (["b"] * 5, None)


FAILED = LogFailed(directory="/store/q/0", reason="OSError: the cable")


def test_a_log_that_says_it_has_failed_is_let_go_and_opened_again() -> None:
    """Nothing is leased and nothing settled there any more, and nothing else would ever change that."""

    async def scenario() -> tuple[list[str], list[str], int, bool]:
        registry = Noting(fine)
        registry.join("a")
        supervisor = registry.supervisor()
        supervisor.store_failed(registry.entry, 7, str(FAILED))
        supervisor.store_failed(registry.entry, 7, str(FAILED))
        await asyncio.wait_for(registry.task, 5)
        supervisor.store_failed(registry.entry, 7, "its last words, heard once more")
        return registry.told, registry.made, registry.entry.epoch, registry.entry.made.is_set()

    assert asyncio.run(scenario()) == (["hand over queue/q/0", "q"], ["a"], 2, True)


def test_a_log_that_cannot_be_opened_now_is_tried_until_its_disk_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls meanwhile wait, and raise with the reason after half a minute; all goes on when the disk is well."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.HOPELESS_AFTER", 0.0)
    told: list[str | None] = []

    async def scenario() -> tuple[int, str | None, str]:
        registry = Noting(fine)
        supervisor, actors = registry.supervisor(), Actors(registry)  # type: ignore[arg-type]

        async def fails(entry: Entry, address: str) -> None:
            told.append(actors.hopeless(entry))
            if len(registry.made) < 6:
                raise FAILED

        registry._make = fails
        registry.join("a")
        registry.join("b", "other")
        supervisor.store_failed(registry.entry, 7, str(FAILED))
        await asyncio.wait_for(registry.task, 5)
        return len(registry.made), registry.entry.gone, registry.entry.failure

    assert asyncio.run(scenario()) == (6, None, "")
    assert told == [str(FAILED)] * 6


@pytest.mark.parametrize("when", ["while it is opened", "a moment later"])
@pytest.mark.parametrize("failures", [0, 3])
def test_a_log_that_fails_after_its_shard_has_moved_has_half_a_minute_too(when: str, failures: int) -> None:
    """It counted from the last time that a worker of the shard had died, or from the start of the machine."""

    async def scenario() -> list[str | None]:
        registry = Noting(fine)
        registry.entry.failures = failures  # of yesterday
        supervisor, actors = registry.supervisor(), Actors(registry)  # type: ignore[arg-type]
        told: list[str | None] = []

        async def fails_once(entry: Entry, address: str) -> None:
            if when == "while it is opened" and len(registry.made) == 1:
                raise FAILED
            told.append(actors.hopeless(entry))

        registry._make = fails_once
        registry.join("a")
        await supervisor.move(registry.entry)
        await asyncio.wait_for(registry.task, 5)
        if when == "a moment later":
            supervisor.store_failed(registry.entry, 7, str(FAILED))
            told.append(actors.hopeless(registry.entry))
            await asyncio.wait_for(registry.task, 5)
        return told

    assert set(asyncio.run(scenario())) == {None}


def test_files_that_are_damaged_are_not_opened_again_and_again() -> None:
    """No pause mends them; somebody has to."""

    async def damaged(entry: Entry, address: str) -> None:
        raise ManifestCorrupt(file="MANIFEST-1", reason="checksum")

    async def scenario() -> tuple[int, str | None]:
        registry = Noting(damaged)
        registry.join("b")
        registry.supervisor().worker_left(registry.entry.address)
        await asyncio.wait_for(registry.task, 5)
        return len(registry.made), registry.entry.gone

    made, gone = asyncio.run(scenario())
    assert made == 1
    assert gone is not None
    assert "dqlab store export" in gone


def test_shard_whose_workers_die_again_and_again_is_given_up_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that kills the only worker, which the queue shares with it, would do so for ever."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.MOST_DEATHS", 3)

    async def scenario() -> tuple[list[str | None], list[str]]:
        registry, gone = Noting(fine), list[str | None]()
        supervisor = registry.supervisor()
        for worker in "bcde":
            registry.scheduler.workers.clear()
            supervisor.worker_left(registry.entry.address)
            gone.append(registry.entry.gone)
            registry.join(worker, name=worker)
            supervisor.changed()
            await asyncio.wait_for(registry.task, 5)
        return gone, registry.made

    gone, made = asyncio.run(scenario())
    assert gone[:2] == [None, None]
    assert gone[2] is not None
    assert gone[2].startswith("its worker c died, the last of 3 ")
    assert "executor='process'" in gone[2]
    assert made == ["b", "c"]
