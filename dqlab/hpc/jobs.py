"""The fate of jobs: the state that their batch system reports, and the end of their logs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dqlab.hpc.systems import SYSTEMS, JobState, System

__all__ = ["ASK_TIMEOUT", "ask", "jobs_of", "log_end", "system_of"]

ASK_TIMEOUT = 5.0
LINES, BYTES = 15, 4000
"""Limits of the end of a log that is shown."""
_GONE = re.compile(r"invalid job id|unknown job|not found|do(es)? not exist|has finished|no job", re.IGNORECASE)


def system_of(cluster: Any) -> System | None:
    """Return the batch system of one of dask-jobqueue's clusters; None for any other cluster."""
    names = {cls.__name__ for cls in type(cluster).__mro__ if cls.__module__.startswith("dask_jobqueue")}
    return next((system for system in SYSTEMS.values() if system.cluster in names), None)


def jobs_of(cluster: Any) -> dict[Any, Any]:
    """Return the jobs of a cluster by the names of their workers."""
    return dict(cluster.workers)


def ask(system: System, jobs: Sequence[str], limit: float | None = None) -> dict[str, JobState | None]:
    """Return the states of jobs, None for those that have ended. A job of unknown state is taken to be waiting.

    Parameters
    ----------
    limit : float, optional
        Seconds for all commands together; by default ASK_TIMEOUT.
    """
    until, states = time.monotonic() + (ASK_TIMEOUT if limit is None else limit), dict[str, JobState | None]()
    for command in system.questions(jobs):
        left = until - time.monotonic()
        if left > 0:
            states |= _answer(system, command, [job for job in jobs if system.join or job == command[-1]], left)
    return {job: states.get(job, JobState(pending=True, reason="not known, there was no time to ask")) for job in jobs}


def _answer(system: System, command: Sequence[str], jobs: Sequence[str], limit: float) -> dict[str, JobState | None]:
    try:
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        silent = JobState(pending=True, reason=f"not known, {command[0]} does not answer: {error}")
        return dict.fromkeys(jobs, silent)
    states, failed = system.states(said.stdout), said.stdout + said.stderr
    refused = JobState(pending=True, reason=f"not known, {command[0]} says: {(said.stderr or said.stdout).strip()}")

    def of(job: str) -> JobState | None:
        number = _number(job)
        if number in states:
            return states[number]
        named = len(jobs) == 1 or re.search(rf"(?<!\d){number}(?!\d)", failed)
        return refused if said.returncode and not (named and _GONE.search(failed)) else None

    return {job: of(job) for job in jobs}


def _number(job: str) -> str:
    number = re.search(r"\d+", job)
    return "" if number is None else number[0]


def log_end(directory: Path | None, job: str) -> tuple[str, str]:
    """Return the path of a job's log, and its last lines; a sentence instead when there is none."""
    number = _number(job)
    if directory is None or not number:
        return "its log", "(nowhere: the cluster has no log_directory)"
    named = re.compile(rf"(?<!\d){number}(?!\d)")
    try:
        # Hidden files are keys, in which such a number may stand too.
        seen = [path for path in directory.iterdir() if named.search(path.name) and not path.name.startswith(".")]
        found = sorted(
            (path for path in seen if path.stat().st_size),
            key=lambda path: (path.suffix.startswith((".e", ".ER")), path.stat().st_mtime),
        )
    except OSError as error:
        return str(directory), f"(cannot be read: {error})"
    if not found:
        return str(directory), f"(there is no log of job {job}: perhaps it was cancelled before it ran)"
    with found[-1].open("rb") as file:
        file.seek(max(0, found[-1].stat().st_size - BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return str(found[-1]), "\n".join(lines[-LINES:])
