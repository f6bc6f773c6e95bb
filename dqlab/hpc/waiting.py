"""Clusters that `connect` has started and that have no lab yet: their jobs wait until `give_up` cancels them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distributed.core import Status

from dqlab.hpc.clusters import start
from dqlab.hpc.jobs import jobs_of
from dqlab.hpc.recipes import Recipe

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["arrived", "give_up", "waited_for"]

logger = logging.getLogger("dqlab.hpc")

CLOSE_TIMEOUT = 30.0
"""Seconds that the batch system has to cancel jobs."""
_JOBS_LEFT = (Status.running, Status.closing, Status.failed)
"""States of a cluster whose jobs may not be cancelled yet: the wait for its close may have been interrupted."""

_clusters: dict[Recipe, Any] = {}
_busy: set[Recipe] = set()
"""Recipes for whose clusters a `connect` is waiting right now."""
_lock = threading.Lock()


@contextmanager
def waited_for(made_of: Recipe) -> Iterator[SpecCluster]:
    """Start a cluster, or reuse the one that was started; it stays, whatever the block raises, until `arrived`.

    Clusters of other recipes that were started before, and that no `connect` waits for, are closed: a user who asks for
    less than before does not want both. Jobs that end are not submitted again before there is a lab.
    """
    with _lock:
        _busy.add(made_of)
        left = {other: _clusters.pop(other) for other in _clusters.keys() - _busy}
        cluster = _clusters.get(made_of)
    try:
        _close_all(left)
        if cluster is None or cluster.status is not Status.running:
            cluster = start(made_of, replaces=False)
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
    """Note that a cluster has a lab: lost jobs are replaced from now on."""
    with _lock:
        cluster = _clusters.pop(made_of, None)
    if cluster is not None:
        cluster.replaces = True


def give_up() -> int:
    """Cancel the jobs that `dq.connect` has submitted for recipes and that have no lab yet.

    A `connect` that waits for them in another thread raises `ClusterClosed`. Labs and clusters of your own are left.

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
    """Close clusters; return how many jobs they had. What an interrupt leaves can be given up again."""
    left, jobs = dict(given_up), 0
    try:
        for made_of, cluster in given_up.items():
            if cluster.status in _JOBS_LEFT:
                jobs += _close(cluster)
            del left[made_of]
    finally:
        with _lock:
            for made_of, cluster in left.items():
                _clusters.setdefault(made_of, cluster)
    return jobs


def _close(cluster: Any) -> int:
    jobs = [str(job.job_id) for job in jobs_of(cluster).values() if job.job_id is not None]
    named = ",".join(jobs)
    logger.warning("event=jobs_given_up jobs=%s", named)
    try:
        cluster.close(timeout=CLOSE_TIMEOUT)
    except TimeoutError:
        how = "cancel them by the batch system's own command"
        logger.warning("event=jobs_not_cancelled jobs=%s seconds=%g %s", named, CLOSE_TIMEOUT, how)
    return len(jobs)
