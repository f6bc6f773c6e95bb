"""Reports a worker to the doctor, without changing anything.

Answers are small and plain. Checks that take time or touch the disk run in threads, so that one that hangs delays
neither another answer nor the heartbeats of the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil
from distributed import Worker

from dqlab.clock import SystemClock
from dqlab.cluster.transport.internals import daemon_thread, loop_lag, memory_limit
from dqlab.cluster.transport.protocol import batch_system, process_vitals, read_end
from dqlab.store.probe import Probe, probe
from dqlab.texts import valid

T = TypeVar("T")


class WorkerVitals:
    """The handler ``dq_vitals`` of a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._looking: dict[str, asyncio.Future[Any]] = {}
        """Checks that run in threads, by subject."""

    async def look(self, stores: Sequence[Sequence[str]] = (), limit: float = 5.0) -> dict[str, Any]:
        """Return the state of this worker after at most about `limit` seconds."""
        # `stores` are directories to probe, each with the path of a marker or "".
        worker = self._worker
        probes = await self.look_at_disk(stores, limit)
        end = read_end(os.environ, SystemClock().wall())
        found = {
            **process_vitals(),
            "lag": loop_lag(worker),
            "memory_limit": memory_limit(worker),
            "lifetime_left": _lifetime_left(worker),
            "batch": batch_system(os.environ),
            "job_left": None if end is None else end.left,
            "stores": probes,
        }
        return cast("dict[str, Any]", valid(found))

    async def look_at_disk(self, stores: Sequence[Sequence[str]], limit: float) -> list[dict[str, Any]]:
        """Return a probe of each store from this worker, or of one that hangs an error."""
        probes = (
            self._in_time(f"store {directory}", partial(probe, Path(directory), marker), limit)
            for directory, marker in stores
        )
        error = f"it did not answer within {limit:g} s"
        return [
            (found or Probe(directory, error=error)).to_dict()
            for (directory, _), found in zip(stores, await asyncio.gather(*probes), strict=True)
        ]

    async def _in_time(self, what: str, look: Callable[[], T], limit: float) -> T | None:
        """Return the result of a check in its own thread, or None if it takes longer than `limit`."""
        # A check that hangs is not started again: each try would leave another thread behind.
        before = self._looking.get(what)
        if before is not None:
            await asyncio.wait((before,), timeout=limit)
            if not before.done():
                return None
        thread = daemon_thread("dqlab-vitals")
        looking = self._looking[what] = asyncio.get_running_loop().run_in_executor(thread, look)
        thread.shutdown(wait=False)
        await asyncio.wait((looking,), timeout=limit)
        return looking.result() if looking.done() else None


def _lifetime_left(worker: Worker) -> float | None:
    """Return the seconds until a worker with a lifetime ends itself, else None."""
    # Counted from the start of its process, just before the worker's own.
    if not worker.lifetime or worker.address.startswith("inproc://"):
        return None
    return float(psutil.Process().create_time() + worker.lifetime - SystemClock().wall())
