"""The two batch systems: their commands, their spelling of durations, their directives, and the states of their jobs.

A batch system reports the state of a job; the end of the job's log has the reason why the job ended.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqlab.errors import BadOption


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job as its batch system reports it."""

    pending: bool
    reason: str = ""
    """Why it waits."""


def walltime(seconds: float) -> str:
    """Return "HH:MM:SS", with as many digits of hours as needed."""
    whole = math.ceil(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _slurm(said: str) -> JobState | None:
    state, _, reason = said.strip().partition("|")
    return JobState(state in ("PD", "CF"), reason) if state else None


def _pbs(said: str) -> JobState | None:
    state = re.search(r"^\s*job_state = (\S)", said, re.MULTILINE)
    comment = re.search(r"^\s*comment = (.*(?:\n\t.*)*)", said, re.MULTILINE)
    if state is None or state[1] in "CFX":
        return None
    return JobState(state[1] in "QHWST", "" if comment is None else comment[1].replace("\n\t", ""))


@dataclass(frozen=True, slots=True)
class System:
    """One batch system."""

    kind: str
    """Name of its function in `dqlab.hpc`."""
    title: str
    """Name for people."""
    cluster: str
    """Name of its class in dask_jobqueue."""
    submit: str
    """Command that submits a job."""
    ask: tuple[str, ...]
    """Command that reports on jobs, without their ids."""
    join: str
    """Separator of several ids, " " where each is its own argument."""
    begins: str
    """Pattern of the start of a job's part of that command's output, whose group is the id."""
    read: Callable[[str], JobState | None]
    """Makes a `JobState` of the rest, or None where the job has ended."""
    directives: tuple[str, ...]
    """Directives of every job: on one node, never requeued."""
    array: str
    """Pattern of the directive that makes a job an array."""

    def states(self, said: str) -> dict[str, JobState | None]:
        """Return the printed jobs by the number in their id, with None for those that have ended."""
        _, *parts = re.split(self.begins, said, flags=re.MULTILINE)
        return {job: self.read(rest) for job, rest in zip(parts[::2], parts[1::2], strict=True)}


SYSTEMS: Mapping[str, System] = {
    each.kind: each
    for each in (
        System(
            "slurm", "Slurm", "SLURMCluster", "sbatch", ("squeue", "-h", "-o", "%A|%t|%r", "-j"), ",", r"^(\d+)\|",
            _slurm, directives=("-N 1", "--no-requeue"), array=r"--array|-a\b",
        ),
        System(
            "pbs", "PBS", "PBSCluster", "qsub", ("qstat", "-f"), " ", r"^Job Id: *(\d+)", _pbs,
            directives=("-r n",), array=r"-J\b",
        ),
    )
}  # fmt: skip
"""All batch systems, by kind."""
KINDS = tuple(SYSTEMS)


def find(kind: str) -> System:
    """Return a batch system, or raise `BadOption`."""
    if kind not in SYSTEMS:
        raise BadOption(option="kind", value=kind, problem=f"is not a batch system. There are: {', '.join(KINDS)}.")
    return SYSTEMS[kind]


ASK_TIMEOUT = 5.0
LINES, BYTES = 15, 4000
"""Most lines and bytes of the end of a log that are shown."""
_GONE = re.compile(r"invalid job id|unknown job|not found|do(es)? not exist|has finished|no job", re.IGNORECASE)


def system_of(cluster: Any) -> System | None:
    """Return the batch system of a cluster of dask-jobqueue, or None for any other cluster."""
    # By names: dask-jobqueue is optional, and importing it here would cost every `connect`.
    names = {cls.__name__ for cls in type(cluster).__mro__ if cls.__module__.startswith("dask_jobqueue")}
    return next((system for system in SYSTEMS.values() if system.cluster in names), None)


def jobs_of(cluster: Any) -> dict[Any, Any]:
    """Return the jobs of a cluster by the names of their workers."""
    return dict(cluster.workers)


def ask(system: System, jobs: Sequence[str], limit: float | None = None) -> dict[str, JobState | None]:
    """Return the states of jobs, with None for those that have ended, within `limit` seconds."""
    # A job whose state is unknown counts as waiting: taken for ended, it would be submitted again beside itself.
    if not jobs:
        return {}
    command, limit = [*system.ask, *system.join.join(jobs).split()], ASK_TIMEOUT if limit is None else limit
    try:
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        silent = JobState(pending=True, reason=f"not known, {command[0]} does not answer: {error}")
        return dict.fromkeys(jobs, silent)
    states, failed = system.states(said.stdout), said.stdout + said.stderr
    refused = JobState(pending=True, reason=f"not known, {command[0]} printed: {(said.stderr or said.stdout).strip()}")

    def of(job: str) -> JobState | None:
        number = _number(job)
        if number in states:
            return states[number]
        # A failure of the command itself tells nothing about a job, unless it names the job as unknown.
        named = len(jobs) == 1 or re.search(rf"(?<!\d){number}(?!\d)", failed)
        return refused if said.returncode and not (named and _GONE.search(failed)) else None

    return {job: of(job) for job in jobs}


def _number(job: str) -> str:
    number = re.search(r"\d+", job)
    return "" if number is None else number[0]


def log_end(directory: Path | None, job: str) -> tuple[str, str]:
    """Return the path of a job's log and its last lines, or a sentence instead of them where there is none."""
    number = _number(job)
    if directory is None or not number:
        return "its log", "(nowhere: the cluster has no log_directory)"
    named = re.compile(rf"(?<!\d){number}(?!\d)")
    try:
        # Hidden files are keys, whose names may have that number too, and must not be shown.
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
