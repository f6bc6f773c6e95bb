"""Questions to one shard: results, progress, dead letters."""

from __future__ import annotations

from itertools import islice
from typing import Any

from dqlab.cluster.shard.queue_desk import QueueDesk
from dqlab.cluster.shard.vault import page, page_behind
from dqlab.cluster.shard.vitals import open_functions, shard_vitals
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.errors import MessageNotFound
from dqlab.rules.book import Book
from dqlab.rules.states import State

__all__ = ["QueueViews"]


class QueueViews(QueueDesk):
    """The part of a queue actor that answers; changes nothing."""

    async def settled(self, body: bytes) -> bytes:
        """Wait until no message of [lo, hi) is ready, delayed or leased, then return them: {run, lo, hi, wait}.

        Those that an earlier epoch in memory had are `lost`.
        """
        meta, _ = unpack(body)
        run, lo, hi = meta["run"], meta["lo"], meta["hi"]
        lost = max(0, min(hi, self._begin) - lo)
        book = self.ledger.book(run)
        await self._until(lambda: lost > 0 or book.stopped or self.shard.unsettled(run, lo, hi) == 0, meta["wait"])
        left = self.shard.unsettled(run, lo, hi)
        paused = self.shard.paused or self.shard.lanes[run].paused
        left = left or (0 if await self._is_safe(meta["wait"]) else hi - lo)
        parts = [] if left or lost else await page(book.results, self._store.read, lo, hi)
        return pack(
            {
                "left": left,
                "lost": lost,
                "died": book.died,
                "consumers": len(self._lot.known),
                "paused": paused,
                "why": "" if self._store.short is None else f" What holds it up: {self._store.short}",
                **self._fill(book),
            },
            *parts,
        )

    def _fill(self, book: Book) -> dict[str, Any]:
        """Return whether a run stands still for want of room for results, bytes that are kept, and how many may be."""
        return {
            "stopped": book.stopped,
            "stored": self._store.nbytes,
            "results_maxsize": self._options["results_maxsize"],
        }

    async def idle(self, body: bytes) -> bytes:
        """Wait until nothing here is ready, delayed or leased, or until `stuck` changes: {wait, stuck}.

        Answers {alive, stuck, full, stored}; `stuck` says why nothing will be processed, else "".
        """
        meta, _ = unpack(body)
        await self._until(lambda: not self._alive() or self._stuck() != meta["stuck"], meta["wait"])
        full = any(self.books[lane.run].stopped for lane in self.shard.activity.alive() if lane.run in self.books)
        return pack({"alive": self._alive(), "stuck": self._stuck(), "full": full, "stored": self._store.nbytes})

    def _alive(self) -> int:
        return sum(lane.alive for lane in self.shard.activity.alive())

    def _stuck(self) -> str:
        if not self._lot.known:
            return "there has been no consumer"
        waiting = self.shard.activity.alive()
        if any(lane.counts[State.LEASED] for lane in waiting):
            return ""
        paused = self.shard.paused or (waiting and all(lane.paused for lane in waiting))
        return "it has been paused" if paused else ""

    async def page(self, body: bytes) -> bytes:
        """Return one page of results by ordinal: {run, lo, hi}."""
        meta, _ = unpack(body)
        await self._store.durable()
        return pack({}, *await page(self.ledger.book(meta["run"]).results, self._store.read, meta["lo"], meta["hi"]))

    async def stream(self, body: bytes) -> bytes:
        """Return results in the order of completion: {run, cursor, epoch?, wait}; the cursor confirms nothing away.

        A cursor of an earlier epoch in memory counts from 0.
        """
        meta, _ = unpack(body)
        book, lane = self.ledger.book(meta["run"]), self.shard.lanes[meta["run"]]
        results, cursor = book.results, meta["cursor"] if meta.get("epoch", self._born) == self._born else 0
        await self._until(lambda: results.end > cursor or lane.done, meta["wait"])
        if not await self._is_safe(meta["wait"]):
            return pack({"cursor": cursor, "epoch": self._born, "done": False})
        parts, cursor = await page_behind(results, self._store.read, cursor)
        done = lane.done and cursor >= results.end
        return pack({"cursor": cursor, "epoch": self._born, "done": done}, *parts)

    async def watch(self, body: bytes) -> bytes:
        """Wait until a run is done or stands still: {run, wait}; answers counts and what is known of it.

        Who waits for its end learns of it when that is as safe as the store promises; who only looks sees what is
        in memory.
        """
        meta, _ = unpack(body)
        book, lane, wait = self.ledger.book(meta["run"]), self.shard.lanes[meta["run"]], meta.get("wait", 0.0)
        safe = True
        if wait:
            await self._until(lambda: lane.done or book.stands, wait)
            safe = not lane.done or await self._is_safe(wait)
        progress = self._progress(book)
        if meta.get("covered"):
            covered, missing = list(book.results.covered), book.missing_ordinals()
            progress |= {"covered": covered, "came": list(lane.came), "missing_ordinals": missing}
        return pack(progress if safe else progress | {"done": False})

    def _progress(self, book: Book) -> dict[str, Any]:
        record = book.record
        return book.report(book.lane.run) | {
            "done": book.lane.done,
            "consumers": len(self._lot.known),
            "failure": "" if self._store.failure is None else str(self._store.failure),
            "short": "" if self._store.short is None else str(self._store.short),
            "parked": len(self._lot.parked),
            "queue_paused": self.shard.paused,
            **self._fill(book),
            "codes": record.codes if record else [],
            "submitted": record.submitted if record else 0,
            "digest": record.digest if record else "",
            "keyed": record.keyed if record else False,
            "cancelled": record.cancelled if record else False,
            "client": record.client if record else "",
            "process": record.process if record else None,
        }

    async def dead(self, body: bytes) -> bytes:
        """Return a page of dead letters: {run, after, limit, classes}, classes by fingerprint, none = all.

        Parts are failure record and payload of each; the payload is left out, and its kind None, with `bare`.
        """
        meta, _ = unpack(body)
        run, bare = meta["run"], meta.get("bare", False)
        letters = self.shard.dead_letters(run, after=meta["after"], limit=meta["limit"], classes=meta["classes"])
        rows: list[list[Any]] = []
        parts: list[bytes | memoryview] = []
        for letter in letters:
            kind: int | None = None
            message: list[bytes | memoryview] = []
            if not bare:
                try:
                    first, index = self.shard.locate(run, letter.id)
                except MessageNotFound:  # purged, or sent again and done, while others were read; never the first one
                    continue
                frame = await self._store.frame(self.shard.lanes[run].batches[first])
                kind = int(frame.kind)
                message = [frame.message(index)]
            parts += [letter.failure, *message]
            rows.append([letter.id, letter.ordinal, letter.reason, letter.deliveries, letter.exceptions, kind])
        return pack({"rows": rows}, *parts)

    async def dead_ordinals(self, body: bytes) -> bytes:
        """Return which documents are dead: {run, after, limit}; their ids and ordinals, by id."""
        meta, _ = unpack(body)
        found = list(islice(self.shard.lane(meta["run"]).dead_ids(meta["after"]), meta["limit"]))
        return pack({"ids": [id for id, _ in found], "ordinals": [ordinal for _, ordinal in found]})

    async def dead_counts(self, body: bytes) -> bytes:
        """Return how many messages are dead in each lane that has any: {run, classes}, run None = all lanes."""
        meta, _ = unpack(body)
        lanes = [self.shard.lane(meta["run"])] if meta["run"] is not None else self.shard.lanes.values()
        counts = [[lane.run, lane.dead_count(meta["classes"])] for lane in lanes]
        return pack({"counts": [row for row in counts if row[1]]})

    async def leases(self, body: bytes) -> bytes:
        """Return the live leases: rows of (run, consumer, messages, seconds held, seconds left)."""
        now = self._clock.monotonic()
        rows = [
            [lease.run, lease.consumer, lease.remaining.size, now - lease.since, lease.deadline - now]
            for lease in self.shard.leases.values()
        ]
        return pack({"rows": rows})

    async def runs(self, body: bytes) -> bytes:
        """Return name and id of the runs that this shard keeps a record of: {name?}, of one name or of all."""
        meta, _ = unpack(body)
        names = self.ledger.names
        wanted = names if meta.get("name") is None else [meta["name"]]
        return pack({"runs": [[run, name] for name in wanted for run in names.get(name, ())]})

    async def stats(self, body: bytes) -> bytes:
        """Return the same totals that are reported to the scheduler."""
        return pack(self.report())

    @property
    def unsent_reports(self) -> int:
        """Reports that were left out because they could not be made or packed."""
        return self._reporter.unsent

    def vitals(self) -> dict[str, Any]:
        """Return what an examination wants to know of this shard; called in its own process."""
        return shard_vitals(self.ledger, self._store, len(self._lot.known))

    def open_functions(self) -> list[tuple[bytes, str]]:
        """Return the functions of open runs: pickle and source; likewise."""
        return open_functions(self.ledger)
