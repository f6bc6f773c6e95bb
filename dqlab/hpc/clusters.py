"""Starts clusters on batch systems; what they are made of stands in `recipes`."""

from __future__ import annotations

import logging
import shutil
import socket
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psutil
from distributed.core import Status

from dqlab.hpc.checks import check_interface
from dqlab.hpc.errors import NoBatchSystem
from dqlab.hpc.recipes import Recipe, jobqueue, recipe
from dqlab.hpc.systems import System
from dqlab.hpc.tending import Tending

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["arrived", "lsf", "oar", "pbs", "resume", "sge", "slurm", "start"]

logger = logging.getLogger("dqlab.hpc")

_waiting: dict[Recipe, Any] = {}
"""Clusters that were started for `connect`, and of which no lab has come out yet."""


def slurm(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.SLURMCluster` of which jobs leave in good order; see `recipe` for the options.

    Examples
    --------
    >>> cluster = dq.hpc.slurm(cores=8, memory="16GB", walltime="2h", queue="short", jobs=(1, 20))  # doctest: +SKIP
    >>> lab = dq.connect(cluster, store="/scratch/me/runs")  # doctest: +SKIP

    Raises
    ------
    NoBatchSystem
        There is no `sbatch` on this machine.
    """
    return start(recipe("slurm", **options))


def pbs(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.PBSCluster`; see `slurm`."""
    return start(recipe("pbs", **options))


def lsf(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.LSFCluster`; see `slurm`."""
    return start(recipe("lsf", **options))


def sge(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.SGECluster`; see `slurm`. More cores need the site's ``resource_spec``."""
    return start(recipe("sge", **options))


def oar(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.OARCluster`; see `slurm`."""
    return start(recipe("oar", **options))


def start(made_of: Recipe) -> SpecCluster:
    """Start a scheduler in this process and ask for the fewest jobs of a recipe; more come with the work.

    Raises
    ------
    ExtraMissing, NoBatchSystem
        It cannot be had here.
    BadOption
        This machine has no such network interface.
    """
    system = made_of.system
    kind = jobqueue(system)
    _check_submits(system)
    check_interface(made_of.options, psutil.net_if_addrs())
    made_of.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        cluster: SpecCluster = _watched(kind)(**made_of.options)
    cluster.scale(made_of.jobs[0])  # adapt looks for the first time after a while
    cluster.adapt(Adaptive=Tending, **made_of.adaptive)
    return cluster


def resume(made_of: Recipe) -> SpecCluster:
    """Start a cluster, or return the one that was started and is still waited for; `arrived` ends that."""
    cluster: SpecCluster | None = _waiting.get(made_of)
    if cluster is None or cluster.status is not Status.running:
        cluster = _waiting[made_of] = start(made_of)
    return cluster


def arrived(made_of: Recipe) -> None:
    """Note that a cluster is waited for no more."""
    _waiting.pop(made_of, None)


def _watched(kind: Any) -> Any:
    """Return dask-jobqueue's cluster with jobs that remember why they were refused, and whether their worker came.

    Its dashboard is on this machine, and the keys of its jobs go with it.
    """

    class Watched(kind.job_cls):  # type: ignore[misc]
        refused, came = "", False

        async def start(self) -> None:
            try:
                await super().start()
            except (RuntimeError, OSError, ValueError) as error:  # Dask would log it, and go on with one job fewer
                self.refused = str(error)
                self.status = Status.running
                logger.warning("event=job_refused %s", error)

    class Cluster(kind):  # type: ignore[misc]
        job_cls = Watched

        @property
        def dashboard_link(self) -> str:
            link, options = urlsplit(super().dashboard_link), self.scheduler_spec["options"]
            if not link.netloc:  # by way of a proxy
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
                    with suppress(FileNotFoundError):  # somebody has cleared the directory
                        file.close()  # which removes it

    Cluster.__name__ = Cluster.__qualname__ = kind.__name__
    return Cluster


def _check_submits(system: System) -> None:
    if shutil.which(system.submit) is None:
        raise NoBatchSystem(system=system.title, host=socket.gethostname(), command=system.submit)
