"""`Session`: the open queues and the runs of one client on a cluster, on which the session installs dqlab."""

from __future__ import annotations

import logging
import threading
import warnings
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from distributed import Client

from dqlab.cluster.scheduler.actors import OPEN_TIMEOUT
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.shard.actor import QueueActor
from dqlab.cluster.transport.internals import dask_version_of, install_plugin
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.orders import TRANSIENT
from dqlab.cluster.transport.protocol import check_dask, check_protocol
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.sealed import seal_value
from dqlab.config import nbytes, nbytes_or_none, option, seconds
from dqlab.errors import BadOption, CallTimeout, DqlabError, DqlabWarning
from dqlab.rules.retry import QueueOptions, Retry, as_retry
from dqlab.runs.run_book import RunBook
from dqlab.store.directories import queue_directory
from dqlab.store.values import MAX_RESULT
from dqlab.user_frames import level_of_user

if TYPE_CHECKING:
    from dqlab.runs.pool import QueuePool

logger = logging.getLogger("dqlab.session")

_sessions: weakref.WeakKeyDictionary[Client, Session] = weakref.WeakKeyDictionary()
_installing = threading.Lock()
"""Held while a session is made, so that a client has one."""

INSTALLING = 60.0
"""Seconds to wait for another thread that installs dqlab."""
MAX_SHARDS = 16
"""Most shards of a queue; see decision 8."""
DIRECT_TIMEOUT = 3.0
"""Seconds that the first direct call to a worker may take."""
OPEN_FOR = OPEN_TIMEOUT + 10.0
"""Seconds to wait until a queue is open: more than the registry takes, whose error is better."""
OPENS_LATE = 10.0
"""Seconds before a message reports why opening a queue takes long."""
CONCURRENCY = 100
"""Concurrent calls of coroutine functions on each consumer, where no other number is given."""
OF_CONSUMERS = frozenset({"served", "early_ack", "concurrency"})
"""Options of `Lab.queue` that belong to consumers, so that no store keeps them."""


class Durability(Enum):
    """The guarantee of a queue for a confirmed message."""

    TRANSIENT = "transient"
    """The message survives its worker, but not the cluster, nor the machine of that worker."""
    DURABLE = "durable"
    """The message is on disk."""


class Session:
    """A client's queues and runs."""

    # `reserved` names the workers that only host queues, `where` is the cluster's name in views. With `grows`, more
    # workers will join, so no warning of too few. `shared` is a directory that all workers see.
    def __init__(
        self, client: Client, reserved: Collection[str] = (), where: str = "", *, grows: bool = False, shared: str = ""
    ) -> None:
        self.link = Link(client)
        self.pools: dict[str, QueuePool] = {}
        self._served: dict[str, WeakSet[QueuePool]] = {}
        self._install(reserved, where or self.link.address, grows=grows, shared=shared)
        self.runs = RunBook(self)

    @classmethod
    def of(
        cls,
        client: Client,
        reserved: Collection[str] = (),
        where: str = "",
        *,
        grows: bool = False,
        shared: str = "",
    ) -> Session:
        """Return the client's only session, after installing dqlab on the cluster if there is none yet."""
        if not isinstance(client, Client):
            raise BadOption(option="client", value=client, problem="is not a dask.distributed.Client.")
        if (session := _sessions.get(client)) is not None:
            return session
        if not _installing.acquire(timeout=INSTALLING):
            raise CallTimeout(name=str(getattr(client.scheduler, "address", "?")), call="install", seconds=INSTALLING)
        try:
            if (session := _sessions.get(client)) is None:
                session = _sessions[client] = cls(client, reserved, where, grows=grows, shared=shared)
            return session
        finally:
            _installing.release()

    def _install(self, reserved: Collection[str], where: str, *, grows: bool, shared: str) -> None:
        # Before the plugins: an older Dask cannot import our modules, and would fail with another error.
        found = self.link.sync(dask_version_of(self.link.scheduler))
        check_dask(f"the scheduler at {self.link.address}", found)
        self.link.sync(install_plugin(self.link.scheduler, Registry(reserved, where, shared)))
        hello = self.link.sync(self.link.scheduler("dq_hello"))
        check_protocol("the scheduler", hello)
        for worker, greeting in hello["workers"].items():
            check_protocol(f"worker {worker}", greeting)
        self.token, self.http, self.spread = hello["token"], hello.get("http"), hello["spread"]
        self._choose_path(list(hello["workers"]))
        if hello["shared"] and not reserved and not grows:
            warnings.warn(
                "this cluster has too few workers to keep one for queues: functions that hold the GIL will "
                "stall them. Three workers or more are better.",
                DqlabWarning,
                stacklevel=2,
            )

    def _choose_path(self, workers: Sequence[str]) -> None:
        """Call workers directly unless this process cannot reach the first one."""
        link = self.link
        link.direct = not workers or link.sync(link.reaches(workers[0], DIRECT_TIMEOUT))
        link.client.direct_to_workers = link.direct
        if not link.direct:
            warnings.warn(
                f"this process cannot reach worker {workers[0]}: every message goes through the scheduler, "
                "which is slower. Run the notebook where the workers can be reached.",
                DqlabWarning,
                stacklevel=2,
            )

    def open_queue(self, name: str, shards: int, options: dict[str, Any]) -> tuple[Handle, dict[str, Any]]:
        """Open a queue, or attach to the open queue of that name, and return its handle and options."""
        # If a shard could not be recovered, the scheduler recreates the queue; a durable queue keeps what is on disk.
        check_shards(shards)
        late = (OPENS_LATE, _opens_late(name, options["store"]["directory"])) if "store" in options else None
        answer = self.link.sync(self._open(name, shards, options), late=late)
        promise = answer["options"].get("store", {}).get("sync", TRANSIENT)
        store = stored_in(answer["options"])
        kept = "" if store is None else str(store)
        return Handle(self.link, name, answer["shards"], promise, kept, answer["opening"]), answer["options"]

    async def _open(self, name: str, shards: int, options: dict[str, Any]) -> dict[str, Any]:
        asked = {"name": name, "shards": shards, "options": options, "client": self.link.client.id}
        answer: dict[str, Any] = await self.link.scheduler(
            "dq_open", timeout=OPEN_FOR, sealed=seal_value(QueueActor), **asked
        )
        return answer

    async def open_stored(self, store: Path) -> None:
        """Open the queues of a store with the options that the store keeps, so that statistics have their runs."""
        # Not as `pools` of this session: a later `open_queue` of the same name must be free to choose options of
        # consumers.
        for name in await self.link.scheduler("dq_stored", store=str(store)):
            options = queue_options(store=(store, name))
            try:
                await self._open(name, 1, options)
            except DqlabError as error:  # the next call that opens the queue raises it
                logger.info("event=stored_queue_unlisted queue=%s reason=%s", name, error)

    def open_queues(self) -> list[str]:
        """Return the names of the queues that any client has open on the cluster."""
        return list(self.link.sync(self.link.scheduler("dq_queues")))

    def stored_queues(self, store: Path) -> list[str]:
        """Return the names of the queues in a store, open or not."""
        names: list[str] = self.link.sync(self.link.scheduler("dq_stored", store=str(store)))
        return names

    def serve(self, pool: QueuePool) -> None:
        """Keep one consumer on every consumer worker until the queue is closed or recreated."""
        self.link.sync(self.serve_from_loop(pool))

    async def serve_from_loop(self, pool: QueuePool) -> None:
        """Keep one consumer on every consumer worker, as `serve` does, from the client's event loop."""
        await self.link.scheduler("dq_serve", queue=pool.name, cls=b"", options=pool.consumer_options)
        # By object, not by name: a pool that was closed must not count for the queue that was opened again in its name.
        self._served.setdefault(pool.name, WeakSet()).add(pool)

    def serve_once(self, pool: QueuePool) -> None:
        """Call `serve` unless this client has done so before."""
        if pool not in self._served.get(pool.name, ()):
            self.serve(pool)

    def scale(self, pool: QueuePool, n: int | None) -> None:
        """Set the number of consumers to `n`, or to one on every consumer worker if it is None."""
        self.serve(pool)
        self.link.sync(self.link.scheduler("dq_scale", set_id=pool.name, n=n))

    def forget(self, pool: QueuePool) -> None:
        """Forget a closed queue."""
        self.pools.pop(pool.name, None)
        self._served.pop(pool.name, None)
        self.runs.closed(pool)


def _opens_late(queue: str, directory: str) -> str:
    return (
        f"queue {queue!r} is still being opened: its log in {directory} is read, which takes minutes where it is long, "
        f"or its disk slow or remote. This waits for at most {OPEN_TIMEOUT:.0f} s. Ctrl-C stops the wait; the queue "
        "goes on being opened: call again for it."
    )


def queue_options(
    *,
    visibility_timeout: float | str | None = None,
    max_deliveries: int | None = None,
    retry: bool | int | Retry | None = None,
    maxsize: int | None = None,
    max_bytes: int | str | None = None,
    store: tuple[Path, str] | None = None,
) -> dict[str, Any]:
    """Check a user's options, merge them with the configured defaults, and return plain data."""
    # `store` is the store's directory and the queue's name, for a durable queue.
    result_limit()
    chosen_retry = as_retry(retry)
    if chosen_retry is None:
        chosen_retry = Retry(
            retries=option("retry.retries"),
            backoff=seconds(option("retry.backoff"), name="dqlab.retry.backoff"),
            max_backoff=seconds(option("retry.max-backoff"), name="dqlab.retry.max-backoff"),
        )
    chosen = QueueOptions(
        visibility_timeout=seconds(
            visibility_timeout if visibility_timeout is not None else option("queue.visibility-timeout"),
            name="visibility_timeout",
        ),
        max_deliveries=max_deliveries if max_deliveries is not None else option("queue.max-deliveries"),
        retry=chosen_retry,
        maxsize=maxsize,
        max_bytes=nbytes_or_none(max_bytes if max_bytes is not None else option("queue.max-bytes"), name="max_bytes"),
    )
    kept = {} if store is None else {"store": {"directory": str(queue_directory(*store)), "sync": option("log.sync")}}
    return {
        **asdict(chosen),
        "retry": chosen_retry.record(),
        **kept,
        "results_maxsize": nbytes(option("results.maxsize"), name="dqlab.results.maxsize"),
    }


def check_shards(shards: object) -> None:
    """Raise `BadOption` for a number of shards that no queue can have."""
    if not isinstance(shards, int) or not 1 <= shards <= MAX_SHARDS:
        reason = "each consumer polls every shard, and one shard accepts 100,000 messages a second"
        problem = f"must be 1 to {MAX_SHARDS}: {reason}."
        raise BadOption(option="n_queues", value=shards, problem=problem)


def stored_in(options: dict[str, Any]) -> Path | None:
    """Return the store of a queue with these options, or None for a transient queue."""
    return Path(options["store"]["directory"]).parent if "store" in options else None


def warn_of_kept(pool: QueuePool, given: Mapping[str, Any]) -> None:
    """Warn if an existing queue keeps other values of the options that the user gave to `Lab.queue`."""
    if not given:
        return
    own = {"n_queues", "durable", *OF_CONSUMERS}
    new = queue_options(**{name: value for name, value in given.items() if name not in own})
    new |= {name: value for name, value in given.items() if name in own}
    has = pool.options | {
        "n_queues": pool.handle.shards,
        "durable": "store" in pool.options,
        "served": pool.served,
        "early_ack": pool.consumer_options["early"],
        "concurrency": pool.consumer_options["concurrency"],
    }
    others = [name for name in given if new[name] != has[name]]
    if not others:
        return
    differ = " and ".join(f"{name} is {_brief(has[name])}, not {_brief(new[name])}" for name in others)
    again = f"lab.queue({pool.name!r}, {', '.join(f'{name}={given[name]!r}' for name in others)})"
    if not has["durable"]:
        way = f"To change them: lab.queue({pool.name!r}).close(), which drops what it holds, then {again}"
    elif set(others) <= OF_CONSUMERS:
        way = f"To change them: lab.queue({pool.name!r}).close(), then {again}; what it holds stays in the store"
    else:
        way = "A queue in a store keeps them for good: open one of another name with them"
    said = f"queue {pool.name!r} already exists and keeps its options: {differ}. {way}."
    warnings.warn(said, DqlabWarning, stacklevel=level_of_user())


def _brief(value: Any) -> str:
    """Format the value of an option."""
    if isinstance(value, Mapping):  # of a Retry, as plain data
        return f"Retry({', '.join(f'{name}={part!r}' for name, part in value.items())})"
    return f"{value:,}" if type(value) is int else repr(value)


def result_limit() -> int:
    """Return the size limit of one result, or raise `BadOption` if it exceeds what a log can take."""
    name = "dqlab.results.max-bytes"
    limit: int = nbytes(option("results.max-bytes"), name=name)
    if limit > MAX_RESULT:
        problem = (
            f"is more than {MAX_RESULT >> 20} MiB, the most that a queue keeps of one result. Nothing was changed. "
            "Set less, and have functions write what is larger to a file and return its path."
        )
        raise BadOption(option=name, value=option("results.max-bytes"), problem=problem)
    return limit


def consumer_options(
    *,
    slots: int | None = None,
    batch: int | None = None,
    early: bool = False,
    concurrency: int = CONCURRENCY,
) -> dict[str, Any]:
    """Return a consumer's options as plain data; raise `BadOption` as `result_limit` does."""
    return {
        "slots": slots,
        "batch": batch or 4096,
        "early": early,
        "concurrency": concurrency,
        "result_max": result_limit(),
    }
