"""Calls to the shards of one queue, together; from a client or from the scheduler, which reach them differently."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from dqlab.cluster.transport.orders import Order
from dqlab.cluster.transport.ref import RPC_TIMEOUT
from dqlab.cluster.transport.wire import Packed, pack, unpack

__all__ = ["TRANSIENT", "QueueCalls"]

TRANSIENT = "transient"
"""Promise of a queue in memory."""


class QueueCalls(ABC):
    """What can be asked of a queue's shards, by clients and the scheduler.

    Attributes
    ----------
    name : str
        The queue's name.
    promise : str
        What a confirmed message survives: "transient" = nothing; else see `LogOptions.sync`.
    """

    name: str
    promise: str

    @property
    @abstractmethod
    def shards(self) -> int:
        """How many shards it has."""

    @abstractmethod
    async def call(self, shard: int, call: str, body: Packed, *, timeout: float) -> Packed:
        """Call one shard with packed arguments; return its packed answer."""

    @abstractmethod
    async def keep_note(self, run: bytes, facts: dict[str, Any] | None) -> None:
        """Make the scheduler keep facts about a run; see `RunNotes.note`."""

    async def ask(
        self, shard: int, call: str, meta: dict[str, Any], *parts: bytes, wait: float = 0.0
    ) -> tuple[dict[str, Any], list[memoryview]]:
        """Call one shard; `wait` is how long the shard may park the call, seconds."""
        return unpack(await self.call(shard, call, pack(meta, *parts), timeout=RPC_TIMEOUT + wait))

    async def ask_all(self, call: str, meta: dict[str, Any], *, wait: float = 0.0) -> list[dict[str, Any]]:
        """Call every shard with the same arguments; return their answers."""
        answers = await asyncio.gather(*(self.ask(index, call, meta, wait=wait) for index in range(self.shards)))
        return [meta for meta, _ in answers]

    async def order(self, order: Order, *, shard: int | None = None) -> int:
        """Give an order to the shards that it is for, or to one of them; return the messages it touched.

        What must not be lost with a shard in memory is noted before any shard has it: one that dies in between is
        recreated with it. A note may be ahead of the shards, and never behind.
        """
        note = order.note()
        if note is not None and self.promise == TRANSIENT:
            await self.keep_note(note.run, note.facts)
        shards = list(order.shards(self.shards)) if shard is None else [shard]
        return sum([sum(await asyncio.gather(*(self._give(order, at) for at in wave))) for wave in order.waves(shards)])

    async def _give(self, order: Order, shard: int) -> int:
        answers = [await self.ask(shard, "control", message) for message in order.messages(shard)]
        return sum(answer["count"] for answer, _ in answers)
