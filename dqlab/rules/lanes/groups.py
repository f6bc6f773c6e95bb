"""Groups of neighbours that cost one consumer less than two, such as the rows of a row group.

Owns where groups end, and which process runs which. This is a preference and in memory only: where no other group is
left, consumers share one, and after a restart messages are leased from the front.
"""

from __future__ import annotations

from collections.abc import Iterable

from sortedcontainers import SortedList

from dqlab.rules.ids import END
from dqlab.rules.ranges import Ranges


class Groups:
    """The groups of one lane; messages behind the last known end belong to no group.

    Examples
    --------
    >>> groups, ready = Groups(), Ranges([(0, 300)])
    >>> groups.end(100)
    >>> groups.end(200)
    >>> [groups.span(slot, ready, 10)[0] for slot in ("a#0", "b#0", "a#1", "c#0")]
    [0, 100, 0, 200]
    """

    __slots__ = ("_ends", "_run", "_runs")

    def __init__(self) -> None:
        self._ends: SortedList = SortedList()
        """Ends of the groups that still had messages to lease at the last look."""
        self._runs: dict[str, int] = {}
        """By process, the end of the group that it runs; no two run the same one."""
        self._run: set[int] = set()
        """These ends."""

    def end(self, id: int) -> None:
        """Note that a group ends before an id."""
        self._ends.add(id)

    def among(self, slot: str, ready: Ranges, n: int) -> Iterable[tuple[int, int]]:
        """Return the intervals from which a slot of a consumer leases next, up to `n` messages."""
        self._pass(ready)
        # The caller must not change `ready` before it has read them all.
        return ready.within(*self.span(slot, ready, n)) if self._ends else ready

    def span(self, slot: str, ready: Ranges, n: int) -> tuple[int, int]:
        """Return the ids, some of them ready, among which a slot of a consumer leases next."""
        # First the group that its process runs, else the first one that no other process runs, with those behind it
        # that can be leased with it whole. Else what is behind all groups, else the group of another process.
        first, process = self._pass(ready), slot.partition("#")[0]
        found = self._left_of(self.forget(process), ready) or self._first_free(first, ready)
        if found is None:
            behind = _first(ready, self._ends[-1], END) if self._ends else None
            return (first if behind is None else behind), END
        lo, at = found
        end = self._ends[at]
        for behind in self._ends.islice(at + 1):
            if behind - lo > n or behind in self._run:
                break
            end = behind
        self._runs[process] = end
        self._run.add(end)
        return lo, end

    def forget(self, process: str) -> int | None:
        """Forget a process that is gone, so that its group is free, and return the end of that group."""
        end = self._runs.pop(process, None)
        if end is not None:
            self._run.discard(end)
        return end

    def _pass(self, ready: Ranges) -> int:
        """Forget the groups in front of all that is ready, and return the first id of that."""
        first = ready.first
        assert first is not None, "asked only when something is ready"
        while self._ends and self._ends[0] <= first:
            del self._ends[0]
        return first

    def _left_of(self, end: int | None, ready: Ranges) -> tuple[int, int] | None:
        """Return the first ready id of a group, and the index of its end, or None when nothing is ready."""
        if end is None or end not in self._ends:
            return None
        at = self._ends.index(end)
        lo = _first(ready, self._ends[at - 1] if at else 0, end)
        return None if lo is None else (lo, at)

    def _first_free(self, lo: int | None, ready: Ranges) -> tuple[int, int] | None:
        """Return these of the first group that no process runs, from the first ready id on."""
        while lo is not None:
            at = self._ends.bisect_right(lo)
            if at == len(self._ends):
                return None
            if self._ends[at] not in self._run:
                return lo, at
            lo = _first(ready, self._ends[at], END)
        return None


def _first(ready: Ranges, lo: int, hi: int) -> int | None:
    return next((start for start, _ in ready.within(lo, hi)), None)
