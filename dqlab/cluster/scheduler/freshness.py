"""Brings statistics up to date: workers report at once what they would report a quarter of a second later."""

from __future__ import annotations

import asyncio
from itertools import count

from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.transport.internals import ask_handler

__all__ = ["Freshness"]


class Freshness:
    """Asks workers for their reports, and waits until these have come.

    Parameters
    ----------
    state : ClusterState
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._numbers = count(1)
        self._rounds: dict[int, _Round] = {}

    async def bring(self, queue: str, within: float) -> bool:
        """Have workers report now, and wait up to `within` seconds; return whether all have.

        Parameters
        ----------
        queue : str
            Whose shards and consumers report; "" for those of all queues.
        within : float
            Seconds; what a worker that is starved or hangs has to report comes later.
        """
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
        """Note that a worker's reports have come; a stream handler, so it must neither wait nor raise."""
        if number in self._rounds:
            self._rounds[number].drop(worker)

    async def _ask(self, worker: str, number: int) -> None:
        try:
            known = await ask_handler(self._state.scheduler.rpc, worker, "dq_report", number=number) == {}
        except Exception:  # noqa: BLE001 - it is gone, leaves, or does not know the question
            known = False
        if not known:
            self._rounds[number].drop(worker)


class _Round:
    """Workers whose reports have not come yet."""

    def __init__(self, workers: set[str]) -> None:
        self.awaited = workers
        self.over = asyncio.Event()
        self.drop("")

    def drop(self, worker: str) -> None:
        """Wait for this worker no longer."""
        self.awaited.discard(worker)
        if not self.awaited:
            self.over.set()
