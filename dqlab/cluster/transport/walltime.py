"""The end of the job of a batch system that a worker runs in, as the job's environment gives it. Pure.

`dqlab.hpc` writes it into the job's script; the worker reports to the scheduler how many seconds are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DEADLINE", "DRAIN", "JobEnd", "batch_system", "read_end"]

DEADLINE, DRAIN = "DQLAB_JOB_DEADLINE", "DQLAB_JOB_DRAIN"
"""Variables of a job: when it ends, seconds since 1970, and how many seconds before that its worker begins to leave."""
DRAIN_S = 180.0

_SIGNS = {
    "SLURM_JOB_ID": "Slurm",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
    "OAR_JOB_ID": "OAR",
    "SGE_TASK_ID": "Grid Engine",
}


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Seconds until a job ends, and how many before that its worker begins to leave."""

    left: float
    drain: float


def read_end(environ: Mapping[str, str], wall: float) -> JobEnd | None:
    """Return a job's end as given in its environment; None if that is missing or unreadable.

    Parameters
    ----------
    wall : float
        Now, seconds since 1970.
    """
    try:
        left = float(environ[DEADLINE]) - wall
        drain = float(environ.get(DRAIN, DRAIN_S))
    except (KeyError, ValueError):
        return None
    return JobEnd(left, max(0.0, drain))


def batch_system(environ: Mapping[str, str]) -> str:
    """Return the title of the batch system whose job this process runs in; "" if none."""
    return next((title for name, title in _SIGNS.items() if environ.get(name)), "")
