"""One Dask client for all actors that a worker makes within seconds: opening one costs more than making an actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from distributed import Worker

from dqlab.cluster.transport.internals import PatientClient, security_of

__all__ = ["SharedClient"]

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
        self._client: PatientClient | None = None
        self._opening = asyncio.Lock()
        self._users = 0
        self._linger: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[PatientClient]:
        """Yield the client, which others may use at the same time."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._users += 1
        try:
            yield await self._opened()
        finally:
            self._users -= 1
            if not self._users:
                self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._close_later)

    async def _opened(self) -> PatientClient:
        async with self._opening:
            if self._client is not None and self._client.status != "running":  # it has lost the scheduler
                self._close_later()
            if self._client is None:
                self._client = await PatientClient(  # type: ignore[no-untyped-call]
                    self._worker.scheduler.address,
                    asynchronous=True,
                    set_as_default=False,
                    security=security_of(self._worker),
                    name="dqlab-spawn",
                )
            return self._client

    def _close_later(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            closing = asyncio.get_running_loop().create_task(self._closed(client), name="dqlab-close-client")
            self._closing.add(closing)  # the event loop holds only a weak reference
            closing.add_done_callback(self._closing.discard)

    async def _closed(self, client: PatientClient) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await client.close()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - nothing waits for it, and its process ends it in any case
            logger.warning("event=client_not_closed %r", error)

    async def close(self) -> None:
        """Close the client, and wait for that."""
        if self._linger is not None:
            self._linger.cancel()
        self._close_later()
        if self._closing:
            await asyncio.wait(list(self._closing))
