"""Who gives back work when another consumer has none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from dqlab.cluster.shard.recalls import LOOK_AGAIN_S, STILL_S, Recalls
from dqlab.cluster.transport.parking import Credit, ParkedLease, ParkingLot
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.retry import QueueOptions
from dqlab.rules.shard import Shard
from dqlab.testing import FakeClock
from tests.rules.memory_journal import MemoryJournal


class Floor:
    """A shard, the calls parked at it, and what is asked of whom."""

    def __init__(self, clock: FakeClock, *, cost: float) -> None:
        self.clock, self.lot, self.recalls = clock, ParkingLot(), Recalls()
        self.shard = Shard(
            "q", 0, epoch=1, options=QueueOptions(), clock=clock, random=Random(0), journal=MemoryJournal()
        )
        self.shard.fairness.learn(NO_ID, cost * 1000, 1000)

    def hold(self, consumer: str, n: int) -> int:
        """Let a consumer lease `n` messages; return the lease's id."""
        self.shard.put(Frame.decode(Frame.encode([b"x"] * n, kind=Kind.VALUE)))
        lease = self.shard.lease(consumer, n)
        assert lease is not None
        return lease.id

    def park(self, consumer: str, *, want: int = 100) -> None:
        answer = asyncio.get_running_loop().create_future()
        self.lot.park(ParkedLease(consumer, "s", Credit(1, want, 1), answer))

    def settle(self, consumer: str, ids: Sequence[int], lease: int) -> None:
        pieces = [Piece(id, id, 1) for id in ids]
        outcomes = bytes([Outcome.ACK] * len(ids))
        blob = Settlement.encode(pieces, outcomes, [b""] * len(ids), run=NO_ID, epoch=1, lease=lease)
        self.shard.settle(Settlement.decode(blob))
        self.recalls.answered(consumer)

    def asked(self) -> dict[str, list[dict[str, Any]]]:
        """Consider once more; return the orders given."""
        self.again = self.recalls.consider(self.shard, self.lot)
        return {
            consumer: [order.to_wire() for order in self.lot.take_orders(consumer)]
            for consumer in list(self.lot.orders)
        }


@pytest.fixture
def on_floor(clock: FakeClock) -> Callable[..., Any]:
    """Run a scenario where futures can be made."""

    def run(scenario: Callable[[Floor], Any], *, cost: float = 0.1) -> Any:
        async def inside() -> Any:
            return scenario(Floor(clock, cost=cost))

        return asyncio.run(inside())

    return run


def test_idle_consumer_gets_half_of_what_another_has_not_begun(on_floor: Callable[..., Any]) -> None:
    """Half: the other goes on meanwhile, and neither runs dry."""

    def scenario(floor: Floor) -> Any:
        lease = floor.hold("busy", 11)
        floor.park("idle")
        return floor.asked(), lease

    orders, lease = on_floor(scenario)

    assert orders == {"busy": [{"op": "give_back", "lease": lease, "n": 5}]}


def test_nothing_is_recalled_for_a_slot_that_cannot_run_it(on_floor: Callable[..., Any]) -> None:
    """It would come back to the one that gave it, and be recalled again, without end."""

    def scenario(floor: Floor) -> Any:
        floor.hold("busy", 11)
        floor.shard.lanes[NO_ID].needs = {"gpus": 1.0}
        floor.park("idle")
        return floor.asked()

    assert on_floor(scenario) == {}


def test_no_slot_is_asked_for_a_consumer_that_has_work_in_hand(on_floor: Callable[..., Any]) -> None:
    """Wanting more ahead is no need; messages would travel back and forth."""

    def scenario(floor: Floor) -> Any:
        floor.hold("one", 10)
        floor.hold("two", 10)
        floor.park("one")
        floor.park("two")
        return floor.asked()

    assert on_floor(scenario) == {}


def test_holder_that_waits_longest_does_not_hide_who_starves(on_floor: Callable[..., Any]) -> None:
    """A consumer behind a slow message is parked too, for more; it is not the one in need."""

    def scenario(floor: Floor) -> Any:
        floor.hold("behind-a-slow-one", 10)
        floor.park("behind-a-slow-one")
        floor.park("idle")
        return list(floor.asked())

    assert on_floor(scenario) == ["behind-a-slow-one"]


def test_consumer_is_asked_once_until_it_settles(on_floor: Callable[..., Any]) -> None:
    """What is on its way is not asked for again."""

    def scenario(floor: Floor) -> Any:
        lease = floor.hold("busy", 100)
        floor.park("idle")
        first, second = floor.asked(), floor.asked()
        floor.settle("busy", range(10), lease)
        return len(first), len(second), len(floor.asked())

    assert on_floor(scenario) == (1, 0, 1)


def test_running_message_cannot_be_given_back(on_floor: Callable[..., Any]) -> None:
    """The first of the oldest lease is in the function."""

    def scenario(floor: Floor) -> Any:
        floor.hold("busy", 1)
        floor.park("idle")
        return floor.asked(), floor.again

    assert on_floor(scenario) == ({}, None)


def test_small_work_is_asked_for_once_it_stands_still(on_floor: Callable[..., Any]) -> None:
    """Four messages of a millisecond are not worth moving, unless a slow one keeps them for an hour."""

    def scenario(floor: Floor) -> Any:
        lease = floor.hold("busy", 5)
        floor.park("idle")
        at_once, again = floor.asked(), floor.again
        floor.clock.advance(STILL_S + 0.01)
        return at_once, again, floor.asked(), lease

    at_once, again, later, lease = on_floor(scenario, cost=0.001)

    assert (at_once, again) == ({}, LOOK_AGAIN_S)
    assert later == {"busy": [{"op": "give_back", "lease": lease, "n": 4}]}


def test_early_acked_lease_is_not_asked_for(on_floor: Callable[..., Any]) -> None:
    """At most once: it is never delivered again."""

    def scenario(floor: Floor) -> Any:
        floor.shard.begin(floor.hold("busy", 100))
        floor.park("idle")
        return floor.asked()

    assert on_floor(scenario) == {}


def test_consumer_that_found_nothing_to_give_back_is_not_asked_again_for_the_same(on_floor: Callable[..., Any]) -> None:
    """All of a lease of coroutines may run at once; asking over and over would keep both sides busy with it."""

    def scenario(floor: Floor) -> Any:
        lease = floor.hold("coroutines", 10)
        floor.park("idle")
        first = floor.asked()
        floor.recalls.answered("coroutines")
        second = floor.asked()
        floor.settle("coroutines", [0], lease)
        return len(first), len(second), len(floor.asked())

    assert on_floor(scenario) == (1, 0, 1)
