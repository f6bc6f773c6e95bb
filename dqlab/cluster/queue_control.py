"""Orders of users to one shard: open, pause, cancel, retry, drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dqlab.cluster.book import CANCELLED, RunRecord
from dqlab.cluster.queue_desk import QueueDesk
from dqlab.cluster.wire import pack, unpack
from dqlab.queue.retry import Retry
from dqlab.queue.states import State

__all__ = ["QueueControl"]


class QueueControl(QueueDesk):
    """The part of a queue actor that obeys."""

    async def control(self, body: bytes) -> bytes:
        """Apply one order of a user: {op, run?, ...}; answers {count}."""
        meta, _ = unpack(body)
        run = meta.get("run")
        count = self._orders(run)[meta["op"]](meta)
        if meta["op"] in ("pause", "drain"):
            self._give_back_untouched(run)
        self._dispatch()
        return pack({"count": count or 0})

    def _orders(self, run: Any) -> dict[str, Callable[[dict[str, Any]], int | None]]:
        shard = self.shard
        return {
            "open": lambda meta: self._open(meta["open"]),
            "seal": lambda meta: self._seal(**meta["seal"]),
            "pause": lambda meta: shard.pause(run),
            "resume": lambda meta: self._resume(run),
            "drain": lambda meta: shard.drain(),
            "cancel": lambda meta: self._cancel(run),
            "purge": lambda meta: shard.purge(run, State[meta["state"]]),
            "retry": lambda meta: self._retry(run, meta),
            "retries": lambda meta: self._set_retries(run, meta["retries"]),
            "reopen": lambda meta: self._reopen(run),
            "drop": lambda meta: self._drop(run),
            "why": lambda meta: self._explain(run, meta["why"]),
            "submitted": lambda meta: self._submitted(run, meta),
        }

    def _explain(self, run: bytes, why: str) -> None:
        self._book(run).why = why

    def _cancel(self, run: bytes) -> int:
        """Cancel what is left of a run and take no more of it: puts on their way are refused."""
        lane = self.shard.lane(run)
        if not lane.sealed:
            self._seal(run, sum(lane.counts), incomplete=CANCELLED)
        return self.shard.cancel(run)

    def _reopen(self, run: bytes) -> None:
        self.shard.reopen_lane(run)
        book = self._book(run)
        book.ended = None
        if book.record is not None:
            book.record.total = book.record.incomplete = None

    def _submitted(self, run: bytes, meta: dict[str, Any]) -> None:
        record = self._book(run).record
        if record is not None:
            record.submitted, record.digest = meta["submitted"], meta["digest"]

    def _resume(self, run: bytes | None) -> None:
        for id, book in self.books.items():
            if run in (None, id) and not self._vault.full:
                book.stopped = False
        self.shard.resume(run)

    def _retry(self, run: bytes, meta: dict[str, Any]) -> int:
        book = self._book(run)
        if meta.get("function"):
            self._functions[meta["function"]] = meta["blob"]
            if book.record is not None and book.record.code["hash"] != meta["code"]["hash"]:
                book.record.codes.append(meta["code"])
        count = self.shard.retry(run, meta["ids"], meta.get("function"))
        for lo, hi in meta["ordinals"]:
            book.classes.retried(lo, hi - lo)
        if count:
            book.ended = None
        return count

    def _set_retries(self, run: bytes, retries: int) -> None:
        lane = self.shard.lane(run)
        lane.retry = replace(lane.retry, retries=retries)

    def _drop(self, run: bytes) -> int:
        book = self.books.pop(run, None)
        if book is None:
            return 0
        book.results.drop()
        self.shard.drop_lane(run)
        return 1

    def _give_back_untouched(self, run: bytes | None) -> None:
        for lease in list(self.shard.leases.values()):
            if run in (None, lease.run):
                self._lot.order(lease.consumer, op="give_back", lease=lease.id, n=1 << 30)

    def _open(self, spec: dict[str, Any]) -> None:
        run = spec["run"]
        if run in self.books:
            return
        retry = spec.get("retry")
        limits = {k: spec[k] for k in ("max_deliveries", "visibility_timeout", "maxsize", "max_bytes") if k in spec}
        self.shard.open_lane(run, retry=Retry(**retry) if retry else None, **limits)
        book = self._book(run)
        if "record" in spec:
            book.record = RunRecord(started=self._clock.wall(), **spec["record"])

    def _seal(self, run: bytes, here: int, total: int | None = None, incomplete: str | None = None) -> None:
        if not self.shard.lane(run).sealed:
            self.shard.seal_lane(run, here)
        record = self._book(run).record
        if record is not None:
            record.total, record.incomplete = total, incomplete
