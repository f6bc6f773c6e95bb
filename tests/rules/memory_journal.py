"""A journal for tests of the rules alone, which keeps no bytes behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dqlab.frame import Frame, Settlement
from dqlab.rules.batches import Batch
from dqlab.rules.deliveries import Settled
from dqlab.rules.journal import Op
from dqlab.rules.lane import Lane
from dqlab.rules.leases import Lease
from dqlab.rules.result_index import Stretch
from dqlab.rules.states import State

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Keeps frames in memory, by their first id, and records nothing."""

    def __init__(self) -> None:
        self.frames: dict[int, Frame] = {}

    def room(self, nbytes: int) -> bool:
        """Return True, because only the bounds of lanes limit memory."""
        return True

    def put(self, frame: Frame, first: int) -> int:
        """Keep a frame under its first id, and return that as its place."""
        self.frames[first] = frame
        return first

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Do nothing, because no record outlives the process."""

    def freed(self, batch: Batch) -> None:
        """Forget a frame."""
        del self.frames[batch.first]

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Do nothing, because it keeps no results."""

    def admit(self, nbytes: int = 0) -> None:
        """Do nothing, because memory takes everything."""

    def admit_order(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Do nothing, as `admit`."""

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        """Return no places, because it keeps no results."""
        return []

    def ordered(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Do nothing, as `moved`."""

    def begun(self, lease: Lease) -> None:
        """Do nothing, as `moved`."""

    def function(self, hash: bytes, blob: bytes) -> None:
        """Do nothing, because the ledger keeps it."""

    def noted(self) -> None:
        """Do nothing, as `moved`."""
