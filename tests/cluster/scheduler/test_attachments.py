"""Queues without a client end after an hour; work never does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.cluster.scheduler.queues import CLOSE_AFTER
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.scheduler.state import OpenQueue
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.reports import packed
from dqlab.testing import FakeClock
from tests.cluster.reports import lane_report, shard_report

MINUTE = 60.0
IDLE = [0, 0, 0, 0, 0, 0, 0]


class Town:
    """A registry without a cluster: queues without actors, and a clock moved by hand."""

    def __init__(self, clock: FakeClock, registry: Registry) -> None:
        self.clock, self.registry, self.attachments = clock, registry, registry.attachments

    def queue(self, name: str, *clients: str, shards: int = 1) -> None:
        self.registry.state.queues[name] = OpenQueue(shards)
        for client in clients:
            self.attachments.add(name, client)
        for shard in range(shards):
            self.report(name, IDLE, shard=shard)

    def report(self, name: str, counts: list[int], *, shard: int = 0, stored: int = 0) -> None:
        lane = lane_report(None, counts=counts)
        self.registry.collect("w", packed(shard_report(name, lane, shard=shard, stored=stored)))

    async def after(self, seconds: float) -> list[str]:
        """Look once a minute, for so long; return what was closed."""
        closed = []
        for _ in range(round(seconds / MINUTE)):
            self.clock.advance(MINUTE)
            closed += await self.registry.queues.close_vacant(self.clock.monotonic())
        return closed


@pytest.fixture
def in_town(clock: FakeClock) -> Callable[..., Any]:
    def run(scenario: Callable[[Town], Coroutine[Any, Any, Any]]) -> Any:
        async def inside() -> Any:
            registry = Registry()
            scheduler = SimpleNamespace(id="s", workers={}, clients={}, handlers={}, stream_handlers={})
            await registry.start(scheduler)  # type: ignore[arg-type]
            try:
                return await scenario(Town(clock, registry))
            finally:
                await registry.close()

        return asyncio.run(inside())

    return run


def test_empty_queue_without_a_client_is_closed_after_an_hour(
    in_town: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Not before; and the log says so, once."""
    caplog.set_level(logging.INFO, "dqlab.registry")

    async def scenario(town: Town) -> Any:
        town.queue("q", shards=2)
        before = await town.after(CLOSE_AFTER)
        return before, await town.after(MINUTE), list(town.registry.state.queues), await town.after(CLOSE_AFTER)

    assert in_town(scenario) == ([], ["q"], [], [])
    closings = [record.message for record in caplog.records if "queue_closed" in record.message]
    assert closings == ["event=queue_closed queue=q reason=vacant seconds=3600"]


def test_queue_that_a_client_has_open_stays(in_town: Callable[..., Any]) -> None:
    """The hour begins when the last one leaves."""

    async def scenario(town: Town) -> Any:
        town.queue("q", "one", "two")
        town.attachments.client_left("one")
        attached = await town.after(5 * CLOSE_AFTER)
        town.attachments.client_left("two")
        return attached, await town.after(CLOSE_AFTER), await town.after(MINUTE)

    assert in_town(scenario) == ([], [], ["q"])


@pytest.mark.parametrize("state", range(5))
def test_queue_that_holds_messages_stays(in_town: Callable[..., Any], state: int) -> None:
    """Ready, delayed, leased and dead ones are work that was asked for; acked ones are done."""

    async def scenario(town: Town) -> list[str]:
        town.queue("q")
        town.report("q", [int(at == state) for at in range(7)])
        return await town.after(5 * CLOSE_AFTER)

    assert in_town(scenario) == (["q"] if state == 3 else [])


def test_client_that_came_and_went_starts_the_hour_again(in_town: Callable[..., Any]) -> None:
    """However shortly it was there."""

    async def scenario(town: Town) -> Any:
        town.queue("q")
        await town.after(CLOSE_AFTER - MINUTE)
        town.attachments.add("q", "visitor")
        town.attachments.client_left("visitor")
        return await town.after(CLOSE_AFTER), await town.after(MINUTE)

    assert in_town(scenario) == ([], ["q"])


def test_client_that_reconnects_has_its_queues_open_again(in_town: Callable[..., Any]) -> None:
    """A laptop that slept comes back under the same name, and does not open its queues again."""

    async def scenario(town: Town) -> list[str]:
        town.queue("q", "laptop")
        town.attachments.client_left("laptop")
        await town.after(CLOSE_AFTER / 2)
        town.registry.add_client(town.registry.state.scheduler, "laptop")
        return await town.after(5 * CLOSE_AFTER)

    assert in_town(scenario) == []


def test_queue_that_has_not_reported_stays(in_town: Callable[..., Any]) -> None:
    """What is not known to be empty is not."""

    async def scenario(town: Town) -> list[str]:
        town.registry.state.queues["q"] = OpenQueue(1)
        return await town.after(5 * CLOSE_AFTER)

    assert in_town(scenario) == []


def test_a_client_that_is_away_for_a_moment_keeps_its_run_when_another_is_given_up(
    in_town: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that fails hits all of them; each has its own time to come back."""

    async def scenario(town: Town) -> list[str]:
        told: asyncio.Queue[list[str]] = asyncio.Queue()

        async def ask_shards(queue: str, call: calls.Call[Any]) -> list[Any]:
            if isinstance(call, calls.CutOffCall):
                told.put_nowait(call.gone)
                return [calls.CutOffAnswer(1)]
            return [calls.SubmittingAnswer(["ana", "ben"])]

        monkeypatch.setattr(town.registry.actors, "ask_shards", ask_shards)
        town.queue("q", "ana", "ben")
        for client, away in (("ana", 0.01), ("ben", 60.0)):
            monkeypatch.setattr("dqlab.cluster.scheduler.queues.AWAY", away)
            town.attachments.client_left(client)
            await asyncio.sleep(0)
        return await asyncio.wait_for(told.get(), 10)

    assert in_town(scenario) == ["ana"]


def test_a_client_that_connects_while_another_ones_runs_are_cut_off_keeps_those_that_it_begins(
    in_town: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It connects, and begins a run, between the scheduler's look at who is connected and a shard's seal."""
    sealed: list[list[str]] = []

    async def scenario(town: Town) -> None:
        clients: dict[str, Any] = town.registry.state.scheduler.clients
        clients["early"] = None
        submitting = {"gone", "early"}

        async def ask_shards(queue: str, call: calls.Call[Any]) -> list[Any]:
            if "late" not in clients:
                clients["late"] = None
                submitting.add("late")
            if isinstance(call, calls.CutOffCall):
                sealed.append(sorted(submitting & set(call.gone)))
                return [calls.CutOffAnswer(len(sealed[-1]))]
            return [calls.SubmittingAnswer(sorted(submitting))]

        monkeypatch.setattr(town.registry.actors, "ask_shards", ask_shards)
        await town.attachments.cut_off_now("q")
        await town.attachments.cut_off("q")

    in_town(scenario)
    assert sealed == [["gone"], ["gone"]]
