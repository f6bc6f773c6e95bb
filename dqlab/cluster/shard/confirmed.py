"""Keeps which part of each run is as safe as its store promises, even while the store accepts no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dqlab.cluster.shard.durable import LogStore
from dqlab.rules.book import Book
from dqlab.rules.result_index import ResultIndex


@dataclass(slots=True)  # one is kept for each run, also for those that ended long ago
class _Known:
    state: Any
    """What readers of the run get, apart from its results. They do not wait for an order that leaves it unchanged."""
    number: int
    """The store's newest record when the state or the results changed last."""
    safe: int
    """Results before this cursor are safe."""
    later: deque[tuple[int, int]] | None = None
    """Record and cursor of each later group of results; None: there is none, and an empty deque would cost memory."""


class Confirmed:
    """Compares the records of each run with those that its store has confirmed."""

    # A run that ended before the disk became full stays done, and can be read. Other runs wait for room. The runs given
    # first are those that the store recovered: they are safe.

    def __init__(self, store: LogStore, books: Iterable[tuple[bytes, Book]]) -> None:
        self._store = store
        self._known = {run: _Known(_state(book), 0, book.results.end) for run, book in books}

    def note(self, run: bytes, book: Book | None) -> None:
        """Note that a run may have changed, or with None that it was dropped."""
        # Call it after all changes are recorded: `store.end` must not be smaller than the number of the last change.
        if book is None:
            self._known.pop(run, None)
            return
        state, end, number = _state(book), book.results.end, self._store.end
        known = self._known.get(run)
        if known is None:
            self._known[run] = known = _Known(None, number, 0)
        came = known.later[-1][1] if known.later else known.safe
        if state == known.state and end == came:
            return
        known.state, known.number = state, number
        if end != came:
            self.end(run)
            if known.later is None:
                known.later = deque()
            known.later.append((number, end))

    def number(self, run: bytes) -> int:
        """Return the record that must be confirmed before all of a run is safe."""
        known = self._known.get(run)
        return self._store.end if known is None else known.number

    def all_of(self, run: bytes) -> bool:
        """Return whether all of a run is safe."""
        return self.number(run) <= self._store.confirmed

    def end(self, run: bytes) -> int:
        """Return the cursor before which a run's results are safe."""
        known = self._known.get(run)
        if known is None:
            return 0
        later, confirmed = known.later, self._store.confirmed
        while later and later[0][0] <= confirmed:
            known.safe = later.popleft()[1]
        if not later:
            known.later = None
        return known.safe

    def results(self, run: bytes, results: ResultIndex, lo: int, hi: int) -> tuple[int, bool]:
        """Return the number of results with ordinals in [lo, hi), and whether all of them are safe."""
        end, found = self.end(run), list(results.between(lo, hi))
        return sum(piece.n for _, piece, _ in found), all(stretch.number < end for stretch, _, _ in found)


def _state(book: Book) -> tuple[Any, ...]:
    return *book.lane.counts, book.lane.sealed, None if book.record is None else book.record.incomplete
