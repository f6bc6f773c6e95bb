"""Makes actors on workers, finds, calls and releases them, and recreates shards after their workers are gone.

The scheduler makes them, so that they belong to the cluster and not to the notebook that asked for them. A shard is
recreated under its name, and recovers from its log. That of a transient one is on one machine, and waits for a worker
there. A log that has failed is opened again, on the same worker or another, with growing pauses while its disk fails.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dqlab.cluster.consumer.actor import ConsumerActor
from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.transport.calls import A, Call, CloseCall, HandOverCall, ReleaseCall
from dqlab.cluster.transport.internals import (
    ActorFailed,
    NoSuchActor,
    Unreachable,
    WorkerLost,
    ask_worker,
    call_actor,
    pin,
    unpin,
)
from dqlab.cluster.transport.parking import Bell
from dqlab.cluster.transport.ref import RESOLVE_WAIT
from dqlab.cluster.transport.sealed import open_value, seal_value
from dqlab.errors import CallTimeout, DqlabError, QueueClosed
from dqlab.log.errors import LogError, LogGone
from dqlab.rules.states import State
from dqlab.texts import said_by

logger = logging.getLogger("dqlab.registry")

SPAWN_TIMEOUT = 30.0
"""Seconds that an actor which reads nothing may take to start."""
OPEN_TIMEOUT = 300.0
"""Seconds that a shard may take to read a long log. The wait ends early when its worker dies, or hangs and is killed by
`Departures`."""
PAUSED_TIMEOUT = 5.0
"""Seconds that a new shard waits for a worker that Dask has paused: it may give memory back at once, or never."""
CLOSE_TIMEOUT = 10.0
HOPELESS_AFTER = 30.0
"""Seconds that callers wait for a failed log to recover, or for a worker that can open it, before they get the reason.
A cluster that restarts has no worker for a moment."""


class WorkerPaused(CallTimeout):
    """Dask has paused the worker where a queue or consumer was to be made."""

    text = (
        "{name!r} was not made: Dask has paused its worker {worker}, whose process has taken {taken} of memory, and it "
        "did not go on within {seconds:g} s. Nothing was put or lost. End what holds the memory there, or restart the "
        "worker, then call again."
    )


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where an actor lives, without an address while it is recreated."""

    address: str | None = None
    key: str = ""
    epoch: int = 0
    gone: str | None = None
    """Why callers should stop waiting for it."""
    failed: bool = False
    """Whether `gone` is about its log, which may recover."""
    lost: bool = False
    """Whether `gone` is about its log, which is gone too."""
    without_files: bool = False
    """Whether `gone` is about the log of a durable queue, which was deleted or moved."""


class Actors:
    """Keeps shards and consumers, each on a worker and registered in `ClusterState.entries`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._winding_down: set[str] = set()
        """Consumers that are no longer registered and still finish what they have begun."""

    # --- finding -----------------------------------------------------------------------

    async def find(self, name: str, opening: str = "") -> Whereabouts:
        """Return where an actor lives or why it is gone, after at most 10 s for an actor that is being made."""
        entry = self._state.entries.get(name)
        if entry is None:
            return Whereabouts(gone="no actor of that name is registered")
        if opening not in ("", entry.opening):
            return Whereabouts(gone="its queue was closed; another one has its name now")
        stands = await entry.standing(0.0 if self.hopeless(entry) else RESOLVE_WAIT)
        # No await from here on: the worker may die during an await, and the returned address would be stale.
        if entry.gone is None and not stands:
            return Whereabouts(gone=self.hopeless(entry), failed=bool(entry.failure), lost=not entry.failure)
        return Whereabouts(entry.address, entry.key, entry.epoch, entry.gone, without_files=entry.without_files)

    def hopeless(self, entry: Entry) -> str | None:
        """Return why callers should stop waiting for a shard, None if they should wait."""
        waited = asyncio.get_running_loop().time() - entry.left
        if entry.made.is_set() or not entry.is_shard or waited < HOPELESS_AFTER:
            return None
        if entry.failure:
            return entry.failure
        gone = entry.last and not entry.durable and not self._state.hosts_for(entry)
        return self._lost_with_its_machine(entry, waited) if gone else None

    def _lost_with_its_machine(self, shard: Entry, waited: float) -> str:
        """Return where a transient shard's log is, and what it holds by the last report."""
        report = self._state.collector.known.shard(shard.queue, int(shard.args[1]))
        lanes = report.lanes if report is not None else []
        counts = [sum(column) for column in zip(*(lane.counts for lane in lanes), strict=True)]
        held = ", ".join(f"{n:,} {state.name.lower()}" for state, n in zip(State, counts, strict=False) if n)
        where = f"its log is on machine {shard.machine}, where no worker has come back for {waited:.0f} s"
        return f"{where}. It held {held or 'nothing'}"

    async def pin(self, key: str) -> bool:
        """Pin an actor, so that it outlives its clients, and return whether it is still registered."""
        # A closed queue has unpinned its actors already. To pin one again would leak it.
        wanted = any(entry.key == key for entry in self._state.entries.values())
        if wanted:
            pin(self._state.scheduler, [key])
        return wanted

    # --- making -------------------------------------------------------------------------------

    async def spawn(self, name: str, queue: str, address: str, sealed_class: bytes, args: tuple[Any, ...]) -> None:
        """Make an actor on a worker and register it, or raise QueueClosed, CallTimeout or an error of `ask_worker`."""
        if queue not in self._state.queues:
            raise QueueClosed(queue=queue)
        # No await between this check and the entry: closing a queue releases the actors that are registered.
        key = f"dq-{name}-{secrets.token_hex(4)}"
        host, machine = self._state.host_of(address), self._state.machine_of(address)
        opening = self._state.queues[queue].opening
        entry = Entry(name, queue, address, key, 1, host, machine, sealed_class, args, opening)
        self._state.entries[name] = entry
        try:
            await self._ask_to_spawn(entry)
        except BaseException as error:
            if self._state.entries.get(name) is entry:
                del self._state.entries[name]
            # `find` may be waiting for `made`, and would return the address of an actor that was never made.
            entry.gone = entry.gone or f"it could not be made: {said_by(error)}"
            # A worker that was only slow makes the actor after the timeout: unpinned, it is released at once.
            unpin(self._state.scheduler, [key])
            expected = isinstance(error, LogError)  # raised where the queue is opened
            level = logging.INFO if expected else logging.WARNING
            logger.log(level, "event=spawn_failed name=%s worker=%s %r", name, address, error)
            raise
        finally:
            entry.made.set()

    async def make_again(self, entry: Entry, address: str) -> None:
        """Recreate a shard on a worker."""
        unpin(self._state.scheduler, [entry.key])
        entry.address, entry.host = address, self._state.host_of(address)
        entry.machine = self._state.machine_of(address) or entry.machine
        entry.key = f"dq-{entry.name}-{secrets.token_hex(4)}"
        await self._ask_to_spawn(entry)
        if self._state.entries.get(entry.name) is not entry:  # its queue is closed
            entry.made.set()
            await self.close(entry)
            unpin(self._state.scheduler, [entry.key])

    async def _ask_to_spawn(self, entry: Entry) -> None:
        address, key, limit = entry.address, entry.key, OPEN_TIMEOUT if entry.reads else SPAWN_TIMEOUT
        if entry.is_shard and entry.epoch == 1 and self._state.paused_at(address):
            limit = PAUSED_TIMEOUT
        cls = open_value(entry.sealed) if entry.sealed else ConsumerActor
        sealed = seal_value((cls, self._arguments(entry)))
        entry.asked = True  # `Departures` allows a worker that opens a shard a longer silence
        try:
            async with asyncio.timeout(limit) as within:
                await ask_worker(self._state.scheduler, address, "dq_spawn", key=key, sealed=sealed)
        except TimeoutError:
            if not within.expired():  # raised by the actor, not by our limit
                raise
            if taken := self._state.paused_at(address):
                raise WorkerPaused(name=entry.name, worker=address, taken=taken, seconds=limit) from None
            raise CallTimeout(name=entry.name, call="open", seconds=limit) from None
        finally:
            entry.asked = False

    def _arguments(self, entry: Entry) -> tuple[Any, ...]:
        """Return an actor's arguments, for a shard with what it must know of clients and consumers."""
        if not entry.is_shard:
            return entry.args
        name, index, _, options = entry.args
        returning = self._consumers(entry.queue) if entry.epoch > 1 else []
        return name, index, entry.epoch, options, self._state.clients(), returning, self._beside(entry)

    def _beside(self, shard: Entry) -> list[str]:
        """Return the consumers on a shard's new worker, where the plan has other workers for consumers."""
        # They are about to be retired. The document that killed the shard's last worker should not be leased to them.
        plan = self._state.plan()
        if plan.shared or shard.address in plan.consumers:
            return []
        return [one.name for one in self._state.of(shard.queue) if not one.is_shard and one.address == shard.address]

    def _consumers(self, queue: str) -> list[str]:
        """Return the names of a queue's live consumers, including those that wind down."""
        # A recreated shard leases nothing until these have reported which messages they hold.
        mark = f"consumer/{queue}/"
        return [name for name in {*self._state.entries, *self._winding_down} if name.startswith(mark)]

    # --- calling ------------------------------------------------------------------------------

    async def ask_shards(self, queue: str, call: Call[A], *, only: str = "") -> list[A]:
        """Call each live shard of a queue in turn, log errors, and return the answers."""
        answers: list[A] = []
        for entry in self._state.of(queue):
            if only not in ("", entry.name):
                continue
            if not entry.is_shard or entry.gone is not None or not entry.made.is_set():
                continue
            try:
                answers.append(call.opened(await self._ask(entry, call, CLOSE_TIMEOUT))[0])
            except Exception as error:  # noqa: BLE001 - the other shards are asked anyway
                logger.warning("event=%s_failed name=%s %r", call.method, entry.name, error)
        return answers

    async def _ask(self, entry: Entry, call: Call[Any], timeout: float) -> Any:
        """Call an actor where it is now, and return its packed answer."""
        work = call_actor(self._state.scheduler.rpc, entry.address, entry.key, call.method, call.pack())
        return await asyncio.wait_for(work, timeout)

    async def release(self, queue: str, consumers: list[str], why: str) -> None:
        """Make a queue's shards take back the leases of consumers that are gone."""
        await self.ask_shards(queue, ReleaseCall(consumers, why))

    # --- releasing ---------------------------------------------------------------------------

    async def hand_over(self, entry: Entry) -> None:
        """Make a shard close its log, so that its next epoch can open the log elsewhere."""
        try:
            await self._ask_to_end(entry, HandOverCall())
            unpin(self._state.scheduler, [entry.key])  # or Dask refuses to retire its worker
        except Exception:  # the caller recreates the shard next, and nothing else would: it is not `made` any more
            logger.exception("event=hand_over_failed name=%s", entry.name)

    async def retire(self, names: Collection[str], patience: float = 0.0) -> dict[str, Any]:
        """Retire consumers within `patience` seconds and return the packed last totals of those that answered."""
        # Unregister before closing: calls that resolve a name from now on get an error, not a closing consumer.
        entries = [self._state.entries.pop(name) for name in names if name in self._state.entries]
        if not entries:
            return {}
        totals = await asyncio.gather(*(self.close(entry, patience) for entry in entries))
        # Release only after closing: a consumer settles its finished work while it closes, and still needs its leases.
        by_queue: dict[str, list[str]] = {}
        for entry in entries:
            by_queue.setdefault(entry.queue, []).append(entry.name)
        for queue, consumers in by_queue.items():
            ends = {self._state.why_gone(entry.address) for entry in entries if entry.queue == queue}
            await self.release(queue, consumers, "; ".join(sorted(ends - {""})))
        unpin(self._state.scheduler, [entry.key for entry in entries])
        self._state.collector.forget([entry.name for entry in entries])
        return {entry.name: last for entry, last in zip(entries, totals, strict=True) if last is not None}

    async def wind_down(self, names: Collection[str], patience: float) -> None:
        """Retire consumers that may take `patience` seconds to finish what they have begun."""
        # `retire` unregisters them at once. A shard recreated meanwhile must still leave them their leases:
        # `_consumers`.
        self._winding_down.update(names)
        try:
            await self.retire(names, patience)
        finally:
            self._winding_down.difference_update(names)

    def worker_left(self, worker: str) -> dict[str, list[str]]:
        """Forget the consumers of a worker that is gone and return their names by queue."""
        lost: dict[str, list[str]] = {}
        for entry in list(self._state.entries.values()):
            if entry.address == worker and entry.gone is None and not entry.is_shard:
                entry.gone = f"its worker {worker} is gone"
                del self._state.entries[entry.name]
                unpin(self._state.scheduler, [entry.key])
                lost.setdefault(entry.queue, []).append(entry.name)
        return lost

    async def close_shards(self, shards: Collection[Entry]) -> None:
        """Close the shards of a queue, release them, and delete transient logs."""
        await asyncio.gather(*(self.close(entry) for entry in shards))
        for entry in shards:
            if self._state.entries.get(entry.name) is entry:  # else a queue opened since has a shard of that name
                del self._state.entries[entry.name]
        unpin(self._state.scheduler, [entry.key for entry in shards])
        await self._delete_logs({entry.machine: entry for entry in shards if not entry.durable}.values())

    async def _delete_logs(self, transient: Iterable[Entry]) -> None:
        """Delete a queue's logs, given one of its shards on each machine."""
        # Not with its actors: one that died, or could not be made again, has left its log.
        for entry in transient:
            for worker in self._state.hosts_for(entry)[:1]:
                ask = ask_worker(self._state.scheduler, worker, "dq_delete", scratch=entry.args[3]["scratch"])
                with suppress(DqlabError, TimeoutError):  # they go with the cluster
                    await asyncio.wait_for(ask, CLOSE_TIMEOUT)

    async def close(self, entry: Entry, patience: float = 0.0) -> Any:
        """Close an actor and return its packed answer, None if it did not answer."""
        if not await entry.standing(OPEN_TIMEOUT if entry.reads and entry.asked else SPAWN_TIMEOUT):
            logger.warning("event=close_failed name=%s reason=never_made", entry.name)
            return None
        call = HandOverCall() if entry.is_shard else CloseCall(patience)
        return None if entry.gone is not None else await self._ask_to_end(entry, call)

    async def _ask_to_end(self, entry: Entry, call: HandOverCall | CloseCall) -> Any:
        patience = call.patience if isinstance(call, CloseCall) else 0.0
        try:
            return await self._ask(entry, call, CLOSE_TIMEOUT + patience)
        except (ActorFailed, NoSuchActor, Unreachable, TimeoutError) as error:
            logger.warning("event=%s_failed name=%s %r", call.method, entry.name, error)
            return None


REPLACEMENT_WAIT = 0.5
"""Seconds that a nanny has to replace a worker before another worker opens its shards."""
ENDS_WITHIN = 60.0
"""Seconds that a worker which has lost its actors may take to end."""
TRY_AGAIN = 0.5
"""Seconds before the next try to make a shard."""
TRIES = 3
"""Most tries to make a shard that fails for an unforeseen reason."""
LOOK_EVERY = 60.0
LONGEST_PAUSE = 60.0
"""Longest pause in seconds between two tries to open a failing log; pauses double from `TRY_AGAIN` on."""
STEADY = 60.0
"""Seconds after which a new failure of an open log, or a worker's death, does not count as a repetition."""
MOST_DEATHS = 20
"""Deaths of workers in a row, each within `STEADY`, after which a shard is given up."""
_DEADLY = (
    "its worker {worker} died, the last of {n} workers in a row that died within {seconds:.0f} s. A document that "
    "kills its process may run beside the queue: run it in a process of its own (executor='process'), or give queues "
    "a worker of their own, by three workers or more"
)


class Supervisor:
    """Recreates shards, retrying until the shard is made, its log refuses, or its queue is closed."""

    # Clear a shard's `made` to begin, with no await since the check that it was set, and set it at the end. So only one
    # task at a time recreates a shard, even if its worker dies and its log fails meanwhile. Callers wait for `made`.

    def __init__(self, state: ClusterState, actors: Actors, cut_off: Callable[[str], Awaitable[None]]) -> None:
        self._state = state
        self._actors = actors
        self._cut_off = cut_off
        """Seals the unfinished submissions to a queue of clients that are gone."""
        self._changed = Bell()
        self._ending: set[str] = set()
        """Workers that have lost their actors and are still connected."""

    def changed(self) -> None:
        """Wake all waits after a worker joined or a queue was closed."""
        self._changed.ring()

    async def place_comes(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for a worker that can host shards."""
        await self._changed.until(lambda: bool(self._state.plan().queues), timeout)

    def worker_left(self, worker: str) -> None:
        """Begin to recreate the shards of a worker that is gone or has lost its actors."""
        # A worker that is still listed is about to end: make nothing before that. Note it here instead of looking it up
        # later: another worker may have its address by then.
        if worker in self._state.scheduler.workers:
            self._ending.add(worker)
        elif worker in self._ending:
            self._ending.discard(worker)
            self._changed.ring()
        for entry in self._state.entries.values():
            if not entry.is_shard or entry.address != worker or entry.gone is not None or not entry.made.is_set():
                continue
            now = asyncio.get_running_loop().time()
            entry.deaths = entry.deaths + 1 if now - entry.stood <= STEADY else 1
            if entry.deaths >= MOST_DEATHS:
                entry.gone = _DEADLY.format(worker=worker, n=entry.deaths, seconds=STEADY)
                logger.error("event=shard_given_up name=%s worker=%s deaths=%d", entry.name, worker, entry.deaths)
                continue
            entry.made.clear()
            entry.epoch += 1
            entry.last, entry.left = worker, now
            self._state.in_background(self._replace(entry))

    async def _replace(self, entry: Entry) -> None:
        """Recreate a shard once its worker has ended, on the replacement if it comes soon."""
        await self._changed.until(lambda: entry.last not in self._ending or not self._wanted(entry), ENDS_WITHIN)
        await self._recreate(entry, REPLACEMENT_WAIT)

    def store_failed(self, entry: Entry, epoch: int, failure: str) -> None:
        """Begin to open a shard's failed log again, for each epoch once."""
        # Reports repeat a failure, and a late report of an earlier epoch must not end the log that is open now.
        if not entry.made.is_set() or entry.gone is not None or epoch <= entry.failed_epoch:
            return
        self._note_failure(entry, failure)
        entry.failed_epoch, entry.last = epoch, entry.address
        entry.made.clear()
        entry.epoch += 1
        self._state.in_background(self._reopen(entry))

    def _note_failure(self, entry: Entry, failure: str) -> None:
        """Record why a log fails."""
        now = asyncio.get_running_loop().time()
        # `left` is when the failing began: 30 s later, callers get the reason (`Actors.hopeless`). Keep it while the
        # log fails, and also if the log was open for less than a minute in between.
        if not entry.failure and (not entry.failures or now - entry.stood > STEADY):
            entry.failures, entry.left = 0, now
        entry.failure = failure

    async def _reopen(self, entry: Entry) -> None:
        logger.warning("event=store_failed name=%s worker=%s %s", entry.name, entry.address, entry.failure)
        await self._actors.hand_over(entry)  # else it would keep its lock
        await self._pause(entry)
        await self._recreate(entry, 0.0)

    async def _pause(self, entry: Entry) -> None:
        """Wait before opening a failed log, longer each time, while the shard is wanted."""
        pause = min(TRY_AGAIN * 2**entry.failures, LONGEST_PAUSE) if entry.failures else 0.0
        entry.failures += 1
        await self._changed.until(lambda: not self._wanted(entry), pause)

    def _wanted(self, entry: Entry) -> bool:
        return self._state.entries.get(entry.name) is entry and entry.queue in self._state.queues

    async def move(self, entry: Entry) -> None:
        """Begin to move a shard to another worker, and return once the old worker has released its log."""
        if not entry.made.is_set() or entry.gone is not None:
            return
        entry.made.clear()
        entry.epoch += 1
        entry.host = ""  # never back to the same worker
        await self._actors.hand_over(entry)
        self._state.in_background(self._recreate(entry, 0.0))

    def come_home(self) -> None:
        """Move shards from other workers back to the workers reserved for queues."""
        for entry in self._state.entries.values():
            if self._is_away(entry):
                self._state.in_background(self.move(entry))

    def _is_away(self, entry: Entry) -> bool:
        hosts = self._state.plan().queues
        here = entry.is_shard and entry.gone is None and entry.address not in hosts
        return here and not set(hosts).isdisjoint(self._state.hosts_for(entry))

    async def _recreate(self, entry: Entry, patience: float) -> None:
        """Recreate a shard, on its worker's replacement if one comes within `patience` seconds."""
        loop = asyncio.get_running_loop()
        began, lost, failed = loop.time(), entry.address, 0
        if not entry.failure and began - entry.stood > STEADY:
            entry.failures = 0  # the log has been in order since
        while (address := await self._place(entry, deadline=began + patience)) is not None:
            try:
                await self._actors.make_again(entry, address)
            except (WorkerLost, OSError) as error:  # its worker has died, or is unreachable
                logger.warning("event=shard_failed name=%s worker=%s %r", entry.name, address, error)
                await asyncio.sleep(TRY_AGAIN)
                continue
            except Exception as error:  # noqa: BLE001 - callers get any error as the reason
                logger.warning("event=shard_refused name=%s worker=%s %r", entry.name, address, error)
                if isinstance(error, LogError) and error.passing:
                    self._note_failure(entry, str(error))
                    entry.host = ""  # on any worker: the disk of that machine may have failed
                    entry.epoch += 1
                    await self._pause(entry)
                    continue
                failed += 1
                if isinstance(error, DqlabError) or failed == TRIES:
                    entry.gone = str(error) if isinstance(error, DqlabError) else f"it cannot be recreated: {error!r}"
                    entry.without_files = isinstance(error, LogGone)
                    break
                await asyncio.sleep(TRY_AGAIN)
                continue
            if address in self._state.scheduler.workers:  # else the new worker died too: try the next one
                took = loop.time() - began
                logger.warning("event=shard_moved name=%s from=%s to=%s seconds=%.2f", entry.name, lost, address, took)
                break
        if address is None:
            entry.gone = "its queue was closed while it was being recreated"
        entry.stood = loop.time()
        if entry.gone is None:
            entry.failure = ""
        entry.made.set()
        if address is not None and self._is_away(entry):
            # Its host has come back, and `come_home` passed over a shard that was being made.
            self._state.in_background(self.move(entry))
        if address is not None:
            await self._cut_off(entry.queue)  # for clients that left while it was being made

    async def _place(self, entry: Entry, deadline: float) -> str | None:
        """Wait for the lost worker's replacement, after `deadline` for any host, and return its address."""
        loop = asyncio.get_running_loop()

        def wanted() -> bool:
            return self._wanted(entry)

        def choice() -> str | None:
            same = self._state.addresses_of(entry.host)
            others = self._state.hosts_for(entry) if loop.time() >= deadline else ()
            return same[0] if same else others[int(entry.args[1]) % len(others)] if others else None

        while wanted() and choice() is None:
            left = deadline - loop.time()
            await self._changed.until(lambda: not wanted() or choice() is not None, left if left > 0 else LOOK_EVERY)
        return choice() if wanted() else None
