"""Compaction of a queue on demand: all its shards at once, and how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import reduce
from operator import add

from dqlab.cluster.handle import Handle
from dqlab.store.compaction import Compacted

__all__ = ["compact_all"]

LOOK_EVERY = 0.2
"""Seconds between two looks at the progress; the queue answers at once when it is done."""


def compact_all(handle: Handle, progress: Callable[[int, int], None] | None) -> Compacted:
    """Compact every shard of a queue; see `QueuePool.compact`."""
    far = [(0, 0)] * len(handle.refs)

    async def compact(shard: int) -> Compacted:
        while True:
            answer, _ = await handle.ask(shard, "compact", {"wait": LOOK_EVERY}, wait=LOOK_EVERY)
            far[shard] = answer["copied"], answer["of"]
            if progress is not None:
                progress(sum(copied for copied, _ in far), sum(of for _, of in far))
            if answer["done"] is not None:
                return Compacted(**answer["done"])

    async def compact_each() -> list[Compacted]:
        return await asyncio.gather(*map(compact, range(len(far))))

    return reduce(add, handle.link.sync(compact_each()))
