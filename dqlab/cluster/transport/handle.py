"""A queue, as a client calls it."""

from __future__ import annotations

import asyncio
import copy
from typing import Self

from dqlab.cluster.transport.calls import A, Call
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.orders import TRANSIENT
from dqlab.cluster.transport.queue_calls import QueueCalls
from dqlab.cluster.transport.ref import RPC_TIMEOUT, Ref
from dqlab.errors import RunNotFound
from dqlab.texts import as_name


class Handle(QueueCalls):
    """Calls the shards of one queue from a client."""

    run = ""
    """Name of the run that calls are about, for errors, since shards know only its id; "" for the whole queue."""

    def __init__(
        self, link: Link, name: str, shards: int, promise: str = TRANSIENT, store: str = "", opening: str = ""
    ) -> None:
        # promise: what a confirmed message survives. "transient": the end of workers; others as in `LogOptions.sync`.
        self.link, self.name, self.promise = link.named(f"queue {name!r}", f"lab.queue({name!r})"), name, promise
        self.link.store = store
        self.opening = opening
        """Which queue of this name it is; "" for a durable one, which goes on when it is opened again."""
        self.shards = shards
        names = (f"queue/{name}/{index}" for index in range(shards))
        self.refs = [Ref(shard, link.client, direct=link.direct, opening=opening) for shard in names]

    def of_run(self, name: str) -> Self:
        """Return a copy of the handle for a run of the queue, which errors then name."""
        handle = copy.copy(self)
        handle.run, handle.link = name, self.link.named(f"run {name!r}", f"lab.attach({name!r})")
        return handle

    async def missing(self) -> tuple[bool, bool]:
        """Return whether a shard is gone for good or unknown, and whether one is not recreated within 10 s."""
        resolve, opening = self.link.scheduler, self.opening
        places = await asyncio.gather(*(resolve("dq_resolve", name=ref.name, opening=opening) for ref in self.refs))
        gone = any(place["gone"] is not None for place in places)
        return gone, any(place["gone"] is None and place["address"] is None for place in places)

    async def ask(self, shard: int, call: Call[A], *parts: bytes, wait: float = 0.0) -> tuple[A, list[memoryview]]:
        """Call one shard as `QueueCalls.ask` says, and name the run in RunNotFound."""
        try:
            answer = await self.refs[shard].call(call.method, call.pack(*parts), timeout=RPC_TIMEOUT + wait)
        except RunNotFound:
            if not self.run:
                raise
            hint = " It was dropped, or went with its queue; if it is still listed, drop it again."
            raise RunNotFound(run=self.run, hint=hint, known="see lab.runs") from None
        return call.opened(answer)

    # Not an `Order`: shards record the messages it moves, as a released lease does, and replay those.
    async def let_go(
        self, *, consumer: str = "", document: str = "", run: bytes | None = None, give_up: bool
    ) -> list[str]:
        """Take running messages from their consumers, and return the documents' names, sorted."""
        consumer, document = as_name(consumer), as_name(document)
        call = self.link.scheduler
        return sorted(
            await call("dq_let_go", queue=self.name, consumer=consumer, document=document, run=run, give_up=give_up)
        )
