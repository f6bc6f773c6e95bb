"""`connect`: a lab on a running cluster, or on one that is started on this machine."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from dqlab.checkup.checks import unusable
from dqlab.checkup.facts import from_answer
from dqlab.cluster.transport.internals import (
    OwnClient,
    Undisturbed,
    dask_version_through,
    scheduler_rpc,
    with_event_loop,
)
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.protocol import check_dask
from dqlab.clusters_here import LOCAL, Registration, find, keeper_of, way_to
from dqlab.config import check_directory, seconds
from dqlab.errors import BadOption, ConnectFailed, DqlabWarning, UsageError
from dqlab.errors.rendering import interruptible
from dqlab.hpc.recipes import Recipe
from dqlab.hpc.systems import system_of
from dqlab.keywords import check_call, nearest
from dqlab.lab import Lab, describe_workers
from dqlab.notebook import in_jupyter
from dqlab.numbers import few_of, many
from dqlab.runs.run import Run
from dqlab.runs.session import result_limit
from dqlab.store.probe import Marker, Probe, probe
from dqlab.user_frames import level_of_user
from dqlab.waits import shown, step

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

    from dqlab.cluster.embedded.cluster import Nursery

T = TypeVar("T")

CONNECT_TIMEOUT = 5.0
SHORTEST, LOOK_EVERY = 0.5, 0.1
"""Seconds to try to reach a scheduler whose file appeared late, and between two checks for that file."""
CLOSING = 1.0
"""Seconds that closing the connection to a scheduler may take, whether or not the scheduler greeted."""
INSTALLING = "preparing it and its workers"
SILENT = "nothing answers there: a stopped scheduler, or a machine out of reach?"
STORE_TIMEOUT = 5.0
"""Seconds for a worker to look at a store; one that does not answer in that time is skipped."""
JOBS_TIMEOUT = 60.0
"""Seconds to wait for the first worker of a batch system."""
SPREAD = (
    "the workers of this cluster run on several machines, and each queue has its messages on the machine of its "
    "worker: a machine that is lost takes them along. With dq.connect(..., store=DIRECTORY), in a directory that all "
    "machines see, nothing confirmed is lost then."
)
NEEDED = (
    "distributed.worker",
    "dqlab.checkup.examine",
    "dqlab.cluster.consumer.actor",
    "dqlab.cluster.shard.actor",
    "dqlab.cluster.worker.plugin",
)
"""Modules that every worker needs: imported once, before they are forked."""
_NOT_CONNECTED = "not connected; what was started for it has ended. The same line connects again."
RESERVED = "0"
"""Name of the worker that only hosts queues, in a cluster that was started here."""


class StoreHeld(ConnectFailed):
    """Another process of this machine has the store open on a cluster of its own."""

    text = (
        "{way}. Nothing was started here: a second cluster could not open them. That cluster ends "
        "with its process; to have the queues on one of your own, close the lab there first."
    )


_open: dict[Any, Lab] = {}
_turns: WeakValueDictionary[Any, threading.RLock] = WeakValueDictionary()
"""One lock for each target: callers with the same target wait for the same lab, other targets are not blocked."""
_lock = threading.Lock()
"""Guards `_open` and `_turns`, and is never held across a wait; a turn is taken without it."""


def connect(
    target: Any = None,
    *,
    n: int | None = None,
    scheduler_file: str | os.PathLike[str] | None = None,
    name: str | None = None,
    store: str | os.PathLike[str] | None = None,
    timeout: float | str | None = None,
) -> Lab:
    """Connect to a cluster, or start one on this machine.

    If you call it again with the same arguments while the lab is open, it returns the same lab. If that lab's scheduler
    is gone, or no worker of the cluster that it started is left, it closes the lab and starts again.

    Parameters
    ----------
    target : Client, Cluster, Recipe, str or None
        A Dask client, a Dask cluster, a recipe of `dqlab.hpc` for a cluster on a batch system that ends with the lab, a
        scheduler's address, "local" for a cluster that `dqlab up` keeps on this machine, or nothing for a cluster of
        processes on this machine that lives as long as this process.
    n : int, optional
        Consumer processes of a cluster on this machine. Default: the number of CPUs.
    scheduler_file : path, optional
        A Dask scheduler file, instead of an address.
    name : str, optional
        The name that views show for this lab; with "local" the name given to `dqlab up`, needed if several run.
    store : path, optional
        A directory, created if missing. Queues made by this lab are durable in it: open them again by name, in another
        process too, and they have their messages, runs and results. All workers must be able to reach it. With "local"
        it is the store of `dqlab up`, and can be omitted.
    timeout : float or str, optional
        How long to try to reach a scheduler, or to wait for its file, above zero, by default 5 s; or to wait for the
        first worker on a batch system, 60 s.

    Returns
    -------
    Lab

    Raises
    ------
    ConnectFailed
        No scheduler answers there. `NoLocalCluster`: no cluster of `dqlab up` runs. `StoreHeld`: another process
        of this machine has `store` open on a cluster of its own; the error has the line that connects to it.
    UsageError
        "local", and more than one runs.
    VersionMismatch
        The cluster runs another dqlab, or a Dask older than dqlab needs.
    JobsPending, JobsDied, SubmitFailed, UsageError
        A cluster on a batch system has no worker yet, or cannot have one; see `dqlab.hpc`.
    BadOption
        `target` is none of these, options contradict each other, also those of the configuration; or
        queues cannot be kept in `store`: this machine or the workers cannot write there, its file system has no locks,
        or the workers see another directory.
    """
    if target is not None and n is not None:
        raise BadOption(option="n", value=n, problem="is only for a cluster that connect() starts; leave target out.")
    if n is not None and (not isinstance(n, int) or n < 1):
        raise BadOption(option="n", value=n, problem="must be a number of processes, at least 1.")
    limit = None if timeout is None else _limit(timeout)
    with interruptible(_NOT_CONNECTED), shown("connecting"):
        return _connect(target, n, scheduler_file, name, store, limit)


def _limit(timeout: float | str) -> float:
    """Return how long to try, in seconds."""
    limit = seconds(timeout, name="timeout")
    if limit <= 0:
        raise BadOption(
            option="timeout",
            value=timeout,
            problem="must be above zero: nothing answers in no time. Nothing was started. Leave it out for 5 s.",
        )
    return limit


def _connect(
    target: Any,
    n: int | None,
    scheduler_file: str | os.PathLike[str] | None,
    name: str | None,
    store: str | os.PathLike[str] | None,
    limit: float | None,
) -> Lab:
    if isinstance(target, Recipe) and not isinstance(name, str):
        name = target.kind
    path = str(Path(scheduler_file).expanduser()) if scheduler_file is not None else None
    target, directory = _resolved(target, name, store)
    result_limit()  # raises for a bad configuration before anything is started
    key = _key(target, n, path, name, directory)
    # A turn leaves out name and store: two labs of one target are made one after the other. The dictionary is weak, so
    # this frame keeps the lock alive.
    with _lock:
        turn = _turns.setdefault(_key(target, n, path), threading.RLock())
    with turn:
        lab = _open_lab(key)
        if lab is not None and lab.ended:
            lab.close()
            lab = None
        if lab is None:
            keeper = keeper_of(directory) if target is None and path is None and directory is not None else None
            if keeper is not None and keeper.embedded and keeper.is_here:
                raise StoreHeld(way=way_to(keeper), store=str(directory), address=keeper.scheduler)
            if target is None and path is None and directory is not None:
                check_store_here(directory)
            lab = _make(target, n, path, name, limit, directory)
            try:
                lab.keep_in(directory)
                if directory is None and lab.session.spread:
                    warnings.warn(SPREAD, DqlabWarning, stacklevel=level_of_user())
                lab.session.link.again = _call_again(target, n, path, name, directory)
                with _lock:
                    _open[key] = lab
                lab.announce()
                if in_jupyter() and keeper is None and lab.embedded:
                    # For its sidebar. On a cluster that others use, this lab would keep open what they close.
                    lab.list_stored()
            except BaseException:  # Ctrl-C too: nothing else holds it
                lab.close()
                raise
        return lab


def map(fn: Callable[[Any], Any], documents: Iterable[Any], **options: Any) -> Run:
    """Map a function over documents on the lab that is open in this process, or on one that this call opens.

    The lab that it opens is that of ``dq.connect()``, a cluster on this machine that lives as long as this process; a
    line tells of it, once. Later calls use it too.

    Parameters
    ----------
    fn : callable
        Takes one argument: the document, or the element itself.
    documents : iterable
        What to map it over.
    **options
        Those of `Lab.map`, which has the details.

    Returns
    -------
    Run

    Raises
    ------
    UsageError
        Several labs are open in this process. Nothing was submitted.
    TypeError
        An option does not exist; a TypeError. Nothing was submitted.

    Examples
    --------
    >>> run = dq.map(len, ["a", "bb", "ccc"])  # doctest: +SKIP
    >>> list(run.results())  # doctest: +SKIP
    [1, 2, 3]
    """
    check_call(_SIGNATURE, fn, documents, **options)  # before a cluster is started for a misspelt one
    return _lab_to_map_on().map(fn, documents, **options)


_opened_by_map: WeakSet[Lab] = WeakSet()
_SIGNATURE = inspect.signature(Lab.map)
_SIGNATURE = _SIGNATURE.replace(parameters=[*_SIGNATURE.parameters.values()][1:])
vars(map)["__signature__"] = _SIGNATURE  # for completion


def _lab_to_map_on() -> Lab:
    """Return the open lab of this process, or open one and tell of it."""
    labs = _open_labs()
    if len(labs) > 1:
        named = few_of([repr(lab.name) for lab in labs])
        raise UsageError(reason=f"several labs are open: {named}. Say which, as lab.map(...). Nothing was submitted.")
    if labs:
        return labs[0]
    lab = connect()
    _opened_by_map.add(lab)
    workers = describe_workers(lab, lab.stats().workers)
    said = f"dq.map opened a lab on this machine, with {workers}; dashboard {lab.panel()}"
    (sys.stdout if in_jupyter() else sys.stderr).write(f"{said}. lab = dq.connect() is this lab.\n")
    return lab


def opened_by_map() -> Lab | None:
    """Return the lab that `map` has opened, if it is still open."""
    return next((lab for lab in _opened_by_map if not lab.closed), None)


def opened(
    target: Any = None,
    *,
    n: int | None = None,
    name: str | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Lab | None:
    """Return the open lab that `connect` made with these arguments, or None where there is none."""
    target, directory = _resolved(target, name, store)
    if isinstance(target, Recipe) and name is None:
        name = target.kind
    return _open_lab(_key(target, n, None, name, directory))


def start_cluster(n: int, *, port: int | None = None, nursery: Nursery | None = None) -> LocalCluster:
    """Start a scheduler in this process, `n` processes of one thread for consumers, and one process for queues."""
    import dask

    from dqlab.cluster.embedded.cluster import EmbeddedCluster

    # Dask's sampling profiler wakes every process a hundred times a second to look at Dask's tasks, and there are none.
    # Without a `port` all listen on sockets that only this user reaches; with one (0: any free one), every user can.
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        return with_event_loop(
            lambda: EmbeddedCluster(n + 1, port=port, preload=["dqlab.preload"], modules=NEEDED, nursery=nursery)
        )


def _resolved(target: Any, name: str | None, store: str | os.PathLike[str] | None) -> tuple[Any, Path | None]:
    """Return the cluster that "local" refers to, or the target as it is, and the directory of the store."""
    directory = None if store is None else check_directory(store)
    if not (isinstance(target, str) and target == LOCAL):
        return target, directory
    found = find(name)
    found.check_store(directory)
    return found, Path(found.store) if found.store is not None else None


def _key(target: Any, *others: Any) -> tuple[Any, ...]:
    # Clients and clusters are compared by identity: they need not be hashable. The open lab keeps its object alive.
    return (target if isinstance(target, str | Registration | Recipe | None) else id(target), *others)


def _call_again(target: Any, n: int | None, path: str | None, name: str | None, directory: Path | None) -> str:
    """Return the call that finds the same lab while it is open, and its runs from another process, or "" for none."""
    if target is None and path is None and directory is None:
        return ""  # its queues end with this process
    if target is not None and not isinstance(target, str | Registration):
        return ""  # an object of this process
    of = None if target is None else LOCAL if isinstance(target, Registration) else target
    given = {"n": n, "scheduler_file": path, "name": name, "store": None if directory is None else str(directory)}
    if isinstance(target, Registration):
        given["store"] = None  # it is found with the cluster
    words = [*([] if of is None else [repr(of)]), *(f"{key}={value!r}" for key, value in given.items() if value)]
    return f"dq.connect({', '.join(words)})"


def _open_labs() -> list[Lab]:
    with _lock:
        labs = {id(lab): lab for lab in _open.values()}
    return [lab for lab in labs.values() if not lab.ended]


def _open_lab(key: tuple[Any, ...]) -> Lab | None:
    with _lock:
        # A closed lab would keep its client and cluster alive, and an id() that a new object may have.
        for closed in [key for key, lab in _open.items() if lab.closed]:
            del _open[closed]
        lab = _open.get(key)
    if lab is not None and not lab.session.link.here:
        lab.session.link.check_open()  # raises: this process is a fork, and the connection is its parent's
    return lab


def _make(
    target: Any,
    n: int | None,
    scheduler_file: str | None,
    name: str | None,
    limit: float | None,
    store: Path | None,
) -> Lab:
    from distributed import Client, LocalCluster
    from distributed.deploy.cluster import Cluster

    timeout = CONNECT_TIMEOUT if limit is None else limit
    if isinstance(target, Recipe) or system_of(getattr(target, "cluster", target)) is not None:
        return _on_batch_system(target, name, JOBS_TIMEOUT if limit is None else limit, store)
    made_here = target.cluster if isinstance(target, Client) else target
    if isinstance(made_here, LocalCluster):
        from dqlab.cluster.embedded.cluster import tend_workers

        tend_workers(made_here)
    if isinstance(target, Client):
        return _with_store_checked(_lab_of(target, name=name), store)
    if isinstance(target, Cluster):
        return _with_store_checked(_lab_of(_client(target), name=name, own_client=True), store)
    if isinstance(target, Registration):
        client = _reach(target.scheduler, None, timeout, f"which `dqlab up` has in process {target.pid}")
        lab = _lab_of(client, name=target.name, own_client=True, reserved=(target.reserved,))
        lab.session.link.up = target.command, target.call
        return lab
    if isinstance(target, str):
        _check_form(target)
    if scheduler_file is not None or isinstance(target, str):
        return _with_store_checked(
            _lab_of(_reach(target, scheduler_file, timeout), name=name, own_client=True),
            store,
        )
    if target is not None:
        problem = "is not a Client, a Cluster, 'local' or an address such as 'tcp://10.0.0.1:8786'."
        if isinstance(target, int) and not isinstance(target, bool) and target > 0:
            problem += f" For {many(target, 'process')} on this machine: dq.connect(n={target})."
        raise BadOption(option="target", value=target, problem=problem)
    return embedded_lab(n or os.cpu_count() or 1, name=name)


def _lab_of(client: Client, *, own_client: bool = False, **given: Any) -> Lab:
    """Return a client's lab, and on failure close a client that was made for it."""
    step(f"the scheduler answers; {INSTALLING}")
    try:
        return Lab(client, own_client=own_client, **given)
    except BaseException:  # Ctrl-C too
        if own_client:
            client.close()
        raise


def _with_store_checked(lab: Lab, store: Path | None, *, seen_here: bool = False) -> Lab:
    """Return a lab whose workers can use the store, or close it and raise."""
    if store is not None:
        step(f"checking that the workers reach the store {store}")
        try:
            _check_store(lab.session.link, store, seen_here=seen_here)
        except BaseException:
            lab.close()
            raise
    return lab


def _on_batch_system(target: Any, name: str | None, timeout: float, store: Path | None) -> Lab:
    """Wait for the first worker and return a lab whose workers see the same store."""
    from dqlab.hpc.clusters import arrived, await_worker, waited_for

    step(f"waiting for the first worker of the batch system, {timeout:g} s at most")
    if isinstance(target, Recipe):
        with waited_for(target) as cluster:
            await_worker(cluster, timeout, owned=True)
            lab = _lab_of_jobs(cluster, name, store, owned=True, grows=target.jobs[1] > 2)
            arrived(target)
            return lab
    cluster = getattr(target, "cluster", target)
    await_worker(cluster, timeout, owned=False)
    return _lab_of_jobs(target, name, store)


def _lab_of_jobs(target: Any, name: str | None, store: Path | None, *, owned: bool = False, grows: bool = False) -> Lab:
    """Return the lab of a client or a cluster, and on failure close only a client that was made here."""
    from distributed import Client

    own = not isinstance(target, Client)
    given = {"cluster": target if owned else None, "grows": grows, "batch": True}
    given["shared"] = getattr(getattr(target, "cluster", target), "shared_directory", "")
    lab = _lab_of(_client(target) if own else target, name=name, own_client=own, **given)
    return _with_store_checked(lab, store, seen_here=True)


def _check_form(address: str) -> None:
    """Raise `ConnectFailed` for a text without protocol or port."""
    if ":" not in address:
        reason = "that is no address, which has the form 'tcp://HOST:PORT', 'tls://HOST:PORT' or 'HOST:PORT'"
        if nearest(address.strip(), [LOCAL]):
            reason += f"; did you mean {LOCAL!r}, for a cluster of `dqlab up`?"
        raise ConnectFailed(address=address, reason=reason)


def _reach(address: str | None, scheduler_file: str | None, timeout: float, what: str = "") -> Client:
    """Return a client of the scheduler at an address."""
    from dqlab.cluster.embedded.sockets import missing, register

    register()
    gone = missing(address) if address is not None else ""
    if address is not None and gone:
        # The folder of an embedded cluster has a random name, so no other cluster can appear there.
        raise ConnectFailed(address=address, reason=gone)
    step(
        f"waiting for the scheduler {f'that {scheduler_file} names' if scheduler_file is not None else f'at {address}'}"
    )
    until = time.monotonic() + timeout
    if scheduler_file is not None:
        address = _address_in(Path(scheduler_file), timeout)
        what = f"as {scheduler_file} has it. Is that file of an earlier scheduler?"
    try:
        if address is not None:
            _await_greeting(address, max(SHORTEST, until - time.monotonic()))
        return _client(address, timeout=max(SHORTEST, until - time.monotonic()))
    except (OSError, ValueError) as error:
        reason = ", ".join(filter(None, (_why(error), what)))
        raise ConnectFailed(address=address, reason=f"tried for {timeout:g} s at most; {reason}") from error


def _why(error: BaseException) -> str:
    """Return in words why no connection was made."""
    cause = _cause(error)
    said = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
    if isinstance(cause, TimeoutError):
        return said if str(cause) else SILENT
    if isinstance(cause, ConnectionRefusedError):
        return f"nothing listens there, the connection was refused ({said})"
    return f"its name could not be looked up: {cause.strerror}" if isinstance(cause, socket.gaierror) else said


def _cause(error: BaseException) -> BaseException:
    """Return the first error of a chain: Dask's own errors name only the seconds."""
    return error if error.__cause__ is None else _cause(error.__cause__)


def _await_greeting(address: str, timeout: float) -> None:
    """Wait until a scheduler has greeted and its Dask is new enough, or raise why not after `timeout`."""
    from distributed.comm.addressing import parse_address
    from distributed.comm.core import connect as greet
    from distributed.comm.registry import get_backend
    from distributed.security import Security

    # A Dask client waits for the greeting without end, and Ctrl-C does not stop it. A client of 2026 dies of a
    # TypeError at a scheduler of 2025.1, and then keeps its process from ending for a minute: so versions are compared
    # first.
    async def ask() -> None:
        try:
            async with asyncio.timeout(timeout + SHORTEST):  # Dask's own error comes first: it has the reason
                arguments = Security().get_connection_args("client")
                try:
                    comm = await greet(address, timeout=timeout, **arguments)
                except OSError as error:
                    if not isinstance(_cause(error), asyncio.CancelledError):
                        raise
                    # Dask's last attempt had no time left, and its reason is lost: one more attempt has it.
                    scheme, place = parse_address(address)
                    (await get_backend(scheme).get_connector().connect(place, **arguments)).abort()
                    raise
                try:
                    found = await dask_version_through(comm)
                finally:
                    comm.abort()
        except TimeoutError:
            raise TimeoutError(SILENT) from None
        check_dask(f"the scheduler at {address}", found)

    # In a thread: a notebook calls this from a thread whose event loop runs already.
    greeting = Undisturbed(lambda: asyncio.run(ask()), "dqlab-greet")
    answered = greeting.outcome
    greeting.start()
    try:
        answered.result(timeout + CLOSING)
    except TimeoutError as error:
        if answered.done():  # it has this error itself, or has just ended
            answered.result()
            return
        # The lookup of a host's name continues in a thread that nothing can end, and the event loop waits for it.
        raise TimeoutError("looking up its name takes longer") from error


def _address_in(file: Path, timeout: float) -> str:
    """Return the address that a scheduler writes into a file, and wait until it is there."""
    until = time.monotonic() + timeout
    while True:  # Dask's own `scheduler_file=` waits without end
        try:
            return str(json.loads(file.read_text())["address"])
        except FileNotFoundError:
            reason = "there is no such file: does the scheduler's job wait still, is this its path as seen from here?"
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"no scheduler's address can be read from that file: {error}"
        if time.monotonic() >= until:
            raise ConnectFailed(address=str(file), reason=reason)
        time.sleep(LOOK_EVERY)


def embedded_lab(n: int, *, name: str | None, port: int | None = None) -> Lab:
    """Start a cluster that ends with its lab, with the parameters of `start_cluster`."""
    from dqlab.cluster.embedded.cluster import Nursery

    nursery = Nursery()

    def make() -> Lab:
        step(f"starting a scheduler and {many(n + 1, 'worker')}")
        cluster = start_cluster(n, port=port, nursery=nursery)
        try:
            return _lab_of(OwnClient(cluster), name=name, own_client=True, cluster=cluster, reserved=(RESERVED,))
        except BaseException:
            cluster.close()
            raise

    return _undisturbed(make, lambda lab: lab.close(), nursery.abandon)


def _client(target: Any, **given: Any) -> Client:
    """Return a client of its own for this process, unlike Dask's default one."""
    return _undisturbed(lambda: with_event_loop(lambda: OwnClient(target, **given)), OwnClient.close)


def _undisturbed(make: Callable[[], T], undo: Callable[[T], None], hurry: Callable[[], None] | None = None) -> T:
    """Return what `make` returns, but when interrupted `hurry` it and undo it before the interrupt goes on."""

    # Ctrl-C reaches the main thread only, so `make` runs in another one. Dask's waits, when interrupted, leave behind
    # what they began: processes, threads, and tasks whose errors Python then prints.
    def clear(made: Future[T]) -> None:
        if made.exception() is None:
            undo(made.result())

    thread = Undisturbed(make, "dqlab-connect")
    made = thread.outcome
    try:
        thread.start()
        return made.result()
    except BaseException:
        if not (made.done() and made.exception() is not None):
            made.add_done_callback(clear)
            if hurry is not None:
                hurry()
            if thread.ident is not None:
                thread.join()
        raise


def check_store_here(store: Path) -> None:
    """Raise `BadOption` where a cluster here could not keep queues in a directory, and change nothing in it."""
    seen = probe(store)
    full = seen.made and not seen.error and not seen.writable and not seen.free  # its runs can be read, and dropped
    if (reason := unusable("this process", str(store), seen)) and not full:
        steps = "Name a directory that you may write to, as store='runs/'"
        raise BadOption(option="store", value=str(store), problem=f"{reason}. Nothing was started. {steps}.")


def _check_store(link: Link, store: Path, *, seen_here: bool) -> None:
    """Make one worker that may host queues check a store, and raise `BadOption` if it cannot keep queues there."""
    # A client on another machine needs no such directory; where it has one, it must be the workers' own. The marker is
    # a file that the worker must see.
    if seen_here or store.is_dir():
        with Marker(store) as marker:
            found = _seen_by_worker(link, store, marker.path)
    else:
        found = _seen_by_worker(link, store, "")
    if found is None:
        return  # without a worker nothing is known, and queues fail later with their own error
    worker, probe = found
    if reason := unusable("it", str(store), probe):
        problem = (
            f"cannot be used by worker {worker}: {reason}. No queue was opened. Name a directory that this machine "
            "and the nodes share, often under /scratch or the home directory."
        )
        raise BadOption(option="store", value=str(store), problem=problem)


def _seen_by_worker(link: Link, store: Path, marker: str) -> tuple[str, Probe] | None:
    with suppress(Exception):  # the worker hangs or left: queues open elsewhere, or fail with their own error
        return link.sync(_ask_worker(link, store, marker), timeout=STORE_TIMEOUT)
    return None


async def _ask_worker(link: Link, store: Path, marker: str) -> tuple[str, Probe] | None:
    """Return the address of one worker, and what it sees of a store."""
    # Through the scheduler, to which a connection exists already.
    scheduler = scheduler_rpc(link.client)
    overview: dict[str, Any] = await scheduler.dq_overview()
    hosts: list[str] = overview["registry"]["hosts"]
    if not hosts:
        return None
    asked = {"op": "dq_vitals", "stores": [[str(store), marker]], "limit": STORE_TIMEOUT / 2}
    said: dict[str, Any] | None = await scheduler.proxy(worker=hosts[0], msg=asked)
    if said is None:  # the worker has just joined and does not have our handlers yet
        return None
    return hosts[0], from_answer(Probe, said["stores"][0])
