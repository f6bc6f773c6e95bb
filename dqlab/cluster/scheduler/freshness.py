"""Brings statistics up to date: makes workers report at once, and not up to a quarter of a second later."""

from __future__ import annotations

import asyncio
from itertools import count

from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.transport.internals import ask_handler

__all__ = ["Freshness"]


class Freshness:
    """Asks workers for their reports, and waits for them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._numbers = count(1)
        self._rounds: dict[int, _Round] = {}

    async def bring(self, queue: str, within: float) -> bool:
        """Make the workers of a queue, or of all for "", report, and return whether all did within `within` seconds."""
        entries = [each for each in self._state.entries.values() if each.address and each.gone is None]
        asked = _Round({each.address for each in entries if queue in ("", each.queue)})
        number = next(self._numbers)
        self._rounds[number] = asked
        try:
            async with asyncio.timeout(within):
                await asyncio.gather(*(self._ask(worker, number) for worker in list(asked.awaited)))
                await asked.over.wait()
        except TimeoutError:
            return False
        finally:
            del self._rounds[number]
        return True

    def note(self, worker: str, number: int) -> None:
        """Note that a worker's reports have come, as a stream handler."""
        # It must neither wait nor raise: an error would close the worker's stream. The round may be over already.
        if number in self._rounds:
            self._rounds[number].drop(worker)

    async def _ask(self, worker: str, number: int) -> None:
        try:
            known = await ask_handler(self._state.scheduler.rpc, worker, "dq_report", number=number) == {}
        except Exception:  # noqa: BLE001 - it is gone, leaves, or has no such handler
            known = False
        if not known:
            self._rounds[number].drop(worker)


class _Round:
    """Workers that have not reported yet."""

    def __init__(self, workers: set[str]) -> None:
        self.awaited = workers
        self.over = asyncio.Event()
        self.drop("")  # with no workers, the round is over at once

    def drop(self, worker: str) -> None:
        """Stop waiting for a worker."""
        self.awaited.discard(worker)
        if not self.awaited:
            self.over.set()
