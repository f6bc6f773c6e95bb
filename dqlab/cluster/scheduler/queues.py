"""Opens queues and closes them, also empty ones that no client has open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.clients import Attachments
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.placement import NoWorkers
from dqlab.cluster.scheduler.state import ClusterState, Entry, OpenQueue
from dqlab.cluster.scheduler.supervisor import Supervisor
from dqlab.cluster.transport.errands import ask_worker
from dqlab.rules.states import State

logger = logging.getLogger("dqlab.registry")

CLOSE_AFTER = 3600.0
"""Seconds a vacant queue stays open."""
RESTARTED_IN = 3.0
"""Seconds that opening a queue waits for a worker after all workers died a moment ago."""
LOOK_EVERY = 60.0


class Queues:
    """Opens and closes queues, one call at a time for each name."""

    # A vacant queue has no client, and nothing that an owner may come back for after a weekend: no messages, dead
    # letters, damaged documents or results.

    def __init__(
        self,
        state: ClusterState,
        actors: Actors,
        attachments: Attachments,
        supervisor: Supervisor,
        consumer_sets: ConsumerSets,
    ) -> None:
        self._state = state
        self._actors = actors
        self._attachments = attachments
        self._supervisor = supervisor
        self._consumer_sets = consumer_sets
        self._vacant: dict[str, tuple[tuple[int, int], float]] = {}
        """Vacant queue to its `_had`, and the time at which that last changed."""
        self._openings = count(1)

    async def list_open(self) -> dict[str, dict[str, Any]]:
        """Return the options of every open queue."""
        return {name: queue.to_dict() for name, queue in self._state.queues.items()}

    async def list_stored(self, store: str) -> list[str]:
        """Return the names of the queues in a store, open or not."""
        # Ask a worker that would host them: the scheduler may not see the store's file system.
        places = self._state.plan().queues
        if not places:
            return []
        names: list[str] = await ask_worker(self._state.scheduler, places[0], "dq_stored", store=store)
        return names

    # --- opening ------------------------------------------------------------------------------

    async def open(self, name: str, shards: int, options: dict[str, Any], sealed: bytes, client: str) -> dict[str, Any]:
        """Open a queue or find it open, attach the client, and return the queue's options."""
        asked = OpenQueue(shards, options)
        async with self._state.turn(name):
            self._attachments.add(name, client)
            if any(self._is_lost(entry) for entry in self._state.of(name)):
                known = self._state.queues.get(name)
                # Reopen a durable queue in its store even for a client that asks for memory: its messages are there.
                if known is not None and known.store is not None and asked.store is None:
                    asked = known
                await self.close(name)
                self._attachments.add(name, client)  # closing has forgotten it
            created = name not in self._state.queues
            if created:
                await self._make(name, asked, sealed)
            return {"created": created, **self._state.queues[name].to_dict()}

    def _is_lost(self, entry: Entry) -> bool:
        return entry.is_shard and (entry.gone is not None or bool(self._actors.hopeless(entry)))

    async def _make(self, name: str, queue: OpenQueue, sealed: bytes) -> None:
        self._state.queues[name] = queue  # before any spawn, which refuses actors of queues that are not open
        try:
            if self._state.missing:  # all may be restarting
                await self._supervisor.place_comes(RESTARTED_IN)
            places = self._state.plan().queues
            if not places:
                raise NoWorkers(queue=name)
            if queue.store is not None:
                queue, place = await self._kept(name, queue, queue.store, places[0]), {}
            else:
                queue = replace(queue, opening=str(next(self._openings)))
                place = {"scratch": f"{self._state.scratch}/{name}-{queue.opening}"}
            self._state.queues[name] = queue
            await _all(
                self._actors.spawn(
                    f"queue/{name}/{index}",
                    name,
                    places[index % len(places)],
                    sealed,
                    (name, index, 1, queue.options | place),
                )
                for index in range(queue.shards)
            )
        except BaseException:
            await self.close(name)
            raise

    async def _kept(self, name: str, queue: OpenQueue, store: dict[str, Any], worker: str) -> OpenQueue:
        """Return a durable queue with the shards and options recorded in its store, or record them for a new one."""
        # A queue keeps the shards and options it was made with: its messages are spread over that many logs.
        lasting = {key: value for key, value in queue.options.items() if key != "store"}
        asked = {"directory": store["directory"], "name": name, "shards": queue.shards, "options": lasting}
        kept = await ask_worker(self._state.scheduler, worker, "dq_keep", **asked)
        return OpenQueue(kept["shards"], {**kept["options"], "store": store})

    # --- closing ------------------------------------------------------------------------------

    async def leave(self, name: str, client: str, *, force: bool) -> int:
        """Close a queue for its last client (with `force`, for all) and return how many others keep it open."""
        async with self._state.turn(name):  # else it would close a queue that another client has just opened
            others = len(self._attachments.of(name) - {client})
            if others and not force:
                return others
            await self.close(name)
            return 0

    async def close(self, name: str) -> None:
        """Retire a queue's consumers, then close and release its shards, with the queue's turn held by the caller."""
        shards = [entry for entry in self._state.of(name) if entry.is_shard]
        # Before anything is retired: a queue that is not open gets no actors, and a forgotten set no replacements. So
        # do not wait for a set that is being made: `spawn` refuses its next consumers, and the others are retired here.
        self._state.queues.pop(name, None)
        self._supervisor.changed()
        self._attachments.forget(name)
        self._consumer_sets.forget_queue(name)
        await self._actors.retire([entry.name for entry in self._state.of(name) if not entry.is_shard])
        await self._actors.close_shards(shards)
        self._state.collector.forget_queue(name)

    # --- vacant queues ---------------------------------------------------------------------

    async def watch(self) -> None:
        """Close vacant queues, looking once a minute, forever."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self.close_vacant(asyncio.get_running_loop().time())
            except Exception:  # the next look may succeed
                logger.exception("event=look_failed")

    async def close_vacant(self, now: float) -> list[str]:
        """Close queues that have been vacant for an hour, by a monotonic `now`, and return their names."""
        state = self._state
        before, self._vacant = self._vacant, {}
        for queue in state.queues:
            had = self._had(queue)
            if had is not None:
                was, since = before.get(queue, (had, now))
                self._vacant[queue] = had, since if was == had else now
        due = [queue for queue, (_, since) in self._vacant.items() if now - since >= CLOSE_AFTER]
        closed = []
        for queue in due:
            async with state.turn(queue):  # a client that opens it meanwhile waits, and gets a new queue
                had, since = self._vacant.get(queue, (None, now))
                if queue not in state.queues or had is None or self._had(queue) != had:
                    continue  # a client came or put messages while we waited for the turn
                logger.info("event=queue_closed queue=%s reason=vacant seconds=%d", queue, now - since)
                await self.close(queue)
                closed.append(queue)
        return closed

    def _had(self, queue: str) -> tuple[int, int] | None:
        """Return the number of messages and the last arrival of a vacant queue, or None if it is not vacant."""
        # Both together tell whether the queue was used between two looks, even if it is vacant at both.
        known = self._state.collector.known
        if self._attachments.of(queue):
            return None
        shards = known.shards(queue).reports
        # A shard that has not reported may hold messages.
        if len(shards) < self._state.queues[queue].shards or any(shard.stored for shard in shards):
            return None
        lanes = known.lanes(queue)
        if any(lane.name is not None and lane.counts[State.LOST] for lane in lanes.working()):
            return None
        counts = lanes.counts
        return None if counts.left or counts.dead else (counts.all, self._attachments.last_came(queue))


async def _all(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run steps concurrently, and once one fails, cancel the others and raise its error when all have ended."""
    # A TaskGroup would raise an ExceptionGroup, and clients catch the error itself.
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
