"""Calls that wait at a queue: no client polls, and none that left swallows anything."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from dqlab.cluster.shard.actor import RETURN_S, QueueActor
from dqlab.cluster.transport.parking import Bell, Credit, Do, ParkedLease, ParkingLot, SlotOrder
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.frame import NO_ID, Frame, Kind
from dqlab.rules.batches import Batch
from dqlab.rules.retry import QueueOptions, Retry
from tests.cluster.desk import DeskActor


def options() -> dict[str, Any]:
    chosen = QueueOptions()
    return {
        **{name: getattr(chosen, name) for name in ("visibility_timeout", "max_deliveries", "maxsize", "max_bytes")},
        "retry": {"retries": Retry().retries},
        "results_maxsize": 1 << 30,
    }


async def opened() -> DeskActor:
    actor = DeskActor("q", 0, 1, options())
    await actor.start(pack({}))
    return actor


def frame(n: int) -> bytes:
    return Frame.encode([b"x"] * n, kind=Kind.VALUE)


async def put(actor: QueueActor, n: int) -> None:
    await actor.put(pack({"frames": 1, "wait": 0.0}, frame(n)))


def lease(actor: QueueActor, consumer: str, session: str = "s", want: int = 100) -> Coroutine[Any, Any, bytes]:
    return actor.lease(pack({"consumer": consumer, "session": session, "credit": [1, want, 1]}))


def parked(consumer: str, *, at: int = 1, want: int = 1, session: str = "s") -> ParkedLease:
    return ParkedLease(consumer, session, Credit(at, want, 1), asyncio.get_running_loop().create_future())


async def settled() -> None:
    """Let every task that can run come to where it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_cancelled_call_swallows_no_messages() -> None:
    """A consumer whose connection broke while it waited is owed nothing."""

    async def scenario() -> tuple[int, int]:
        actor = await opened()
        waiting = asyncio.create_task(lease(actor, "gone"))
        await settled()
        waiting.cancel()
        await settled()
        await put(actor, 3)
        leased = len(actor.shard.leases)
        _, parts = unpack(await lease(actor, "here"))
        return leased, sum(Frame.decode(bytes(part)).count for part in parts)

    assert asyncio.run(scenario()) == (0, 3)


def test_call_cancelled_with_its_answer_in_hand_gives_the_messages_back() -> None:
    """Between the answer and its departure the caller may leave; its messages must not wait for a lease to end."""

    async def scenario() -> int:
        actor = await opened()
        waiting = asyncio.create_task(lease(actor, "gone"))
        await settled()
        putting = asyncio.create_task(put(actor, 3))
        await asyncio.sleep(0)  # the call has its answer and has not yet gone on
        waiting.cancel()
        await asyncio.wait([waiting, putting])
        _, parts = unpack(await asyncio.wait_for(lease(actor, "here"), 1))
        return sum(Frame.decode(bytes(part)).count for part in parts)

    assert asyncio.run(scenario()) > 0


@pytest.mark.parametrize("ended", [False, True])
def test_call_cancelled_while_its_frames_are_read_gives_the_messages_back(ended: bool) -> None:
    """A log reads them in a thread; the lease may also end meanwhile, with its run or by its timeout."""

    async def scenario() -> tuple[int, int]:
        actor = await opened()
        await put(actor, 3)
        reading, read = asyncio.Event(), actor._store.frame

        async def slow(batch: Batch) -> Frame:
            reading.set()
            await asyncio.Event().wait()
            return await read(batch)

        actor._store.frame = slow  # type: ignore[method-assign]
        waiting = asyncio.create_task(lease(actor, "gone"))
        await reading.wait()
        if ended:
            (one,) = actor.shard.leases.values()
            actor._give_back(one)
        waiting.cancel()
        (left,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(left, asyncio.CancelledError)
        leased, actor._store.frame = len(actor.shard.leases), read  # type: ignore[method-assign]
        _, parts = unpack(await asyncio.wait_for(lease(actor, "here"), 1))
        return leased, sum(Frame.decode(bytes(part)).count for part in parts)

    assert asyncio.run(scenario()) == (0, 3)


def test_order_answers_a_parked_call_and_waits_for_one_that_is_not() -> None:
    """A pause reaches an idle consumer now, and a busy one with its next call."""

    async def scenario() -> tuple[bool, list[SlotOrder]]:
        lot = ParkingLot()
        call = parked("c")
        lot.park(call)
        lot.order("c", cancel)
        lot.order("c", give_back)
        return call.answer.done(), lot.take_orders("c")

    cancel, give_back = SlotOrder(Do.CANCEL, lease=1, ids=[(0, 1)]), SlotOrder(Do.GIVE_BACK, lease=1, n=2)
    assert asyncio.run(scenario()) == (True, [cancel, give_back])


def test_credit_that_overtakes_the_call_sent_before_it_counts() -> None:
    """Else the call would be parked at full credit until its time is over, and messages with it."""

    async def scenario() -> list[int]:
        lot = ParkingLot()
        lot.park(parked("c", at=1))
        lot.leave(lot.parked["c"])
        lot.credit("c", Credit(3, 10, 1))
        lot.park(parked("c", at=2, want=0))
        wants = [lot.parked["c"].credit.want]
        lot.credit("c", Credit(1, 0, 1))  # and one that comes late does not
        wants.append(lot.parked["c"].credit.want)
        lot.credit("c", Credit(4, 7, 1))
        lot.park(parked("c", at=5, want=3))
        lot.park(parked("c", at=1, want=2, session="another"))
        return [*wants, lot.parked["c"].credit.want]

    assert asyncio.run(scenario()) == [10, 10, 2]


def test_error_of_a_condition_is_raised_where_it_is_waited_for() -> None:
    """The run of a frame that waits may be dropped."""

    async def scenario() -> tuple[str, bool]:
        bell, gone = Bell(), []

        def fails() -> bool:
            if gone:
                raise KeyError("dropped")
            return False

        failing = asyncio.create_task(bell.until(fails, 5))
        other = asyncio.create_task(bell.until(lambda: bool(gone), 5))
        await settled()
        gone.append(1)
        bell.ring()
        try:
            await failing
        except KeyError as error:
            return str(error), await other
        return "", False

    assert asyncio.run(scenario()) == ("'dropped'", True)


# --- shards that were recreated -------------------------------------------------------------------

FIRST, SECOND = "consumer/q/0#0", "consumer/q/1#0"


async def moved() -> DeskActor:
    """Return a shard whose consumers of the epoch before still live, with ten messages of earlier leases."""
    actor = DeskActor("q", 0, 2, options(), (), [name.split("#")[0] for name in (FIRST, SECOND)])
    await actor.start(pack({}))
    await put(actor, 10)
    return actor


async def returns(actor: QueueActor, consumer: str, ids: list[tuple[int, int]]) -> None:
    held = [{"slot": consumer, "lease": 7, "run": NO_ID, "ids": ids, "age": 1.0, "early": False}]
    await actor.reclaim(pack({"consumer": consumer.split("#")[0], "held": held}))


def ids_of(answer: bytes) -> list[int]:
    meta, parts = unpack(answer)
    cuts = zip(meta["lease"]["firsts"], parts, strict=True)
    return [first + i for first, part in cuts for i in range(Frame.decode(bytes(part)).count)]


def test_no_consumer_is_given_what_another_one_has_in_hand() -> None:
    """The consumer that finds the new shard first waits until the others have come, or are known to be dead."""

    async def scenario(second_lives: bool) -> list[int]:
        actor = await moved()
        await returns(actor, FIRST, [])
        hungry = asyncio.create_task(lease(actor, FIRST))
        await settled()
        assert not hungry.done()
        if second_lives:
            await returns(actor, SECOND, [(0, 4)])
        else:
            await actor.release(pack({"consumers": [SECOND.split("#")[0]]}))
        return ids_of(await asyncio.wait_for(hungry, 0.9 * RETURN_S))

    assert asyncio.run(scenario(second_lives=True)) == list(range(4, 10))
    assert asyncio.run(scenario(second_lives=False)) == list(range(10))


def test_consumers_that_do_not_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqlab.cluster.shard.actor.RETURN_S", 0.01)

    async def scenario() -> list[int]:
        actor = await moved()
        return ids_of(await asyncio.wait_for(lease(actor, FIRST), 10))

    assert asyncio.run(scenario()) == list(range(10))


def test_consumer_that_comes_too_late_gets_the_list_of_what_others_have() -> None:
    """It skips that, unless it has begun it."""

    async def scenario() -> list[Any]:
        actor = await moved()
        await returns(actor, FIRST, [])
        await actor.release(pack({"consumers": [SECOND.split("#")[0]]}))
        await lease(actor, FIRST, want=3)
        await returns(actor, SECOND, [(0, 6)])
        meta, _ = unpack(await lease(actor, SECOND))
        assert "lease" not in meta
        return list(meta["orders"])

    assert asyncio.run(scenario()) == [{"op": "cancel", "lease": 7, "ids": [[0, 3]]}]


def test_recreated_shard_leases_nothing_to_consumers_of_its_own_process_while_others_replace_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What killed its last worker would be leased in the new one first, which is nearest, and so on for ever."""
    monkeypatch.setattr("dqlab.cluster.shard.actor.BESIDE_S", 0.2)

    async def scenario() -> tuple[bool, bool, int]:
        actor = DeskActor("q", 0, 2, options(), beside=["consumer/q/0"])
        await actor.start(pack({}))
        near = asyncio.ensure_future(lease(actor, "consumer/q/0#0", want=1))
        await settled()
        await put(actor, 2)
        await settled()
        held = near.done()
        far = asyncio.ensure_future(lease(actor, "consumer/q/1#0", want=1))
        await settled()
        served = far.done()
        meta, _ = unpack(await asyncio.wait_for(near, 5))  # none has come in their place
        await far
        await actor.hand_over(pack({}))
        return held, served, len(meta["lease"]["firsts"])

    assert asyncio.run(scenario()) == (False, True, 1)
