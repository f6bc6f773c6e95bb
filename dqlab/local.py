"""Which clusters `dqlab up` keeps on this machine: one file for each, in a directory of the user's own.

Owns those files: written when a cluster is ready, removed at its end, or when its process is found gone.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from dqlab.errors import BadOption, ConnectFailed, UsageError

__all__ = [
    "LOCAL",
    "NameInUse",
    "NoLocalCluster",
    "Registration",
    "SeveralLocalClusters",
    "check_free",
    "find",
    "look",
    "register",
    "registrations",
    "unregister",
]

LOCAL = "local"
"""What `connect` is given to look here, and the name of a cluster that was given none."""
SAME_PROCESS = 60.0
"""Seconds that two readings of one process's start may differ: clocks are set."""


class NoLocalCluster(ConnectFailed):
    """No cluster of `dqlab up` runs on this machine, or none of that name."""

    text = (
        "no cluster {which}of `dqlab up` runs on {host}.{found} Nothing was started. Start one in a terminal, with "
        "`{command}`, then connect again; dq.connect() starts one that ends with this process."
    )


class SeveralLocalClusters(UsageError):
    """More than one cluster of `dqlab up` runs, and none was named."""

    text = (
        "{count} clusters of `dqlab up` run here: {names}. None was chosen. Name one: "
        "dq.connect('local', name={first!r}), or %dq connect local --name {first}"
    )


class NameInUse(UsageError):
    """A cluster of that name runs already."""

    text = (
        "cluster {name!r} of `dqlab up` runs already, in process {pid} at {address}, {store}. Nothing was started. "
        "Give this one another name, `dqlab up --name {suggestion}`, or end the other with Ctrl-C or `kill {pid}`."
    )


@dataclass(frozen=True, slots=True)
class Registration:
    """One cluster of `dqlab up`.

    Attributes
    ----------
    name : str
    address : str
        Of its scheduler.
    store : str or None
        Absolute path of the directory that keeps its queues; None: they are transient.
    n : int
        Consumer processes.
    reserved : str
        Name of the worker that only hosts queues.
    version : str
        Of dqlab.
    pid, host, started
        Of the process that runs it; `started` in seconds since 1970.
    """

    name: str
    address: str
    store: str | None
    n: int
    reserved: str
    version: str
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    started: float = field(default_factory=lambda: psutil.Process().create_time())

    @property
    def alive(self) -> bool:
        """Whether its process, and no other that was given the same number, still runs on this machine."""
        try:
            process = psutil.Process(self.pid)
            ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return not ended and abs(process.create_time() - self.started) < SAME_PROCESS
        except psutil.NoSuchProcess:
            return False

    @property
    def keeps(self) -> str:
        """What it keeps its queues in, as part of a sentence."""
        return f"store {self.store}" if self.store is not None else "without a store"

    def check_store(self, store: Path | None) -> None:
        """Raise `BadOption` when somebody asks for another store than this cluster's."""
        if store is not None and str(store) != self.store:
            problem = f"but cluster {self.name!r} of `dqlab up` runs {self.keeps}. Leave store= out to use that one."
            raise BadOption(option="store", value=str(store), problem=problem)


def registrations() -> Path:
    """Return the directory of the files: ``$XDG_STATE_HOME/dqlab``, by default ``~/.local/state/dqlab``.

    Not the session's runtime directory: that one ends with a login, and a cluster may outlive it.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "dqlab"


def register(found: Registration) -> Path:
    """Write a cluster's file, readable by its user alone; return it.

    Raises
    ------
    NameInUse
        A cluster of that name runs on this machine.
    """
    directory = registrations()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_free(found.name)
    path = directory / f"{found.name}@{found.host}.json"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # somebody was faster
        check_free(found.name)
        raise
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(found), file, indent=1)
    return path


def unregister(path: Path) -> None:
    """Remove a cluster's file."""
    path.unlink(missing_ok=True)


def look() -> tuple[list[Registration], list[Registration]]:
    """Return the clusters that run on this machine, and those whose process is gone; the files of these are removed."""
    alive, gone = [], []
    for path in sorted(registrations().glob("*.json")):
        found = _read(path)
        if found is None or found.host != socket.gethostname():
            continue
        if found.alive:
            alive.append(found)
        else:
            unregister(path)
            gone.append(found)
    return alive, gone


def check_free(name: str) -> None:
    """Raise `NameInUse` when a cluster of that name runs on this machine."""
    alive, _ = look()
    for found in alive:
        if found.name == name:
            suggestion = next(f"{name}-{n}" for n in range(2, 1000) if f"{name}-{n}" not in {at.name for at in alive})
            raise NameInUse(name=name, pid=found.pid, address=found.address, store=found.keeps, suggestion=suggestion)


def find(name: str | None) -> Registration:
    """Return the cluster of that name, or the only one there is.

    Raises
    ------
    NoLocalCluster
        There is none; names the others that run, and those that left only a file.
    SeveralLocalClusters
        There are several, and `name` is None.
    """
    alive, gone = look()
    chosen = [found for found in alive if name in (None, found.name)]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = ", ".join(f"{found.name!r} ({found.keeps})" for found in chosen)
        raise SeveralLocalClusters(count=len(chosen), names=names, first=chosen[0].name)
    said = "".join(f" Running: {found.name!r}, {found.keeps}." for found in alive)
    said += "".join(
        f" Process {found.pid} of cluster {found.name!r}, {found.keeps}, has ended; its file was removed."
        for found in gone
    )
    last = next((found for found in reversed(gone) if name in (None, found.name)), None)
    command = "dqlab up" + (f" --name {name}" if name is not None else "")
    raise NoLocalCluster(
        which=f"named {name!r} " if name is not None else "",
        host=socket.gethostname(),
        found=said,
        command=f"{command} --store {last.store if last is not None and last.store is not None else 'runs/'}",
    )


def _read(path: Path) -> Registration | None:
    """Return what a file says; None when it is not one of ours, or another user's."""
    with suppress(OSError, ValueError, TypeError), path.open() as file:
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            return Registration(**json.load(file))
    return None
