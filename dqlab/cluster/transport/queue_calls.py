"""Calls to the shards of one queue, together; from a client or from the scheduler, which reach them differently."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from dqlab.cluster.transport.ref import RPC_TIMEOUT
from dqlab.cluster.transport.wire import pack, unpack

__all__ = ["TRANSIENT", "QueueCalls", "shard_of"]

SHARD_SHIFT = 45
TRANSIENT = "transient"
"""Promise of a queue in memory."""


def shard_of(id: int) -> int:
    """Return the shard a message id belongs to."""
    return id >> SHARD_SHIFT


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
    async def call(self, shard: int, call: str, body: bytes, *, timeout: float) -> bytes:
        """Call one shard with packed arguments; return its packed answer."""

    @abstractmethod
    async def keep_note(self, run: bytes, facts: dict[str, Any] | None) -> None:
        """Have facts about a run kept by the scheduler; see `RunNotes.note`."""

    async def ask(
        self, shard: int, call: str, meta: dict[str, Any], *parts: bytes, wait: float = 0.0
    ) -> tuple[dict[str, Any], list[memoryview]]:
        """Call one shard; `wait` is how long the shard may park the call, seconds."""
        return unpack(await self.call(shard, call, pack(meta, *parts), timeout=RPC_TIMEOUT + wait))

    async def ask_all(self, call: str, meta: dict[str, Any], *, wait: float = 0.0) -> list[dict[str, Any]]:
        """Call every shard with the same arguments; return their answers."""
        answers = await asyncio.gather(*(self.ask(index, call, meta, wait=wait) for index in range(self.shards)))
        return [meta for meta, _ in answers]

    async def note(self, run: bytes, facts: dict[str, Any] | None) -> None:
        """Have facts about a run in memory kept outside of its shards, or forgotten; see `RunNotes.note`."""
        if self.promise == TRANSIENT:
            await self.keep_note(run, facts)

    async def control(self, op: str, **meta: Any) -> int:
        """Give an order to every shard; return the messages it touched."""
        return sum(answer["count"] for answer in await self.ask_all("control", {"op": op, **meta}))

    async def control_ids(self, op: str, run: bytes, ids: Sequence[tuple[int, int]], **meta: Any) -> int:
        """Give an order about id ranges to the shards they belong to, and to the first, which keeps the run record."""
        by_shard: dict[int, list[tuple[int, int]]] = {0: []}
        for lo, hi in ids:
            by_shard.setdefault(shard_of(lo), []).append((lo, hi))
        answers = await asyncio.gather(
            *(self.ask(at, "control", {"op": op, "run": run, "ids": own, **meta}) for at, own in by_shard.items())
        )
        return sum(answer["count"] for answer, _ in answers)
