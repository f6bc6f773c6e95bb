"""What really happened, kept outside of dqlab: files to which every process appends whole lines."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "DIRECTORY",
    "REGISTRY",
    "SCRATCH",
    "Begun",
    "Confirmed",
    "Execution",
    "Taking",
    "began",
    "confirmed",
    "directory",
    "ended",
    "fault",
    "note",
    "read_confirmed",
    "read_executions",
    "read_faults",
    "read_takings",
    "taken",
]

DIRECTORY = "DQLAB_CHAOS_DIRECTORY"
"""Environment variable: where the files are. Every process of a round has it, and is known by it."""

EXECUTIONS, CONFIRMED, TAKINGS, FAULTS = "executions", "confirmed", "takings", "faults"

SCRATCH = "scratch"
"""Dask's temporary directory of a town, with the logs of transient queues."""
REGISTRY = "registry"
"""Who saw something taken, when it was no act: dqlab's registry."""


@dataclass
class Execution:
    """One call of a function; times in monotonic seconds, which are the same in all processes of a machine."""

    key: str
    pid: int
    parent: int
    began: float
    ended: float | None = None
    """None: it never came to its end."""
    well: bool = False
    thread: int = 0


@dataclass(frozen=True)
class Confirmed:
    """Messages that a queue confirmed to a client: numbers [lo, hi) of a run, or put by hand; `at`: when that came."""

    queue: str
    source: str
    lo: int
    hi: int
    at: float = math.inf


@dataclass(frozen=True)
class Taking:
    """Something was taken from its place.

    Attributes
    ----------
    what : str
        A "shard" of a queue, a "consumer" in some process, or all ("town").
    pid : int
        Of the process that held it, or that was hit; 0: whichever.
    by : str
        The act that took it; `REGISTRY`, when that saw it gone.
    """

    what: str
    queue: str
    pid: int
    at: float
    by: str


def directory() -> Path:
    """Return where this round's files are."""
    return Path(os.environ[DIRECTORY])


@cache
def _descriptor(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(file: str, *fields: object, where: Path | None = None) -> None:
    """Append one line, with one write, so that lines of several processes never mix."""
    os.write(_descriptor((where or directory()) / file), (" ".join(map(str, fields)) + "\n").encode())


def began(key: str) -> None:
    """Note that a function begins."""
    note(EXECUTIONS, "begin", time.monotonic(), os.getpid(), os.getppid(), threading.get_ident(), key)


def ended(key: str, *, well: bool) -> None:
    """Note that it ends."""
    verb = "well" if well else "ill"
    note(EXECUTIONS, verb, time.monotonic(), os.getpid(), os.getppid(), threading.get_ident(), key)


def confirmed(queue: str, source: str, lo: int, hi: int) -> None:
    """Note what a client heard as confirmed."""
    note(CONFIRMED, queue, source, lo, hi, time.monotonic())


def taken(what: str, queue: str, pid: int, by: str, *, where: Path | None = None) -> None:
    """Note that something was taken from its place just now."""
    note(TAKINGS, what, queue, pid, time.monotonic(), by, where=where)


def fault(text: str) -> None:
    """Note that a part of the harness itself has failed."""
    note(FAULTS, *text.split())


def _lines(where: Path, file: str) -> list[list[str]]:
    path = where / file
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def read_executions(where: Path) -> list[Execution]:
    """Return every call, oldest first."""
    found: list[Execution] = []
    # Coroutines share a thread: a message that is delivered again may run there beside its first call.
    running: defaultdict[tuple[str, str, str], deque[Execution]] = defaultdict(deque)
    for verb, at, pid, parent, thread, key in _lines(where, EXECUTIONS):
        if verb == "begin":
            found.append(Execution(key, int(pid), int(parent), float(at), thread=int(thread)))
            running[key, pid, thread].append(found[-1])
        else:
            call = running[key, pid, thread].popleft()
            call.ended, call.well = float(at), verb == "well"
    return found


def read_confirmed(where: Path) -> list[Confirmed]:
    """Return what clients heard as confirmed."""
    return [
        Confirmed(queue, source, int(lo), int(hi), float(at)) for queue, source, lo, hi, at in _lines(where, CONFIRMED)
    ]


def read_takings(where: Path) -> list[Taking]:
    """Return what was taken from its place, and when."""
    return [Taking(what, queue, int(pid), float(at), by) for what, queue, pid, at, by in _lines(where, TAKINGS)]


def read_faults(where: Path) -> list[str]:
    """Return what failed of the harness itself."""
    return [" ".join(fields) for fields in _lines(where, FAULTS)]


class Begun:
    """How many calls have begun so far; reads on from where it was."""

    def __init__(self, where: Path) -> None:
        self._path = where / EXECUTIONS
        self._read = self._found = 0

    def count(self) -> int:
        """Return the number of calls that have begun."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")
            self._read += len(whole[0]) + len(whole[1])
            self._found += sum(line.startswith(b"begin ") for line in whole[0].split(b"\n"))
        return self._found
