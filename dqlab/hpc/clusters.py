"""Starts clusters on batch systems; what they are made of stands in `recipes`."""

from __future__ import annotations

import shutil
import socket
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from dqlab.hpc.errors import NoBatchSystem
from dqlab.hpc.recipes import Recipe, jobqueue, recipe
from dqlab.hpc.systems import System

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["lsf", "oar", "pbs", "recipe_of", "sge", "slurm", "start"]

_recipes: weakref.WeakKeyDictionary[Any, Recipe] = weakref.WeakKeyDictionary()


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
    """
    system = made_of.system
    kind = jobqueue(system)
    _check_submits(system)
    made_of.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        cluster: SpecCluster = kind(**made_of.options)
    _recipes[cluster] = made_of
    cluster.scale(made_of.jobs[0])  # adapt looks for the first time after a while
    cluster.adapt(**made_of.adaptive)
    return cluster


def recipe_of(cluster: Any) -> Recipe | None:
    """Return what a cluster was made of; None when it was not made here."""
    try:
        return _recipes.get(cluster)
    except TypeError:  # cannot be a key
        return None


def _check_submits(system: System) -> None:
    if shutil.which(system.submit) is None:
        raise NoBatchSystem(system=system.title, host=socket.gethostname(), command=system.submit)
