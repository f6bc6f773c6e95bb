"""How `connect` waits for the jobs of a cluster: until the first worker has joined, or it is known why none will.

A cluster that `connect` has started has no lab until then, and its jobs wait until `give_up` cancels them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.core import Status

from dqlab.errors import JobsDied, JobsPending, SubmitFailed, UsageError
from dqlab.hpc.clusters import start
from dqlab.hpc.recipes import Recipe
from dqlab.hpc.systems import ASK_TIMEOUT, JobState, System, ask, jobs_of, log_end, system_of
from dqlab.numbers import many

if TYPE_CHECKING:
    from distributed import SpecCluster

logger = logging.getLogger("dqlab.hpc")

LOOK_EVERY = 0.25
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
        left = {other: _clusters.pop(other) for other in _clusters.keys() - _busy}
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
    with _lock:
        given_up = dict(_clusters)
        _clusters.clear()
    return _close_all(given_up)


def _close_all(given_up: dict[Recipe, Any]) -> int:
    """Close clusters and return how many jobs they had."""
    left, jobs = dict(given_up), 0
    try:
        for made_of, cluster in given_up.items():
            if cluster.status in _JOBS_LEFT:
                jobs += _close(cluster)
            del left[made_of]
    finally:
        with _lock:  # what an interrupt left open can be given up again
            for made_of, cluster in left.items():
                _clusters.setdefault(made_of, cluster)
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
            _give_up(cluster, owned=owned)
            raise SubmitFailed(system=system.title, kind=system.kind, reason=_reason(refused))
        if now - asked >= ASK_EVERY:
            asked = now
            states = ask(system, _submitted(cluster), min(ASK_TIMEOUT, max(LOOK_EVERY, began + timeout - now)))
            # Asked again: a worker may have joined, and its job ended, while the batch system answered.
            if states and not any(states.values()) and not cluster.scheduler_info["workers"]:
                raise _died(cluster, system, next(iter(states)), owned=owned)
        if now - began >= timeout:
            raise _pending(system, states, timeout, owned=owned)
        time.sleep(LOOK_EVERY)


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
    _give_up(cluster, owned=owned)
    left = "The cluster was closed." if owned else "The cluster was left as it is; cluster.close() ends it."
    return JobsDied(job=job, system=system.title, log=log, tail=tail, left=left)


def _give_up(cluster: Any, *, owned: bool) -> None:
    if owned:
        cluster.close()


def _reason(refused: str) -> str:
    """Return the error output of the submit command, from dask-jobqueue's exception text."""
    _, _, said = refused.partition("stderr:")
    return " ".join((said or refused).split())
