"""Which clients have which queues open, and the end of queues that nobody has and that hold nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dqlab.rules.states import State

if TYPE_CHECKING:
    from dqlab.cluster.scheduler.registry import Registry

__all__ = ["AWAY", "CLOSE_AFTER", "Attachments"]

logger = logging.getLogger("dqlab.registry")

CLOSE_AFTER = 3600.0
"""Seconds a vacant queue stays open."""
LOOK_EVERY = 60.0
MAX_LEFT = 1000
"""Clients that left and whose open queues are remembered."""
AWAY = 5.0
"""Seconds after which a client that left is not expected back, and what it was submitting counts as cut off."""


class Attachments:
    """Clients by queue. A queue without any, and without messages, dead letters, lost documents and results, is vacant.

    What is left of a run waits for its owner, who may be away for a weekend, and keeps its queue open.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._clients: dict[str, set[str]] = {}
        self._left: dict[str, list[str]] = {}
        """Clients that are gone, and what they had open: one that only lost its connection comes back."""
        self._away: set[str] = set()
        """Those of them that may come back any moment."""
        self._vacant: dict[str, tuple[int, float]] = {}
        """Vacant queue to the messages it has ever had, and since when they are as many."""

    def add(self, queue: str, client: str) -> None:
        """Note that a client has a queue open."""
        self._clients.setdefault(queue, set()).add(client)
        self._vacant.pop(queue, None)

    def others(self, queue: str, client: str) -> int:
        """Return how many clients other than this one have a queue open."""
        return len(self._clients.get(queue, set()) - {client})

    def forget(self, queue: str) -> None:
        """Forget a queue that is closed."""
        self._clients.pop(queue, None)

    def client_left(self, client: str) -> None:
        """Detach a client from every queue; queues belong to the cluster and stay."""
        had = [queue for queue, clients in self._clients.items() if client in clients]
        for queue in had:
            self._clients[queue].discard(client)
        if had:
            self._left[client] = had
            if len(self._left) > MAX_LEFT:
                del self._left[next(iter(self._left))]
            self._away.add(client)
            self._registry.in_background(self._cut_off(client, had))

    def alive(self) -> list[str]:
        """Return the clients that are here, or were a moment ago."""
        return list(self._away.union(self._registry.scheduler.clients))

    async def _cut_off(self, client: str, queues: list[str]) -> None:
        """Let shards seal what a client was submitting, unless it has come back."""
        await asyncio.sleep(AWAY)
        if self._left.get(client) is queues:
            self._away.discard(client)
            for queue in queues:
                await self.cut_off(queue)

    async def cut_off(self, queue: str) -> None:
        """Let a queue's shards seal what clients were submitting that are gone."""
        await self._registry.ask_shards(queue, "cut_off", {"alive": self.alive()})

    async def cut_off_now(self, queue: str, run: bytes | None = None) -> None:
        """Do so without waiting for clients that left, and for a run whose client gave it up: it is submitted again."""
        alive = list(self._registry.scheduler.clients)
        await self._registry.ask_shards(queue, "cut_off", {"alive": alive, "run": run})

    def client_came(self, client: str) -> None:
        """Attach a client that has come back to those of its queues that are still open."""
        self._away.discard(client)
        for queue in self._left.pop(client, ()):
            if queue in self._clients:
                self.add(queue, client)

    # --- queues of nobody -------------------------------------------------------------------

    async def watch(self) -> None:
        """Look for vacant queues once a minute, for ever."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self.close_vacant(asyncio.get_running_loop().time())
            except Exception:  # the next look may fare better
                logger.exception("event=look_failed")

    async def close_vacant(self, now: float) -> list[str]:
        """Close what has been vacant for an hour; return the names.

        Parameters
        ----------
        now : float
            Monotonic seconds.
        """
        registry = self._registry
        before, self._vacant = self._vacant, {}
        for queue in registry.queues:
            had = None if self._clients.get(queue) else self._had(queue)
            if had is not None:
                was, since = before.get(queue, (had, now))
                self._vacant[queue] = had, since if was == had else now
        due = [queue for queue, (_, since) in self._vacant.items() if now - since >= CLOSE_AFTER]
        closed = []
        for queue in due:
            async with registry.turn(queue):  # a client that opens it meanwhile gets a new one
                had, since = self._vacant.get(queue, (None, now))
                if queue not in registry.queues or had is None or self._clients.get(queue) or self._had(queue) != had:
                    continue  # somebody has come, or put something, while it was waited for
                logger.info("event=queue_closed queue=%s reason=vacant seconds=%d", queue, now - since)
                await registry.close_queue(queue)
                closed.append(queue)
        return closed

    def _had(self, queue: str) -> int | None:
        """Return how many messages a queue has had that holds nothing now, else None."""
        shards = self._registry.collector.shards(queue)
        if len(shards) < self._registry.queues[queue]["shards"] or any(shard["stored"] for shard in shards):
            return None
        lanes = self._registry.collector.lanes(queue)
        if any(lane["name"] is not None and lane["counts"][State.LOST] for lane in lanes.working()):
            return None
        counts = lanes.counts
        return None if counts.left or counts.dead else counts.all
