"""Clusters on batch systems, through dask-jobqueue: one function for each system.

cluster = dq.hpc.slurm(cores=8, memory="16GB", walltime="2h", jobs=(1, 20))
lab = dq.connect(cluster, store="/scratch/me/runs")
"""

from dqlab.errors import (
    ExtraMissing,
    JobsDied,
    JobsPending,
    SubmitFailed,
)
from dqlab.hpc.clusters import give_up, pbs, slurm
from dqlab.hpc.recipes import Recipe, recipe

__all__ = [
    "ExtraMissing",
    "JobsDied",
    "JobsPending",
    "Recipe",
    "SubmitFailed",
    "give_up",
    "pbs",
    "recipe",
    "slurm",
]
