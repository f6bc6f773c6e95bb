"""What a process, a worker and a shard say of themselves when a cluster is examined. Changes nothing.

Answers are small and plain. Whatever asks the disk runs in a thread that may hang without anybody waiting for it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import socket
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from distributed import Worker

from dqlab.clock import SystemClock
from dqlab.cluster.durable import LogStore
from dqlab.cluster.functions import opened_blob
from dqlab.cluster.imports import missing_packages, named_in_pickle, named_in_source
from dqlab.cluster.internals import actors_here, daemon_thread, loop_lag, memory_limit
from dqlab.cluster.protocol import greeting
from dqlab.queue.book import RunRecord
from dqlab.queue.ledger import Ledger
from dqlab.store.probe import Probe, probe

if TYPE_CHECKING:
    from dqlab.cluster.memory import Store

__all__ = ["PACKAGES", "WorkerVitals", "process_vitals", "shard_vitals"]

PACKAGES = ("dask", "distributed", "cloudpickle", "msgpack", "fsspec", "sortedcontainers")
"""What all processes of a cluster should have in the same version: Dask, and what frames and payloads are made with."""
MAX_RUNS = 20
"""Open runs of a shard whose functions are looked at, the newest."""

_DESCRIPTORS = Path("/proc/self/fd")


def process_vitals() -> dict[str, Any]:
    """Return who this process is, what it runs with, and the time it is here, seconds since 1970."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        **greeting(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "descriptors": len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS.is_dir() else None,  # noqa: PTH208 - faster
        "descriptors_max": None if soft == resource.RLIM_INFINITY else soft,
        "at": SystemClock().wall(),
    }


class WorkerVitals:
    """The handler ``dq_vitals`` of a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._thread = daemon_thread("dqlab-vitals")

    async def look(
        self, stores: Sequence[Sequence[str]] = (), packages: Sequence[str] = (), limit: float = 5.0
    ) -> dict[str, Any]:
        """Return what there is to know here.

        Parameters
        ----------
        stores : sequence of (str, str)
            Directories to look at, each with the path of a marker or "".
        packages : sequence of str
            Whether these can be imported.
        limit : float
            Seconds for everything that asks the disk.
        """
        worker = self._worker
        actors = [held for kind in ("queue", "consumer") for held in actors_here(worker, kind).values() if _runs(held)]
        looked = await self.look_at_disk(stores, packages, limit)
        return {
            **process_vitals(),
            "name": str(worker.name),
            "threads": worker.state.nthreads,
            "lag": loop_lag(worker),
            "memory": psutil.Process().memory_info().rss,
            "memory_limit": memory_limit(worker),
            "lifetime_left": _lifetime_left(worker),
            "shards": [actor.vitals() for actor in actors if hasattr(actor, "vitals")],
            "consumers": [_consumer(actor.report()) for actor in actors if not hasattr(actor, "vitals")],
            **looked,
        }

    async def look_at_disk(
        self, stores: Sequence[Sequence[str]], packages: Sequence[str], limit: float
    ) -> dict[str, Any]:
        """Return what the disk says; a file system that hangs keeps its thread, and an answer that says so."""
        if not stores and not packages:
            return {"stores": [], "missing": []}

        def look() -> dict[str, Any]:
            probes = [probe(Path(directory), marker).to_dict() for directory, marker in stores]
            return {"stores": probes, "missing": missing_packages(list(packages))}

        looking = asyncio.get_running_loop().run_in_executor(self._thread, look)
        try:
            return await asyncio.wait_for(looking, limit)
        except TimeoutError:
            error = f"it did not answer within {limit:g} s"
            return {"stores": [Probe(directory, error=error).to_dict() for directory, _ in stores], "missing": []}


def shard_vitals(ledger: Ledger, store: Store, consumers: int) -> dict[str, Any]:
    """Return the state of one shard.

    Parameters
    ----------
    consumers : int
        Slots that it knows.
    """
    shard = ledger.shard
    now = shard.clock.monotonic()
    oldest = min(shard.leases.values(), key=lambda lease: lease.since, default=None)
    return {
        "queue": shard.name,
        "shard": shard.index,
        "epoch": shard.epoch,
        "consumers": consumers,
        "lag": shard.lag(),
        "leases": len(shard.leases),
        "oldest": None
        if oldest is None
        else {
            "consumer": oldest.consumer,
            "messages": len(oldest.remaining),
            "held": now - oldest.since,
            "left": oldest.deadline - now,
            "timeout": oldest.timeout,
        },
        "failure": "" if store.failure is None else str(store.failure),
        "results_full": store.full,
        "packages": sorted(_packages(ledger)),
        "log": _log(store) if isinstance(store, LogStore) else None,
    }


def _log(store: LogStore) -> dict[str, Any]:
    log, recovery = store.log, store.log.recovery
    return {
        "directory": str(log.directory),
        "lock": recovery.lock,
        "corrupt": len(recovery.corrupt),
        "checkpoint_lost": recovery.checkpoint_lost,
        "quarantine": log.usage().quarantine,
        "room": store.no_room(0) is None,
    }


def _packages(ledger: Ledger) -> set[str]:
    """Return what the functions of open runs need, as far as this shard knows them."""
    records = [book.record for book in ledger.books.values() if book.record is not None and not book.lane.done]
    newest = sorted(records, key=lambda record: record.started)[-MAX_RUNS:]
    return set().union(*(_named(record, ledger) for record in newest))


def _named(record: RunRecord, ledger: Ledger) -> set[str]:
    blob = ledger.functions.get(record.code.get("blob", b""))
    named = set() if blob is None else named_in_pickle(bytes(opened_blob(blob)))
    return named | named_in_source(record.code.get("source") or "")


def _runs(actor: Any) -> bool:
    """Return whether an actor has started and is not closed: a shard that is still being opened knows nothing."""
    return hasattr(actor, "_reporter") and not actor.closed


def _consumer(report: dict[str, Any]) -> dict[str, Any]:
    return {key: report[key] for key in ("name", "queue", "slots", "leased", "done", "last_error")}


def _lifetime_left(worker: Worker) -> float | None:
    """Return the seconds until a worker with a lifetime ends itself; it began a moment after its process."""
    if not worker.lifetime or worker.address.startswith("inproc://"):
        return None
    return float(psutil.Process().create_time() + worker.lifetime - SystemClock().wall())


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
