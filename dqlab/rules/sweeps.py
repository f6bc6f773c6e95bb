"""Changes to many messages at once, ordered by a user: cancel, let go, purge, retry."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from dqlab.rules.deliveries import give_up
from dqlab.rules.lane import Lane
from dqlab.rules.leases import Lease, Leases
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State


class Revoked(NamedTuple):
    """Ids of a lease that its consumer should skip."""

    consumer: str
    lease_id: int
    ranges: tuple[tuple[int, int], ...]


def revoke(lane: Lane, lease: Lease, wanted: Ranges, leases: Leases, effects: deque[Revoked]) -> None:
    """Remove ids from a lease of a lane, if it holds any of them, and leave a `Revoked` for its consumer."""
    taken = tuple(hit for lo, hi in wanted for hit in lease.remaining.overlap(lo, hi))
    if not taken:
        return
    for lo, hi in taken:
        lease.remaining.discard(lo, hi)
    effects.append(Revoked(lease.consumer, lease.id, taken))
    if lane.flow is not None:
        lane.flow.lose(sum(hi - lo for lo, hi in taken))
    if not lease.remaining:
        leases.close(lease)


def cancel(lane: Lane, ids: Iterable[tuple[int, int]], leases: Leases, effects: deque[Revoked]) -> int:
    """Cancel ready, delayed or leased messages among `ids`, and return how many."""
    return _end(lane, Ranges(ids), leases, effects, State.CANCELLED, dead=False)


def let_go(lane: Lane, ids: Iterable[tuple[int, int]], leases: Leases, effects: deque[Revoked], why: str = "") -> int:
    """Take leased messages among `ids` from their consumers, and return how many."""
    wanted, taken = Ranges(ids), 0
    for lease in leases.of_run(lane.run):
        # Without a reason the messages are ready again, uncounted. What was acked early is never delivered again, so it
        # stays with its consumer; with a reason it is dead.
        if lease.early and not why:
            continue
        # Before `revoke`, which removes them from the lease and may close it.
        held = [hit for lo, hi in wanted for hit in lease.remaining.overlap(lo, hi)]
        revoke(lane, lease, wanted, leases, effects)
        for lo, hi in held:
            taken += hi - lo
            for batch, a, b in lane.batches.covering(lo, hi):
                if not why:
                    lane.move(batch, a, b, State.READY, suspect=lease.suspect)
                    lane.take(batch.first + a, batch.first + b)
                    continue
                for index in range(a, b):
                    give_up(lane, batch, index, lease, why)
    return taken


def lose(lane: Lane, ids: Iterable[tuple[int, int]], leases: Leases, effects: deque[Revoked]) -> int:
    """Count as lost what is not final among `ids`, because its bytes cannot be read, and return how many messages."""
    return _end(lane, Ranges(ids), leases, effects, State.LOST, dead=True)


def _end(lane: Lane, wanted: Ranges, leases: Leases, effects: deque[Revoked], new: State, *, dead: bool) -> int:
    """Move living messages, and with `dead` the dead ones, to a final state."""
    # Leases first: none may hold a message that has ended.
    for lease in leases.of_run(lane.run):
        revoke(lane, lease, wanted, leases, effects)
    ended = 0
    for lo, hi in wanted:
        for batch, a, b, state in lane.stretches(lo, hi):
            if state.alive or (dead and state is State.DEAD):
                lane.move(batch, a, b, new)
                ended += b - a
    return ended


def purge(lane: Lane, ids: Iterable[tuple[int, int]], state: State) -> int:
    """Cancel the messages among `ids` that are in one state, and return how many."""
    purged = 0
    for lo, hi in Ranges(ids):
        for batch, a, b, found in lane.stretches(lo, hi):
            if found is state:
                lane.move(batch, a, b, State.CANCELLED)
                purged += b - a
    return purged


def retry(lane: Lane, ids: Iterable[tuple[int, int]], function: bytes | None, first_lease: int) -> int:
    """Make the dead messages among `ids` ready in their old places, and return how many."""
    revived = 0
    for lo, hi in Ranges(ids):
        for batch, a, b, state in lane.stretches(lo, hi):
            if state is not State.DEAD:
                continue
            first, stop = batch.first + a, batch.first + b
            for id in range(first, stop):
                # Reports of leases before the next one do not count for these messages. This precedes the move, which
                # counts how many are retried.
                lane.trouble[id].restart(first_lease)
            if function is not None:
                lane.overrides.assign(first, stop, function)
            lane.move(batch, a, b, State.READY)
            revived += b - a
    return revived
