"""`connect` and `Lab`: where everything begins."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dqlab.cluster.registry import NoWorkers
from dqlab.config import option, seconds
from dqlab.errors import BadOption, CallTimeout, ConnectFailed, DqlabError, UsageError, WorkersGone
from dqlab.log import OwnerStillAlive
from dqlab.queue.retry import Retry
from dqlab.runs.keywords import checks_keywords
from dqlab.runs.pool import OnExisting, QueuePool
from dqlab.runs.run import Run
from dqlab.runs.session import Durability, Session
from dqlab.stats import Snapshot
from dqlab.store.compaction import Compacted

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Lab", "connect", "opened"]

CONNECT_TIMEOUT = 5.0
LOOK_TIMEOUT = 2.0
"""Seconds to wait for an answer when a lab is only looked at."""
_open: dict[Any, Lab] = {}
_lock = threading.RLock()


@checks_keywords
def connect(
    target: Any = None,
    *,
    n: int | None = None,
    scheduler_file: str | os.PathLike[str] | None = None,
    name: str | None = None,
    store: str | os.PathLike[str] | None = None,
    timeout: float | str = CONNECT_TIMEOUT,
) -> Lab:
    """Connect to a cluster, or start one on this machine.

    Called again with the same arguments while the lab is open, it returns the same lab; when that lab's
    scheduler is gone, or no worker of the cluster that it started is left, it closes that one and begins anew.

    Parameters
    ----------
    target : Client, Cluster, str or None
        A Dask client, a Dask cluster, a scheduler's address, or nothing for a cluster of processes on
        this machine that lives as long as this process.
    n : int, optional
        Consumer processes of a cluster on this machine. Default: the number of CPUs.
    scheduler_file : path, optional
        A Dask scheduler file, instead of an address.
    name : str, optional
        What views call this lab.
    store : path, optional
        A directory, made if there is none. Queues made by this lab are durable in it: opened again by name, in
        another process too, they have their messages, runs and results. All workers must be able to reach it.
    timeout : float or str, default 5 s
        How long to try to reach a scheduler.

    Returns
    -------
    Lab

    Raises
    ------
    ConnectFailed
        Nobody answers there.
    VersionMismatch
        The cluster runs another dqlab.
    BadOption
        `target` is none of these, or options contradict each other.
    """
    if target is not None and n is not None:
        raise BadOption(option="n", value=n, problem="is only for a cluster on this machine; leave target out.")
    if n is not None and (not isinstance(n, int) or n < 1):
        raise BadOption(option="n", value=n, problem="is a number of processes, at least 1.")
    limit = seconds(timeout, name="timeout")
    path = os.fspath(scheduler_file) if scheduler_file is not None else None
    directory = None if store is None else Path(store).expanduser().resolve()
    with _lock:
        lab = opened(target, n=n, scheduler_file=path, name=name, store=directory)
        if lab is not None and lab.ended:
            lab.close()
            lab = None
        if lab is None:
            lab = _open[_key(target, n, path, name, directory)] = _make(target, n, path, name, limit)
            lab.keep_in(directory)
        return lab


def opened(
    target: Any = None,
    *,
    n: int | None = None,
    scheduler_file: str | None = None,
    name: str | None = None,
    store: Path | None = None,
) -> Lab | None:
    """Return the open lab that `connect` made with these arguments, if there is one."""
    lab = _open.get(_key(target, n, scheduler_file, name, store))
    return lab if lab is not None and not lab.closed else None


def _key(target: Any, *others: Any) -> tuple[Any, ...]:
    return (target if isinstance(target, str | None) else id(target), *others)


def _make(target: Any, n: int | None, scheduler_file: str | None, name: str | None, timeout: float) -> Lab:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

    if isinstance(target, Client):
        return Lab(target, name=name)
    if isinstance(target, Cluster):
        return Lab(Client(target, set_as_default=False), name=name, own_client=True)
    if scheduler_file is not None or isinstance(target, str):
        address = target if target is not None else scheduler_file
        try:
            client = Client(target, scheduler_file=scheduler_file, timeout=timeout, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ConnectFailed(address=address, seconds=timeout, reason=reason) from error
        return Lab(client, name=name, own_client=True)
    if target is not None:
        problem = "is not a Client, a Cluster or an address such as 'tcp://10.0.0.1:8786'."
        raise BadOption(option="target", value=target, problem=problem)
    return _embedded(n or os.cpu_count() or 1, name)


def _embedded(n: int, name: str | None) -> Lab:
    """Start `n` consumer processes of one thread, and one process more for queues."""
    from distributed import Client, LocalCluster

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            reason="dq.connect() ran while a worker process imported this script, and would start workers without "
            "end. Nothing was started. Put the script's work under: if __name__ == '__main__':"
        )
    cluster = LocalCluster(
        n_workers=n + 1, threads_per_worker=1, dashboard_address="127.0.0.1:0", preload=["dqlab.preload"]
    )
    client = Client(cluster, set_as_default=False)
    return Lab(client, name=name, own_client=True, cluster=cluster, reserved=("0",))


class Lab:
    """A connection to one cluster: its queues, its runs. Made by `connect`.

    Attributes
    ----------
    name : str
    client : Client
        The Dask client it uses.
    store : Path or None
        Where its queues are kept; None: they are transient.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str | None = None,
        own_client: bool = False,
        cluster: Any = None,
        reserved: tuple[str, ...] = (),
    ) -> None:
        self.client = client
        self.name = name or ("local" if cluster is not None else str(getattr(client.scheduler, "address", "cluster")))
        self._own_client, self._cluster, self._reserved = own_client, cluster, len(reserved)
        self.session = Session.of(client, reserved, self.name)
        if own_client:
            self.session.link.lab, self.session.link.embedded = self.name, cluster is not None
        self.closed = False
        self.store: Path | None = None

    def keep_in(self, store: Path | None) -> None:
        """Make queues durable in a directory from now on; with None, transient."""
        self.store = store
        self.session.runs.open_stored = self._open_stored

    def __repr__(self) -> str:
        if self.closed:
            return f"<Lab {self.name!r}: closed; dq.connect() opens one>"
        return f"<Lab {self.name!r} at {self.session.link.address}: {self._about()}>"

    def _about(self) -> str:
        try:
            workers = self._workers()
        except DqlabError:
            return "no answer; dq.connect() tries again"
        if workers == 0:
            return "no worker is left; dq.connect() starts new ones" if self.embedded else "no worker has come yet"
        held, what = workers - self._reserved, "consumer process" if self.embedded else "worker"
        plural = "" if held == 1 else "es" if self.embedded else "s"
        steps = "next: lab.map(function, documents), or %%dq submit --over documents"
        return f"{held} {what}{plural}, dashboard {self.dashboard}; {steps}"

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def dashboard(self) -> str:
        """Address of Dask's own dashboard."""
        return str(self.client.dashboard_link)

    @property
    def embedded(self) -> bool:
        """Whether this lab started its cluster, which then ends with it."""
        return self._cluster is not None

    @property
    def ended(self) -> bool:
        """Whether nothing can be done with it any more: closed, its scheduler gone, or its own workers all gone."""
        try:
            return self._workers() == 0 and self.embedded
        except CallTimeout:
            return not self.session.link.connected  # else it is only busy
        except DqlabError:
            return True

    @property
    def runs(self) -> list[Run]:
        """Runs this lab has made or attached to, oldest first."""
        return list(self.session.runs)

    @property
    def queues(self) -> list[QueuePool]:
        """Queues this lab has open."""
        return list(self.session.pools.values())

    @checks_keywords
    def queue(
        self,
        name: str = "default",
        n_queues: int = 1,
        *,
        durable: bool | None = None,
        visibility_timeout: float | str | None = None,
        max_deliveries: int | None = None,
        retry: bool | Retry | None = None,
        maxsize: int | Literal["auto"] | None = "auto",
        max_bytes: int | str | None = None,
        served: bool = True,
        early_ack: bool = False,
        concurrency: int = 100,
    ) -> QueuePool:
        """Open a queue, or return the open one of that name.

        Options count when the queue is made; a queue that is open already keeps its own. One whose worker has
        died is made anew.

        Parameters
        ----------
        name : str
        durable : bool, optional
            Kept in this lab's store. Default: yes, if it has one.
        maxsize : int, "auto" or None
            Most messages in one lane. "auto": what the configuration says, 100,000 by default. None: no limit.
        n_queues, visibility_timeout, max_deliveries, retry, max_bytes, served, early_ack, concurrency
            See `QueuePool`.

        Raises
        ------
        LabClosed, WorkersGone
            There is nowhere to open it.
        BadOption
            It is to be durable, and the lab has no store.
        LogError
            A durable queue cannot be opened; its subclasses say why, and what to do.
        """
        self._check_open()
        if durable and self.store is None:
            problem = "needs a lab with a store: dq.connect(store='runs/')."
            raise BadOption(option="durable", value=durable, problem=problem)
        kept = self.store is not None and durable is not False
        known = self.session.pools.get(name)
        if known is not None:
            if not known.gone:
                return known
            known.close(force=True)
        try:
            return QueuePool(
                self.client,
                n_queues,
                Durability.DURABLE if kept else Durability.TRANSIENT,
                dirpath=self.store if kept else None,
                retry=retry,
                name=name,
                visibility_timeout=visibility_timeout,
                max_deliveries=max_deliveries,
                maxsize=option("queue.maxsize") if maxsize == "auto" else maxsize,
                max_bytes=max_bytes,
                served=served,
                early_ack=early_ack,
                concurrency=concurrency,
            )
        except NoWorkers:
            if not self.embedded:
                raise
            raise WorkersGone(lab=self.name) from None

    @checks_keywords
    def map(
        self,
        fn: Callable[[Any], Any],
        documents: Iterable[Any],
        *,
        name: str | None = None,
        on_existing: OnExisting = "attach",
        retry: Retry | None = None,
        consumers: Literal["auto"] | None = "auto",
        cell: int | None = None,
    ) -> Run:
        """Map a function over documents on the queue "default"; see `QueuePool.map`."""
        return self.queue().map(
            fn, documents, name=name, on_existing=on_existing, retry=retry, consumers=consumers, cell=cell
        )

    def attach(self, name: str) -> Run:
        """Return the run of that name.

        Raises
        ------
        RunNotFound
            There is none; says which there are.
        """
        self._check_open()
        return self.session.runs.attach(name)

    def queue_names(self) -> list[str]:
        """Return the names of the queues that this lab has open, and of those in its store; sorted."""
        self._check_open()
        stored = self.session.stored_queues(self.store) if self.store is not None else []
        return sorted({*self.session.pools, *stored})

    def gc(self, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Compacted]:
        """Compact every queue of the store, one after another; see `QueuePool.compact`.

        Parameters
        ----------
        progress : callable, optional
            Called with the queue's name, bytes gone through and bytes in all.

        Returns
        -------
        dict of str to Compacted
            By queue.
        """
        self._check_open()
        self._open_stored()
        return {
            pool.name: pool.compact(partial(progress, pool.name) if progress is not None else None)
            for pool in self.queues
            if pool.durability is Durability.DURABLE
        }

    def stats(self) -> Snapshot:
        """Return everything at this instant."""
        self._check_open()
        link = self.session.link
        return Snapshot.from_dict(link.sync(link.scheduler("dq_snapshot")))

    def wait_for_change(self, since: int, timeout: float = 1.0) -> Snapshot:
        """Return the next snapshot after number `since`, or the present one after `timeout` seconds."""
        self._check_open()
        link = self.session.link
        return Snapshot.from_dict(link.sync(link.scheduler("dq_snapshot", since=since, timeout=timeout)))

    def close(self) -> None:
        """Close this lab's queues, detach, and end the cluster if this lab started it."""
        if self.closed:
            return
        self.closed = True
        with _lock:
            for key in [key for key, lab in _open.items() if lab is self]:
                del _open[key]
        if self._cluster is not None:
            for pool in list(self.session.pools.values()):
                with suppress(DqlabError):  # what cannot be asked is not to keep the cluster from ending
                    pool.close(force=True)
        if self._own_client:
            self.client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _open_stored(self) -> None:
        """Open the queues of the store that are not open yet: the run that is looked for may be in one of them."""
        for name in self.session.stored_queues(self.store) if self.store is not None else ():
            try:
                self.queue(name)
            except OwnerStillAlive as error:
                warnings.warn(f"queue {name!r} of the store was left out: {error}", stacklevel=4)

    def _workers(self) -> int:
        """Ask how many workers the cluster has."""
        link = self.session.link
        return int(link.sync(link.scheduler("dq_snapshot"), timeout=LOOK_TIMEOUT)["workers"])

    def _check_open(self) -> None:
        if self.closed:
            raise self.session.link.closed_error()
