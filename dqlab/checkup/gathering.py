"""Asks all processes at once, each with its own limit; a missing reply is a fact like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from dqlab.checkup.facts import (
    Actor,
    Facts,
    LeaseFacts,
    Process,
    Queue,
    Registered,
    Scheduler,
    ShardFacts,
    StoreFacts,
    WorkerFacts,
    known,
    look_at_store,
)
from dqlab.clock import SystemClock
from dqlab.cluster.transport.internals import daemon_thread, scheduler_rpc
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.process_vitals import PACKAGES, process_vitals
from dqlab.cluster.transport.reports import FRESH
from dqlab.stats import Snapshot
from dqlab.store.probe import Marker, Probe

__all__ = ["Gathering"]

_FIRST = 0.4
"""Share of the time for the scheduler and for this process's own disk, which are asked first."""
_DIRECT = 0.5
"""Share of a worker's time after which it is called through the scheduler."""

_ALERTS = 1000
"""Alerts to request; views get only the worst few."""
_NAMES = ["dqlab", *PACKAGES]


class Gathering:
    """Gathers the facts of one cluster on its client's event loop within `limit` seconds, even if a process hangs."""

    def __init__(self, link: Link, of: str, stores: Sequence[Path], limit: float) -> None:
        self._link, self._of, self._stores, self._limit = link, of, list(stores), limit
        self._clock = SystemClock()
        self._at, self._began = self._clock.wall(), self._clock.monotonic()
        # One thread for all disks: a dead network file system blocks it for good, and must not block the event loop,
        # or the end of this process.
        self._disk = daemon_thread("dqlab-doctor")

    def nothing(self, silence: str) -> Facts:
        """Return the facts where no process could be called."""
        scheduler = Scheduler(self._link.address, silence=silence)
        stores = tuple(StoreFacts(str(path), Probe(str(path), error="not looked at")) for path in self._stores)
        return self._facts(scheduler=scheduler, stores=stores)

    async def gather(self) -> Facts:
        """Return all facts once all processes have answered or the time is over."""
        try:
            return await self._gather()
        finally:
            self._disk.shutdown(wait=False)

    async def _gather(self) -> Facts:
        scheduler, addresses = await self._scheduler()
        directories = self._directories(scheduler.registry)
        markers = ExitStack()
        try:
            marked = await self._on_disk(lambda: [markers.enter_context(Marker(path)).path for path in directories])
            looks = list(zip(map(str, directories), marked or [""] * len(directories), strict=True))
            asked = (self._worker(entry, looks) for entry in addresses)
            snapshot, stores, workers = await asyncio.gather(
                self._snapshot(scheduler), self._on_disk_all(directories), asyncio.gather(*asked)
            )
        finally:
            closing = asyncio.get_running_loop().run_in_executor(self._disk, markers.close)
            # wait(), which does not cancel it: markers are removed even if the disk's thread hangs until later.
            await asyncio.wait((closing,), timeout=self._left() * _FIRST)
        # Only now: which packages are needed is known from the shards' answers.
        packages = sorted({name for worker in workers for shard in worker.shards for name in shard.packages})
        if packages:
            workers = await asyncio.gather(*(self._with_missing(worker, packages) for worker in workers))
        return self._facts(
            scheduler=scheduler,
            workers=tuple(workers),
            stores=tuple(stores),
            snapshot=snapshot,
            packages=tuple(packages),
            direct=self._link.direct,
            embedded=self._link.embedded,
        )

    def _facts(self, **found: Any) -> Facts:
        return Facts(
            self._of,
            known(Process, process_vitals()),
            limit=self._limit,
            at=self._at,
            took=self._clock.monotonic() - self._began,
            **found,
        )

    def _left(self) -> float:
        # Never 0: the last processes asked still get a chance, and the limit is exceeded by a twentieth of a second.
        return max(0.05, self._limit - (self._clock.monotonic() - self._began))

    # --- the scheduler ----------------------------------------------------------------------

    async def _scheduler(self) -> tuple[Scheduler, list[dict[str, Any]]]:
        """Return the scheduler's reply, and each worker's address, name and last sign of life."""
        rpc, address = scheduler_rpc(self._link.client), self._link.address
        limit = self._limit * _FIRST
        try:
            answer, skew, doubt = await self._timed(rpc.dq_overview, limit)
            if answer is not None:
                registered = None if answer["registry"] is None else _registered(answer["registry"])
                process = known(Process, answer, skew=skew, doubt=doubt)
                return Scheduler(address, process, registry=registered), list(answer["workers"])
            # It has no handlers of this dqlab: Dask's own calls show its workers and versions.
            async with asyncio.timeout(limit / 2):
                identity = await rpc.identity()
                process = _foreign(await rpc.versions(packages=_NAMES))
            workers = [
                {"address": at, "name": str(worker["name"]), "silent": max(0.0, self._at - worker["last_seen"])}
                for at, worker in identity["workers"].items()
            ]
        except Exception as error:  # noqa: BLE001 - any error is what was found
            return Scheduler(address, silence=_silence(error, limit)), []
        return Scheduler(address, process), workers

    async def _snapshot(self, scheduler: Scheduler) -> Snapshot | None:
        if scheduler.registry is None:
            return None
        try:
            fresh = min(FRESH, self._left() * _FIRST)  # a worker that hangs does not report, and is found by itself
            asked = scheduler_rpc(self._link.client).dq_snapshot(alerts=_ALERTS, fresh=fresh)
            answer = await asyncio.wait_for(asked, self._left())
            return Snapshot.from_dict(answer)
        except Exception:  # noqa: BLE001 - without it fewer checks are made
            return None

    # --- workers ----------------------------------------------------------------------------

    async def _worker(self, entry: dict[str, Any], looks: Sequence[tuple[str, str]]) -> WorkerFacts:
        """Return a worker's report, asked directly and, if that takes too long, through the scheduler."""
        worker = known(WorkerFacts, entry)
        left = self._left()
        silence = ""
        for path, part in (("direct", _DIRECT), ("proxied", 1.0)):
            try:
                return await self._vitals_of(worker, path, looks, self._left() * part)
            except Exception as error:  # noqa: BLE001 - any error is what was found
                silence = _silence(error, left)
        return replace(worker, silence=silence)

    async def _vitals_of(
        self, worker: WorkerFacts, path: str, looks: Sequence[tuple[str, str]], limit: float
    ) -> WorkerFacts:
        stores = [list(look) for look in looks]

        async def call() -> Any:
            # The worker gives up on its stores earlier than this process on the worker: a disk that hangs is a finding.
            return await self._call(worker.address, path, "dq_vitals", stores=stores, limit=limit * 0.8)

        answer, skew, doubt = await self._timed(call, limit)
        base = {"address": worker.address, "name": worker.name, "silent": worker.silent, "path": path}
        if answer is None:
            call_versions = self._call(worker.address, path, "versions", packages=_NAMES)
            versions = await asyncio.wait_for(call_versions, limit)
            return known(WorkerFacts, base, process=_foreign(versions), plugin=False)
        return known(
            WorkerFacts,
            answer | base,
            process=known(Process, answer, skew=skew, doubt=doubt),
            shards=tuple(_shard(shard) for shard in answer["shards"]),
            consumers=tuple(consumer["name"] for consumer in answer["consumers"]),
            abandoned={
                consumer["name"]: tuple(consumer["abandoned"])
                for consumer in answer["consumers"]
                if consumer.get("abandoned")
            },
            probes=tuple(known(Probe, seen) for seen in answer["stores"]),
        )

    async def _with_missing(self, worker: WorkerFacts, packages: Sequence[str]) -> WorkerFacts:
        """Return the same worker with the packages that it cannot import."""
        if worker.process is None or not worker.plugin:
            return worker
        try:
            limit = self._left() * _FIRST
            asked = self._call(worker.address, worker.path, "dq_missing", packages=list(packages), limit=limit)
            answer = await asyncio.wait_for(asked, self._left())
        except Exception:  # noqa: BLE001 - it has answered before; of this nothing is known
            return worker
        return worker if answer is None else replace(worker, missing=tuple(answer))

    async def _call(self, address: str, path: str, op: str, **arguments: Any) -> Any:
        client = self._link.client
        if path == "direct":
            return await getattr(client.rpc(address), op)(**arguments)
        return await scheduler_rpc(client).proxy(worker=address, msg={"op": op, **arguments})

    async def _timed(self, call: Callable[[], Awaitable[Any]], limit: float) -> tuple[Any, float, float]:
        """Return a reply, how far its clock is ahead of ours, and by how much that may be wrong."""
        before = self._clock.wall()
        answer = await asyncio.wait_for(call(), limit)
        after = self._clock.wall()
        at = answer["at"] if answer is not None else after
        # As in NTP: the other clock was read somewhere between the two readings of ours.
        return answer, at - (before + after) / 2, (after - before) / 2

    # --- stores -----------------------------------------------------------------------------

    def _directories(self, registered: Registered | None) -> list[Path]:
        used = () if registered is None else registered.queues
        paths = [Path(queue.directory).parent for queue in used if queue.directory is not None]
        return list(dict.fromkeys([*self._stores, *paths]))

    async def _on_disk_all(self, directories: Sequence[Path]) -> list[StoreFacts]:
        return [await self._store(directory) for directory in directories]

    async def _store(self, directory: Path) -> StoreFacts:
        limit = self._left() * _FIRST
        found: StoreFacts | None = await self._on_disk(lambda: look_at_store(directory))
        if found is not None:
            return found
        error = f"it did not answer within {limit:.1f} s"
        return StoreFacts(str(directory), Probe(str(directory), error=error), error=error)

    async def _on_disk(self, look: Callable[[], Any]) -> Any:
        """Return the result of a function that may hang on a disk, or None where it does."""
        looking = asyncio.get_running_loop().run_in_executor(self._disk, look)
        try:
            return await asyncio.wait_for(looking, self._left() * _FIRST)
        except (TimeoutError, OSError):
            return None


def _registered(answer: dict[str, Any]) -> Registered:
    return known(
        Registered,
        answer,
        hosts=tuple(answer["hosts"]),
        serving=tuple(answer["serving"]),
        actors=tuple(known(Actor, actor) for actor in answer["actors"]),
        queues=tuple(known(Queue, queue, name=name) for name, queue in answer["queues"].items()),
        served=tuple(answer["served"]),
    )


def _shard(answer: dict[str, Any]) -> ShardFacts:
    oldest = None if answer["oldest"] is None else known(LeaseFacts, answer["oldest"])
    return known(ShardFacts, answer, oldest=oldest, packages=tuple(answer["packages"]))


def _foreign(versions: dict[str, Any]) -> Process:
    """Return what Dask itself reports of a process without our handlers."""
    packages, python = versions["packages"], str(versions["host"]["python"])
    return Process(
        python=".".join(python.split(".")[:3]),
        version=packages["dqlab"],
        packages={name: packages[name] for name in PACKAGES},
    )


def _silence(error: Exception, limit: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {limit:.1f} s"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
