"""Lines of logs, most of them Dask's, of no use to a user: they are not written into notebooks and terminals.

What happened is reported where it counts: a consumer that dies with a message returns it to its queue, and where that
does not help, the failure has the reason. An embedded cluster replaces the process by itself.
"""

from __future__ import annotations

import logging

from dqlab.cluster.transport.errands import WorkerLost
from dqlab.cluster.transport.internals import NoSuchActor
from dqlab.cluster.transport.link import silence_own_lines

__all__ = ["quieted"]

logger = logging.getLogger("dqlab.registry")


def _of_nannies(record: logging.LogRecord) -> bool:
    """Return whether to write a line of a nanny: the end of a worker's process is noted at level INFO."""
    if not str(record.msg).startswith("Restarting worker"):
        return True
    logger.info("event=worker_restarted")
    return False


def _of_directories(record: logging.LogRecord) -> bool:
    """Return whether to write a line about directories of workers: others remove those of the dead at the same time."""
    return not (str(record.msg).startswith("Failed to remove") and "[Errno 2]" in record.getMessage())


def _of_consumers(record: logging.LogRecord) -> bool:
    """Return whether to write a line about an actor: one whose worker has just died is made again elsewhere."""
    text, error = record.getMessage(), record.args[-1] if isinstance(record.args, tuple) and record.args else None
    if text.startswith("event=spawn_failed"):
        return not (isinstance(error, WorkerLost) and str(error.fields.get("reason")).startswith("it leaves"))
    return not (text.startswith("event=close_failed") and isinstance(error, NoSuchActor))


_FILTERS = {
    "distributed.nanny": _of_nannies,
    "distributed.diskutils": _of_directories,
    "dqlab.registry": _of_consumers,
}


def quieted(*, quiet: bool = True) -> None:
    """Leave these lines out in this process from now on; with `quiet=False` no longer."""
    silence_own_lines()
    for name, chosen in _FILTERS.items():
        change = logging.getLogger(name).addFilter if quiet else logging.getLogger(name).removeFilter
        change(chosen)
