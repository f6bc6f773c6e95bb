"""The five batch systems: their commands, how they write durations, and what a job must specify."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dqlab.errors import BadOption

__all__ = ["KINDS", "SYSTEMS", "JobState", "System", "find"]


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
