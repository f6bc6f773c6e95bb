"""Opens queues and closes them, including those that no client has open and that hold nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.clients import Attachments
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.placement import NoWorkers
from dqlab.cluster.scheduler.run_notes import RunNotes
from dqlab.cluster.scheduler.state import ClusterState, Entry, OpenQueue
from dqlab.cluster.scheduler.supervisor import Supervisor
from dqlab.cluster.transport.errands import ask_worker
from dqlab.rules.states import State

__all__ = ["CLOSE_AFTER", "Queues"]

logger = logging.getLogger("dqlab.registry")

CLOSE_AFTER = 3600.0
"""Seconds a vacant queue stays open."""
RESTARTED_IN = 3.0
"""Seconds that a queue which is opened waits for a worker, where all that there were died a moment ago."""
LOOK_EVERY = 60.0


class Queues:
    """Opens and closes queues; calls for one name take turns.

    A queue with no client, messages, dead letters, lost documents or results is vacant. What is left
    of a run waits for its owner, who may be away for a weekend, and keeps its queue open.
    """

    def __init__(
        self,
        state: ClusterState,
        actors: Actors,
        attachments: Attachments,
        supervisor: Supervisor,
        consumer_sets: ConsumerSets,
        run_notes: RunNotes,
    ) -> None:
        self._state = state
        self._actors = actors
        self._attachments = attachments
        self._supervisor = supervisor
        self._consumer_sets = consumer_sets
        self._run_notes = run_notes
        self._vacant: dict[str, tuple[tuple[int, int], float]] = {}
        """Vacant queue to what it has ever had, and since when that has not changed."""

    async def list_open(self) -> dict[str, dict[str, Any]]:
        """Return every open queue's options."""
        return {name: queue.to_dict() for name, queue in self._state.queues.items()}

    async def list_stored(self, store: str) -> list[str]:
        """Return the names of the queues in a store, open or not, as seen by the workers that would host them."""
        places = self._state.plan().queues
        if not places:
            return []
        names: list[str] = await ask_worker(self._state.scheduler, places[0], "dq_stored", store=store)
        return names

    # --- opening ------------------------------------------------------------------------------

    async def open(self, name: str, shards: int, options: dict[str, Any], sealed: bytes, client: str) -> dict[str, Any]:
        """Make a queue's shards, or return the options of the queue that is already open; attach the client.

        A durable queue that exists keeps the shards and options that it was made with. If a shard cannot be
        recovered, or for long had no worker or a failing log, the queue is opened again: in its store, also for a
        client that asks for one in memory.
        """
        asked = OpenQueue(shards, options)
        async with self._state.turn(name):
            self._attachments.add(name, client)
            if any(self._is_lost(entry) for entry in self._state.of(name)):
                known = self._state.queues.get(name)
                if known is not None and known.store is not None and asked.store is None:
                    asked = known
                await self.close(name)
                self._attachments.add(name, client)
            created = name not in self._state.queues
            if created:
                await self._make(name, asked, sealed)
            return {"created": created, **self._state.queues[name].to_dict()}

    def _is_lost(self, entry: Entry) -> bool:
        return entry.is_shard and (entry.gone is not None or bool(self._actors.hopeless(entry)))

    async def _make(self, name: str, queue: OpenQueue, sealed: bytes) -> None:
        self._state.queues[name] = queue
        try:
            if self._state.missing:  # all may be restarting
                await self._supervisor.place_comes(RESTARTED_IN)
            places = self._state.plan().queues
            if not places:
                raise NoWorkers(queue=name)
            if queue.store is not None:
                self._state.queues[name] = queue = await self._kept(name, queue, queue.store, places[0])
            await _all(
                self._actors.spawn(
                    f"queue/{name}/{index}", name, places[index % len(places)], sealed, (name, index, 1, queue.options)
                )
                for index in range(queue.shards)
            )
        except BaseException:
            await self.close(name)
            raise

    async def _kept(self, name: str, queue: OpenQueue, store: dict[str, Any], worker: str) -> OpenQueue:
        """Return a durable queue with the shards and options kept in its store; record them if it is new."""
        lasting = {key: value for key, value in queue.options.items() if key != "store"}
        asked = {"directory": store["directory"], "name": name, "shards": queue.shards, "options": lasting}
        kept = await ask_worker(self._state.scheduler, worker, "dq_keep", **asked)
        return OpenQueue(kept["shards"], {**kept["options"], "store": store})

    # --- closing ------------------------------------------------------------------------------

    async def leave(self, name: str, client: str, *, force: bool) -> int:
        """Close a queue for its last client, or for all with `force`; return how many others keep it open."""
        async with self._state.turn(name):  # else it would remove what another client has just opened
            others = len(self._attachments.of(name) - {client})
            if others and not force:
                return others
            await self.close(name)
            return 0

    async def close(self, name: str) -> None:
        """Retire a queue's consumers, then close its shards and release them; callers hold the queue's turn.

        It does not wait for a set of consumers that is being made: what that still makes is refused, and what it has
        registered is among those that are retired here.
        """
        shards = [entry for entry in self._state.of(name) if entry.is_shard]
        # Before anything is retired: a queue that is not open gets no actors, and a forgotten set no replacements.
        self._state.queues.pop(name, None)
        self._supervisor.changed()
        self._attachments.forget(name)
        self._consumer_sets.forget_queue(name)
        await self._actors.retire([entry.name for entry in self._state.of(name) if not entry.is_shard])
        await self._actors.close_shards(shards)
        self._state.collector.forget_queue(name)
        self._run_notes.forget(name)

    # --- vacant queues ---------------------------------------------------------------------

    async def watch(self) -> None:
        """Look for vacant queues once a minute, forever."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self.close_vacant(asyncio.get_running_loop().time())
            except Exception:  # the next look may succeed
                logger.exception("event=look_failed")

    async def close_vacant(self, now: float) -> list[str]:
        """Close what has been vacant for an hour; return the names.

        Parameters
        ----------
        now : float
            Monotonic seconds.
        """
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
            async with state.turn(queue):  # a client that opens it now gets a new one
                had, since = self._vacant.get(queue, (None, now))
                if queue not in state.queues or had is None or self._had(queue) != had:
                    continue  # a client came, or put something, during the wait
                logger.info("event=queue_closed queue=%s reason=vacant seconds=%d", queue, now - since)
                await self.close(queue)
                closed.append(queue)
        return closed

    def _had(self, queue: str) -> tuple[int, int] | None:
        """Return how many messages a vacant queue has had, and its last arrival; None if it is not vacant."""
        known = self._state.collector.known
        if self._attachments.of(queue):
            return None
        shards = known.shards(queue).reports
        if len(shards) < self._state.queues[queue].shards or any(shard.stored for shard in shards):
            return None
        lanes = known.lanes(queue)
        if any(lane.name is not None and lane.counts[State.LOST] for lane in lanes.working()):
            return None
        counts = lanes.counts
        return None if counts.left or counts.dead else (counts.all, self._attachments.last_came(queue))


async def _all(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run steps concurrently; when one fails, cancel the others, and raise its error when all have ended."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
