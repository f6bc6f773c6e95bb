"""Recalls of untouched messages from one consumer when another one starves: which consumer, and how many."""

from __future__ import annotations

from dqlab.cluster.transport.parking import Do, ParkingLot, SlotOrder
from dqlab.rules.shard import Shard

__all__ = ["Recalls"]

WORTH_S = 0.01
"""Seconds of untouched work below which moving it costs more than it gains, unless it stands still."""
STILL_S = 0.2
"""Seconds without a settle after which work counts as standing still; finished work is settled every 0.1 s."""
LOOK_AGAIN_S = 0.05


class Recalls:
    """At most one recall is under way per consumer slot; its next settle answers it."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, int]] = {}
        """Consumer slot to the lease that was recalled from it, and the messages left in it then."""
        self._tried: dict[int, int] = {}
        """Recalled leases to the messages left in them then: while the number stays the same, all of them run."""
        self._small: dict[int, tuple[int, float]] = {}
        """Leases not worth moving yet to the messages left in them, and since when the number is the same."""

    def answered(self, consumer: str) -> None:
        """Note that a consumer answered a recall; it can get another one, but not for a lease it gave nothing of."""
        asked = self._asked.pop(consumer, None)
        if asked is not None:
            self._tried[asked[0]] = asked[1]

    def consider(self, shard: Shard, lot: ParkingLot) -> float | None:
        """Ask the consumer slot with the most untouched work to give half of it back, if another slot has none.

        Nothing is recalled while a recall is under way, nor work that would be done before it could have
        moved. Work that stands still behind a slow message is recalled whole, however small it looks.

        Returns
        -------
        float or None
            Seconds after which to consider again, if something small may stand still.
        """
        now, before, self._small = shard.clock.monotonic(), self._small, {}
        if all(shard.leases.of_consumer(call.consumer) for call in lot.hungry()):
            return None
        held: dict[str, tuple[float, int, int, int]] = {}
        tried, self._tried = self._tried, {}
        working: set[str] = set()
        for lease in shard.leases.values():  # oldest first: a slot works on its oldest lease, later ones are untouched
            left = lease.remaining.size
            untouched = left - (lease.consumer not in working)
            working.add(lease.consumer)
            if tried.get(lease.id) == left:
                self._tried[lease.id] = left
                continue
            if untouched <= 0 or lease.consumer in self._asked or lease.early:
                continue
            cost, n = untouched * (shard.mean_cost(lease.run) or WORTH_S), (untouched + 1) // 2
            if cost < WORTH_S:
                was_left, since = before.get(lease.id, (left, now))
                self._small[lease.id] = left, since if was_left == left else now
                cost, n = now - self._small[lease.id][1], untouched
                if cost < STILL_S:
                    continue
            held[lease.consumer] = max(held.get(lease.consumer, (0.0, 0, 0, 0)), (cost, lease.id, n, left))
        if held:
            consumer = max(held, key=lambda name: held[name])
            _, lease_id, n, left = held[consumer]
            self._asked[consumer] = lease_id, left
            lot.order(consumer, SlotOrder(Do.GIVE_BACK, lease_id, n=n))
        return LOOK_AGAIN_S if self._small else None
