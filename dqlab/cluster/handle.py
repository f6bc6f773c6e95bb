"""A queue as seen from a client: its shards, called together."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any, Self

from dqlab.cluster.link import Link
from dqlab.cluster.ref import RPC_TIMEOUT, Ref
from dqlab.cluster.wire import pack, unpack

__all__ = ["TRANSIENT", "Handle", "shard_of"]

SHARD_SHIFT = 45
TRANSIENT = "transient"
"""Promise of a queue in memory."""


def shard_of(id: int) -> int:
    """Return the shard a message id belongs to."""
    return id >> SHARD_SHIFT


class Handle:
    """Calls to a queue's shards.

    Parameters
    ----------
    name : str
        The queue's name.
    shards : int
        How many shards it has; never changes.
    promise : str, default "transient"
        What a confirmed message survives: "transient" = nothing; else see `LogOptions.sync`.
    """

    def __init__(self, link: Link, name: str, shards: int, promise: str = TRANSIENT) -> None:
        self.link, self.name, self.promise = link.named(f"queue {name!r}"), name, promise
        self.refs = [Ref(f"queue/{name}/{index}", link.client, direct=link.direct) for index in range(shards)]

    def named(self, what: str) -> Self:
        """Return the same handle for something that lives in the queue, which errors then name."""
        handle = copy.copy(self)
        handle.link = self.link.named(what)
        return handle

    async def missing(self) -> tuple[bool, bool]:
        """Return whether a shard is gone for good or nobody knows it, and whether one is not made anew within 10 s."""
        resolve = self.link.scheduler
        places = await asyncio.gather(*(resolve("dq_resolve", name=ref.name) for ref in self.refs))
        gone = any(place["gone"] is not None for place in places)
        return gone, any(place["gone"] is None and place["address"] is None for place in places)

    async def ask(
        self, shard: int, call: str, meta: dict[str, Any], *parts: bytes, wait: float = 0.0
    ) -> tuple[dict[str, Any], list[memoryview]]:
        """Call one shard; `wait` is how long the shard may park the call, seconds."""
        answer = await self.refs[shard].call(call, pack(meta, *parts), timeout=RPC_TIMEOUT + wait)
        return unpack(answer)

    async def ask_all(self, call: str, meta: dict[str, Any], *, wait: float = 0.0) -> list[dict[str, Any]]:
        """Call every shard with the same arguments; return their answers."""
        answers = await asyncio.gather(*(self.ask(index, call, meta, wait=wait) for index in range(len(self.refs))))
        return [meta for meta, _ in answers]

    async def note(self, run: bytes, facts: dict[str, Any] | None) -> None:
        """Have facts about a run in memory kept outside of its shards, or forgotten; see `Losses.note`."""
        if self.promise == TRANSIENT:
            await self.link.scheduler("dq_note_run", queue=self.name, run=run, facts=facts)

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
