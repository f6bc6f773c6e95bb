"""Opening a durable shard: what it finds out is on disk before anybody is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.clock import SystemClock
from dqlab.cluster.consumer.actor import ConsumerActor
from dqlab.cluster.shard.actor import QueueActor
from dqlab.cluster.shard.durable import LogStore, open_log_of
from dqlab.cluster.transport.internals import NoSuchActor
from dqlab.cluster.transport.ref import Ref
from dqlab.frame import NO_ID, Frame, Kind
from dqlab.log.errors import LogClosed
from dqlab.log.log import Log
from dqlab.rules.retry import QueueOptions
from dqlab.rules.states import State
from dqlab.store.directories import shard_directory
from dqlab.store.durable_shard import DurableShard
from tests.cluster.statistics.test_many_runs import OPTIONS


async def opened(directory: Path) -> tuple[DurableShard, LogStore]:
    log = shard_directory(directory, 0)
    return await open_log_of("q", 0, QueueOptions(), log, {"reserve_bytes": 0}, SystemClock(), takeover=False)


def test_what_was_acked_early_and_never_heard_of_again_is_dead_for_good(tmp_path: Path) -> None:
    """Opening the shard records that, before its commits have begun."""

    async def scenario() -> list[int]:
        durable, store = await opened(tmp_path)
        rules = durable.ledger.shard
        rules.put(Frame.decode(Frame.encode([b"x"] * 5, kind=Kind.VALUE)))
        lease = rules.lease("c", 2)
        assert lease is not None
        assert durable.ledger.begin(lease.id)
        await store.durable()
        store.log.close(clean=False)

        found = []
        for _ in range(2):
            durable, store = await opened(tmp_path)
            await store.durable()
            found.append(durable.ledger.shard.lanes[NO_ID].counts[State.DEAD])
            store.log.close(clean=False)
        return found

    assert asyncio.run(scenario()) == [2, 2]


def test_a_shard_that_is_handed_over_while_it_is_opened_leaves_its_log_closed(tmp_path: Path) -> None:
    """A worker that leaves hands over what lives there, also what has not begun."""
    store = {"directory": str(tmp_path), "reserve_bytes": 0}

    async def scenario() -> None:
        actor = QueueActor("q", 0, 1, {**OPTIONS, "store": store})
        starting = asyncio.create_task(actor.start(b""))
        await asyncio.sleep(0)
        await actor.hand_over(b"")
        with pytest.raises(NoSuchActor):
            await starting

    asyncio.run(scenario())
    Log.open(shard_directory(tmp_path, 0)).close()  # else: OwnerStillAlive


def test_a_consumer_that_is_closed_before_it_begins_never_leases() -> None:
    async def scenario() -> None:
        actor = ConsumerActor("consumer/q/0", "q", 1, {})
        await actor.close(b"")
        with pytest.raises(NoSuchActor):
            await actor.start(b"")

    asyncio.run(scenario())


def test_call_that_meets_a_closed_log_is_sent_to_the_next_owner(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard had handed its log over while a put waited for room on the disk: the caller got `LogClosed`."""
    [ref] = queue.handle.refs
    refusals = [LogClosed(directory="store/q/000")]
    send = Ref._send

    async def moved_once(self: Any, place: Any, function: str, body: Any) -> bytes:
        if self is ref and function == "put" and refusals:
            raise refusals.pop()
        return await send(self, place, function, body)

    async def has_moved(*_: Any) -> bool:
        return True

    monkeypatch.setattr(Ref, "_send", moved_once)
    monkeypatch.setattr(Ref, "_moved", has_moved)

    [id] = queue.put([1]).ids

    assert refusals == []
    assert id == queue.put([2]).ids[0] - 1  # it was stored once
