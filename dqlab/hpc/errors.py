"""Errors of batch systems and their jobs."""

from __future__ import annotations

from dqlab.errors import DqlabError, UsageError

__all__ = [
    "ClusterClosed",
    "ExtraMissing",
    "JobsDied",
    "JobsPending",
    "NoBatchSystem",
    "StoreNotShared",
    "SubmitFailed",
]


class ExtraMissing(UsageError):
    """dask-jobqueue is not installed here."""

    text = (
        "clusters on a batch system need dask-jobqueue, and {missing} is not installed in {python}. Nothing was "
        "submitted. Install it there, and in the Python of the jobs: pip install 'dqlab[hpc]'"
    )


class NoBatchSystem(UsageError):
    """The command that submits jobs is not on this machine."""

    text = (
        "{system} cannot be used from {host}: there is no command {command!r} on its PATH. Nothing was submitted. Run "
        "this where jobs are submitted, usually a login node, or in a job whose image has the command; or "
        "start workers by a scheduler file and connect with dq.connect(scheduler_file=...)."
    )


class ClusterClosed(UsageError):
    """The cluster was closed before a worker came, or while it was waited for."""

    text = (
        "this {cluster} was closed, so no worker comes: its jobs are cancelled. No queue was opened. Make another with "
        "dq.hpc.{kind}(...), or connect to dq.hpc.recipe({kind!r}, ...), which starts one."
    )


class SubmitFailed(DqlabError):
    """The batch system refuses the job."""

    text = (
        "{system} took no job: {reason}. Nothing runs. Look at the script with dq.hpc.recipe({kind!r}, ...), mend the "
        "options, then connect again."
    )


class JobsPending(DqlabError):
    """Jobs are submitted, and none is running yet."""

    text = (
        "no worker came within {seconds:g} s: {waiting} of {system} ({jobs}) {wait}, reason: {reason}. {left} To wait "
        "longer: dq.connect(..., timeout='30m'); to ask for less: fewer cores, less memory, a shorter walltime."
    )


class JobsDied(DqlabError):
    """Jobs began and ended before a worker came."""

    text = (
        "job {job} of {system} ended before its worker came. The end of {log}:\n{tail}\nNothing was queued. {left} "
        "Mend that, often with python= or job_script_prologue=['module load ...'], then connect again."
    )


class StoreNotShared(DqlabError):
    """The directory that is to keep queues is another one where the jobs run."""

    text = (
        "store {store} cannot be used by worker {worker}: {reason}. No queue was opened. Name a directory that this "
        "machine and the nodes share, often under /scratch or the home directory."
    )
