"""The scheduler plugin: builds what runs on the scheduler and wires it to Dask's handlers.

Queues and consumers belong to the cluster, not to the notebook that asked for them. No data passes through it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Iterator
from itertools import count
from typing import Any

from distributed import Scheduler, SchedulerPlugin
from distributed.scheduler import WorkerState

from dqlab.cluster.scheduler.actions import Actions
from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.clients import Attachments, Claims
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.control_route import Control, add_routes, served_at
from dqlab.cluster.scheduler.departures import Departures
from dqlab.cluster.scheduler.elasticity import Elasticity
from dqlab.cluster.scheduler.freshness import Freshness
from dqlab.cluster.scheduler.queues import Queues
from dqlab.cluster.scheduler.run_notes import RunNotes
from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.scheduler.supervisor import Supervisor
from dqlab.cluster.statistics.collector import Statistics
from dqlab.cluster.transport.calls import Resend
from dqlab.cluster.transport.errands import answering
from dqlab.cluster.transport.internals import answers, dask_versions, install
from dqlab.cluster.transport.protocol import check_dask, greeting
from dqlab.cluster.transport.reports import ConsumerReport, ShardReport, unpacked
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin
from dqlab.proof import Challenges

__all__ = ["Registry"]

logger = logging.getLogger("dqlab.registry")

HELLO_TIMEOUT = 3.0
MAX_STEMS = 10_000
"""Function names whose run numbering is remembered."""


class Registry(SchedulerPlugin):
    """Registry, placement, and collector of counters of one cluster.

    Parameters
    ----------
    reserved : collection of str
        Names of workers that host queues only.
    where : str
        What views call this cluster.
    """

    name = "dqlab"
    idempotent = True

    def __init__(self, reserved: Collection[str] = (), where: str = "") -> None:
        self.reserved = tuple(reserved)
        self.where = where

    async def start(self, scheduler: Scheduler) -> None:
        """Build the parts in order of their dependencies, and add our handlers to the scheduler."""
        self.token = secrets.token_hex(32)
        self._numbers: dict[str, Iterator[int]] = {}
        self.statistics = Statistics(scheduler, self.where)
        self.collector = self.statistics.collector
        self.state = ClusterState(scheduler, self.collector, self.reserved)
        self.run_notes = RunNotes(self.state)
        self.actors = Actors(self.state, self.run_notes)
        self.attachments = Attachments(self.state, self.actors)
        self.claims = Claims(self.state)
        self.supervisor = Supervisor(self.state, self.actors, self.attachments)
        self.consumer_sets = ConsumerSets(self.state, self.actors)
        self.queues = Queues(
            self.state, self.actors, self.attachments, self.supervisor, self.consumer_sets, self.run_notes
        )
        self.departures = Departures(self.state, self.consumer_sets, self.supervisor)
        self.elasticity = Elasticity(self.state, self.consumer_sets)
        self.freshness = Freshness(self.state)
        self.actions = Actions(self.state, self.actors, self.consumer_sets, self.run_notes, self.freshness)
        self._wire(scheduler)
        for worker in scheduler.workers:
            self.state.note_limit(worker)
            self.state.note_came(worker)
        self.departures.start()
        self.elasticity.start()
        self.state.in_background(self.queues.watch())
        self.statistics.show()
        control = Control(scheduler, self.collector, self.actions, self.token, Challenges(time.monotonic))
        self._unroute = add_routes(control)

    def _wire(self, scheduler: Scheduler) -> None:
        """Route each call of clients and workers to the part that answers it."""
        scheduler.handlers.update(
            dq_hello=answering(self.hello),
            dq_resolve=self.resolve,
            dq_pin=self.actors.pin,
            dq_open=answering(self.queues.open),
            dq_stored=answering(self.queues.list_stored),
            dq_serve=answering(self.consumer_sets.serve),
            dq_scale=answering(self.consumer_sets.scale),
            dq_let_go=answering(self.actions.let_go),
            dq_consumers=self.consumer_sets.consumers,
            dq_missing=self.missing,
            dq_retire=self.consumer_sets.retire,
            dq_close=answering(self.queues.leave),
            dq_queues=self.queues.list_open,
            dq_run_name=self.name_run,
            dq_note_run=self.run_notes.note,
            dq_cut_off=self.attachments.cut_off_now,
            dq_claim=self.claims.claim,
            dq_disclaim=self.claims.disclaim,
            dq_claimed=self.claims.claimed,
            dq_snapshot=self.snapshot,
            dq_history=self.history,
            dq_mark=self.statistics.mark,
        )
        scheduler.stream_handlers["dq-report"] = self.collect
        scheduler.stream_handlers["dq-reported"] = self.freshness.note
        self.collector.missing = self._report_whole

    async def close(self) -> None:
        """End with the scheduler."""
        self.statistics.close()
        if self._unroute is not None:
            self._unroute()
        self.state.close()

    # --- calls of clients and workers -------------------------------------------------------

    async def hello(self) -> dict[str, Any]:
        """Greet a client; return the protocols of the workers that answer within 3 s.

        Raises
        ------
        DaskTooOld
            A worker's Dask cannot load the plugin; no worker gets it then.
        """
        scheduler = self.state.scheduler
        for worker, version in dask_versions(scheduler).items():
            check_dask(f"worker {worker}", version)
        await install(scheduler, DqlabWorkerPlugin(), DqlabWorkerPlugin.name, HELLO_TIMEOUT)
        workers = await answers(scheduler, "dq_greet", HELLO_TIMEOUT)
        http, shared = served_at(scheduler), self.state.plan().shared
        return {**greeting(), "token": self.token, "workers": workers, "shared": shared, "http": http}

    async def missing(self) -> int:
        """Return how many workers died a moment ago and are expected back."""
        return self.state.missing

    async def resolve(self, name: str) -> dict[str, Any]:
        """See `Actors.find`."""
        return (await self.actors.find(name)).to_dict()

    async def name_run(self, stem: str) -> str:
        """Return a name for a run, "STEM-NUMBER", that no run of this cluster has had."""
        numbers = self._numbers.pop(stem, None) or count(1)
        self._numbers[stem] = numbers
        if len(self._numbers) > MAX_STEMS:  # a name that comes back counts from 1 and skips numbers in use
            del self._numbers[next(iter(self._numbers))]
        return next(name for number in numbers if not self.collector.known.has_run(name := f"{stem}-{number}"))

    async def snapshot(self, queue: str = "", fresh: float = 0.0, **asked: Any) -> dict[str, Any]:
        """Return the newest snapshot; see `Statistics.snapshot`. Wait up to `fresh` seconds for reports of now."""
        if fresh > 0:
            await self.freshness.bring(queue, fresh)
        return await self.statistics.snapshot(queue=queue, **asked)

    async def history(self, span: float, queue: str = "", fresh: float = 0.0, **asked: Any) -> dict[str, Any]:
        """Return how it was over the last `span` seconds; see `Statistics.history`, and `snapshot`."""
        if fresh > 0:
            await self.freshness.bring(queue, fresh)
        return await self.statistics.history(span, queue, **asked)

    def collect(self, worker: str, totals: bytes) -> None:
        """Record a report of an actor; a stream handler, so it must neither wait nor raise."""
        try:
            report = unpacked(totals)
            if report.queue not in self.state.queues:
                return  # it is closed; its epochs would hide those of a queue that is opened under its name
            self.collector.take(report, current=self._is_current(worker, report))
            if isinstance(report, ShardReport) and report.failure:
                self._store_failed(worker, report)
        except Exception:  # it would close the worker's stream, and with it everything that lives there
            self.collector.untaken += 1
            logger.exception("event=report_not_taken worker=%s so_far=%s", worker, self.collector.untaken)

    def _is_current(self, worker: str, report: ShardReport | ConsumerReport) -> bool:
        """Return whether the sender is the shard that is registered, and no earlier one of its name."""
        if not isinstance(report, ShardReport):
            return False
        entry = self._entry_of(report)
        return entry is not None and (entry.address, entry.epoch) == (worker, report.epoch)

    def _entry_of(self, report: ShardReport) -> Entry | None:
        return self.state.entries.get(f"queue/{report.queue}/{report.shard}")

    def _store_failed(self, worker: str, report: ShardReport) -> None:
        entry = self._entry_of(report)
        if entry is not None and entry.address == worker:
            self.supervisor.store_failed(entry, report.epoch, report.failure)

    def _report_whole(self, queue: str, shard: int) -> None:
        """Make a shard report all its lanes."""
        self.state.in_background(self.actors.ask_shards(queue, Resend(), only=f"queue/{queue}/{shard}"))

    # --- events of the scheduler -----------------------------------------------------------

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Make consumers, and shards that wait for a worker, on a worker that joined."""
        self.state.note_limit(worker)
        self.state.note_came(worker)
        self.supervisor.changed()
        self.collector.known.workers = len(scheduler.workers)
        self.consumer_sets.worker_came()
        if str(scheduler.workers[worker].name) in self.reserved:
            self.supervisor.come_home()

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Mark the worker's actors as gone, and release the leases of its consumers at once."""
        self.collector.known.workers = len(scheduler.workers)
        if self.state.note_left(worker):
            self.consumer_sets.worker_missed()
        self.departures.left(worker)
        self._lose_actors(worker)

    def restart(self, scheduler: Scheduler) -> None:
        """Mark all actors as gone: Dask has released them, and ends the workers, which may take seconds."""
        self.departures.restarting()
        for worker in scheduler.workers:
            self._lose_actors(worker)

    def _lose_actors(self, worker: str) -> None:
        self.supervisor.worker_left(worker)
        for queue, consumers in self.actors.worker_left(worker).items():
            self.collector.forget(consumers)
            self.consumer_sets.worker_left(consumers)
            self.state.in_background(self.actors.release(queue, consumers, self.state.why_gone(worker)))

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[WorkerState]) -> list[WorkerState]:
        """See `Elasticity.idle`."""
        return self.elasticity.idle(workers)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Detach a client that is gone."""
        self.attachments.client_left(client)

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """Attach a client that has come back."""
        self.attachments.client_came(client)
