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

__all__ = ["Revoked", "cancel", "let_go", "lose", "purge", "retry", "revoke"]


class Revoked(NamedTuple):
    """These ids of a lease were cancelled; its consumer should skip them."""

    consumer: str
    lease_id: int
    ranges: tuple[tuple[int, int], ...]


def revoke(lease: Lease, wanted: Ranges, leases: Leases, effects: deque[Revoked]) -> None:
    """Remove ids from a lease, if it holds any of them, and leave a `Revoked` for its consumer."""
    taken = tuple(hit for lo, hi in wanted for hit in lease.remaining.overlap(lo, hi))
    if not taken:
        return
    for lo, hi in taken:
        lease.remaining.discard(lo, hi)
    effects.append(Revoked(lease.consumer, lease.id, taken))
    if not lease.remaining:
        leases.close(lease)


def cancel(lane: Lane, ids: Iterable[tuple[int, int]], leases: Leases, effects: deque[Revoked]) -> int:
    """Cancel what is ready, delayed or leased among `ids`; return how many messages."""
    return _end(lane, Ranges(ids), leases, effects, State.CANCELLED, dead=False)


def let_go(lane: Lane, ids: Iterable[tuple[int, int]], leases: Leases, effects: deque[Revoked], why: str = "") -> int:
    """Take leased messages among `ids` from their consumers: ready again and uncounted, or dead; return how many.

    Parameters
    ----------
    why : str, optional
        Why they are given up. Default: they are ready again, except those that were acked early.
    """
    wanted, taken = Ranges(ids), 0
    for lease in leases.of_run(lane.run):
        if lease.early and not why:
            continue
        held = [hit for lo, hi in wanted for hit in lease.remaining.overlap(lo, hi)]
        revoke(lease, wanted, leases, effects)
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
    """Count as lost what is not final among `ids`, because its bytes cannot be read; return how many messages."""
    return _end(lane, Ranges(ids), leases, effects, State.LOST, dead=True)


def _end(lane: Lane, wanted: Ranges, leases: Leases, effects: deque[Revoked], new: State, *, dead: bool) -> int:
    """Move living messages, and with `dead` the dead ones, to a final state."""
    for lease in leases.of_run(lane.run):
        revoke(lease, wanted, leases, effects)
    ended = 0
    for lo, hi in wanted:
        for batch, a, b, state in lane.stretches(lo, hi):
            if state.alive or (dead and state is State.DEAD):
                lane.move(batch, a, b, new)
                ended += b - a
    return ended


def purge(lane: Lane, ids: Iterable[tuple[int, int]], state: State) -> int:
    """Cancel the messages among `ids` that are in one state; return how many."""
    purged = 0
    for lo, hi in Ranges(ids):
        for batch, a, b, found in lane.stretches(lo, hi):
            if found is state:
                lane.move(batch, a, b, State.CANCELLED)
                purged += b - a
    return purged


def retry(lane: Lane, ids: Iterable[tuple[int, int]], function: bytes | None, first_lease: int) -> int:
    """Make the dead messages among `ids` ready in their old places; return how many.

    Parameters
    ----------
    function : bytes, 16, or None
        Function they run from now on; None keeps the current one.
    first_lease : int
        The id of the next lease: what earlier ones report of these messages does not count.
    """
    revived = 0
    for lo, hi in Ranges(ids):
        for batch, a, b, state in lane.stretches(lo, hi):
            if state is not State.DEAD:
                continue
            first, stop = batch.first + a, batch.first + b
            for id in range(first, stop):
                lane.trouble[id].restart(first_lease)  # before the move, which counts what is retried
            if function is not None:
                lane.overrides.assign(first, stop, function)
            lane.move(batch, a, b, State.READY)
            revived += b - a
    return revived
