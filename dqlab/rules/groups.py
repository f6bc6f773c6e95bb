"""Neighbours of a lane that cost one consumer less than two, such as the rows of a row group.

Owns where groups end, and which process runs which. It is a preference and in memory only: where no other group is
left, consumers share one, and after a restart messages are leased from the front.
"""

from __future__ import annotations

from bisect import bisect_right

from dqlab.rules.ids import END
from dqlab.rules.ranges import Ranges

__all__ = ["Groups"]


class Groups:
    """The groups of one lane. What comes behind the last known end is anybody's.

    Examples
    --------
    >>> groups, ready = Groups(), Ranges([(0, 300)])
    >>> groups.end(100)
    >>> groups.end(200)
    >>> [groups.span(slot, ready, 10)[0] for slot in ("a#0", "b#0", "a#1", "c#0")]
    [0, 100, 0, 200]
    """

    __slots__ = ("_ends", "_runs")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._runs: dict[str, int] = {}
        """By process, the end of the group that it runs."""

    def end(self, id: int) -> None:
        """Note that a group ends before an id; ids ascend."""
        self._ends.append(id)

    def span(self, slot: str, ready: Ranges, n: int) -> tuple[int, int]:
        """Return the ids among which a slot of a consumer leases next, up to `n`; some of them are ready.

        That is the group that its process runs, else the first one that no other process runs, with those behind it
        that can be leased with it whole; else what is behind all groups, else the group of another.
        """
        first, process = ready.first, slot.partition("#")[0]
        assert first is not None, "asked only when something is ready"
        ends = self._ends
        del ends[: bisect_right(ends, first)]
        mine, others = self._runs.pop(process, None), set(self._runs.values())
        for wanted in ({mine}, set(ends) - others):
            before = 0
            for at, end in enumerate(ends):
                if end in wanted and (found := ready.overlap(before, end)):
                    lo = found[0][0]
                    for behind in ends[at + 1 :]:
                        if behind - lo > n or behind in others:
                            break
                        end = behind
                    self._runs[process] = end
                    return lo, end
                before = end
        return (ends[-1] if ends and ready.overlap(ends[-1], END) else first), END

    def forget(self, process: str) -> None:
        """Forget a process that is gone: what it ran is free."""
        self._runs.pop(process, None)
