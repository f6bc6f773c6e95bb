"""A worker of a cluster on this machine that closes without warnings about its own heartbeat."""

from __future__ import annotations

import asyncio
from typing import Any

import distributed


class Worker(distributed.Worker):
    """A worker that cancels a running heartbeat when it closes."""

    # Dask's worker closes that connection and then logs, with a traceback, that it could not reach the scheduler. A
    # notebook shows that in whichever cell runs at the moment.
    _beating: asyncio.Task[None] | None = None
    _closes = False

    async def heartbeat(self) -> None:
        """Send a heartbeat, unless the worker closes."""
        if self._closes:
            return
        self._beating = beating = asyncio.create_task(super().heartbeat(), name="dqlab-heartbeat")
        await asyncio.wait([beating])  # unlike `await beating`, it does not raise when `close` cancels the heartbeat
        if not beating.cancelled():
            beating.result()

    async def close(self, *args: Any, **given: Any) -> str | None:  # type: ignore[override]
        """Close as Dask's worker does."""
        self._closes = True
        beating = self._beating
        if beating is not None and beating is not asyncio.current_task():  # a heartbeat may close the worker itself
            beating.cancel()
        return await super().close(*args, **given)
