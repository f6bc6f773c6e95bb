"""The scheduler plugin: builds the parts that run on the scheduler, and wires them to Dask's handlers.

Queues and consumers belong to the cluster, not to the notebook that asked for them. No message passes through here.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from typing import Any

from distributed import Scheduler, SchedulerPlugin
from distributed.scheduler import WorkerState

from dqlab.clock import SystemClock
from dqlab.cluster.consumer.process.child_handle import how_it_ended
from dqlab.cluster.scheduler.actors import Actors, Supervisor
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.control import Actions, Control, Freshness, add_routes, served_at
from dqlab.cluster.scheduler.departures import Departures, Elasticity
from dqlab.cluster.scheduler.queues import Attachments, Claims, Queues
from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.statistics.collector import Collector, show, thresholds
from dqlab.cluster.transport.calls import ResendCall
from dqlab.cluster.transport.internals import answering, answers, dask_versions, exit_status, install, loop_lag
from dqlab.cluster.transport.protocol import check_dask, greeting, process_vitals
from dqlab.cluster.transport.reports import ShardReport, unpacked
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin
from dqlab.config import option
from dqlab.proof import Challenges
from dqlab.stats.snapshot import MAX_ATTENTION
from dqlab.store.directories import ClusterDirectory

logger = logging.getLogger("dqlab.registry")

HELLO_TIMEOUT = 3.0
_WAY_OUT = 'With executor="process" a document ends a process of its own, and its failure says how'
MAX_STEMS = 10_000
"""Most function names for which the number of the last run is remembered."""


class Registry(SchedulerPlugin):
    """Registers the queues and consumers of one cluster, places them, and collects their reports."""

    name = "dqlab"
    idempotent = True

    def __init__(self, reserved: Collection[str] = (), where: str = "", shared: str = "") -> None:
        self.shared = shared
        """A directory that all workers see, for the logs of transient queues; "" for one on each machine."""
        self.reserved = tuple(reserved)
        """Names of workers that host queues only."""
        self.where = where
        """Name of this cluster in views."""

    async def start(self, scheduler: Scheduler) -> None:
        """Build the parts in order of their dependencies, and add our handlers to the scheduler."""
        self.token = secrets.token_hex(32)
        self._numbers: dict[str, Iterator[int]] = {}
        self.collector = Collector(where=self.where, thresholds=thresholds(option("attention") or {}))
        self.collector.known.workers = len(scheduler.workers)
        self.directory: ClusterDirectory | None = None
        self.state = ClusterState(scheduler, self.collector, self.reserved, self.shared)
        self.actors = Actors(self.state)
        self.attachments = Attachments(self.state, self.actors)
        self.claims = Claims(self.state)
        self.supervisor = Supervisor(self.state, self.actors, self.attachments.cut_off)
        self.consumer_sets = ConsumerSets(self.state, self.actors)
        self.queues = Queues(self.state, self.actors, self.attachments, self.supervisor, self.consumer_sets)
        self.departures = Departures(self.state, self.consumer_sets, self.supervisor)
        self.elasticity = Elasticity(self.state, self.consumer_sets)
        self.freshness = Freshness(self.state)
        self.actions = Actions(self.state, self.actors, self.consumer_sets, self.freshness)
        self._wire(scheduler)
        for worker in scheduler.workers:  # Dask calls `add_worker` only for workers that join from now on
            self.state.note_limit(worker)
            self.state.note_came(worker)
        self.departures.start()
        self.elasticity.start()
        self.state.in_background(self.queues.watch())
        self._hide = show(scheduler, self.collector)
        control = Control(scheduler, self.collector, self.actions, self.token, Challenges(time.monotonic))
        self._unroute = add_routes(control)

    def _wire(self, scheduler: Scheduler) -> None:
        """Route each call of clients and workers to the part that answers it."""
        scheduler.handlers.update(
            dq_hello=answering(self.hello),
            dq_overview=self.overview,
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
            dq_cut_off=self.attachments.cut_off_now,
            dq_claim=self.claims.claim,
            dq_disclaim=self.claims.disclaim,
            dq_snapshot=self.snapshot,
            dq_run_snapshot=self.run_snapshot,
            dq_history=self.history,
            dq_mark=self.mark,
            dq_tell=self.tell,
        )
        scheduler.stream_handlers["dq-report"] = self.collect
        scheduler.stream_handlers["dq-reported"] = self.freshness.note
        self.collector.missing = self._report_whole

    async def close(self) -> None:
        """Stop all parts when the scheduler ends."""
        for undo in self._hide:
            with suppress(Exception):
                undo()
        if self._unroute is not None:
            self._unroute()
        self.state.close()
        if self.directory is not None:
            self.directory.close(delete=True)  # in this thread: an interpreter that ends starts no other one

    # --- calls of clients and workers -------------------------------------------------------

    async def hello(self) -> dict[str, Any]:
        """Greet a client with the protocols of the workers that answer in 3 s, or raise VersionMismatch."""
        scheduler = self.state.scheduler
        # Check all workers before installing: if one cannot load the plugin, no worker gets it.
        for worker, version in dask_versions(scheduler).items():
            check_dask(f"worker {worker}", version)
        # Before the first worker: another cluster that begins now must find this one alive.
        if self.directory is None:
            self.directory = ClusterDirectory(scheduler.id, within=self.shared, scheduler=True)
            self.directory.begin_sweep()
        plugin = DqlabWorkerPlugin(scheduler.id, self.shared)
        await install(scheduler, plugin, DqlabWorkerPlugin.name, HELLO_TIMEOUT)
        workers = await answers(scheduler, "dq_greet", HELLO_TIMEOUT)
        http, shared = served_at(scheduler), self.state.plan().shared
        # Whether a machine that is lost takes queues along that are in no store.
        spread = not self.shared and len({worker.host for worker in scheduler.workers.values()}) > 1
        told = {"token": self.token, "workers": workers, "shared": shared, "http": http, "spread": spread}
        return {**greeting(), **told}

    async def missing(self) -> int:
        """Return how many workers died a moment ago and are expected back."""
        return self.state.missing

    async def resolve(self, name: str, opening: str = "") -> dict[str, Any]:
        """Return where an actor lives, from `Actors.find`."""
        return asdict(await self.actors.find(name, opening))

    async def name_run(self, stem: str) -> str:
        """Return a name "STEM-NUMBER" that no run of this cluster has."""
        numbers = self._numbers.pop(stem, None) or count(1)  # moved to the end: the first is unused for longest
        self._numbers[stem] = numbers
        if len(self._numbers) > MAX_STEMS:  # a dropped stem counts from 1 later, and skips numbers in use
            del self._numbers[next(iter(self._numbers))]
        return next(name for number in numbers if not self.collector.known.has_run(name := f"{stem}-{number}"))

    async def snapshot(
        self,
        queue: str = "",
        run: str = "",
        fresh: float = 0.0,
        since: int = -1,
        wait: float = 0.0,
        alerts: int = MAX_ATTENTION,
    ) -> dict[str, Any]:
        """Return a snapshot after up to `fresh` seconds for new reports and `wait` for a change after `since`."""
        if fresh > 0:
            await self.freshness.bring(queue, fresh)
        if wait > 0:
            await self.collector.change(since, wait)
        return self.collector.snapshot(queue, run, alerts=alerts).to_dict()

    async def run_snapshot(self, queue: str, name: str, run: bytes, within: float) -> dict[str, Any] | None:
        """Return a snapshot with new reports of a run's shards, or None if one sent none or the run is unknown."""
        fresh = await self.freshness.bring_shards(queue, within)
        if not fresh or run.hex() not in self.collector.known.of(queue).lanes:
            return None
        return self.collector.snapshot(queue, name).to_dict()

    async def history(
        self, span: float, queue: str = "", run: str = "", fresh: float = 0.0, *, whole: bool = False
    ) -> dict[str, Any]:
        """Return the history of the last `span` seconds, after up to `fresh` seconds for new reports."""
        if fresh > 0:
            await self.freshness.bring(queue, fresh)
        return self.collector.history(span, queue, run, whole=whole).to_dict()

    async def mark(self, text: str, cell: int | None = None, queue: str = "", by: str = "") -> None:
        """Note an action of a person."""
        self.collector.mark(text, cell=cell, queue=queue, by=by)

    async def tell(self, run: str, text: str, due: float | None = None) -> None:
        """Note what a client does to a run beside its work, "" for nothing, and in how many seconds it goes on."""
        known = self.collector.known
        known.told.pop(run, None)
        if text:
            known.told[run] = text, due, known.clock.monotonic()

    async def overview(self) -> dict[str, Any]:
        """Return what the doctor asks of the scheduler, without calling other processes."""
        scheduler, now = self.state.scheduler, SystemClock().wall()
        return {
            **process_vitals(),
            "lag": loop_lag(scheduler),
            "workers": [
                {"address": worker.address, "name": str(worker.name), "silent": max(0.0, now - worker.last_seen)}
                for worker in scheduler.workers.values()
            ],
            "registry": _described(self.state),
        }

    def collect(self, worker: str, totals: bytes) -> None:
        """Record an actor's report, as a stream handler, which must neither wait nor raise."""
        try:
            report = unpacked(totals)
            if report.queue not in self.state.queues:
                return  # a late report of a closed queue has epochs that would hide those of a new queue of its name
            if not isinstance(report, ShardReport):
                self.collector.take(report)
                return
            entry = self.state.entries.get(f"queue/{report.queue}/{report.shard}")
            if entry is not None and entry.address != worker:
                entry = None  # the sender is an earlier shard of its name
            self.collector.take(report, current=entry is not None and entry.epoch == report.epoch)
            if report.failure and entry is not None:
                self.supervisor.store_failed(entry, report.epoch, report.failure)
        except Exception:  # an error would close the worker's stream, and its actors would be lost with it
            self.collector.untaken += 1
            logger.exception("event=report_not_taken worker=%s so_far=%s", worker, self.collector.untaken)

    def _report_whole(self, queue: str, shard: int) -> None:
        """Make a shard report all its lanes, not only those that changed."""
        self.state.in_background(self.actors.ask_shards(queue, ResendCall(), only=f"queue/{queue}/{shard}"))

    # --- events of the scheduler -----------------------------------------------------------

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Use a worker that joined for consumers, and for shards that wait for a worker."""
        self.state.note_limit(worker)
        self.state.note_came(worker)
        self.supervisor.changed()
        self.collector.known.workers = len(scheduler.workers)
        self.consumer_sets.worker_came()
        if str(scheduler.workers[worker].name) in self.reserved:
            self.supervisor.come_home()

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Mark a worker's actors as gone, and release the leases of its consumers."""
        self.collector.known.workers = len(scheduler.workers)
        if self.state.note_left(worker):
            self.consumer_sets.worker_missed()
        self.departures.left(worker)
        self._lose_actors(worker)

    def restart(self, scheduler: Scheduler) -> None:
        """Mark all actors as gone when Dask restarts the cluster."""
        # Dask has released the actors already, and takes seconds to end their workers: do not wait for `remove_worker`.
        self.departures.restarting()
        for worker in scheduler.workers:
            self._lose_actors(worker)

    def _lose_actors(self, worker: str) -> None:
        self.supervisor.worker_left(worker)
        for queue, consumers in self.actors.worker_left(worker).items():
            self.collector.forget(consumers)
            self.consumer_sets.worker_left(consumers)
            self.state.in_background(self._release(queue, consumers, worker))

    async def _release(self, queue: str, consumers: list[str], worker: str) -> None:
        why = self.state.why_gone(worker)
        if not why and (status := await exit_status(self.state.scheduler, worker)) is not None:
            why = f"its last worker {how_it_ended(status)}"
        await self.actors.release(queue, consumers, f"{why}. {_WAY_OUT}" if why else _WAY_OUT)

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[WorkerState]) -> list[WorkerState]:
        """Return the workers that Dask may close, from `Elasticity.idle`."""
        return self.elasticity.idle(workers)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Detach a client that is gone."""
        self.attachments.client_left(client)

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """Attach a client that has come back."""
        self.attachments.client_came(client)


def _described(state: ClusterState) -> dict[str, Any]:
    told = "name", "queue", "address", "gone", "failure"
    entries, queues = state.entries.values(), state.queues.items()
    return {
        "hosts": list(state.plan().queues),
        "shared_logs": bool(state.shared),
        "actors": [{each: getattr(one, each) for each in told} | {"made": one.made.is_set()} for one in entries],
        "directories": {name: (queue.store or {}).get("directory") for name, queue in queues},
    }
