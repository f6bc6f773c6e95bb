"""Who holds what of a shard, and for how long, in a few rows however many leases there are."""

from __future__ import annotations

from heapq import nsmallest
from typing import Any

from dqlab.rules.leases import Lease
from dqlab.rules.shard import Shard

__all__ = ["holding"]

MOST = 5
"""Leases described one by one, the oldest."""


def holding(shard: Shard) -> dict[str, Any]:
    """Return ages of what is leased, as durations at this instant.

    Returns
    -------
    dict
        ``held``: [seconds since delivery, seconds until the first lease of the row ends, visibility timeout, messages],
        one row for each second of age; ``oldest``: [consumer, held, ends in, messages, renewals, delivery] of at most
        five leases; ``leases_lost`` and ``redelivered``, totals.
    """
    now = shard.clock.monotonic()
    rows: dict[tuple[int, float], list[float]] = {}
    for lease in shard.leases.values():
        age, left = now - lease.since, lease.deadline - now
        row = rows.setdefault((int(age), lease.timeout), [age, left, lease.timeout, 0])
        row[1] = min(row[1], left)
        row[3] += lease.remaining.size
    oldest = nsmallest(MOST, shard.leases.values(), key=lambda lease: lease.since)
    return {
        "held": list(rows.values()),
        "oldest": [_described(shard, lease, now) for lease in oldest],
        "leases_lost": shard.leases_lost,
        "redelivered": shard.redelivered,
    }


def _described(shard: Shard, lease: Lease, now: float) -> list[Any]:
    delivery = 1
    if lease.remaining.size == 1:
        ((id, _),) = lease.remaining
        trouble = shard.lanes[lease.run].trouble.get(id)
        delivery += trouble.deliveries if trouble is not None else 0
    return [lease.consumer, now - lease.since, lease.deadline - now, lease.remaining.size, lease.renewals, delivery]
