"""Starts clusters on batch systems; `recipes` describes them."""

from __future__ import annotations

import logging
import shutil
import socket
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

import psutil
from distributed.core import Status

from dqlab.cluster.transport.undisturbed import ClusterClosesUndisturbed
from dqlab.hpc.checks import check_interface
from dqlab.hpc.errors import NoBatchSystem
from dqlab.hpc.recipes import Recipe, jobqueue, recipe
from dqlab.hpc.systems import System
from dqlab.hpc.tending import Tending

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["lsf", "oar", "pbs", "sge", "slurm", "start"]

logger = logging.getLogger("dqlab.hpc")


def slurm(**options: Any) -> SpecCluster:
    """Return a running `dask_jobqueue.SLURMCluster` whose jobs leave gracefully; see `recipe` for the options.

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


def start(made_of: Recipe, *, replaces: bool = True) -> SpecCluster:
    """Start a scheduler in this process and submit the fewest jobs of a recipe; more are submitted with the work.

    Parameters
    ----------
    replaces : bool
        Whether jobs that end before their worker has come are submitted again.

    Raises
    ------
    ExtraMissing, NoBatchSystem
        The cluster cannot be started here.
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
        cluster: Any = _watched(kind)(**made_of.options)
    cluster.replaces = replaces
    cluster.scale(made_of.jobs[0])  # adapt looks for the first time after a while
    cluster.adapt(Adaptive=Tending, **made_of.adaptive)
    return cast("SpecCluster", cluster)


def _job(kind: Any) -> Any:
    """Return a subclass of dask-jobqueue's job that keeps why it was refused, and whether its worker came."""

    class Watched(kind):  # type: ignore[misc]
        refused, came = "", False

        async def start(self) -> None:
            try:
                await super().start()
            except (RuntimeError, OSError, ValueError) as error:  # Dask would log it, and continue with one job fewer
                self.refused = str(error)
                self.status = Status.running
                logger.warning("event=job_refused %s", error)

        async def close(self) -> None:
            await super().close()
            self.status = Status.closed  # Dask checks all clusters that are still referenced

    return Watched


def _watched(kind: Any) -> Any:
    """Return a subclass of dask-jobqueue's cluster with such jobs; its dashboard is local, and its keys are removed."""

    class Cluster(ClusterClosesUndisturbed, kind):  # type: ignore[misc]
        job_cls, replaces = _job(kind.job_cls), True

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
                        file.close()  # which removes it

    Cluster.__name__ = Cluster.__qualname__ = kind.__name__
    return Cluster


def _check_submits(system: System) -> None:
    if shutil.which(system.submit) is None:
        raise NoBatchSystem(system=system.title, host=socket.gethostname(), command=system.submit)
