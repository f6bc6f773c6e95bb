"""Orders of users to one shard: open, pause, cancel, retry, drop."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from itertools import islice
from typing import Any

from dqlab.cluster.shard.queue_desk import QueueDesk
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.errors import RunCancelled
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State
from dqlab.store.compaction import Compacted

__all__ = ["QueueControl"]


class QueueControl(QueueDesk):
    """The part of a queue actor that obeys."""

    async def control(self, body: bytes) -> bytes:
        """Apply one order of a user: {op, run?, ...}; answers {count}."""
        meta, _ = unpack(body)
        op, run = meta.pop("op"), meta.pop("run", None)
        if op == "reopen":
            self._refuse_cancelled(run)
        return pack({"count": await self._obey(op, run, meta)})

    async def retry(self, body: bytes) -> bytes:
        """Deliver dead messages again: {run, classes, after, limit, function?, blob?, code?}, classes by fingerprint.

        Answers {count, after}: call again with that `after` until it is None.
        """
        meta, _ = unpack(body)
        run, classes, after, limit = (meta.pop(name) for name in ("run", "classes", "after", "limit"))
        found = list(islice(self.shard.lane(run).dead_ids(after, classes), limit))
        meta["ids"] = list(Ranges((id, id + 1) for id, _ in found))
        meta["ordinals"] = list(Ranges((ordinal, ordinal + 1) for _, ordinal in found))
        count = await self._obey("retry", run, meta)
        return pack({"count": count, "after": found[-1][0] if limit and len(found) == limit else None})

    async def _obey(self, op: str, run: bytes | None, meta: dict[str, Any]) -> int:
        """Carry out one order, keep it, and do what follows."""
        count = self.ledger.obey(op, run, meta)
        if op in ("pause", "drain", "adopt"):
            self._give_back_untouched(run)
        self._dispatch()
        await self._store.durable()
        return count

    async def claim(self, body: bytes) -> bytes:
        """Take lost documents of a run from nobody who has an older claim: {run, claim}."""
        meta, _ = unpack(body)
        self.ledger.book(meta["run"]).bid(meta["claim"])
        return pack({})

    async def cut_off(self, body: bytes) -> bytes:
        """Seal the runs that somebody was submitting who is gone: {alive, run?}, clients; answers how many.

        Also `run`, which is submitted by nobody, as its own client says.
        """
        meta, _ = unpack(body)
        sealed = self._cut_off(meta["alive"], meta.get("run"))
        await self._store.durable()
        return pack({"sealed": sealed})

    async def compact(self, body: bytes) -> bytes:
        """Give disk space back, or go on waiting for that: {wait}.

        Answers {done, copied, of}: bytes copied and to be copied now, and of a finished one what it gave. A
        transient shard has nothing to give back.
        """
        meta, _ = unpack(body)
        if self._upkeep is None:
            return pack({"done": asdict(Compacted()), "copied": 0, "of": 0})
        if self._compacting is None:
            self._compacting = asyncio.get_running_loop().create_task(self._upkeep.compact(), name="dqlab-compact")
        task = self._compacting
        await asyncio.wait([task], timeout=meta["wait"])
        copied, of = self._upkeep.copied
        if not task.done():
            return pack({"done": None, "copied": copied, "of": of})
        if self._compacting is task:
            self._compacting = None
        return pack({"done": asdict(task.result()), "copied": of, "of": of})

    def _refuse_cancelled(self, run: bytes) -> None:
        """Raise `RunCancelled` for a run that takes nothing any more."""
        book = self.ledger.book(run)
        if book.record is not None and book.record.cancelled:
            counts = book.lane.counts
            raise RunCancelled(
                run=book.record.name,
                cancelled=counts[State.CANCELLED],
                total=sum(counts),
                acked=counts[State.ACKED],
            )
