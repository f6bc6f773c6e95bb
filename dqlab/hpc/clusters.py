"""Starts clusters on batch systems, which `recipes` describes, and keeps them at their target number of jobs.

Dask replaces workers that it has known, but waits forever for the worker of a job that died at its start; `Tending`
replaces those jobs. A cluster that `connect` has started has no lab until its first worker has joined, and its jobs
wait until `give_up` cancels them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import warnings
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

from distributed.core import Status
from distributed.deploy.adaptive import Adaptive

from dqlab.cluster.transport.internals import ClusterClosesUndisturbed
from dqlab.errors import UsageError
from dqlab.hpc.recipes import Recipe, jobqueue, recipe
from dqlab.hpc.systems import System, ask, jobs_of, log_end, system_of

if TYPE_CHECKING:
    from distributed import SpecCluster
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dqlab.errors import JobsDied, JobsPending, SubmitFailed
from dqlab.hpc.systems import ASK_TIMEOUT, JobState
from dqlab.numbers import many

if TYPE_CHECKING:
    from distributed import SpecCluster


logger = logging.getLogger("dqlab.hpc")

LOOK_EVERY = 10.0
"""Seconds between two queries to the batch system, which serves everybody on the machine."""
FIRST_WAIT, LONGEST_WAIT = 10.0, 600.0
"""Seconds before a job that died at its start is submitted again, doubled each time since mistakes repeat."""


def slurm(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.SLURMCluster` whose jobs leave gracefully; see `recipe` for the options.

    Examples
    --------
    >>> cluster = dq.hpc.slurm(cores=8, memory="16GB", walltime="2h", queue="short", jobs=(1, 20))  # doctest: +SKIP
    >>> lab = dq.connect(cluster, store="/scratch/me/runs")  # doctest: +SKIP

    Raises
    ------
    UsageError
        This machine has no `sbatch`.
    """
    return start(recipe("slurm", **options))


def pbs(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.PBSCluster`; see `slurm`."""
    return start(recipe("pbs", **options))


def start(made_of: Recipe, *, replaces: bool = True) -> SpecCluster:
    """Start a scheduler in this process and submit the fewest jobs of a recipe, and with the work more of them."""
    system = made_of.system
    kind = jobqueue(system)
    _check_submits(system)
    made_of.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        cluster: Any = _watched(kind)(**made_of.options)
    cluster.replaces = replaces  # whether jobs that end before their worker joined are submitted again
    cluster.shared_directory = str(made_of.directory)
    cluster.scale(made_of.jobs[0])  # `adapt` checks for the first time only after its interval
    cluster.adapt(Adaptive=Tending, **made_of.adaptive)
    return cast("SpecCluster", cluster)


def _job(kind: Any) -> Any:
    """Return a subclass of dask-jobqueue's job that records why it was refused and whether its worker has joined."""

    class Watched(kind):  # type: ignore[misc]
        refused, came = "", False

        async def start(self) -> None:
            try:
                await super().start()
            except (RuntimeError, OSError, ValueError) as error:  # Dask would log it and continue with one job fewer
                self.refused = str(error)
                self.status = Status.running  # Dask asserts it of a job that has started
                logger.warning("event=job_refused %s", error)

        async def close(self) -> None:
            await super().close()
            self.status = Status.closed  # dask-jobqueue leaves it; Dask checks all jobs that are still referenced

    return Watched


def _watched(kind: Any) -> Any:
    """Return a subclass of dask-jobqueue's cluster with watched jobs and a local dashboard, which removes its keys."""

    class Cluster(ClusterClosesUndisturbed, kind):  # type: ignore[misc]
        job_cls, replaces, shared_directory = _job(kind.job_cls), True, ""

        @property
        def dashboard_link(self) -> str:
            link, options = urlsplit(super().dashboard_link), self.scheduler_spec["options"]
            if not link.netloc:  # through a proxy
                return urlunsplit(link)
            here = str(options["dashboard_address"]).rpartition(":")[0]
            return urlunsplit(link._replace(netloc=f"{here or link.hostname}:{link.port}"))

        def _update_worker_status(self, op: str, msg: Any) -> None:
            if op == "add":
                for worker in msg["workers"].values():
                    if worker["name"] in self.workers:
                        self.workers[worker["name"]].came = True
            super()._update_worker_status(op, msg)

        async def _close(self) -> None:
            await super()._close()
            for key in ("ca_file", "cert", "key"):
                file = getattr(self, f"_job_{key}", None)
                if file is not None:
                    with suppress(FileNotFoundError):  # the directory was cleared
                        file.close()  # removes the file

    Cluster.__name__ = Cluster.__qualname__ = kind.__name__
    return Cluster


def _check_submits(system: System) -> None:
    if shutil.which(system.submit) is None:
        raise UsageError(
            reason=f"{system.title} cannot be used from {socket.gethostname()}: there is no command {system.submit!r} "
            "on its PATH. Nothing was submitted. Run this where jobs are submitted, usually a login node, or in a "
            "job whose image has the command; or start workers by a scheduler file and connect with "
            "dq.connect(scheduler_file=...)."
        )


class Backoff:
    """The backoff after jobs that died at their start, in monotonic seconds."""

    def __init__(self) -> None:
        self._wait, self._until = FIRST_WAIT, 0.0

    def died(self, now: float) -> None:
        """Note that a job died."""
        self._until, self._wait = now + self._wait, min(LONGEST_WAIT, 2 * self._wait)

    def came(self) -> None:
        """Note that a worker has joined."""
        self._wait = FIRST_WAIT

    def over(self, now: float) -> bool:
        """Return whether a job may be submitted again."""
        return now >= self._until


class Tending(Adaptive):
    """The adaptive scaling of `dqlab.hpc` clusters, made by `cluster.adapt`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._backoff, self._looked = Backoff(), 0.0
        self._came: weakref.WeakSet[Any] = weakref.WeakSet()
        """Jobs whose worker has joined, which Dask handles."""
        self._dead: weakref.WeakSet[Any] = weakref.WeakSet()
        """Jobs that ended before their worker joined."""
        super().__init__(*args, **options)

    async def target(self) -> int:
        """Return how many workers there should be, after a check of the jobs whose workers have not joined."""
        now = asyncio.get_running_loop().time()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            try:
                await self._replace_dead(now)
            except Exception:  # any error: scaling continues
                logger.exception("event=jobs_not_asked")
        return int(await super().target())  # type: ignore[no-untyped-call]

    async def _replace_dead(self, now: float) -> None:
        cluster: Any = self.cluster
        jobs = jobs_of(cluster)
        new = {job for job in jobs.values() if job.came} - set(self._came)
        if new:
            self._came.update(new)
            self._backoff.came()
        waiting = [job for job in jobs.values() if job not in self._came and job not in self._dead]
        dead = await asyncio.to_thread(ended, cluster, waiting)
        if dead:
            self._dead.update(dead)
            self._backoff.died(now)
        if getattr(cluster, "replaces", True) and self._backoff.over(now):
            for name, job in jobs.items():
                # The worker may have joined, or the cluster have replaced the job, while the batch system was asked.
                if job in self._dead and not job.came and cluster.workers.get(name) is job:
                    del cluster.workers[name]  # it stays in the cluster's plan, so Dask submits it again


def ended(cluster: Any, jobs: Iterable[Any]) -> list[Any]:
    """Return the jobs that have ended and log how, blocking on the batch system."""
    system, jobs = system_of(cluster), list(jobs)
    submitted = {str(job.job_id): job for job in jobs if job.job_id is not None}
    states = ask(system, list(submitted)) if system is not None and submitted else {}
    dead = [submitted[number] for number, state in states.items() if state is None]
    for job in dead:
        directory = None if job.log_directory is None else Path(job.log_directory)
        log, end = log_end(directory, str(job.job_id))
        logger.warning("event=job_died job=%s log=%s\n%s", job.job_id, log, end)
    return [*dead, *(job for job in jobs if getattr(job, "refused", ""))]


# --- how `connect` waits for jobs: until the first worker has joined, or it is known why none will


WAIT = 0.25
"""Seconds between two looks for the first worker."""
ASK_EVERY = 2.0
"""Seconds between two queries to the batch system."""
CLOSE_TIMEOUT = 30.0
"""Seconds that the batch system has to cancel jobs."""
_JOBS_LEFT = (Status.running, Status.closing, Status.failed)
"""States of a cluster that may still have jobs, since an interrupt can end the wait for its close."""

_clusters: dict[Recipe, Any] = {}
"""Clusters that were started here and have no lab yet."""
_busy: set[Recipe] = set()
"""Recipes for whose clusters a `connect` is waiting right now."""
_lock = threading.Lock()
"""Guards both, and is never held while a cluster starts or closes, which takes seconds."""


@contextmanager
def waited_for(made_of: Recipe) -> Iterator[SpecCluster]:
    """Start a cluster, or reuse the one that was started, and keep it until `arrived`, even if the block raises."""
    # A user who asks for less than before does not want both: other clusters for which no `connect` waits are closed.
    with _lock:
        _busy.add(made_of)
        left = _clusters.keys() - _busy
        cluster = _clusters.get(made_of)
    try:
        _close_all(left)
        if cluster is None or cluster.status is not Status.running:
            cluster = start(made_of, replaces=False)  # before there is a lab, the user must see that jobs end
            with _lock:
                _clusters[made_of] = cluster
        yield cluster
    except KeyboardInterrupt as stopped:
        stopped.add_note("Jobs that wait stay in the queue: the same call waits on, dq.hpc.give_up() cancels them.")
        raise
    finally:
        with _lock:
            _busy.discard(made_of)
            if made_of in _clusters and _clusters[made_of].status is not Status.running:
                del _clusters[made_of]


def arrived(made_of: Recipe) -> None:
    """Note that a cluster has a lab, which from now on replaces its lost jobs."""
    with _lock:
        cluster = _clusters.pop(made_of, None)
    if cluster is not None:
        cluster.replaces = True


def give_up() -> int:
    """Cancel the jobs that `dq.connect` has submitted for recipes and that have no lab yet.

    A `connect` that waits for them in another thread raises `UsageError`. Labs and your own clusters stay.

    Returns
    -------
    int
        How many jobs.
    """
    return _close_all(list(_clusters))


def _close_all(given_up: Iterable[Recipe]) -> int:
    """Close clusters and return how many jobs they had."""
    jobs = 0
    for made_of in given_up:
        cluster = _clusters.get(made_of)
        if cluster is not None and cluster.status in _JOBS_LEFT:
            jobs += _close(cluster)
        with _lock:  # not before it is closed: what an interrupt leaves open can be given up again
            if _clusters.get(made_of) is cluster:
                _clusters.pop(made_of, None)
    return jobs


def _close(cluster: Any) -> int:
    jobs = _submitted(cluster)
    named = ",".join(jobs)
    logger.warning("event=jobs_given_up jobs=%s", named)
    try:
        cluster.close(timeout=CLOSE_TIMEOUT)
    except TimeoutError:
        how = "cancel them by the batch system's own command"
        logger.warning("event=jobs_not_cancelled jobs=%s seconds=%g %s", named, CLOSE_TIMEOUT, how)
    return len(jobs)


def await_worker(cluster: Any, timeout: float, *, owned: bool) -> None:
    """Return when a cluster has a worker, or raise why none has joined within `timeout`."""
    system = system_of(cluster)
    if system is None:
        return
    # An owned cluster is closed where no worker can join any more, and kept where its jobs wait: their place in the
    # queue may have taken hours.
    began, asked, states = time.monotonic(), float("-inf"), dict[str, JobState | None]()
    while _open(cluster, system) and not cluster.scheduler_info["workers"]:
        now = time.monotonic()
        refused = next((job.refused for job in jobs_of(cluster).values() if getattr(job, "refused", "")), "")
        if refused:
            if owned:
                cluster.close()
            raise SubmitFailed(system=system.title, kind=system.kind, reason=_reason(refused))
        if now - asked >= ASK_EVERY:
            asked = now
            states = ask(system, _submitted(cluster), min(ASK_TIMEOUT, max(WAIT, began + timeout - now)))
            # Asked again: a worker may have joined, and its job ended, while the batch system answered.
            if states and not any(states.values()) and not cluster.scheduler_info["workers"]:
                raise _died(cluster, system, next(iter(states)), owned=owned)
        if now - began >= timeout:
            raise _pending(system, states, timeout, owned=owned)
        time.sleep(WAIT)


def _submitted(cluster: Any) -> list[str]:
    return [str(job.job_id) for job in jobs_of(cluster).values() if job.job_id is not None]


def _open(cluster: Any, system: System) -> bool:
    if cluster.status not in (Status.created, Status.starting, Status.running):
        raise UsageError(
            reason=f"this {type(cluster).__name__} was closed, so no worker will come: its jobs are cancelled. No "
            f"queue was opened. Make another with dq.hpc.{system.kind}(...), or connect to "
            f"dq.hpc.recipe({system.kind!r}, ...), which starts one."
        )
    return True


def _pending(system: System, states: dict[str, JobState | None], timeout: float, *, owned: bool) -> JobsPending:
    waiting = {job: state.reason for job, state in states.items() if state is not None and state.pending}
    running = [job for job, state in states.items() if state is not None and not state.pending]
    if running and not waiting:
        reason = "they run, and their workers have not come; a Python environment on a shared disk loads slowly"
    else:
        said = sorted({reason for reason in waiting.values() if reason})
        reason = ", ".join(said) or "none that it gives"
    jobs = list(waiting) or running
    end = "dq.hpc.give_up() cancels them, or connecting to another recipe" if owned else "cluster.close() cancels them"
    return JobsPending(
        seconds=timeout,
        system=system.title,
        waiting=many(len(jobs), "job"),
        jobs=", ".join(jobs[:5]) or "none submitted yet",
        wait="waits" if len(jobs) == 1 else "wait",
        reason=reason,
        left=f"They stay in the queue, and the same call waits on; {end}.",
    )


def _died(cluster: Any, system: System, job: str, *, owned: bool) -> JobsDied:
    directory = next((each.log_directory for each in jobs_of(cluster).values() if str(each.job_id) == job), None)
    log, tail = log_end(None if directory is None else Path(directory), job)
    if owned:
        cluster.close()
    left = "The cluster was closed." if owned else "The cluster was left as it is; cluster.close() ends it."
    return JobsDied(job=job, system=system.title, log=log, tail=tail, left=left)


def _reason(refused: str) -> str:
    """Return the error output of the submit command, from dask-jobqueue's exception text."""
    _, _, said = refused.partition("stderr:")
    return " ".join((said or refused).split())
