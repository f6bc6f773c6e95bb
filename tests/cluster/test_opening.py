"""Opening a durable shard: what it finds out is on disk before anybody is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dqlab.clock import SystemClock
from dqlab.cluster.shard.durable import LogStore, open_durable
from dqlab.frame import NO_ID, Frame, Kind
from dqlab.rules.options import QueueOptions
from dqlab.rules.states import State
from dqlab.store.shard import DurableShard


async def opened(directory: Path) -> tuple[DurableShard, LogStore]:
    store = {"directory": str(directory), "reserve_bytes": 0}
    return await open_durable("q", 0, QueueOptions(), store, SystemClock())


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
