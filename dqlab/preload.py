"""What the processes of a cluster load first: ``dask scheduler --preload dqlab.preload``, and workers likewise.

A worker ignores Ctrl-C: Jupyter and terminals send it to a whole group of processes, and it is meant for the client
that waits. A run continues, and workers end when their cluster is closed. A scheduler gets dqlab's registry before the
first client comes, and its dashboard has the panels from the start.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

__all__ = ["dask_setup"]


def dask_setup(server: Scheduler | Worker) -> None:
    """Prepare a scheduler or a worker; Dask calls it in the main thread, before a scheduler's plugins start."""
    from distributed import Scheduler

    if isinstance(server, Scheduler):
        from dqlab.cluster.scheduler.registry import Registry

        server.add_plugin(Registry(), idempotent=True, name=Registry.name)
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _starts_a_scheduler(arguments: list[str]) -> bool:
    """Return whether this is ``dask scheduler``: workers load this module too, and do not need the panels."""
    command = Path(arguments[0]).stem.replace("_", "-") if arguments else ""
    return command == "dask-scheduler" or arguments[1:2] == ["scheduler"]


if _starts_a_scheduler(sys.argv):
    from dqlab.live.panels import preregister

    preregister()
