"""Results of a run in the order in which they are finished, from all its shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dqlab.cluster.handle import Handle
from dqlab.queue.ranges import Ranges
from dqlab.runs.results import Stretch, open_settlements

__all__ = ["Streams"]

IN_TURN = 0.05
"""Seconds that one shard is waited for while others may have more."""


class Streams:
    """A cursor into each shard's results, and which results were given already.

    A shard in memory that was lost counts anew; what it had is not given twice when it comes once more.
    """

    def __init__(self, handle: Handle, run: bytes) -> None:
        self._handle, self._run = handle, run
        self._cursors: list[dict[str, Any]] = [{"cursor": 0} for _ in handle.refs]
        self._done = [False] * len(handle.refs)
        self._given = Ranges()

    @property
    def done(self) -> bool:
        """Whether every shard said, when it was asked last, that it has no more."""
        return all(self._done)

    def pages(self, wait: float) -> Iterator[list[Stretch]]:
        """Ask every shard once for what is new; yield what came. Waits `wait` seconds for a shard that is alone."""
        alone = self._done.count(False) == 1
        for shard, cursor in enumerate(self._cursors):
            meta = {"run": self._run, **cursor, "wait": wait if alone and not self._done[shard] else IN_TURN}
            answer, parts = self._handle.link.sync(self._handle.ask(shard, "stream", meta, wait=wait))
            page = [stretch for found in open_settlements(parts) for stretch in self._new(found)]
            if page:
                yield page
            self._cursors[shard] = {"cursor": answer["cursor"], "epoch": answer["epoch"]}
            self._done[shard] = answer["done"]

    def _new(self, stretch: Stretch) -> Iterator[Stretch]:
        """Cut out what was given before."""
        for lo, hi in self._given.gaps(stretch.ordinal, stretch.end):
            a, b = lo - stretch.ordinal, hi - stretch.ordinal
            yield Stretch(lo, stretch.values[a:b], stretch.keys and stretch.keys[a:b])
        self._given.add(stretch.ordinal, stretch.end)
