"""What really happened, kept outside of dqlab: files to which every process appends whole lines."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "DIRECTORY",
    "Confirmed",
    "Execution",
    "Taking",
    "began",
    "confirmed",
    "directory",
    "ended",
    "note",
    "read_confirmed",
    "read_executions",
    "read_takings",
    "taken",
]

DIRECTORY = "DQLAB_CHAOS_DIRECTORY"
"""Environment variable: where the files are. Every process of a round has it, and is known by it."""

EXECUTIONS, CONFIRMED, TAKINGS = "executions", "confirmed", "takings"


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


@dataclass(frozen=True)
class Confirmed:
    """Messages of which a client heard that they are in a queue: numbers [lo, hi) of a run, or put by hand."""

    queue: str
    source: str
    lo: int
    hi: int


@dataclass(frozen=True)
class Taking:
    """Something was taken from its place: a shard of a queue, a consumer in some process, or all ("town")."""

    what: str
    queue: str
    pid: int
    at: float


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
    note(EXECUTIONS, "begin", time.monotonic(), os.getpid(), os.getppid(), key)


def ended(key: str, *, well: bool) -> None:
    """Note that it ends."""
    note(EXECUTIONS, "well" if well else "ill", time.monotonic(), os.getpid(), os.getppid(), key)


def confirmed(queue: str, source: str, lo: int, hi: int) -> None:
    """Note what a client heard as confirmed."""
    note(CONFIRMED, queue, source, lo, hi)


def taken(what: str, queue: str, pid: int, *, where: Path | None = None) -> None:
    """Note that something was taken from its place just now."""
    note(TAKINGS, what, queue, pid, time.monotonic(), where=where)


def _lines(where: Path, file: str) -> list[list[str]]:
    path = where / file
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def read_executions(where: Path) -> list[Execution]:
    """Return every call, oldest first."""
    found: list[Execution] = []
    running: dict[tuple[str, str], Execution] = {}
    for verb, at, pid, parent, key in _lines(where, EXECUTIONS):
        if verb == "begin":
            running[key, pid] = Execution(key, int(pid), int(parent), float(at))
            found.append(running[key, pid])
        else:
            call = running.pop((key, pid))
            call.ended, call.well = float(at), verb == "well"
    return found


def read_confirmed(where: Path) -> list[Confirmed]:
    """Return what clients heard as confirmed."""
    return [Confirmed(queue, source, int(lo), int(hi)) for queue, source, lo, hi in _lines(where, CONFIRMED)]


def read_takings(where: Path) -> list[Taking]:
    """Return what was taken from its place, and when."""
    return [Taking(what, queue, int(pid), float(at)) for what, queue, pid, at in _lines(where, TAKINGS)]
