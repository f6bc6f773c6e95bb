"""Keeps log lines that are of no use to a user, most of them Dask's, out of notebooks and terminals.

Their events are reported elsewhere: a message of a consumer that dies returns to its queue, a failure has its reason,
and an embedded cluster replaces lost processes by itself.
"""

from __future__ import annotations

import logging

from dqlab.cluster.transport.errands import WorkerLost
from dqlab.cluster.transport.internals import NoSuchActor
from dqlab.cluster.transport.link import silence_own_lines

logger = logging.getLogger("dqlab.registry")


def _of_nannies(record: logging.LogRecord) -> bool:
    """Return whether to write a line of a nanny."""
    # The restart of a worker is noted at level INFO instead.
    if not str(record.msg).startswith("Restarting worker"):
        return True
    logger.info("event=worker_restarted")
    return False


def _of_directories(record: logging.LogRecord) -> bool:
    """Return whether to write a line about directories of workers."""
    # Several processes remove the directory of a dead worker at once, and all but one find it missing.
    return not (str(record.msg).startswith("Failed to remove") and "[Errno 2]" in record.getMessage())


def _of_consumers(record: logging.LogRecord) -> bool:
    """Return whether to write a line about an actor."""
    # An actor whose worker has just died or leaves is made again elsewhere.
    text, error = record.getMessage(), record.args[-1] if isinstance(record.args, tuple) and record.args else None
    if text.startswith("event=spawn_failed"):
        return not (isinstance(error, WorkerLost) and error.leaving)
    return not (text.startswith("event=close_failed") and isinstance(error, NoSuchActor))


_FILTERS = {
    "distributed.nanny": _of_nannies,
    "distributed.diskutils": _of_directories,
    "dqlab.registry": _of_consumers,
}


def quieted(*, quiet: bool = True) -> None:
    """Filter these lines in this process from now on, or with `quiet=False` no longer."""
    silence_own_lines()
    for name, chosen in _FILTERS.items():
        change = logging.getLogger(name).addFilter if quiet else logging.getLogger(name).removeFilter
        change(chosen)
