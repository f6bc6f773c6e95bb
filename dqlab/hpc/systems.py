"""The five batch systems: their commands, how they write durations, what a job must specify, and how jobs stand.

A job's state is asked of its batch system; why it ended stands at the end of its log.
"""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqlab.errors import BadOption

__all__ = ["ASK_TIMEOUT", "KINDS", "SYSTEMS", "JobState", "System", "ask", "find", "jobs_of", "log_end", "system_of"]


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job as its batch system reports it; `reason` is why it waits."""

    pending: bool
    reason: str = ""


def _clock(seconds: float) -> str:
    """Return "HH:MM:SS"; hours may have three digits."""
    whole = math.ceil(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _minutes(seconds: float) -> str:
    """Return "HH:MM"."""
    return _clock(60 * math.ceil(seconds / 60))[:-3]


def _slurm(said: str) -> JobState | None:
    state, _, reason = said.strip().partition("|")
    return JobState(state in ("PD", "CF"), reason) if state else None


def _pbs(said: str) -> JobState | None:
    state = re.search(r"^\s*job_state = (\S)", said, re.MULTILINE)
    comment = re.search(r"^\s*comment = (.*(?:\n\t.*)*)", said, re.MULTILINE)
    if state is None or state[1] in "CFX":
        return None
    return JobState(state[1] in "QHWST", "" if comment is None else comment[1].replace("\n\t", ""))


def _lsf(said: str) -> JobState | None:
    state, _, reason = said.strip().partition("|")
    return JobState(state in ("PEND", "PSUSP"), reason) if state and state not in ("DONE", "EXIT") else None


def _sge(said: str) -> JobState | None:
    if not said.strip():
        return None
    reason = re.search(r"^scheduling info:\s*(.*(?:\n\s+.*)*)", said, re.MULTILINE)
    running = re.search(r"^(usage|exec_host_list)\s", said, re.MULTILINE) is not None
    return JobState(not running, "" if reason is None else " ".join(reason[1].split()))


def _oar(said: str) -> JobState | None:
    state = re.search(r"^\s*state = (\w+)", said, re.MULTILINE)
    message = re.search(r"^\s*message = (.*)", said, re.MULTILINE)
    if state is None or state[1] in ("Terminated", "Error"):
        return None
    return JobState(state[1] in ("Waiting", "Hold", "toLaunch"), "" if message is None else message[1])


@dataclass(frozen=True, slots=True)
class System:
    """One batch system.

    Attributes
    ----------
    kind, title : str
        In dq.hpc, and for people.
    cluster : str
        The class of dask_jobqueue.
    submit : str
        Its command that submits a job.
    ask : tuple of str
        The command that reports on jobs, without their ids.
    join : str
        Between several ids; " " when each is an argument of its own, "" when it takes one only.
    begins : str
        Pattern of the start of that command's output on one job; its group is the id.
    read : callable
        Makes a `JobState` of the rest; None when there is no such job any more.
    walltime : callable
        Formats seconds for the system.
    directives : tuple of str
        For every job: on one node, never requeued.
    array : str
        Pattern of the directive that makes a job an array.
    account : str
        Keyword of the cluster's class for the account that pays.
    options : tuple of (str, value)
        Further keywords that the cluster's class needs.
    """

    kind: str
    title: str
    cluster: str
    submit: str
    ask: tuple[str, ...]
    join: str
    begins: str
    read: Callable[[str], JobState | None]
    walltime: Callable[[float], str] = _clock
    directives: tuple[str, ...] = ()
    array: str = r"--array"
    account: str = "account"
    options: tuple[tuple[str, Any], ...] = ()

    def questions(self, jobs: Sequence[str]) -> list[list[str]]:
        """Return the commands that report on jobs, one for all of them where the system allows it."""
        if not self.join:
            return [[*self.ask, job] for job in jobs]
        return [[*self.ask, *self.join.join(jobs).split()]] if jobs else []

    def states(self, said: str) -> dict[str, JobState | None]:
        """Return the jobs that were printed, by the numbers in their ids; None for those that have ended."""
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
        System(
            "lsf", "LSF", "LSFCluster", "bsub", ("bjobs", "-noheader", "-o", "jobid stat pend_reason delimiter='|'"),
            " ", r"^(\d+)\|", _lsf,
            walltime=_minutes, directives=("-rn",), array=r"-J.*\[", account="project",
        ),
        System(
            "sge", "Grid Engine", "SGECluster", "qsub", ("qstat", "-j"), ",", r"^job_number: *(\d+)", _sge,
            directives=("-r n",), array=r"-t\b", account="project",
        ),
        System(
            "oar", "OAR", "OARCluster", "oarsub", ("oarstat", "-f", "-j"), "", r"^(?:Job_Id|id): *(\d+)", _oar,
            account="project", options=(("memory_per_core_property_name", "not_applicable"),),
        ),
    )
}  # fmt: skip
"""By kind."""
KINDS = tuple(SYSTEMS)


def find(kind: str) -> System:
    """Return a batch system; raises `BadOption`."""
    if kind not in SYSTEMS:
        raise BadOption(option="kind", value=kind, problem=f"is not a batch system. There are: {', '.join(KINDS)}.")
    return SYSTEMS[kind]


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
    refused = JobState(pending=True, reason=f"not known, {command[0]} printed: {(said.stderr or said.stdout).strip()}")

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
