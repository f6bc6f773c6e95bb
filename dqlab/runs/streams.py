"""Results of a run in the order in which they are finished, from all its shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dqlab.cluster.transport.handle import Handle
from dqlab.errors import CallTimeout
from dqlab.rules.ranges import Ranges
from dqlab.runs.results import Stretch, check_readable, open_settlements

__all__ = ["Streams"]

IN_TURN = 0.05
"""Seconds that one shard is waited for while others may have more."""


class Streams:
    """A cursor into each shard's results, and which results were given already.

    A shard in memory that was lost starts at zero; what it had is not given twice when it comes once more.
    """

    def __init__(self, handle: Handle, run: bytes) -> None:
        self._handle, self._run = handle, run
        self._cursors: list[dict[str, Any]] = [{"cursor": 0} for _ in handle.refs]
        self._done = [False] * len(handle.refs)
        self._given = Ranges()
        self._unreadable: Stretch | None = None

    @property
    def done(self) -> bool:
        """Whether every shard said, when it was asked last, that it has no more."""
        return all(self._done)

    def pages(self, wait: float, patience: float | None = None) -> Iterator[list[Stretch]]:
        """Ask every shard once for what is new; yield what came and can be read.

        Parameters
        ----------
        wait : float
            Seconds that a shard which is alone is waited for.
        patience : float, optional
            Seconds after which a shard gets no more time to answer.

        Raises
        ------
        CallTimeout
            One gave no answer; the others were asked all the same.
        """
        alone, silent = self._done.count(False) == 1, None
        for shard, cursor in enumerate(self._cursors):
            meta = {"run": self._run, **cursor, "wait": wait if alone and not self._done[shard] else IN_TURN}
            asked = self._handle.ask(shard, "stream", meta, wait=wait)
            try:
                answer, parts = self._handle.link.sync(asked, timeout=patience)
            except CallTimeout as error:
                silent = error
                continue
            page = [stretch for found in open_settlements(parts) for stretch in self._new(found)]
            if page:
                yield page
            self._cursors[shard] = {"cursor": answer["cursor"], "epoch": answer["epoch"]}
            self._done[shard] = answer["done"]
        if silent is not None:
            raise silent

    def check_readable(self) -> None:
        """Raise the first `ResultUnreadable` that came."""
        if self._unreadable is not None:
            check_readable(self._unreadable)

    def _new(self, stretch: Stretch) -> Iterator[Stretch]:
        """Cut out what was given before, and what cannot be read: who reads as it comes still gets all the rest."""
        if stretch.unreadable is not None:
            self._unreadable = self._unreadable or stretch
            return
        for lo, hi in self._given.gaps(stretch.ordinal, stretch.end):
            yield stretch.cut(lo, hi)
        self._given.add(stretch.ordinal, stretch.end)
