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
from dqlab.cluster.transport.internals import actors_here, daemon_thread, loop_lag, memory_limit
from dqlab.cluster.transport.process_vitals import process_vitals
from dqlab.cluster.transport.sealed import opened_blob
from dqlab.cluster.transport.walltime import batch_system, read_end
from dqlab.cluster.worker.packages import missing_packages, named_in_pickle, named_in_source
from dqlab.store.probe import Probe, probe
from dqlab.texts import valid

__all__ = ["WorkerVitals"]

T = TypeVar("T")

MAX_BLOB = 1 << 20
"""Bytes of a function to search for packages, which takes some tenths of a second; only its data follows."""


class WorkerVitals:
    """The handlers ``dq_vitals`` and ``dq_missing`` of a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._looking: dict[str, asyncio.Future[Any]] = {}
        """Checks that run in threads, by subject."""

    async def look(self, stores: Sequence[Sequence[str]] = (), limit: float = 5.0) -> dict[str, Any]:
        """Return the state of this worker after at most about `limit` seconds."""
        # `stores` are directories to probe, each with the path of a marker or "".
        worker = self._worker
        # A shard that is still being opened has no ledger yet.
        shards = [held for held in actors_here(worker, "queue").values() if hasattr(held, "ledger") and not held.closed]
        functions = [found for held in shards for found in held.open_functions()]
        probes, named = await asyncio.gather(
            self.look_at_disk(stores, limit),
            self._in_time("functions", lambda: sorted(_named(functions)), limit),
        )
        end = read_end(os.environ, SystemClock().wall())
        found = {
            **process_vitals(),
            "lag": loop_lag(worker),
            "memory_limit": memory_limit(worker),
            "lifetime_left": _lifetime_left(worker),
            "batch": batch_system(os.environ),
            "job_left": None if end is None else end.left,
            "imported": named or [],
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

    async def missing(self, packages: Sequence[str], limit: float) -> list[str] | None:
        """Return the packages that cannot be imported here, or None if that is not known in time."""
        return await self._in_time("packages", lambda: missing_packages(list(packages)), limit)

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


def _named(functions: Sequence[tuple[bytes, str]]) -> set[str]:
    """Return the packages that functions import."""
    named: set[str] = set()
    for blob, source in functions:
        named |= named_in_pickle(bytes(opened_blob(blob))[:MAX_BLOB]) if blob else set()
        named |= named_in_source(source)
    return named


def _lifetime_left(worker: Worker) -> float | None:
    """Return the seconds until a worker with a lifetime ends itself, else None."""
    # Counted from the start of its process, just before the worker's own.
    if not worker.lifetime or worker.address.startswith("inproc://"):
        return None
    return float(psutil.Process().create_time() + worker.lifetime - SystemClock().wall())
