"""Limits waits by the time in which this process ran, so that answers that came while it was stopped are read first.

A signal, a debugger or a paused virtual machine stops a process. When it continues, every timer is due at once, while
the answers that came meanwhile are still unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LATE = 1.0
"""Most seconds that a timer may be late. Later than that, this process was stopped."""
MORE = 10.0
"""Most seconds that a wait is then extended by."""


class Limit:
    """A limit in seconds that calls `then` when it is over, extended if the event loop stood still at its end."""

    # Make and use it on the event loop only.

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
    """Raise TimeoutError when a block takes longer than a `Limit`, like `asyncio.timeout`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as within:
        with Limit(seconds, lambda: within.reschedule(loop.time())):
            yield
