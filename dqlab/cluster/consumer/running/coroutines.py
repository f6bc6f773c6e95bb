"""A thread with its own event loop, for the coroutine functions of one consumer slot.

It outlives chunks, so that the last coroutines of one chunk and the first of the next one run together.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from contextlib import suppress

from dqlab.cluster.consumer.running.batches import Batches
from dqlab.cluster.consumer.running.execution import Coroutines, Flight
from dqlab.cluster.transport.internals import daemon_thread


class CoroutineThread:
    """Runs `Coroutines`, or `Batches`, until it is closed."""

    def __init__(self, name: str, coroutines: Coroutines | Batches) -> None:
        self._coroutines = coroutines
        self._loop = asyncio.new_event_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        thread = daemon_thread(name)
        self._ended = thread.submit(self._live)
        thread.shutdown(wait=False)

    def add(self, flight: Flight) -> Flight:
        """Begin a chunk's messages as soon as there is room, from any thread and in its context."""
        flight.thread = self
        self._loop.call_soon_threadsafe(self._coroutines.add, flight)
        return flight

    @property
    def abandoned(self) -> int:
        """Number of cancelled coroutines that still run."""
        return len(self._coroutines.abandoned)

    def abandon(self, flight: Flight) -> concurrent.futures.Future[None]:
        """Drop a chunk's cancelled coroutines, and return a future that resolves unless one blocks the loop."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def abandon() -> None:
            self._coroutines.abandon(flight)
            done.set_result(None)

        self._loop.call_soon_threadsafe(abandon)
        return done

    @property
    def lives(self) -> bool:
        """Whether the thread is alive."""
        return not self._ended.done()

    def close(self) -> None:
        """Begin no more coroutines and cancel those that run."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._coroutines.clear()
        if not self._closed.done():
            self._closed.set_result(None)

    def _live(self) -> None:
        # The runner cancels at its end the tasks that are left, and closes the loop.
        with asyncio.Runner(loop_factory=lambda: self._loop):
            while not (self._closed.done() or self._loop.is_closed()):
                with suppress(BaseException):  # a user's task may call sys.exit or stop the loop; others continue
                    self._loop.run_until_complete(self._closed)
