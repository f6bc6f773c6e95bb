"""Keeps a cluster at its target number of jobs, and replaces those that end before their worker has come.

Dask replaces workers that it has known. For the worker of a job that dies at its start it waits forever.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distributed.deploy.adaptive import Adaptive

from dqlab.hpc.jobs import ask, jobs_of, log_end, system_of

__all__ = ["Tending", "Toll"]

logger = logging.getLogger("dqlab.hpc")

LOOK_EVERY = 10.0
"""Seconds between two queries to the batch system, which must not be queried often."""
FIRST_WAIT, LONGEST_WAIT = 10.0, 600.0
"""Seconds before a job that died at its start is submitted again, doubled each time: a mistake would repeat itself."""


class Toll:
    """The backoff after jobs that died at their start; times are monotonic seconds."""

    def __init__(self) -> None:
        self._wait, self._until = FIRST_WAIT, 0.0

    def died(self, now: float) -> None:
        """Note that a job died."""
        self._until, self._wait = now + self._wait, min(LONGEST_WAIT, 2 * self._wait)

    def came(self) -> None:
        """Note that a worker has come."""
        self._wait = FIRST_WAIT

    def over(self, now: float) -> bool:
        """Return whether a job may be submitted again."""
        return now >= self._until


class Tending(Adaptive):
    """The adaptive scaling of `dqlab.hpc` clusters, made by `cluster.adapt`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._toll, self._looked = Toll(), 0.0
        self._came: weakref.WeakSet[Any] = weakref.WeakSet()
        """Jobs whose worker has come: Dask handles these."""
        self._dead: weakref.WeakSet[Any] = weakref.WeakSet()
        super().__init__(*args, **options)

    async def target(self) -> int:
        """Return how many workers there should be; first check on jobs whose workers have not come."""
        now = asyncio.get_running_loop().time()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            try:
                await self._replace_dead(now)
            except Exception:  # whatever it is, scaling continues
                logger.exception("event=jobs_not_asked")
        return int(await super().target())  # type: ignore[no-untyped-call]

    async def _replace_dead(self, now: float) -> None:
        cluster: Any = self.cluster
        jobs = jobs_of(cluster)
        new = {job for job in jobs.values() if job.came} - set(self._came)
        if new:
            self._came.update(new)
            self._toll.came()
        waiting = [job for job in jobs.values() if job not in self._came and job not in self._dead]
        dead = await asyncio.to_thread(ended, cluster, waiting)
        if dead:
            self._dead.update(dead)
            self._toll.died(now)
        if getattr(cluster, "replaces", True) and self._toll.over(now):
            for name, job in jobs.items():
                if job in self._dead and not job.came and cluster.workers.get(name) is job:
                    del cluster.workers[name]  # it is still planned, and so it is submitted again


def ended(cluster: Any, jobs: Iterable[Any]) -> list[Any]:
    """Return the jobs that have ended, and log how; blocks."""
    system, jobs = system_of(cluster), list(jobs)
    submitted = {str(job.job_id): job for job in jobs if job.job_id is not None}
    states = ask(system, list(submitted)) if system is not None and submitted else {}
    dead = [submitted[number] for number, state in states.items() if state is None]
    for job in dead:
        directory = None if job.log_directory is None else Path(job.log_directory)
        log, end = log_end(directory, str(job.job_id))
        logger.warning("event=job_died job=%s log=%s\n%s", job.job_id, log, end)
    return [*dead, *(job for job in jobs if getattr(job, "refused", ""))]
