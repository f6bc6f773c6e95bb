"""A slot that serves several shards: none of them thinks that it wants nothing when it does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Flight, Work
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.slot import Slot, SlotOptions
from dqlab.cluster.transport.wire import pack
from dqlab.rules.states import State
from tests.cluster.consumer.test_coroutines import ORIGIN, Bench, NearRef
from tests.cluster.transport.test_parking import DeskActor, options


class Lingering(Slot):
    """Its first chunk takes a while to end after its last message has."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first: Chunk | None = None
        self.may_begin, self.may_end = threading.Event(), threading.Event()

    def _execute(self, chunk: Chunk, blobs: dict[bytes, bytes | None]) -> Flight | None:
        self.first = self.first or chunk
        self.may_begin.wait(30)
        flight = super()._execute(chunk, blobs)
        if chunk is self.first:
            self.may_end.wait(30)
        return flight


@pytest.mark.parametrize("cancelled", [False, True], ids=["settled before it ends", "cancelled in part"])
def test_shard_gets_the_end_of_a_chunk_that_has_nothing_left_to_settle(cancelled: bool) -> None:
    """Three shards, a chunk of each in hand: at the end of the first its shard may send another at once."""

    async def scenario() -> list[int]:
        actors = [DeskActor("q", index, 1, options()) for index in range(3)]
        for actor in actors:
            await actor.start(pack({}))
        benches = [Bench(actor) for actor in actors]
        refs: dict[int, Any] = {index: NearRef(actor) for index, actor in enumerate(actors)}
        chosen = SlotOptions(
            batch=100, early=False, concurrency=1, origin=ORIGIN, values=lambda: Work(lambda value: value)
        )
        slot = Lingering("consumer/q/0#0", refs, chosen, FunctionCache(), lambda: None)
        slot.start()
        for here, values in zip(benches, ([1, 2], [3], [4]), strict=True):
            await here.put(values)
            await here.until(State.LEASED, len(values))
        slot.may_begin.set()
        await benches[0].until(State.ACKED, 2)  # while its chunk is not yet through
        if cancelled and slot.first is not None:
            slot.first.count += 1  # as if one more had been cancelled: it is never settled
        slot.may_end.set()
        for other in benches[1:]:
            await other.until(State.ACKED, 1)
        await benches[0].put([5])
        await benches[0].until(State.ACKED, 3)
        await slot.stop()
        for actor in actors:
            await actor.hand_over(pack({}))
        return [here.counts()[State.ACKED] for here in benches]

    assert asyncio.run(scenario()) == [3, 1, 1]
