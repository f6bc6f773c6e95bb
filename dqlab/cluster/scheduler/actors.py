"""Makes actors on workers, finds, calls and releases them.

The scheduler makes them, so that they belong to the cluster and not to the notebook that asked for them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from dqlab.cluster.consumer.actor import ConsumerActor
from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.transport.calls import A, Call, CloseCall, HandOverCall, ReleaseCall
from dqlab.cluster.transport.errands import ask_worker
from dqlab.cluster.transport.internals import ActorFailed, NoSuchActor, Unreachable, call_actor, pin, unpin
from dqlab.cluster.transport.ref import RESOLVE_WAIT
from dqlab.cluster.transport.sealed import open_value, seal_value
from dqlab.errors import CallTimeout, DqlabError, QueueClosed
from dqlab.log.errors import LogError
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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that clients and workers get."""
        if self.address is None:
            why = {"failed": self.failed, "lost": self.lost, "without_files": self.without_files}
            return {"gone": self.gone, **why, "address": None}
        return {**asdict(self)}


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
                work = call_actor(self._state.scheduler.rpc, entry.address, entry.key, call.method, call.pack())
                answer, _ = call.opened(await asyncio.wait_for(work, CLOSE_TIMEOUT))
                answers.append(answer)
            except Exception as error:  # noqa: BLE001 - the other shards are asked anyway
                logger.warning("event=%s_failed name=%s %r", call.method, entry.name, error)
        return answers

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
            work = call_actor(self._state.scheduler.rpc, entry.address, entry.key, call.method, call.pack())
            return await asyncio.wait_for(work, CLOSE_TIMEOUT + patience)
        except (ActorFailed, NoSuchActor, Unreachable, TimeoutError) as error:
            logger.warning("event=%s_failed name=%s %r", call.method, entry.name, error)
            return None
