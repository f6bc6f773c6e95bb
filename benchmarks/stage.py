"""What rooms share: a lab, a Dask cluster without dqlab, a process pool. Each starts when first asked for."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
from collections.abc import Callable
from functools import cached_property
from multiprocessing.pool import Pool
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from distributed import Client, LocalCluster

import dqlab as dq

__all__ = ["SLOTS", "Stage", "dask_cluster"]

SLOTS = 2
"""Consumers, workers or processes that run functions, for every contestant."""


def dask_cluster(workers: int) -> LocalCluster:
    """Return a cluster of processes with one thread each on this machine."""
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")


class Stage:
    """A context in which contestants run; everything that was started ends with it.

    Parameters
    ----------
    say : callable
        Takes a line for the person who waits.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Stage:
        logging.getLogger("distributed").setLevel(logging.ERROR)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def clear(self) -> None:
        """End everything that was started; it starts again when it is asked for."""
        self._open.close()
        for name in ("lab", "dask", "processes", "directory"):
            self.__dict__.pop(name, None)

    @cached_property
    def lab(self) -> dq.Lab:
        """A lab with two consumer processes and one for queues."""
        return self._open.enter_context(dq.connect(n=SLOTS, name="bench"))

    @cached_property
    def directory(self) -> Path:
        """An empty directory beside this one, on the disk that is measured; removed at the end."""
        return Path(self._open.enter_context(TemporaryDirectory(prefix="bench-store-", dir=Path.cwd())))

    @cached_property
    def dask(self) -> Client:
        """A client of a cluster of two workers on which dqlab is not installed."""
        cluster = self._open.enter_context(dask_cluster(SLOTS))
        client: Client = self._open.enter_context(Client(cluster, set_as_default=False))
        return client

    @cached_property
    def processes(self) -> Pool:
        """A pool of two processes; started afresh, since this process has threads that a fork would break."""
        return self._open.enter_context(multiprocessing.get_context("spawn").Pool(SLOTS))
