"""`connect` and `Lab`: where everything begins."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dqlab.config import option, seconds
from dqlab.errors import BadOption, ConnectFailed, QueueClosed, UsageError
from dqlab.runs.pool import QueuePool
from dqlab.runs.run import Run
from dqlab.runs.session import Session
from dqlab.stats import Snapshot

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Lab", "connect"]

CONNECT_TIMEOUT = 5.0
_open: dict[Any, Lab] = {}
_lock = threading.RLock()


def connect(
    target: Any = None,
    *,
    n: int | None = None,
    scheduler_file: str | os.PathLike[str] | None = None,
    name: str | None = None,
    timeout: float | str = CONNECT_TIMEOUT,
) -> Lab:
    """Connect to a cluster, or start one on this machine.

    Called again with the same arguments while the lab is open, it returns the same lab.

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
    path = os.fspath(scheduler_file) if scheduler_file is not None else None
    key = (target if isinstance(target, str | None) else id(target), n, path, name)
    with _lock:
        lab = _open.get(key)
        if lab is None or lab.closed:
            lab = _open[key] = _make(target, n, path, name, seconds(timeout, name="timeout"))
        return lab


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
        self._own_client, self._cluster = own_client, cluster
        self.session = Session.of(client, reserved, self.name)
        self.closed = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.session.pools)} queue(s)"
        return f"<Lab {self.name!r} at {self.session.link.address}: {state}>"

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def dashboard(self) -> str:
        """Address of Dask's own dashboard."""
        return str(self.client.dashboard_link)

    @property
    def runs(self) -> list[Run]:
        """Runs this lab has made or attached to, oldest first."""
        return list(self.session.runs)

    @property
    def queues(self) -> list[QueuePool]:
        """Queues this lab has open."""
        return list(self.session.pools.values())

    def queue(self, name: str = "default", **options: Any) -> QueuePool:
        """Open a queue, or return the open one of that name.

        Parameters
        ----------
        name : str
        **options
            Those of `QueuePool`; `maxsize` is 100,000 messages by default. They count when the queue
            is made; a queue that is open already keeps its own.
        """
        if self.closed:
            raise QueueClosed(queue=name)
        known = self.session.pools.get(name)
        if known is not None:
            return known
        options.setdefault("maxsize", option("queue.maxsize"))
        options.setdefault("served", True)
        return QueuePool(self.client, name=name, **options)

    def map(self, fn: Callable[[Any], Any], documents: Iterable[Any], **options: Any) -> Run:
        """Map a function over documents on the queue "default". Options: `QueuePool.map`."""
        return self.queue().map(fn, documents, **options)

    def attach(self, name: str) -> Run:
        """Return the run of that name.

        Raises
        ------
        RunNotFound
            There is none; says which there are.
        """
        return self.session.runs.attach(name)

    def stats(self) -> Snapshot:
        """Return everything at this instant."""
        link = self.session.link
        return Snapshot.from_dict(link.sync(link.scheduler("dq_snapshot")))

    def wait_for_change(self, since: int, timeout: float = 1.0) -> Snapshot:
        """Return the next snapshot after number `since`, or the present one after `timeout` seconds."""
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
                pool.close(force=True)
        if self._own_client:
            self.client.close()
        if self._cluster is not None:
            self._cluster.close()
