"""Opens queues and closes them, also empty ones that no client has open, and keeps track of what clients hold."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from dqlab.cluster.scheduler.actors import Actors, Supervisor
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.state import ClusterState, Entry, NoWorkers, OpenQueue
from dqlab.cluster.transport.calls import CutOffCall, SubmittingCall
from dqlab.cluster.transport.internals import ask_worker
from dqlab.cluster.transport.parking import Bell
from dqlab.rules.states import State

MAX_LEFT = 1000
"""Most clients that left whose open queues are remembered."""
AWAY = 5.0
"""Seconds after which a client that left is not expected back, and its unfinished submissions count as cut off."""
REMEMBERED = 1000
"""Most tokens of ended claims that are remembered."""


class Attachments:
    """Clients by the queues they have open."""

    def __init__(self, state: ClusterState, actors: Actors) -> None:
        self._state = state
        self._actors = actors
        self._clients: dict[str, set[str]] = {}
        self._left: dict[str, list[str]] = {}
        """Clients that left, with the queues they had open: a client that only lost its connection comes back."""
        self._arrivals = count(1)
        self._came: dict[str, int] = {}

    def add(self, queue: str, client: str) -> None:
        """Note that a client has a queue open."""
        self._clients.setdefault(queue, set()).add(client)
        self._came[queue] = next(self._arrivals)

    def of(self, queue: str) -> set[str]:
        """Return the clients that have a queue open."""
        return self._clients.get(queue, set())

    def last_came(self, queue: str) -> int:
        """Return the unique number of the newest arrival of a client at a queue, 0 if none came."""
        return self._came.get(queue, 0)

    def forget(self, queue: str) -> None:
        """Forget a queue that is closed."""
        self._clients.pop(queue, None)
        self._came.pop(queue, None)

    def client_left(self, client: str) -> None:
        """Detach a client from all queues, which belong to the cluster and stay open."""
        had = [queue for queue, clients in self._clients.items() if client in clients]
        for queue in had:
            self._clients[queue].discard(client)
        if had:
            self._left[client] = had
            if len(self._left) > MAX_LEFT:
                del self._left[next(iter(self._left))]
            self._state.away.add(client)
            self._state.in_background(self._cut_off(client, had))

    def client_came(self, client: str) -> None:
        """Attach a returning client to those of its queues that are still open."""
        self._state.away.discard(client)
        for queue in self._left.pop(client, ()):
            if queue in self._clients:
                self.add(queue, client)

    async def _cut_off(self, client: str, queues: list[str]) -> None:
        """Seal a client's unfinished submissions, unless it comes back within `AWAY`."""
        await asyncio.sleep(AWAY)
        # `is`, not ==: a client that came back and left again has a new list, and its own task.
        if self._left.get(client) is queues:
            self._state.away.discard(client)
            for queue in queues:
                await self.cut_off(queue)

    async def cut_off(self, queue: str) -> None:
        """Make a queue's shards seal the unfinished submissions of clients that are gone."""
        await self._seal(queue, self._state.clients)

    async def cut_off_now(self, queue: str, run: bytes | None = None) -> None:
        """Seal like `cut_off`, but without waiting for clients that left a moment ago, and also seal `run`."""
        # The client of `run` still lives: it has given the run up in order to submit it again.
        await self._seal(queue, lambda: list(self._state.scheduler.clients), run)

    async def _seal(self, queue: str, alive: Callable[[], list[str]], run: bytes | None = None) -> None:
        """Seal the submissions of clients that shards know and `alive` does not return."""
        answers = await self._actors.ask_shards(queue, SubmittingCall())
        # Call `alive` only after the shards have answered: every client they name had connected by then. Do not send
        # the living clients to the shards instead: a client that connects meanwhile would lose the run it begins.
        gone = {client for answer in answers for client in answer.clients} - set(alive())
        if gone or run is not None:
            await self._actors.ask_shards(queue, CutOffCall(sorted(gone), run))


class Claims:
    """Exclusive claims of clients, as to start a run under a name."""

    # A client may hold several claims to the same thing: its threads agree among themselves.

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._held: dict[str, dict[str, str]] = {}
        """Claimed thing to its claims: token to client."""
        self._over: deque[str] = deque(maxlen=REMEMBERED)
        """Tokens of claims that were taken back, perhaps before the claim was granted or had arrived."""
        self._changed = Bell()

    async def claim(self, what: str, client: str, token: str, wait: float = 0.0) -> bool:
        """Return whether a claim is granted, because no other client holds it after at most `wait` seconds."""
        # The client chooses the token, so that it can take the claim back even if this answer never arrives.
        await self._changed.until(lambda: token in self._over or self._holder(what) in (None, client), wait)
        if token in self._over or self._holder(what) not in (None, client):
            return False
        # Drop the claims of clients that are gone: nobody else does.
        self._held = {name: claims for name, claims in self._held.items() if self._holder(name) is not None}
        self._held.setdefault(what, {})[token] = client
        return True

    async def disclaim(self, what: str, token: str) -> None:
        """Take a claim back."""
        self._over.append(token)
        self._held.get(what, {}).pop(token, None)
        self._changed.ring()

    def _holder(self, what: str) -> str | None:
        alive = self._state.clients()
        return next((client for client in self._held.get(what, {}).values() if client in alive), None)


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
        known = self._state.collector.known.of(queue)
        if self._attachments.of(queue):
            return None
        shards = known.reports.values()
        # A shard that has not reported may hold messages.
        if len(shards) < self._state.queues[queue].shards or any(shard.stored for shard in shards):
            return None
        lanes = known.lanes
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
