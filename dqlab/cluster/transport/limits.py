"""Limits of waits that count the time in which this process ran: what came while it was stopped is read first.

A process is stopped by a signal, a debugger or a virtual machine that pauses. When it goes on, every timer is due
at once, and the answers that have come are still to be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

__all__ = ["Limit", "limited"]

LATE = 1.0
"""Seconds that a timer may be late; after more, this process stood still."""
MORE = 10.0
"""Seconds that a wait may then last, at most."""


class Limit:
    """Is over after some seconds, unless the event loop stood still at their end. Made and used on that loop.

    Parameters
    ----------
    then : callable, optional
        Called when it is over.
    """

    def __init__(self, seconds: float, then: Callable[[], object] = lambda: None) -> None:
        self.over = False
        self._loop, self._then = asyncio.get_running_loop(), then
        self._more = min(seconds, MORE)
        self._begin(seconds)

    def __enter__(self) -> Limit:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _begin(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        if self._loop.time() - self._due > LATE:
            self._begin(self._more)
        else:
            self.over = True
            self._then()


@asynccontextmanager
async def limited(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError when a block takes longer, as `asyncio.timeout` does, by a `Limit`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as within:
        with Limit(seconds, lambda: within.reschedule(loop.time())):
            yield
