"""Files by which clusters of this machine are found, one for each cluster.

Owns two kinds of files in one format. Labs write an `Announcement` into Jupyter's runtime
directory; the server extension reads it, and so do a second lab on the same store and the commands
of a shell. A service keeps its id, which is its name made unique, when its kernel or scheduler
restarts.
`dqlab up` writes a `Registration` into a directory that needs no Jupyter, once its cluster is ready, and removes it at
the cluster's end; where that process was killed, the next reader removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import re
import shlex
import socket
import stat
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints
from urllib.parse import urlsplit

import psutil

from dqlab.errors import BadOption, ConnectFailed, UsageError
from dqlab.proof import loopback

logger = logging.getLogger("dqlab.clusters_here")

LOCAL = "local"
"""Target of `connect` that selects a cluster of `dqlab up`, and the default name of such a cluster."""
SCHEMA = 4
SLACK = 60.0
"""Seconds that a process may seem to have begun after it wrote a file: clocks are set."""
LARGEST = 1 << 16
KEEP_ENDED, KEEP_FOR_NOTHING = 7 * 86_400.0, 3600.0
"""Seconds for which an ended service is listed: where its store can be opened again, and where nothing is left."""
UNREADABLE = (
    "is taken by {path}, which this version cannot read. Nothing was started. Take another --name, or delete that file "
    "if no cluster of another version runs."
)
UNFINISHED = 60.0
"""Seconds after which a file that was being written is a leftover."""
PATIENCE = 1.0
"""Seconds to wait for a connection to an address, on this machine."""
TRIES, BETWEEN = 25, 0.002
MOST_KERNELS = 100
"""Kernels that a file names; those that were killed stay in it."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class NoLocalCluster(ConnectFailed):
    """No cluster of `dqlab up` runs on this machine, or none of that name."""

    text = (
        "no cluster {which}of `dqlab up` runs on {host}.{found} Nothing was started. Start one in a terminal, with "
        "`{command}`, then connect again; dq.connect() starts one that ends with this process."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """Fields of every file."""

    name: str
    """Name of the lab or cluster."""
    scheduler: str
    store: str | None
    """Absolute path of the directory that keeps its queues; None where they are transient."""
    pid: int = field(default_factory=os.getpid)
    """The process that wrote the file."""
    host: str = field(default_factory=socket.gethostname)
    started: float = field(default_factory=time.time)
    """When the file was written, in seconds since 1970."""
    schema: int = SCHEMA

    @property
    def is_here(self) -> bool:
        """Whether it was written on this machine, since machines often share a home directory."""
        return self.host == socket.gethostname()

    @property
    def runs(self) -> bool:
        """Whether the process that wrote it still runs here, rather than another with the same number."""
        try:
            process = psutil.Process(self.pid)
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return False
            # A pid is reused: a process that began after the file was written did not write it.
            return bool(process.create_time() - self.started < SLACK)
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:
            return True  # it exists and is not ours to inspect: a live cluster must not lose its file


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(_Written):
    """One cluster of `dqlab up`, which ends with the process that wrote this."""

    reserved: str
    """Name of the worker that only hosts queues."""

    @property
    def keeps(self) -> str:
        """Where it keeps its queues, as part of a sentence."""
        return f"store {self.store}" if self.store is not None else "without a store"

    @property
    def command(self) -> str:
        """The shell command that starts this cluster again."""
        named = f" --name {self.name}" if self.name != LOCAL else ""
        return f"dqlab up{named}" + (f" --store {shlex.quote(self.store)}" if self.store is not None else "")

    @property
    def call(self) -> str:
        """The call that connects to this cluster."""
        return "dq.connect('local')" if self.name == LOCAL else f"dq.connect('local', name={self.name!r})"

    def check_store(self, store: Path | None) -> None:
        """Raise `BadOption` when the caller asks for another store than this cluster's."""
        if store is not None and str(store) != self.store:
            problem = f"but cluster {self.name!r} of `dqlab up` runs {self.keeps}. Leave store= out to use that one."
            raise BadOption(option="store", value=str(store), problem=problem)


def kernel_id() -> str:
    """Return the id by which Jupyter knows this kernel, or "" outside a kernel."""
    app = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)
    if app is None or not app.initialized():
        return ""
    file = Path(app.instance().connection_file)
    return file.stem.removeprefix("kernel-") if file.stem.startswith("kernel-") else ""


def kernels_here() -> tuple[str, ...]:
    """Return the id of this kernel, or nothing outside a kernel."""
    kernel = kernel_id()
    return (kernel,) if kernel else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement(_Written):
    """One service, as Jupyter's sidebar lists it."""

    id: str = ""
    """Made when the service is announced."""
    dashboard: str
    """Address to which the scheduler's HTTP server is bound, as in "http://127.0.0.1:40123"."""
    scheduler_id: str
    """The scheduler's id, which changes when the scheduler restarts."""
    token: str = field(repr=False)
    """Opens the scheduler's control route, and is never sent: see `dqlab.proof`."""
    embedded: bool
    """Whether the cluster ends with the process that announced it."""
    where: str
    """"local", or the scheduler's host."""
    dashboard_host: str = field(default_factory=socket.gethostname)
    """Name of the machine on which the dashboard's address is valid."""
    tunnel: bool = False
    """Whether the address leads through a tunnel to the machine of the scheduler."""
    kernels: tuple[str, ...] = field(default_factory=kernels_here)
    """Jupyter's ids of the kernels whose last lab uses this service; a cluster of `dqlab up` starts with none."""

    @property
    def ended(self) -> bool:
        """Whether it was embedded in a process of this machine that has ended."""
        return self.embedded and self.is_here and not self.runs

    @property
    def kept(self) -> float:
        """Seconds for which the service is listed without an answer, fewer where it left nothing to open again."""
        return KEEP_FOR_NOTHING if self.ended and self.store is None else KEEP_ENDED

    @property
    def unreachable(self) -> str:
        """Why this machine cannot reach the dashboard and what to do about it, or "" where it can."""
        if self.dashboard_host == socket.gethostname() or not loopback(urlsplit(self.dashboard).hostname or ""):
            return ""
        return (
            f"its dashboard listens on {self.dashboard_host} alone, at {urlsplit(self.dashboard).netloc}, and this "
            f"JupyterLab runs on {socket.gethostname()}. Open JupyterLab on {self.dashboard_host}, or start the "
            "scheduler with a --dashboard-address that this machine can reach"
        )


_ours: dict[str, Announcement] = {}
"""Services that this process announced, and withdraws at its end."""
_held: Counter[tuple[Path, str]] = Counter()
"""Labs of this process that hold a service announced, counted by directory and scheduler id."""


# --- announcements: what labs write ----------------------------------------------------------------------


def directory() -> Path:
    """Return Jupyter's runtime directory, or without Jupyter one beside the registrations."""
    try:
        from jupyter_core.paths import jupyter_runtime_dir
    except ImportError:
        return registrations() / "services"
    return Path(jupyter_runtime_dir())


def announce(service: Announcement) -> Announcement | None:
    """Write the file of a service and return the service with its id, or None when it is not written."""
    place = directory()
    # The sidebar is optional, connecting is not: `connect` must not fail or wait because of an announcement.
    try:
        written = _announce(service, place)
    except OSError as error:
        logger.info("event=not_announced directory=%s %r", place, error)
        return None
    _held[place, written.scheduler_id] += 1
    if written.embedded and written.pid == os.getpid():
        if not _ours:
            atexit.register(_withdraw_all)
        _ours[written.id] = written
    return written


def withdraw(service: Announcement, *, ended: bool = False) -> None:
    """Remove the file that this process wrote of a service, once its last lab is closed or its cluster has `ended`."""
    place = directory()
    _held[place, service.scheduler_id] -= 1
    if _held[place, service.scheduler_id] > 0 and not ended:
        return
    _held.pop((place, service.scheduler_id))
    if _ours.get(service.id) == service:
        del _ours[service.id]
    # A successor may have written its own file under this id: only the process and scheduler that wrote it remove it.
    if service.pid != os.getpid():  # a fork of the process has its exit handlers too
        with suppress(OSError), _locked(place):
            _remove_kernels(place, announced(place), kernels_here())
        return
    with suppress(OSError), _locked(place):
        path = _path(place, service.id)
        there = _announcement(path)
        if there is not None and (there.pid, there.scheduler_id) == (service.pid, service.scheduler_id):
            path.unlink(missing_ok=True)


def _withdraw_all() -> None:
    for service in list(_ours.values()):
        withdraw(service, ended=True)


def address_of(scheduler: str) -> tuple[str, bool]:
    """Return a scheduler's host in the form that a URL needs, and whether that is this machine."""
    at = urlsplit(scheduler)
    if at.scheme in ("inproc", "unix"):
        return "127.0.0.1", True
    host = at.hostname or "127.0.0.1"
    return f"[{host}]" if ":" in host else host, host in _LOOPBACK or host == socket.gethostname()


# --- announcements: what is read --------------------------------------------------------------------------


def announced(place: Path) -> list[Announcement]:
    """Return the services that this user announced in a directory, oldest first."""
    found = (_announcement(path) for path in place.glob("dq-*.json"))
    return sorted((service for service in found if service is not None), key=lambda service: service.started)


def keeper_of(store: Path) -> Announcement | None:
    """Return the first running lab of this user's other processes that keeps its queues in a store."""
    # Later labs could open only the queues that the first one had left closed.
    return next((one for one in _of_others() if one.store == str(store) and not one.ended), None)


def _of_others() -> list[Announcement]:
    """Return the services that other processes of this user announced, oldest first."""
    try:
        return [one for one in announced(directory()) if one.pid != os.getpid()]
    except OSError:
        return []


def way_to(keeper: Announcement) -> str:
    """Return a sentence that names the process with the store open, and the line that connects to its cluster."""
    return (
        f"lab {keeper.name!r} of process {keeper.pid} on {keeper.host} keeps queues in {keeper.store}; to work with "
        f"those, connect to its cluster: dq.connect({keeper.scheduler!r}), in a notebook %dq connect "
        f"{keeper.scheduler}"
    )


def seen(place: Path, id: str, at: float | None = None) -> float:
    """Return when a service last answered or was announced (seconds since 1970, 0 for never), or set that to `at`."""
    path = _path(place, id)
    try:
        if at is not None:
            # The file's own time holds it, so that a poll does not rewrite a file that other processes read.
            os.utime(path, (at, at))
        return path.stat().st_mtime
    except OSError:
        return 0.0


def forget(place: Path, service: Announcement) -> None:
    """Remove the file of a service that has ended, unless another service has taken its id."""
    with suppress(OSError), _locked(place):
        path = _path(place, service.id)
        if _announcement(path) == service:
            path.unlink(missing_ok=True)


def sweep(place: Path) -> None:
    """Remove the files of services that ended long ago, and files that were left unfinished."""
    now = time.time()
    for service in announced(place):
        if service.ended and now - seen(place, service.id) > service.kept:
            forget(place, service)
    for leftover in place.glob(".dq-*.tmp"):
        with suppress(OSError):
            if now - leftover.stat().st_mtime > UNFINISHED:
                leftover.unlink()


# --- clusters of `dqlab up` -----------------------------------------------------------------


def registrations() -> Path:
    """Return the directory of registrations, ``$XDG_STATE_HOME/dqlab`` or ``~/.local/state/dqlab``."""
    # Not $XDG_RUNTIME_DIR, which ends with the login: a cluster may outlive it.
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "dqlab"


def register(found: Registration) -> Path:
    """Write a cluster's file, readable only by its user, or raise `UsageError` where one of that name runs here."""
    directory = registrations()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_free(found.name)
    path = directory / f"{found.name}@{found.host}.json"
    try:
        _create(path, found)
    except FileExistsError:  # another process was faster, or another version of dqlab wrote it, which `look` skips
        check_free(found.name)
        raise BadOption(option="name", value=found.name, problem=UNREADABLE.format(path=path)) from None
    return path


def unregister(path: Path, found: Registration) -> None:
    """Remove a cluster's file, unless another cluster has written it since."""
    if _read(path, Registration) == found:
        path.unlink(missing_ok=True)


def look() -> tuple[list[Registration], list[Registration]]:
    """Return this machine's running clusters and those whose process is gone, and remove the files of the latter."""
    alive, gone = [], []
    for path in sorted(registrations().glob("*.json")):
        found = _read(path, Registration)
        if found is None or not found.is_here:
            continue
        if found.runs:
            alive.append(found)
        else:
            unregister(path, found)
            gone.append(found)
    return alive, gone


def check_free(name: str) -> None:
    """Raise `UsageError` if a cluster of that name runs on this machine."""
    alive, _ = look()
    for found in alive:
        if found.name == name:
            suggestion = next(f"{name}-{n}" for n in range(2, 1000) if f"{name}-{n}" not in {at.name for at in alive})
            raise _in_use(name, found.pid, found.scheduler, found.keeps, suggestion)


def find(name: str | None) -> Registration:
    """Return the cluster of that name, or the only one, or raise `NoLocalCluster` or `UsageError` where several run."""
    alive, gone = look()
    chosen = [found for found in alive if name in (None, found.name)]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = ", ".join(f"{found.name!r} ({found.keeps})" for found in chosen)
        first = chosen[0].name
        way = f"dq.connect('local', name={first!r}), or %dq connect local --name {first}"
        raise UsageError(
            reason=f"{len(chosen)} clusters of `dqlab up` run here: {names}. None was chosen. Name one: {way}"
        )
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


def find_any(name: str | None) -> _Written:
    """Return what `find` does, or else the cluster of a script or a notebook of this user."""
    try:
        return find(name)
    except NoLocalCluster:
        running = [one for one in _of_others() if one.embedded and one.is_here and not one.ended]
        chosen = [one for one in running if name in (None, one.id, one.name)]
        if len(chosen) == 1:
            return chosen[0]
        if not running:
            raise
    names = ", ".join(f"{one.id} ({one.name}, process {one.pid})" for one in running)
    way = f"--name {running[0].id}"
    raise UsageError(reason=f"{len(running)} clusters run here: {names}. None was chosen. Name one: {way}") from None


# --- inside ---------------------------------------------------------------------------------


def _announce(service: Announcement, place: Path) -> Announcement:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(place):
        there = {each.id: each for each in announced(place)}
        for each in there.values():
            if each.scheduler_id == service.scheduler_id:
                new = [kernel for kernel in service.kernels if kernel not in each.kernels]
                kernels = (*each.kernels, *new)[-MOST_KERNELS:]
                joined = replace(each, dashboard=service.dashboard, token=service.token, kernels=kernels)
                if joined != each:
                    _write(place, joined)
                _remove_kernels(place, there.values(), service.kernels, stays=each.id)
                return joined
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", service.name).strip("-_")[:60].strip("-_") or "lab"
        # The id of a service that has ended is reused, so that a restarted kernel keeps its entry in the sidebar.
        ids = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        id = next(id for id in ids if id not in there or _is_over(there[id], service))
        service = replace(service, id=id)
        _write(place, service)
        _remove_kernels(place, there.values(), service.kernels, stays=id)
        return service


def _remove_kernels(
    place: Path, services: Iterable[Announcement], kernels: Collection[str], *, stays: str = ""
) -> None:
    """Remove kernels from the services that they used before their last lab connected to another one."""
    for each in services:
        left = tuple(kernel for kernel in each.kernels if kernel not in kernels)
        if each.id != stays and left != each.kernels:
            _write(place, replace(each, kernels=left))


def _is_over(old: Announcement, new: Announcement) -> bool:
    """Return whether a new service may take an old one's id, which has ended or is the same before a restart."""
    if old.ended or (old.scheduler, old.host) == (new.scheduler, new.host):
        return True
    at = urlsplit(old.scheduler)
    if old.embedded or old.host != new.host or at.hostname not in _LOOPBACK:
        return False  # from here nobody can tell whether it lives
    try:
        socket.create_connection((at.hostname, at.port or 0), timeout=PATIENCE).close()
    except OSError:
        return True
    return False


def _path(place: Path, id: str) -> Path:
    return place / f"dq-{id}.json"


def _write(place: Path, service: Announcement) -> None:
    unfinished = place / f".dq-{service.id}.{os.getpid()}.tmp"
    # Written aside and renamed, so that no reader finds half a file. A killed process with this pid may have left one.
    unfinished.unlink(missing_ok=True)
    _create(unfinished, service)
    unfinished.replace(_path(place, service.id))


def _create(path: Path, record: _Written) -> None:
    """Write a new file, readable only by its user, or raise `FileExistsError` if there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(record), file, indent=1)


_Record = TypeVar("_Record", bound=_Written)


def _read(path: Path, kind: type[_Record]) -> _Record | None:
    """Return the record in a file, or None where it is not ours or others could have written it."""
    try:
        # The file names an address to connect to and a token, so only a private file of this user counts. A link is not
        # followed, and a pipe does not block. Checks and reads share one descriptor: the path may change in between.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            about = os.fstat(descriptor)
            if about.st_uid != os.geteuid() or about.st_mode & 0o077 or not stat.S_ISREG(about.st_mode):
                return None
            found = json.loads(os.read(descriptor, LARGEST))
        finally:
            os.close(descriptor)
    except (OSError, ValueError, RecursionError):
        return None
    hints = get_type_hints(kind)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    if not all(name in found and _has_type(found[name], each) for name, each in hints.items()):
        return None
    given: dict[str, Any] = {
        name: tuple(found[name]) if isinstance(found[name], list) else found[name] for name in hints
    }
    return kind(**given)


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a value from JSON has its field's type, where a list stands for a tuple of texts."""
    if get_origin(hint) is tuple:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, int | float if hint is float else hint)


def _announcement(path: Path) -> Announcement | None:
    """Return the service of a file whose name is its id, and whose dashboard a browser can be sent to."""
    service = _read(path, Announcement)
    if service is None or not _ID.fullmatch(service.id) or _path(path.parent, service.id) != path:
        return None
    # A browser is sent to this address: one with a user, a path or a query could pretend to be another page.
    at = urlsplit(service.dashboard)
    if at.scheme not in ("http", "https") or not at.hostname or at.username or at.path.strip("/") or at.query:
        return None
    return service


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Keep other processes from choosing ids during the block, as far as the lock is free soon."""
    descriptor = os.open(place / ".dq-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # A stopped process may hold the lock for hours: without it one id may be given twice, waiting blocks `connect`.
        for _ in range(TRIES):
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(BETWEEN)
        yield
    finally:
        os.close(descriptor)


def _in_use(name: str, pid: int, address: str, store: str, suggestion: str) -> UsageError:
    return UsageError(
        reason=f"cluster {name!r} of `dqlab up` runs already, in process {pid} at {address}, {store}. Nothing was "
        f"started. Give this one another name, `dqlab up --name {suggestion}`, or end the other with Ctrl-C or `kill "
        f"{pid}`."
    )
