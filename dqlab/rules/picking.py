"""Pick the messages of a lane that go into a lease, from the front."""

from __future__ import annotations

from collections.abc import Iterable

from dqlab.rules.batches import Batch
from dqlab.rules.lane import Lane
from dqlab.rules.leases import LeasedPiece
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State

__all__ = ["pick", "pick_again", "pick_suspect", "suspect_is_first"]


def suspect_is_first(lane: Lane) -> bool:
    """Return whether the front-most ready message of a lane is a suspect."""
    suspect, ready = lane.suspects.first, lane.ready.first
    return suspect is not None and (ready is None or suspect < ready)


def pick_suspect(lane: Lane) -> list[LeasedPiece]:
    """Take the first suspect out of the lane, alone."""
    first = lane.suspects.first
    assert first is not None, "asked only when there is a suspect"
    return _take(lane, lane.batches.covering(first, first + 1))


def pick(lane: Lane, n: int, max_bytes: int, slot: str = "") -> list[LeasedPiece]:
    """Take up to `n` ready messages of up to `max_bytes` out of the lane, at least one; suspects stay.

    They are the front-most ones; where neighbours form groups, those of a group that suits the consumer slot.
    """
    taken: list[tuple[Batch, int, int]] = []
    among = lane.ready if lane.groups is None else lane.ready.overlap(*lane.groups.span(slot, lane.ready, n))
    for lo, hi in among:
        for batch, a, b in lane.batches.covering(lo, min(hi, lo + n)):
            fit = batch.fit(a, b, max_bytes)
            if fit == 0 and not taken:
                fit = 1
            if fit:
                taken.append((batch, a, a + fit))
                n -= fit
                max_bytes -= batch.nbytes(a, a + fit)
            if a + fit < b:
                return _take(lane, taken)
        if n <= 0:
            break
    return _take(lane, taken)


def pick_again(
    lane: Lane, ids: Ranges, *, suspects: bool, orphan: Ranges | None = None
) -> tuple[list[LeasedPiece], list[tuple[int, int]]]:
    """Take ready messages with these ids out of the lane.

    Parameters
    ----------
    suspects : bool
        Take also those that are to be leased alone.
    orphan : Ranges, optional
        Take only the ids that this lease holds.

    Returns
    -------
    list of LeasedPiece, list of (int, int)
        What was taken, and the ids that are leased to others, settled or cancelled.
    """
    pieces: list[LeasedPiece] = []
    others = Ranges(ids)
    for lo, hi in ids:
        for batch, a, b, state in lane.stretches(lo, hi):
            first, start, stop = batch.first, batch.first + a, batch.first + b
            if orphan is not None:
                hits = list(orphan.overlap(start, stop))
            elif state is State.READY:
                hits = [(start, stop)] if suspects else list(lane.ready.overlap(start, stop))
                others.discard(start, stop)
            else:
                continue
            for x, y in hits:
                others.discard(x, y)
                # At once: a frame to which nothing has happened is a new object at each look, and only what is taken
                # is kept.
                pieces += _take(lane, [(batch, x - first, y - first)])
    return pieces, list(others)


def _take(lane: Lane, taken: Iterable[tuple[Batch, int, int]]) -> list[LeasedPiece]:
    pieces: list[LeasedPiece] = []
    for batch, a, b in taken:
        lane.move(batch, a, b, State.LEASED)
        first = batch.first
        pieces.extend(
            LeasedPiece(first, lo - first, hi - lo, batch.ordinal + lo - first, function)
            for lo, hi, function in lane.overrides.split(first + a, first + b)
        )
    return pieces
