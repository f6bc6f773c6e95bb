"""When a consumer starves while another holds untouched messages: who gives back, and how many."""

from __future__ import annotations

from dqlab.cluster.parking import ParkingLot
from dqlab.queue.shard import Shard

__all__ = ["Recalls"]

WORTH_S = 0.01
"""Seconds of untouched work below which moving it costs more than it brings."""


class Recalls:
    """At most one recall is under way per consumer slot; its next settle answers it."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}

    def answered(self, consumer: str) -> None:
        """Note a settle: that consumer may be asked again."""
        self._asked.pop(consumer, None)

    def consider(self, shard: Shard, lot: ParkingLot, starving: str) -> None:
        """Ask the consumer slot with the most untouched work to give half of it back.

        Nothing is asked for while a recall is under way, from the starving slot itself, or for
        work that is done before it could have moved.
        """
        held: dict[str, tuple[float, int, int]] = {}
        working: set[str] = set()
        for lease in shard.leases.values():  # oldest first: a slot works on its oldest lease, later ones are untouched
            untouched = len(lease.remaining) - (lease.consumer not in working)
            working.add(lease.consumer)
            if untouched <= 0 or lease.consumer == starving or lease.consumer in self._asked or lease.early:
                continue
            cost = untouched * (shard.mean_cost(lease.run) or WORTH_S)
            if cost >= WORTH_S:
                held[lease.consumer] = max(held.get(lease.consumer, (0.0, 0, 0)), (cost, lease.id, untouched))
        if not held:
            return
        consumer = max(held, key=lambda name: held[name])
        _, lease_id, untouched = held[consumer]
        self._asked[consumer] = lease_id
        lot.order(consumer, op="give_back", lease=lease_id, n=(untouched + 1) // 2)
