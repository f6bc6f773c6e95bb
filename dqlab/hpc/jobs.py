"""What becomes of jobs: the state that their batch system tells, and the end of what they wrote."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from dqlab.hpc.systems import SYSTEMS, JobState, System

__all__ = ["ask", "jobs_of", "log_end", "system_of"]

ASK_TIMEOUT = 5.0
LINES, BYTES = 15, 4000
"""Of the end of a log."""
_GONE = re.compile(r"invalid job id|unknown job|not found|do(es)? not exist|has finished|no job", re.IGNORECASE)


def system_of(cluster: Any) -> System | None:
    """Return the batch system of one of dask-jobqueue's clusters; None for any other cluster."""
    names = {cls.__name__ for cls in type(cluster).__mro__ if cls.__module__.startswith("dask_jobqueue")}
    return next((system for system in SYSTEMS.values() if system.cluster in names), None)


def jobs_of(cluster: Any) -> dict[Any, Any]:
    """Return the jobs of a cluster by the names of their workers."""
    return dict(cluster.workers)


def ask(system: System, job: str) -> JobState | None:
    """Return the state of a job; None when it has ended. Who cannot be asked is thought to wait."""
    try:
        said = subprocess.run(
            [*system.ask, job], capture_output=True, text=True, errors="replace", timeout=ASK_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return JobState(pending=True, reason=f"not known, {system.ask[0]} gives no answer: {error}")
    if said.returncode and _GONE.search(said.stdout + said.stderr):
        return None
    if said.returncode:
        return JobState(pending=True, reason=f"not known, {system.ask[0]} says: {(said.stderr or said.stdout).strip()}")
    return system.read(said.stdout)


def log_end(directory: Path | None, job: str) -> tuple[str, str]:
    """Return the path of a job's log, and its last lines; says so when there is none."""
    number = re.search(r"\d+", job)
    if directory is None or number is None:
        return "its log", "(nowhere: the cluster has no log_directory)"
    named = re.compile(rf"(?<!\d){number[0]}(?!\d)")
    try:
        found = sorted(
            (path for path in directory.iterdir() if named.search(path.name) and path.stat().st_size),
            key=lambda path: (path.suffix.startswith((".e", ".ER")), path.stat().st_mtime),
        )
    except OSError as error:
        return str(directory), f"(cannot be read: {error})"
    if not found:
        return str(directory), f"(there is no log of job {job})"
    with found[-1].open("rb") as file:
        file.seek(max(0, found[-1].stat().st_size - BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return str(found[-1]), "\n".join(lines[-LINES:])
