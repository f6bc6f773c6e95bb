"""Reads the end of the batch job that a worker runs in from the job's environment, as pure functions.

`dqlab.hpc` writes it into the job's script, and the worker reports the seconds left to the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEADLINE, DRAIN = "DQLAB_JOB_DEADLINE", "DQLAB_JOB_DRAIN"
"""Environment variables of a job: its end in seconds since 1970, and how many seconds before it the worker leaves."""
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
    """The end of a job."""

    left: float
    """Seconds until the job ends."""
    drain: float
    """Seconds before the end at which its worker begins to leave."""


def read_end(environ: Mapping[str, str], wall: float) -> JobEnd | None:
    """Return the end of a job in an environment, or None if it is missing or unreadable."""
    try:
        left = float(environ[DEADLINE]) - wall
        drain = float(environ.get(DRAIN, DRAIN_S))
    except (KeyError, ValueError):
        return None
    return JobEnd(left, max(0.0, drain))


def batch_system(environ: Mapping[str, str]) -> str:
    """Return the title of the batch system whose job this process runs in, or ""."""
    return next((title for name, title in _SIGNS.items() if environ.get(name)), "")


def job_of(environ: Mapping[str, str]) -> str:
    """Return the id of the batch job that this process runs in, or ""."""
    return next((environ[name] for name in _SIGNS if environ.get(name)), "")
