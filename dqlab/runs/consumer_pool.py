"""`ConsumerPool`: the consumers of a queue pool that a user starts and stops by hand."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dqlab.cluster.consumer.actor import CustomConsumer, PreparedConsumer
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.orders import Retries
from dqlab.cluster.transport.protocol import PARK
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.reports import ConsumerReport
from dqlab.cluster.transport.sealed import seal_or_explain, seal_value
from dqlab.cluster.transport.wire import unpack
from dqlab.config import check_count, seconds
from dqlab.errors import ActorGone, BadOption, CallTimeout, QueueClosed, ResultsFull, RunStalled, UsageError
from dqlab.errors.rendering import interruptible
from dqlab.frame import NO_ID
from dqlab.notebook import in_script
from dqlab.numbers import many
from dqlab.runs.consumers import ConsumerBaseClass, GeneralConsumer
from dqlab.runs.pool import QueuePool
from dqlab.runs.reading.results import check_errors, check_readable, open_settlements
from dqlab.runs.session import consumer_options
from dqlab.runs.waiting import ENDS_WITH_SCRIPT, Standstill, expects_workers

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Consumer:
    """One started consumer.

    Attributes
    ----------
    name : str
        The name in statistics: "consumer/QUEUE/NUMBER".
    """

    link: Link
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def stats(self) -> dict[str, Any]:
        """Return the consumer's totals: messages done and leased, seconds busy, slots, its worker.

        Raises
        ------
        ActorGone
            The consumer was stopped, or its worker died.
        """
        report = self.link.sync(_report_of(self.name, self.link.client))
        return report.to_wire()

    def len_items(self) -> int:
        """Return how many messages the consumer has settled."""
        return int(self.stats()["done"])

    def len_pending_items(self) -> int:
        """Return how many messages the consumer holds."""
        return int(self.stats()["leased"])


class ConsumerPool:
    """Consumers of one queue pool, spread over the workers that run functions.

    Parameters
    ----------
    client : Client
        The client of the queue pool.
    queue_pool : QueuePool
        Every consumer serves all of its shards.
    ConsumerClass : type, default GeneralConsumer
        Subclass of `ConsumerBaseClass`; sent to the workers by value if the notebook defines it.
    n_consumers : int, default 1
    batch_size : int, optional
        Maximum messages in one lease. Default: about 75 ms of work.
    retries : int, optional
        How often a message is retried after an exception, for all plain puts of the queue from `start` on. Default: the
        queue's setting.
    early_ack : bool, default False
        At most once: a message that was handed over is never delivered again, nor retried.
    max_concurrency : int, default 10,000
        Maximum messages that a consumer runs at a time: threads (no more than its worker has), or coroutines when
        `process_item` or the submitted function is a coroutine function.

    Raises
    ------
    BadOption
        An argument is not a queue pool, a consumer class or a number.
    NotPicklable
        The class cannot be sent to another process.
    """

    def __init__(
        self,
        client: Client,
        queue_pool: QueuePool,
        ConsumerClass: type[ConsumerBaseClass] = GeneralConsumer,  # noqa: N803 - the ancestor's signature
        n_consumers: int = 1,
        batch_size: int | None = None,
        retries: int | None = None,
        early_ack: bool = False,  # noqa: FBT001, FBT002 - the ancestor's signature
        max_concurrency: int = 10_000,
    ) -> None:
        if not isinstance(queue_pool, QueuePool):
            raise BadOption(option="queue_pool", value=queue_pool, problem="is not a QueuePool.")
        if client is not queue_pool.session.link.client:
            raise BadOption(option="client", value=client, problem=f"is not the client of {queue_pool!r}.")
        check_count("n_consumers", n_consumers)
        check_count("max_concurrency", max_concurrency)
        if batch_size is not None:
            check_count("batch_size", batch_size)
        if retries is not None:
            check_count("retries", retries, least=0)
        self.queue_pool, self.consumer_class, self.n_consumers = queue_pool, ConsumerClass, n_consumers
        self._link, self._handle, self._retries = queue_pool.handle.link, queue_pool.handle, retries
        self._options = consumer_options(
            slots=max_concurrency,
            batch=batch_size,
            early=early_ack,
            concurrency=max_concurrency,
        )
        self._actor = _choose_actor(ConsumerClass, self._options)
        self._lock = threading.Lock()
        self._set_id = f"{queue_pool.name}/{uuid.uuid4().hex}"
        self._running = False
        self._done: dict[str, int] = {}
        self._retired = 0

    def __repr__(self) -> str:
        state = "running" if self._running else "stopped"
        kind, queue = self.consumer_class.__name__, self.queue_pool.name
        return f"<ConsumerPool of {self.n_consumers} {kind} on queue {queue!r}: {state}>"

    def __len__(self) -> int:
        return self.n_consumers

    def __getitem__(self, index: int) -> Consumer:
        if not self._running:
            raise UsageError(reason=f"{self!r} has no consumers yet. Call start() first.")
        return Consumer(self._link, self._names()[index])

    def __iter__(self) -> Iterator[Consumer]:
        return (Consumer(self._link, name) for name in self._names())

    def _names(self) -> list[str]:
        """Return the names of the current consumers."""
        # Ask each time: the scheduler replaces a consumer when its worker dies, and the new one has another name.
        names: list[str] = self._link.sync(self._link.scheduler("dq_consumers", set_id=self._set_id))
        return names

    def start(self, timeout: float | None = None) -> None:
        """Start the consumers; does nothing if they already run.

        Parameters
        ----------
        timeout : float, optional
            The ancestor's limit for one fetch. Leases wait at the queue here, so it changes nothing.
        """
        with self._lock:
            self._link.check_open()
            if self.queue_pool.closed:
                raise QueueClosed(queue=self.queue_pool.name)
            if self._running:
                return
            # Before consumers start: they lease at once, and the first messages need these retries too.
            if self._retries is not None:
                self._link.sync(self._handle.order(Retries(NO_ID, self._retries)))
            made = self._link.scheduler(
                "dq_serve",
                queue=self.queue_pool.name,
                cls=self._actor,
                options=self._options,
                n=self.n_consumers,
                set_id=self._set_id,
            )
            self._link.sync(made)
            self._running = True

    def scale(self, n: int) -> None:
        """Set the number of consumers to `n`, also while they run; surplus consumers give back their messages.

        A consumer whose worker dies is replaced.

        Raises
        ------
        BadOption
            `n` is not a number, or below 1.
        """
        check_count("n", n)
        with self._lock:
            if self._running:
                self._link.sync(self._link.scheduler("dq_scale", set_id=self._set_id, n=n))
            self.n_consumers = n

    def join(
        self,
        timestep: float = 0.1,
        print_timestep: float | str = 2.0,
        progress: bool = False,  # noqa: FBT001, FBT002 - the ancestor's signature
    ) -> None:
        """Wait until nothing in the queue is ready, delayed or leased; then stop these consumers.

        Messages that failed for good are in ``queue_pool.dead()``.

        Parameters
        ----------
        timestep : float
            The ancestor's pause between two looks. The queue itself wakes this wait, so it changes nothing.
        print_timestep : float or str, default 2 s
            How often to report the remaining messages, with `progress`.
        progress : bool, default False
            Write a line to stderr now and then.

        Raises
        ------
        RunStalled
            Messages wait, and for 5 s there has been no consumer or the queue has been paused.
        ResultsFull
            There is no room for results.
        PutError
            An earlier put was refused, and its result was never read.
        """
        name = self.queue_pool.name
        ends = self.queue_pool.handle.link.embedded and in_script()
        what_next = ENDS_WITH_SCRIPT if ends else "Call join() again, or cancel()."
        text = f"no longer waiting for queue {name!r}; its consumers go on. {what_next}"
        with interruptible(text):
            self._join(seconds(print_timestep, name="print_timestep") if progress else PARK, progress=progress)

    def _join(self, every: float, *, progress: bool) -> None:
        # A put that is not confirmed is in no shard's count, so the queue could seem empty too early.
        self.queue_pool.flush(None)
        queue = self.queue_pool.name
        # `stuck` goes back with the next call: a shard answers before `limit` ends only if its own reason differs.
        stuck = ""
        standstill = Standstill(f"queue {queue!r}", None)
        while True:
            limit = min(every, standstill.patience if stuck else PARK)
            try:
                shards = self._link.sync(self._handle.ask_all(calls.IdleCall(limit, stuck), wait=limit))
            except CallTimeout:  # a shard is being recreated
                standstill.unanswered(queue)
                stuck = ""
                continue
            busy = [shard for shard in shards if shard.alive]
            if not busy:
                break
            left = sum(shard.alive for shard in busy)
            self._raise_full(busy)
            # One shard that makes progress is enough: consumers come to the others later.
            stuck = busy[0].stuck if all(shard.stuck for shard in busy) else ""
            lonely = standstill.look("", alone=bool(stuck))
            if lonely and not self._link.sync(expects_workers(self._link)):
                run, n = f"puts on {queue}", round(lonely)
                raise RunStalled(run=run, queue=queue, waiting=left, seconds=n, nobody=stuck)
            if progress:
                sys.stderr.write(f"{many(left, 'message')} left in queue {queue!r}\n")
        self.cancel()

    def _raise_full(self, shards: list[calls.IdleAnswer]) -> None:
        if any(shard.full for shard in shards):
            used, limit = sum(shard.stored for shard in shards), self.queue_pool.options["results_maxsize"]
            raise ResultsFull(run=f"puts on {self.queue_pool.name}", used=used, limit=limit)

    def results(self, errors: Literal["raise", "return"] = "raise") -> dict[int, Any]:
        """Return the value of every processed plain put of the queue, by message id.

        The ids match ``queue_pool.submit(...).ids``. Failed messages are in ``queue_pool.dead()``. The queue keeps
        results until it is closed, even when the consumers stop.

        Parameters
        ----------
        errors : {"raise", "return"}
            What to do about results that cannot be unpickled here: raise `ResultUnreadable`, or put it in their place.
        """
        check_errors(errors)
        found: dict[int, Any] = {}
        for shard in range(self._handle.shards):
            cursor = 0
            while True:
                answer, parts = self._link.sync(self._handle.ask(shard, calls.StreamCall(NO_ID, cursor, wait=0.0)))
                if not parts and not answer.more:
                    break
                cursor = answer.cursor
                for stretch in open_settlements(parts):
                    values = stretch.values if errors == "return" else check_readable(stretch).values
                    found.update(zip(range(stretch.ordinal, stretch.end), values, strict=True))
        return dict(sorted(found.items()))

    def nb_consumed(self) -> int:
        """Return how many messages these consumers have settled, including earlier starts."""
        with self._lock:
            names, done = self._names(), self._done
        found = self._link.sync(self._ask_done(names))  # without the lock: a silent worker would hold up `cancel`
        with self._lock:
            if self._done is done:  # else `cancel` has moved these messages to `_retired` meanwhile
                done.update(found)
            return self._retired + sum(self._done.values())

    async def _ask_done(self, names: list[str]) -> dict[str, int]:
        asked = (_report_of(name, self._link.client) for name in names)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        done = {}
        for name, answer in zip(names, answers, strict=True):
            if not isinstance(answer, BaseException):
                done[name] = answer.done
            elif not isinstance(answer, ActorGone):  # a dead one keeps its last report
                raise answer
        return done

    def cancel(self) -> None:
        """Stop these consumers: running messages finish, the rest goes back to the queue uncounted.

        A message that still runs after 5 s goes back as well. Does nothing when they are stopped.
        """
        with self._lock:
            if not self._running:
                return
            last = self._link.sync(self._link.scheduler("dq_retire", set_id=self._set_id))
            self._done.update({name: int(unpack(totals)[0]["done"]) for name, totals in last.items()})
            self._retired += sum(self._done.values())
            self._done, self._running = {}, False


def _choose_actor(kind: Any, options: dict[str, Any]) -> bytes:
    """Return the sealed actor class that runs a user's class, and add that class to `options`."""
    if not (isinstance(kind, type) and issubclass(kind, ConsumerBaseClass)):
        raise BadOption(option="ConsumerClass", value=kind, problem="is not a subclass of ConsumerBaseClass.")
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise BadOption(option="ConsumerClass", value=kind, problem=f"does not define {missing}.")
    # Compare what it defines, not the class: a subclass that keeps `process_item` runs calls as they are, as coroutines
    # and in processes too.
    keeps = kind.process_item is GeneralConsumer.process_item
    if keeps and kind.__init__ is GeneralConsumer.__init__:
        return b""  # the registry then takes its own consumer class
    options["sealed"] = seal_or_explain(kind, f"class {kind.__qualname__}")
    return seal_value(PreparedConsumer if keeps else CustomConsumer)


async def _report_of(consumer: str, client: Client) -> ConsumerReport:
    """Return a consumer's totals at this instant."""
    report, _ = await calls.ConsumerStatsCall().ask(Ref(consumer, client).call)
    return report
