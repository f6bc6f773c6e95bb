"""One Dask client for all actors that a worker makes within seconds: opening one costs more than making an actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from distributed import Worker

from dqlab.cluster.transport.internals import NoSuchActor, PatientClient, security_of

logger = logging.getLogger("dqlab.worker")

LINGER_S = 5.0
"""Seconds that the client stays open for the next actor. Not for ever: each open client polls the scheduler."""
CLOSE_S = 1.0
"""Seconds that closing it may take; a worker that leaves has few."""


class SharedClient:
    """Opens a client when an actor is made, and closes it when none was made for some seconds.

    It is not the worker's own: that one would become asynchronous, and users' functions that call `get_client()` would
    get it.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._opening: asyncio.Task[PatientClient] | None = None
        """The client that callers share, or that is being opened for them."""
        self._users = 0
        self._linger: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[PatientClient]:
        """Yield the client, which others may use at the same time; raise OSError where none can be opened."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._users += 1
        try:
            yield await self._shared()
        finally:
            self._users -= 1
            if not self._users and not self._closed:
                self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._end_later)

    async def _shared(self) -> PatientClient:
        if self._closed:
            raise NoSuchActor("its worker closes")
        opening = self._opening
        if opening is not None and opening.done() and not _serves(opening):
            self._end_later()
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open(), name="dqlab-open-client")
        # Shielded: a caller that gives up must not end the opening that others wait for.
        client = await asyncio.shield(self._opening)
        if self._closed:
            raise NoSuchActor("its worker closes")
        return client

    async def _open(self) -> PatientClient:
        client = PatientClient(  # type: ignore[no-untyped-call]
            self._worker.scheduler.address,
            asynchronous=True,
            set_as_default=False,
            security=security_of(self._worker),
            name="dqlab-spawn",
        )
        try:
            await client
        except BaseException:
            await self._end(client)  # Dask leaves one that could not connect half open
            raise
        return client

    def _end_later(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            ending = asyncio.get_running_loop().create_task(self._end_opened(opening), name="dqlab-close-client")
            self._ending.add(ending)  # the event loop holds only a weak reference
            ending.add_done_callback(self._ending.discard)

    async def _end_opened(self, opening: asyncio.Task[PatientClient]) -> None:
        if not opening.done():
            opening.cancel()
        with suppress(asyncio.CancelledError, Exception):  # its callers have got the error
            await self._end(await opening)

    async def _end(self, client: PatientClient) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await client.close()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - nothing waits for it, and its process ends it in any case
            logger.warning("event=client_not_closed %r", error)

    async def close(self) -> None:
        """Close the client for good, also one that is being opened, and wait for that."""
        self._closed = True
        if self._linger is not None:
            self._linger.cancel()
        self._end_later()
        if self._ending:
            await asyncio.wait(list(self._ending))


def _serves(opening: asyncio.Task[PatientClient]) -> bool:
    """Return whether a client could be opened, and has not lost the scheduler since."""
    return not opening.cancelled() and opening.exception() is None and opening.result().status == "running"
