"""A slot that serves several shards: none of them thinks that it wants nothing when it does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dqlab.cluster.consumer.devices import Equipment
from dqlab.cluster.consumer.hand import Hand
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.runner import Runner, SlotOptions
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Work
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.running.threads import Flight
from dqlab.cluster.consumer.settling import Settler
from dqlab.cluster.consumer.sink_writing import Sinks
from dqlab.cluster.consumer.slot import Slot
from dqlab.cluster.transport.wire import pack
from dqlab.frame import Frame, Kind, Outcome
from dqlab.log.errors import RecordTooLarge
from dqlab.rules.states import State
from tests.cluster.consumer.test_coroutines import ORIGIN, Bench, NearRef
from tests.cluster.transport.test_parking import DeskActor, options


class Lingering(Runner):
    """Its first chunk takes a while to end after its last message has."""

    def __init__(self, slot: Slot) -> None:
        refusals, about = slot.settler.refusals, (Equipment(), slot._emptied)
        super().__init__(slot.options, FunctionCache(), slot._hand, refusals, *about)
        self.first: Chunk | None = None
        self.may_begin, self.may_end = threading.Event(), threading.Event()

    def _execute(self, chunk: Chunk, blob: bytes | None) -> Flight | None:
        self.first = self.first or chunk
        self.may_begin.wait(30)
        flight = super()._execute(chunk, blob)
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
        slot = Slot("consumer/q/0#0", refs, chosen, FunctionCache(), lambda: None)
        slot.runner = runner = Lingering(slot)
        slot.start()
        for here, values in zip(benches, ([1, 2], [3], [4]), strict=True):
            await here.put(values)
            await here.until(State.LEASED, len(values))
        runner.may_begin.set()
        await benches[0].until(State.ACKED, 2)  # while its chunk is not yet through
        if cancelled and runner.first is not None:
            runner.first.count += 1  # as if one more had been cancelled: it is never settled
        runner.may_end.set()
        for other in benches[1:]:
            await other.until(State.ACKED, 1)
        await benches[0].put([5])
        await benches[0].until(State.ACKED, 3)
        await slot.stop()
        for actor in actors:
            await actor.hand_over(pack({}))
        return [here.counts()[State.ACKED] for here in benches]

    assert asyncio.run(scenario()) == [3, 1, 1]


def settling_at(refs: dict[int, Any], refusals: Refusals | None = None) -> Settler:
    return Settler(refs, Hand("c#0", 1), Sinks("c", "", ORIGIN), refusals or Refusals("c", ""), lambda: None)


def test_settlements_of_a_chunk_leave_one_after_another_and_a_refused_one_stops_no_other() -> None:
    """What is confirmed is all that was collected, so an ack on its way must not stand behind another's answer."""

    class SlowShard:
        def __init__(self) -> None:
            self.here = self.most = 0
            self.settled: list[tuple[int, int]] = []

        async def call(self, method: str, body: Any) -> bytes:
            packed = body()
            self.here += 1
            self.most = max(self.most, self.here)
            held = chunk.unsettled()
            await asyncio.sleep(0.01)
            self.here -= 1
            if not self.settled:
                self.settled.append((0, 0))
                raise RecordTooLarge(size=2, limit=1)
            assert chunk.unsettled() == held
            self.settled.append((len(packed), chunk.settled))
            return b""

    frame = Frame.decode(Frame.encode([b"x"] * 3, kind=Kind.VALUE, ordinal=0))
    chunk, shard = Chunk(Lease(0, 1, 1, 60.0), [1], [frame]), SlowShard()

    async def scenario() -> list[str | None]:
        refs: dict[int, Any] = {0: shard}
        settling, errors = settling_at(refs), list[str | None]()
        for index in range(3):
            chunk.done.append((chunk.todo.popleft(), Outcome.ACK, b"%d" % index, None))
            for _ in range(3):
                settling.meanwhile(chunk)
            await asyncio.sleep(0)  # the settlement of the message before is still on its way
            if not index:
                await asyncio.wait(settling.tasks)
                errors.append(settling.last_error)
        await settling.settle(chunk)
        return errors

    [error] = asyncio.run(scenario())
    assert error is not None
    assert error.startswith("RecordTooLarge")
    assert (shard.most, chunk.settled, chunk.unsettled()) == (1, 3, [])
    assert len(shard.settled) == 3
