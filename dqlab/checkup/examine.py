"""Asks all processes at once, each with its own limit, then checks the facts; a missing reply is a fact like any other.

`examine` ends in time, and raises for wrong use only. `judge` is pure: it decides which checks there are, and the order
of findings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dqlab.checkup.checks import answers, jobs, queues, resources, shards, stores, versions
from dqlab.checkup.facts import UNSEEN, Actor, Checkup, Facts, Process, Registered, from_answer
from dqlab.clock import SystemClock
from dqlab.cluster.transport.internals import daemon_thread, scheduler_rpc
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.protocol import PACKAGES, process_vitals
from dqlab.cluster.transport.reports import FRESH
from dqlab.config import seconds
from dqlab.errors import BadOption, DqlabError, LabClosed, UsageError
from dqlab.stats import Snapshot
from dqlab.store.probe import Marker, Probe, probe
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.cluster.transport.link import Link


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
        stores = tuple(Probe(str(path), error="not looked at") for path in self._stores)
        return self._facts(scheduler=Process("the scheduler", self._link.address, silence), stores=stores)

    async def gather(self) -> Facts:
        """Return all facts once all processes have answered or the time is over."""
        try:
            return await self._gather()
        finally:
            self._disk.shutdown(wait=False)

    async def _gather(self) -> Facts:
        scheduler, registry, workers = await self._scheduler()
        directories = self._directories(registry)
        workers.sort(key=lambda worker: (len(worker.name), worker.name))
        markers = ExitStack()
        try:
            marked = await self._on_disk(lambda: [markers.enter_context(Marker(path)).path for path in directories])
            looks = list(zip(map(str, directories), marked or [""] * len(directories), strict=True))
            snapshot, stores, workers = await asyncio.gather(
                self._snapshot(scheduler),
                self._stores_here(directories),
                asyncio.gather(
                    *(
                        self._worker(worker, looks)
                        for worker in sorted(workers, key=lambda each: (len(each.name), each.name))
                    )
                ),
            )
        finally:
            closing = asyncio.get_running_loop().run_in_executor(self._disk, markers.close)
            # wait(), which does not cancel it: markers are removed even if the disk's thread hangs until later.
            await asyncio.wait((closing,), timeout=self._left() * _FIRST)
        return self._facts(
            scheduler=scheduler,
            registry=registry,
            workers=tuple(workers),
            stores=tuple(stores),
            snapshot=snapshot,
            embedded=self._link.embedded,
        )

    def _facts(self, **found: Any) -> Facts:
        took = self._clock.monotonic() - self._began
        return Facts(self._of, from_answer(Process, process_vitals()), at=self._at, took=took, **found)

    def _left(self) -> float:
        # Never 0: the last processes asked still get a chance, and the limit is exceeded by a twentieth of a second.
        return max(0.05, self._limit - (self._clock.monotonic() - self._began))

    # --- the scheduler ----------------------------------------------------------------------

    async def _scheduler(self) -> tuple[Process, Registered, list[Process]]:
        """Return the scheduler, its registry's view, and workers that are known by name alone so far."""
        rpc = scheduler_rpc(self._link.client)
        base: dict[str, Any] = {"name": "the scheduler", "address": self._link.address}
        limit = self._limit * _FIRST
        try:
            answer, ahead = await self._timed(rpc.dq_overview, limit)
            workers = [from_answer(Process, worker, name=f"worker {worker['name']}") for worker in answer["workers"]]
            return from_answer(Process, answer | base, ahead=ahead), _registered(answer["registry"]), workers
        except Exception as error:  # noqa: BLE001 - any error is what was found
            return Process(**base, silence=_silence(error, limit)), Registered(), []

    async def _snapshot(self, scheduler: Process) -> Snapshot:
        with suppress(Exception):  # without it fewer checks are made
            if scheduler.silence:
                return UNSEEN
            fresh = min(FRESH, self._left() * _FIRST)  # a worker that hangs does not report, and is found by itself
            asked = scheduler_rpc(self._link.client).dq_snapshot(alerts=_ALERTS, fresh=fresh)
            return Snapshot.from_dict(await asyncio.wait_for(asked, self._left()))
        return UNSEEN

    # --- workers ----------------------------------------------------------------------------

    async def _worker(self, worker: Process, looks: Sequence[tuple[str, str]]) -> Process:
        """Return a worker's report, asked directly and, if that takes too long, through the scheduler."""
        left = self._left()
        silence = ""
        for direct, part in ((True, _DIRECT), (False, 1.0)):
            try:
                return await self._vitals_of(replace(worker, direct=direct), looks, self._left() * part)
            except Exception as error:  # noqa: BLE001 - any error is what was found
                silence = _silence(error, left)
        return replace(worker, silence=silence)

    async def _vitals_of(self, worker: Process, looks: Sequence[tuple[str, str]], limit: float) -> Process:
        stores = [list(look) for look in looks]

        async def call() -> Any:
            # The worker gives up on its stores earlier than this process on the worker: a disk that hangs is a finding.
            return await self._call(worker, "dq_vitals", stores=stores, limit=limit * 0.8)

        answer, ahead = await self._timed(call, limit)
        base = {key: getattr(worker, key) for key in ("name", "address", "silent", "direct")}
        if answer is None:
            versions = await asyncio.wait_for(self._call(worker, "versions", packages=_NAMES), limit)
            return _foreign(base, versions)
        return from_answer(
            Process,
            answer | base,
            ahead=ahead,
            stores=tuple(from_answer(Probe, seen) for seen in answer.get("stores", ())),
        )

    async def _call(self, worker: Process, op: str, **arguments: Any) -> Any:
        client = self._link.client
        if worker.direct:
            return await getattr(client.rpc(worker.address), op)(**arguments)
        return await scheduler_rpc(client).proxy(worker=worker.address, msg={"op": op, **arguments})

    async def _timed(self, call: Callable[[], Awaitable[Any]], limit: float) -> tuple[Any, float]:
        """Return a reply, and by about how much its clock is ahead of ours."""
        before = self._clock.wall()
        answer = await asyncio.wait_for(call(), limit)
        # As in NTP: the other clock was read somewhere between the two readings of ours.
        middle = (before + self._clock.wall()) / 2
        return answer, 0.0 if answer is None else answer["at"] - middle

    # --- stores -----------------------------------------------------------------------------

    def _directories(self, registry: Registered) -> list[Path]:
        used = (Path(path).parent for path in registry.directories.values() if path is not None)
        return list(dict.fromkeys([*self._stores, *used]))

    async def _stores_here(self, directories: Sequence[Path]) -> list[Probe]:
        found = []
        for directory in directories:
            limit = self._left() * _FIRST
            seen: Probe | None = await self._on_disk(partial(probe, directory))
            found.append(seen or Probe(str(directory), error=f"it did not answer within {limit:.1f} s"))
        return found

    async def _on_disk(self, look: Callable[[], Any]) -> Any:
        """Return the result of a function that may hang on a disk, or None where it does."""
        looking = asyncio.get_running_loop().run_in_executor(self._disk, look)
        try:
            return await asyncio.wait_for(looking, self._left() * _FIRST)
        except (TimeoutError, OSError):
            return None


def _registered(answer: dict[str, Any]) -> Registered:
    actors = tuple(from_answer(Actor, actor) for actor in answer["actors"])
    return from_answer(Registered, answer, hosts=tuple(answer["hosts"]), actors=actors)


def _foreign(base: dict[str, Any], versions: dict[str, Any]) -> Process:
    """Return what Dask itself reports of a process without our handlers."""
    packages, python = versions["packages"], str(versions["host"]["python"])
    return Process(
        **base,
        python=".".join(python.split(".")[:3]),
        version=packages["dqlab"],
        packages={name: packages[name] for name in PACKAGES},
        plugin=False,
    )


def _silence(error: Exception, limit: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {limit:.1f} s"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


TIMEOUT = "10s"
"""How long an examination may take."""
_GRACE = 2.0
"""Seconds after the limit at which the event loop itself counts as stuck."""


CHECKS = (answers, shards, versions, queues, stores, jobs, resources)
"""Every check, in the order in which equally bad findings are listed."""


def judge(facts: Facts) -> Checkup:
    """Return the findings of all checks, and the facts of every process."""
    findings = [finding for check in CHECKS for finding in check(facts)]
    findings.sort(key=lambda finding: finding.severity, reverse=True)
    return Checkup(facts.of, tuple(findings), facts.rows(), facts.at, facts.took)


def examine(link: Link, *, of: str, stores: Sequence[Path] = (), timeout: float | str = TIMEOUT) -> Checkup:
    """Examine a cluster, and `stores` in addition to those of its queues."""
    limit = _checked(timeout)
    gathering = Gathering(link, of, stores, limit)
    try:
        with shown(f"examining {of}") as wait:
            wait.step(f"asking all processes; those that do not answer within {limit:g} s are named")
            return judge(link.sync(gathering.gather(), timeout=limit + _GRACE))
    except UsageError:  # called on the client's own event loop, which would wait for itself
        raise
    except LabClosed:  # Dask closes a client whose scheduler has ended
        return judge(gathering.nothing("the connection to it is closed"))
    except DqlabError as error:
        return judge(gathering.nothing(str(error).removesuffix(".")))


def _checked(timeout: float | str) -> float:
    limit = seconds(timeout, name="timeout")
    if limit <= 0:
        raise BadOption(option="timeout", value=timeout, problem="must be above zero.")
    return limit
