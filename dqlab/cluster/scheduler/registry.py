"""The scheduler plugin: who lives where, and what everyone reported last.

Names map to {address, key, epoch}; queues and consumers are made through here, so that they
belong to the cluster and not to the notebook that asked. Data never passes through.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Coroutine, Iterable, Iterator
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from distributed import Scheduler, SchedulerPlugin
from distributed.scheduler import WorkerState

from dqlab.cluster.scheduler.actions import Actions
from dqlab.cluster.scheduler.attachments import Attachments
from dqlab.cluster.scheduler.claims import Claims
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.control_route import add_routes, served_at
from dqlab.cluster.scheduler.departures import Departures
from dqlab.cluster.scheduler.elasticity import Elasticity
from dqlab.cluster.scheduler.placement import Host, NoWorkers, Plan, plan
from dqlab.cluster.scheduler.run_notes import RunNotes
from dqlab.cluster.scheduler.supervisor import Entry, Supervisor
from dqlab.cluster.statistics.answers import Statistics
from dqlab.cluster.transport.errands import answering, ask_worker
from dqlab.cluster.transport.internals import (
    ActorFailed,
    NoSuchActor,
    Unreachable,
    answers,
    call_actor,
    dask_versions,
    install,
    is_leaving,
    pin,
    unpin,
)
from dqlab.cluster.transport.protocol import check_dask, greeting
from dqlab.cluster.transport.ref import RESOLVE_WAIT
from dqlab.cluster.transport.wire import pack, unpack_report
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin
from dqlab.errors import CallTimeout, QueueClosed
from dqlab.log import LogError
from dqlab.proof import Challenges

__all__ = ["Registry"]

logger = logging.getLogger("dqlab.registry")

SPAWN_TIMEOUT = 30.0
"""Seconds that an actor may take to begin which reads nothing."""
OPEN_TIMEOUT = 300.0
"""Seconds that a shard may take to read a long log; its worker's death ends the wait at once, and where it hangs it is
ended: see `Departures`."""
CLOSE_TIMEOUT = 10.0
HELLO_TIMEOUT = 3.0
MAX_STEMS = 10_000
"""Names of functions whose runs are numbered on from where they were."""


class Registry(SchedulerPlugin):
    """Registry, placement, and collector of counters of one cluster.

    Parameters
    ----------
    reserved : collection of str
        Names of workers that only host queues.
    """

    name = "dqlab"
    idempotent = True

    def __init__(self, reserved: Collection[str] = (), where: str = "") -> None:
        self.reserved = tuple(reserved)
        self.where = where

    async def start(self, scheduler: Scheduler) -> None:
        """Add our handlers to the scheduler."""
        self.scheduler = scheduler
        self.token = secrets.token_hex(32)
        self.challenges = Challenges(time.monotonic)
        self.entries: dict[str, Entry] = {}
        self.queues: dict[str, dict[str, Any]] = {}
        self.consumer_sets = ConsumerSets(self)
        self.attachments = Attachments(self)
        self.supervisor = Supervisor(self)
        self.departures = Departures(self)
        self.run_notes = RunNotes(self)
        self.claims = Claims(self.attachments)
        self.numbers: dict[str, Iterator[int]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.statistics = Statistics(scheduler, self.where)
        self.collector = self.statistics.collector
        self.collector.missing = self._report_whole
        self._tasks: set[asyncio.Task[Any]] = set()
        scheduler.handlers.update(
            dq_hello=answering(self.hello),
            dq_resolve=self.resolve,
            dq_pin=self.pin,
            dq_open=answering(self.open_queue),
            dq_stored=answering(self.stored),
            dq_serve=answering(self.consumer_sets.serve),
            dq_scale=answering(self.consumer_sets.scale),
            dq_consumers=self.consumer_sets.consumers,
            dq_retire=self.consumer_sets.retire,
            dq_close=answering(self.leave_queue),
            dq_queues=self.list_queues,
            dq_run_name=self.name_run,
            dq_cut_off=self.attachments.cut_off_now,
            **self.statistics.handlers,
            **self.run_notes.handlers,
            **self.claims.handlers,
        )
        scheduler.stream_handlers["dq-report"] = self.collect
        self.departures.start(scheduler)
        Elasticity(self).start(scheduler)
        self.in_background(self.attachments.watch())
        self.statistics.show()
        self.actions = Actions(self)
        self._unroute = add_routes(self)

    async def close(self) -> None:
        """End with the scheduler."""
        self.statistics.close()
        if self._unroute is not None:
            self._unroute()
        for task in self._tasks:
            task.cancel()

    # --- what clients and workers ask -------------------------------------------------------

    async def hello(self) -> dict[str, Any]:
        """Greet a client; say which protocols those workers speak that answer within 3 s.

        Raises
        ------
        DaskTooOld
            A worker's Dask cannot load the plugin, which is given to none of them then.
        """
        for worker, version in dask_versions(self.scheduler).items():
            check_dask(f"worker {worker}", version)
        await install(self.scheduler, DqlabWorkerPlugin(), DqlabWorkerPlugin.name, HELLO_TIMEOUT)
        workers = await answers(self.scheduler, "dq_greet", HELLO_TIMEOUT)
        http = served_at(self.scheduler)
        return {**greeting(), "token": self.token, "workers": workers, "shared": self.plan().shared, "http": http}

    async def resolve(self, name: str) -> dict[str, Any]:
        """Return where an actor lives, or why it is gone; one that is being made is waited for, 10 s at most."""
        entry = self.entries.get(name)
        if entry is None:
            return {"gone": "nobody of that name is registered"}
        stands = await entry.standing(0.0 if self.supervisor.hopeless(entry) else RESOLVE_WAIT)
        if entry.gone is None and not stands:
            return {"gone": self.supervisor.hopeless(entry), "failed": entry.durable, "address": None}
        return {"address": entry.address, "key": entry.key, "epoch": entry.epoch, "gone": entry.gone}

    async def pin(self, key: str) -> bool:
        """Keep an actor alive without a client, if it is still wanted; return whether it is."""
        wanted = any(entry.key == key for entry in self.entries.values())
        if wanted:
            pin(self.scheduler, [key])
        return wanted

    def turn(self, queue: str) -> asyncio.Lock:
        """Return the lock for making or closing a queue of that name."""
        return self._turns.setdefault(queue, asyncio.Lock())

    async def list_queues(self) -> dict[str, dict[str, Any]]:
        """Return every open queue's options."""
        return self.queues

    async def name_run(self, stem: str) -> str:
        """Return a name for a run, "STEM-NUMBER", that no run of this cluster has had."""
        numbers = self.numbers.pop(f"run/{stem}", None) or count(1)
        self.numbers[f"run/{stem}"] = numbers
        if len(self.numbers) > MAX_STEMS:  # one that comes back counts from 1 and passes over what it meets
            del self.numbers[next(iter(self.numbers))]
        return next(name for number in numbers if not self.collector.runs_named(name := f"{stem}-{number}"))

    async def stored(self, store: str) -> list[str]:
        """Return the names of the queues in a store, open or not, as the workers that would host them see it."""
        places = self.plan().queues
        if not places:
            return []
        names: list[str] = await ask_worker(self.scheduler, places[0], "dq_stored", store=store)
        return names

    async def open_queue(
        self, name: str, shards: int, options: dict[str, Any], sealed: bytes, client: str
    ) -> dict[str, Any]:
        """Make a queue's shards, or return the options of the queue that is already open; attach the client.

        A durable queue that was made before has the shards and options that it was made with. If a shard cannot be
        recovered, or has long had no worker or a log that fails, the queue is opened again: in its store, also for a
        client that asks for one in memory.
        """
        async with self.turn(name):
            self.attachments.add(name, client)
            if any(self._is_lost(entry) for entry in self._of(name)):
                known = self.queues.get(name)
                if known is not None and "store" in known["options"] and "store" not in options:
                    shards, options = known["shards"], known["options"]
                await self.close_queue(name)
                self.attachments.add(name, client)
            if name in self.queues:
                return {"created": False, **self.queues[name]}
            return await self._make_queue(name, shards, options, sealed)

    def _is_lost(self, entry: Entry) -> bool:
        return entry.is_shard and (entry.gone is not None or bool(self.supervisor.hopeless(entry)))

    async def _make_queue(self, name: str, shards: int, options: dict[str, Any], sealed: bytes) -> dict[str, Any]:
        self.queues[name] = {"shards": shards, "options": options}
        try:
            places = self.plan().queues
            if not places:
                raise NoWorkers(queue=name)
            if "store" in options:
                store = options["store"]
                lasting = {key: value for key, value in options.items() if key != "store"}
                asked = {"directory": store["directory"], "name": name, "shards": shards, "options": lasting}
                kept = await ask_worker(self.scheduler, places[0], "dq_keep", **asked)
                shards, options = kept["shards"], {**kept["options"], "store": store}
                self.queues[name] = {"shards": shards, "options": options}
            await _all(
                self.spawn(
                    f"queue/{name}/{index}", name, places[index % len(places)], sealed, (name, index, 1, options)
                )
                for index in range(shards)
            )
        except BaseException:
            await self.close_queue(name)
            raise
        return {"created": True, **self.queues[name]}

    async def retire(self, names: Collection[str], patience: float = 0.0) -> dict[str, Any]:
        """Let consumers settle, give back, and go, in `patience` seconds; return the packed last totals of each."""
        entries = [self.entries.pop(name) for name in names if name in self.entries]
        if not entries:
            return {}
        totals = await asyncio.gather(*(self._close_actor(entry, patience) for entry in entries))
        by_queue: dict[str, list[str]] = {}
        for entry in entries:
            by_queue.setdefault(entry.queue, []).append(entry.name)
        for queue, consumers in by_queue.items():
            ends = {self.departures.why_gone(entry.address) for entry in entries if entry.queue == queue}
            await self._release(queue, consumers, "; ".join(sorted(ends - {""})))
        unpin(self.scheduler, [entry.key for entry in entries])
        self.collector.forget([entry.name for entry in entries])
        return {entry.name: last for entry, last in zip(entries, totals, strict=True) if last is not None}

    async def leave_queue(self, name: str, client: str, *, force: bool) -> int:
        """Close a queue for its last client, or for all with `force`; return how many others keep it open."""
        async with self.turn(name):  # else it would take away what somebody opens meanwhile
            others = self.attachments.others(name, client)
            if others and not force:
                return others
            await self.close_queue(name)
            return 0

    async def close_queue(self, name: str) -> None:
        """Retire a queue's consumers, then close its shards and let them go; callers hold the queue's turn."""
        shards = [entry for entry in self._of(name) if entry.is_shard]
        self.queues.pop(name, None)
        self.supervisor.changed()
        self.attachments.forget(name)
        self.consumer_sets.forget_queue(name)
        await self.retire([entry.name for entry in self._of(name) if not entry.is_shard])
        await asyncio.gather(*(self._close_actor(entry) for entry in shards))
        for entry in shards:
            if self.entries.get(entry.name) is entry:
                del self.entries[entry.name]
        unpin(self.scheduler, [entry.key for entry in shards])
        self.collector.forget_queue(name)
        self.run_notes.forget(name)

    def collect(self, worker: str, totals: bytes) -> None:
        """Take in a report of an actor; a stream handler, so it must neither wait nor raise."""
        try:
            report = unpack_report(totals)
            self.collector.take(report)
            if report["kind"] == "shard" and report["failure"]:
                self._store_failed(worker, report)
        except Exception:  # it would close the worker's stream, and with it everything that lives there
            self.collector.untaken += 1
            logger.exception("event=report_not_taken worker=%s so_far=%s", worker, self.collector.untaken)

    def _store_failed(self, worker: str, report: dict[str, Any]) -> None:
        entry = self.entries.get(f"queue/{report['queue']}/{report['shard']}")
        if entry is not None and entry.address == worker:
            self.supervisor.store_failed(entry, report["epoch"], report["failure"])

    # --- what the scheduler tells -----------------------------------------------------------

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Give a worker that joined its consumers, and the shards that wait for one."""
        self.departures.came(worker)
        self.supervisor.changed()
        self.collector.workers = len(scheduler.workers)
        self.consumer_sets.worker_came()
        if str(scheduler.workers[worker].name) in self.reserved:
            self.supervisor.come_home()

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Mark what died, and return the leases of its consumers at once."""
        self.collector.workers = len(scheduler.workers)
        self.departures.left(worker)
        dead: dict[str, list[str]] = {}
        for entry in list(self.entries.values()):
            if entry.address != worker or entry.gone is not None:
                continue
            if entry.is_shard:
                self.supervisor.worker_left(entry)
            else:
                entry.gone = f"its worker {worker} is gone"
                del self.entries[entry.name]
                unpin(scheduler, [entry.key])
                dead.setdefault(entry.queue, []).append(entry.name)
        for queue, consumers in dead.items():
            self.collector.forget(consumers)
            self.consumer_sets.worker_left(consumers)
            self.in_background(self._release(queue, consumers, self.departures.why_gone(worker)))

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[WorkerState]) -> list[WorkerState]:
        """Return those of some workers that may be closed when there is little to do: they host no queue and rest."""
        busy = self.collector.busy()
        kept = {entry.address for entry in self.entries.values() if entry.is_shard or entry.name in busy}
        return [state for state in workers if state.address not in kept]

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Detach a client that is gone."""
        self.attachments.client_left(client)

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """Attach a client that has come back."""
        self.attachments.client_came(client)

    # --- inside -----------------------------------------------------------------------------

    def _of(self, queue: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.queue == queue]

    def plan(self) -> Plan:
        """Return which workers host queues, and which consumers."""
        used = {entry.address for entry in self.entries.values() if entry.is_shard and entry.gone is None}
        hosts = [
            Host(ws.address, str(ws.name), ws.nthreads, dict(ws.resources), ws.address in used)
            for ws in self._staying()
        ]
        return plan(hosts, self.reserved)

    def addresses_of(self, host: str) -> list[str]:
        """Return the addresses of the workers of that name, one at most, that are not about to leave."""
        return [state.address for state in self._staying() if str(state.name) == host]

    def _staying(self) -> list[WorkerState]:
        leaving = self.departures.leaving
        return [
            state
            for address, state in self.scheduler.workers.items()
            if address not in leaving and not is_leaving(state)
        ]

    async def spawn(self, name: str, queue: str, address: str, sealed_class: bytes, args: tuple[Any, ...]) -> None:
        """Make an actor on a worker, and register it.

        Raises
        ------
        QueueClosed
            Its queue was closed meanwhile. Nothing was made.
        CallTimeout
            It took longer than it may. What is made there all the same is let go as soon as it is.
        WorkerLost, DqlabError
            As `ask_worker`.
        """
        if queue not in self.queues:
            raise QueueClosed(queue=queue)
        epoch = 1
        key = f"dq-{name}-{secrets.token_hex(4)}"
        self.entries[name] = entry = Entry(name, queue, address, key, epoch, self._host(address), sealed_class, args)
        try:
            await self._ask_to_spawn(entry, self.supervisor.sealed(entry))
        except BaseException as error:
            if self.entries.get(name) is entry:
                del self.entries[name]
            unpin(self.scheduler, [key])
            told = isinstance(error, LogError)  # who opens the queue has it raised
            level = logging.INFO if told else logging.WARNING
            logger.log(level, "event=spawn_failed name=%s worker=%s %r", name, address, error)
            raise
        finally:
            entry.made.set()

    async def make_again(self, entry: Entry, address: str) -> None:
        """Recreate a shard on a worker."""
        unpin(self.scheduler, [entry.key])
        entry.address, entry.host = address, self._host(address)
        entry.key = f"dq-{entry.name}-{secrets.token_hex(4)}"
        await self._ask_to_spawn(entry, self.supervisor.sealed(entry))
        if self.entries.get(entry.name) is not entry:  # its queue was closed meanwhile
            entry.made.set()
            await self._close_actor(entry)
            unpin(self.scheduler, [entry.key])

    async def hand_over(self, entry: Entry) -> None:
        """Let a shard close its log where it is, for its next epoch elsewhere."""
        await self._ask_to_end(entry, "hand_over")
        unpin(self.scheduler, [entry.key])  # or Dask refuses to retire its worker

    def _host(self, address: str) -> str:
        state = self.scheduler.workers.get(address)
        return "" if state is None else str(state.name)

    async def _ask_to_spawn(self, entry: Entry, sealed: bytes) -> None:
        address, key, limit = entry.address, entry.key, OPEN_TIMEOUT if entry.durable else SPAWN_TIMEOUT
        entry.asked = True
        try:
            async with asyncio.timeout(limit) as within:
                await ask_worker(self.scheduler, address, "dq_spawn", key=key, sealed=sealed)
        except TimeoutError:
            if not within.expired():
                raise
            raise CallTimeout(name=entry.name, call="open", seconds=limit) from None
        finally:
            entry.asked = False

    async def _close_actor(self, entry: Entry, patience: float = 0.0) -> Any:
        """Return the actor's answer as it came: the scheduler only passes bytes on. None when there is none."""
        if not await entry.standing(OPEN_TIMEOUT if entry.durable and entry.asked else SPAWN_TIMEOUT):
            logger.warning("event=close_failed name=%s reason=never_made", entry.name)
            return None
        return None if entry.gone is not None else await self._ask_to_end(entry, "close", patience)

    async def _ask_to_end(self, entry: Entry, call: str, patience: float = 0.0) -> Any:
        try:
            body = pack({"patience": patience} if patience else {})
            work = call_actor(self.scheduler.rpc, entry.address, entry.key, call, body)
            return await asyncio.wait_for(work, CLOSE_TIMEOUT + patience)
        except (ActorFailed, NoSuchActor, Unreachable, TimeoutError) as error:
            logger.warning("event=%s_failed name=%s %r", call, entry.name, error)
            return None

    async def _release(self, queue: str, consumers: list[str], why: str) -> None:
        await self.ask_shards(queue, "release", {"consumers": consumers, "why": why})

    def _report_whole(self, queue: str, shard: int) -> None:
        """Have a shard report all its lanes."""
        self.in_background(self.ask_shards(queue, "resend", {}, only=f"queue/{queue}/{shard}"))

    async def ask_shards(self, queue: str, call: str, meta: dict[str, Any], *, only: str = "") -> None:
        """Call every shard of a queue that lives and is not being made, in turn; what fails is logged."""
        for entry in self._of(queue):
            if only not in ("", entry.name):
                continue
            if not entry.name.startswith("queue/") or entry.gone is not None or not entry.made.is_set():
                continue
            try:
                work = call_actor(self.scheduler.rpc, entry.address, entry.key, call, pack(meta))
                await asyncio.wait_for(work, CLOSE_TIMEOUT)
            except Exception as error:  # noqa: BLE001 - the other shards are asked all the same
                logger.warning("event=%s_failed name=%s %r", call, entry.name, error)

    def in_background(self, work: Any) -> None:
        """Run a coroutine that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work, name="dqlab-registry")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("event=background_failed %r", task.exception())


async def _all(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Take steps at the same time; once one has failed give up the others, and raise its error when all have ended."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
