"""Which runs are held up, since consumers cannot keep their results; and which untouched messages are recalled."""

from __future__ import annotations

from dqlab.cluster.transport.parking import Do, ParkingLot, SlotOrder
from dqlab.rules.picking import serves
from dqlab.rules.shard import Shard

WORTH_S = 0.01
"""Least seconds of untouched work that are worth moving, unless the work stands still."""
STILL_S = 0.2
"""Seconds without a settle after which work counts as standing still; finished work is settled every 0.1 s."""
LOOK_AGAIN_S = 0.05
"""Seconds after which small work that may stand still is considered again."""


class Recalls:
    """Recalls messages from one lease at a time of each consumer slot, whose next settle answers the recall."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, int]] = {}
        """Consumer slot to its recalled lease, with the messages left in it at the recall."""
        self._tried: dict[int, int] = {}
        """Recalled lease to the messages left in it at the recall. While the number is the same, all of them run."""
        self._small: dict[int, tuple[int, float]] = {}
        """Lease not worth moving yet to the messages left in it, and the time since which that number is the same."""

    def answered(self, consumer: str) -> None:
        """Note that a consumer slot answered its recall, and may get another one."""
        # But not for a lease that it returned nothing of: see `_tried`.
        asked = self._asked.pop(consumer, None)
        if asked is not None:
            self._tried[asked[0]] = asked[1]

    def consider(self, shard: Shard, lot: ParkingLot) -> float | None:
        """Recall half of the most untouched work if a slot has none, and return when to consider again, if needed."""
        now, before, self._small = shard.clock.monotonic(), self._small, {}
        starving = [call for call in lot.hungry() if not shard.leases.of_consumer(call.consumer)]
        if not starving:
            return None
        held: dict[str, tuple[float, int, int, int]] = {}
        tried, self._tried = self._tried, {}
        working: set[str] = set()
        for lease in shard.leases.values():  # oldest first: a slot works on its oldest lease, the others are untouched
            left = lease.remaining.size
            untouched = left - (lease.consumer not in working)
            working.add(lease.consumer)
            if tried.get(lease.id) == left:
                self._tried[lease.id] = left
                continue
            if untouched <= 0 or lease.consumer in self._asked or lease.early:
                continue
            needs = shard.lanes[lease.run].needs
            if needs and not any(serves(call.has, needs) for call in starving):
                continue
            cost, n = untouched * (shard.fairness.cost(lease.run) or WORTH_S), (untouched + 1) // 2
            # Small work is done before it could move. But if it stands still behind a slow message, recall all of it.
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


LASTS = 30.0
"""Seconds after which a consumer's report expires."""


class Blocks:
    """The reasons why runs are held up, by run and consumer, with times of any monotonic clock."""

    def __init__(self) -> None:
        self._why: dict[bytes, dict[str, tuple[str, float]]] = {}

    def note(self, run: bytes, consumer: str, why: str, now: float) -> str:
        """Note why a consumer cannot keep results, or "" that it can, and return why the run is held up now."""
        reported = self._why.setdefault(run, {})
        if why:
            reported[consumer] = why, now
        else:
            reported.pop(consumer, None)
        return self.why(run, now)

    def why(self, run: bytes, now: float) -> str:
        """Return why a run is held up, or ""."""
        reported = self._why.get(run, {})
        for each in [each for each, (_, at) in reported.items() if now - at >= LASTS]:
            del reported[each]
        if not reported:
            self._why.pop(run, None)
            return ""
        return next(iter(reported.values()))[0]

    def forget(self, consumers: list[str]) -> None:
        """Forget the reports of consumers that are gone."""
        for reported in self._why.values():
            for each in [each for each in reported if each in consumers]:
                del reported[each]

    @property
    def runs(self) -> set[bytes]:
        """Runs for which a consumer has reported a reason."""
        return set(self._why)
