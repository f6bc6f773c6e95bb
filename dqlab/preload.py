"""What the processes of a cluster load first: ``dask scheduler --preload dqlab.preload``, and workers likewise.

A scheduler gets dqlab's registry before its first client connects, and its dashboard has the panels from the start.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler, Worker


def dask_setup(server: Scheduler | Worker) -> None:
    """Prepare a scheduler or a worker."""
    from distributed import Scheduler

    # Dask calls this in the main thread, which alone may set signal handlers, before a scheduler's plugins start.
    if isinstance(server, Scheduler):
        from dqlab.cluster.scheduler.registry import Registry

        server.add_plugin(Registry(), idempotent=True, name=Registry.name)
    else:
        # Jupyter and terminals send Ctrl-C to the whole group of processes, and it is meant for the client that waits:
        # the run continues, and workers end with their cluster.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _starts_a_scheduler(arguments: list[str]) -> bool:
    """Return whether the command is ``dask scheduler``, since workers load this module too and need no panels."""
    command = Path(arguments[0]).stem.replace("_", "-") if arguments else ""
    return command == "dask-scheduler" or arguments[1:2] == ["scheduler"]


if _starts_a_scheduler(sys.argv):
    from dqlab.live.panels import preregister

    preregister()
