"""Brings statistics up to date: makes workers report at once, and not up to a quarter of a second later."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from itertools import count

from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.transport.internals import ask_handler


class Freshness:
    """Asks workers for their reports, and waits for them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._numbers = count(1)
        self._awaited: dict[tuple[str, int], asyncio.Event] = {}
        """By worker and question: set when the worker's reports have come."""

    async def bring(self, queue: str, within: float) -> bool:
        """Make the workers of a queue, or of all for "", report, and return whether all did within `within` seconds."""
        entries = [entry for entry in self._state.entries.values() if entry.address and entry.gone is None]
        return await self._bring({entry.address for entry in entries if queue in ("", entry.queue)}, within)

    async def bring_shards(self, queue: str, within: float) -> bool:
        """Make the shards of a queue report, and return whether all of them did within `within` seconds."""
        opened, shards = self._state.queues.get(queue), [entry for entry in self._state.of(queue) if entry.is_shard]
        standing = [entry.address for entry in shards if entry.gone is None and entry.made.is_set()]
        if opened is None or len(standing) < opened.shards:
            return False
        return await self._bring(set(standing), within)

    def note(self, worker: str, number: int) -> None:
        """Note that a worker's reports have come, as a stream handler."""
        # It must neither wait nor raise: an error would close the worker's stream. Nobody may wait any more.
        if (worker, number) in self._awaited:
            self._awaited[worker, number].set()

    async def _bring(self, workers: Collection[str], within: float) -> bool:
        number = next(self._numbers)
        try:
            async with asyncio.timeout(within):
                return all(await asyncio.gather(*(self._reports(worker, number) for worker in workers)))
        except TimeoutError:
            return False

    async def _reports(self, worker: str, number: int) -> bool:
        """Return True once a worker has reported, or False if it is gone, leaves, or has no such handler."""
        came = self._awaited[worker, number] = asyncio.Event()
        try:
            with suppress(Exception):  # whatever it is, the worker does not report
                if await ask_handler(self._state.scheduler.rpc, worker, "dq_report", number=number) == {}:
                    await came.wait()
                    return True
            return False
        finally:
            del self._awaited[worker, number]
