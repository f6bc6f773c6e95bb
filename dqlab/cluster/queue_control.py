"""Orders of users to one shard: open, pause, cancel, retry, drop."""

from __future__ import annotations

from dqlab.cluster.queue_desk import QueueDesk
from dqlab.cluster.wire import pack, unpack

__all__ = ["QueueControl"]


class QueueControl(QueueDesk):
    """The part of a queue actor that obeys."""

    async def control(self, body: bytes) -> bytes:
        """Apply one order of a user: {op, run?, ...}; answers {count}."""
        meta, _ = unpack(body)
        op, run = meta.pop("op"), meta.pop("run", None)
        count = self.ledger.order(op, run, meta)
        self._store.ordered(op, run, meta)
        if op in ("pause", "drain"):
            self._give_back_untouched(run)
        self._dispatch()
        await self._store.durable()
        return pack({"count": count})

    def _give_back_untouched(self, run: bytes | None) -> None:
        for lease in list(self.shard.leases.values()):
            if run in (None, lease.run):
                self._lot.order(lease.consumer, op="give_back", lease=lease.id, n=1 << 30)
