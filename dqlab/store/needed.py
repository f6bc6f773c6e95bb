"""Which bytes of a log a shard still needs, as the rules tell it: the part of a journal that only counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dqlab.frame import Frame, Settlement
from dqlab.log import Position
from dqlab.rules.batches import Batch, share
from dqlab.rules.lane import Lane
from dqlab.rules.leases import Lease
from dqlab.rules.ledger import Ledger
from dqlab.rules.results import Stretch
from dqlab.rules.settling import Settled
from dqlab.rules.states import State, stretches
from dqlab.store.places import position_of

__all__ = ["NeededBytes", "needed_by"]


class NeededBytes:
    """A `Journal` that takes nothing in, for records that are only read back.

    Parameters
    ----------
    need, free : callable
        Called with a segment and the bytes of it that are needed from now on, or no more.

    Attributes
    ----------
    stored : int
        Bytes of settlements that are kept for their results.
    """

    def __init__(self, need: Callable[[int, int], None], free: Callable[[int, int], None]) -> None:
        self._need = need
        self._free = free
        self.stored = 0

    def room(self, nbytes: int) -> bool:
        """Return False."""
        return False

    def put(self, frame: Frame, first: int) -> int:
        """Not called: there is no room."""
        raise AssertionError("a journal that is only read takes no frame")

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Free the share of what is final."""
        if new.final:
            self._free_share(batch, a, b)

    def freed(self, batch: Batch) -> None:
        """Free what a dropped lane still held."""
        if batch.left:
            for a, b, state in stretches(batch.states, 0, len(batch.states)):
                if not State(state).final:
                    self._free_share(batch, a, b)

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Free the settlements of results."""
        for place in {stretch.place for stretch in results}:
            position = position_of(place)
            self._free(position.segment, position.size)
            self.stored -= position.size

    def admit(self, nbytes: int = 0) -> None:
        """Do nothing: what is read back was taken."""

    def admit_order(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        """Do nothing."""

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        """Not called: nothing is settled."""
        raise AssertionError("a journal that is only read takes no settlement")

    def ordered(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        """Not called: nothing is ordered."""
        raise AssertionError("a journal that is only read takes no order")

    def begun(self, lease: Lease) -> None:
        """Not called: nothing is leased."""
        raise AssertionError("a journal that is only read takes no lease")

    def function(self, hash: bytes, blob: bytes) -> None:
        """Not called: nothing is put."""
        raise AssertionError("a journal that is only read takes no function")

    def noted(self) -> None:
        """Do nothing: what moves now is not recorded."""

    def took(self, segment: int, nbytes: int) -> None:
        """Count frames as needed."""
        self._need(segment, nbytes)

    def keep(self, position: Position) -> None:
        """Count a settlement as needed, for the results in it."""
        self._need(position.segment, position.size)
        self.stored += position.size

    def _free_share(self, batch: Batch, a: int, b: int) -> None:
        position = position_of(batch.place)
        self._free(position.segment, share(position.size, len(batch.states), a, b))


def needed_by(ledger: Ledger) -> dict[int, int]:
    """Return the bytes of each segment that a ledger needs, counted again."""
    needed: dict[int, int] = {}

    def add(place: int, nbytes: int) -> None:
        segment = position_of(place).segment
        needed[segment] = needed.get(segment, 0) + nbytes

    for lane in ledger.shard.lanes.values():
        for batch in lane.batches:
            size, count = position_of(batch.place).size, len(batch.states)
            for a, b, state in stretches(batch.states, 0, count):
                if not State(state).final:
                    add(batch.place, share(size, count, a, b))
    for place in {stretch.place for book in ledger.books.values() for stretch in book.results}:
        add(place, position_of(place).size)
    return {segment: nbytes for segment, nbytes in needed.items() if nbytes}
