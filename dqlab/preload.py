"""What the worker processes of a cluster on this machine load first.

Jupyter and terminals send Ctrl-C to a whole group of processes. It is meant for whoever waits, not for the
workers: a run goes on, and workers end when their cluster is closed.
"""

from __future__ import annotations

import signal

__all__ = ["dask_setup"]


def dask_setup(worker: object) -> None:
    """Ignore SIGINT from now on; Dask calls it in the worker's main thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
