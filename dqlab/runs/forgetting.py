"""Results of single calls are kept as long as somebody can ask for them: until their `PutResult` is gone."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from dqlab.cluster.transport.handle import Handle
from dqlab.cluster.transport.internals import event_loop
from dqlab.cluster.transport.orders import Forget
from dqlab.cluster.transport.ref import Replaced
from dqlab.errors import DqlabError
from dqlab.frame import NO_ID
from dqlab.rules.ids import shard_of
from dqlab.runs.submit.ticket import Ticket

__all__ = ["Forgetting"]

logger = logging.getLogger("dqlab.sender")

GATHER_S = 0.5
"""Seconds for which calls are gathered whose results nobody can ask for any more."""
AT_ONCE = 1000
"""Ranges of ids in one order."""


class Forgetting:
    """Tells a queue which results nobody will ask for."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._tickets: deque[Ticket] = deque()
        self._awake = False

    def drop(self, ticket: Ticket) -> None:
        """Note that nobody can ask for a put's results any more; from any thread, also while garbage is collected."""
        self._tickets.append(ticket)
        if not self._awake:
            self._wake()

    def _wake(self) -> None:
        if not self._handle.link.closed:
            self._awake = True
            try:
                event_loop(self._handle.link.client).call_soon_threadsafe(self._begin)
            except RuntimeError:  # the loop has ended, and this client with it
                self._tickets.clear()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dqlab-forget-{self._handle.name}")

    async def _run(self) -> None:
        try:
            while self._tickets and not self._handle.link.closed:
                await asyncio.sleep(GATHER_S)
                await self._tell()
        finally:
            self._awake = False
            if self._tickets:
                self._wake()

    async def _tell(self) -> None:
        """Send what is confirmed; what is not yet is looked at again."""
        forgotten: dict[tuple[int, str | None], list[tuple[int, int]]] = {}
        for _ in range(len(self._tickets)):
            ticket = self._tickets.popleft()
            if not ticket.done.done():
                self._tickets.append(ticket)
            elif ticket.done.exception() is None:
                for ids, actor in zip(ticket.ranges, ticket.actors, strict=True):
                    forgotten.setdefault((shard_of(ids[0]), actor), []).append(ids)
        for (shard, actor), ranges in forgotten.items():
            ranges.sort()
            handle = self._handle.of_actor(shard, actor)
            for at in range(0, len(ranges), AT_ONCE):
                order = Forget(NO_ID, ranges[at : at + AT_ONCE], coming=True)
                try:
                    await handle.order(order, shard=shard)
                except Replaced:  # they went with it, and their ids are those of others now
                    break
                except DqlabError as error:  # they stay where they are, and cost room
                    logger.debug("event=forget_failed queue=%s %s", self._handle.name, error)
