"""The actor that holds one shard of a queue: a thin asynchronous shell around the rules.

Every method is async and takes and returns one `bytes` (see `wire`); state is touched on the
worker's event loop only, so no locks. Payloads and results are never unpickled here.

::

    QueueDesk       the shard, its frames and books, what follows each change
    ├── QueueControl    orders of users
    ├── QueueViews      questions
    └── QueueActor      messages in and out
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from dqlab.cluster.shard.queue_control import QueueControl
from dqlab.cluster.shard.queue_views import QueueViews
from dqlab.cluster.transport.internals import NoSuchActor
from dqlab.cluster.transport.parking import Credit, ParkedLease, rung
from dqlab.cluster.transport.protocol import LEASE_PARK
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.errors import DqlabError
from dqlab.frame import NO_ID, Frame, Settlement
from dqlab.log import RecordCorrupt
from dqlab.rules.batches import Batch
from dqlab.rules.leases import Lease
from dqlab.rules.settling import Settled
from dqlab.rules.shard import Put
from dqlab.rules.states import Verdict

__all__ = ["QueueActor"]

logger = logging.getLogger("dqlab.queue")


class QueueActor(QueueControl, QueueViews):
    """One shard of one queue. Parameters: see `QueueDesk`."""

    # --- messages in ------------------------------------------------------------------------

    async def put(self, body: bytes) -> bytes:
        """Take in frames of one producer, in order, until one is not taken.

        A frame waits for room, and for earlier frames of its producer, at most `wait` seconds. Takes
        {frames, wait, epoch?, lost?, open?, function?}, the frames, and the function's blob; answers the first
        ids of those that are in, and the verdict on the last. `epoch` is the one that the frames were numbered
        for: another one takes none of them. With `lost`, the number of a claim, they hold documents that were lost.
        """
        meta, parts = unpack(body)
        if meta.get("epoch") not in (None, self._born):
            return pack({"firsts": [], "verdict": "MOVED"})
        if "open" in meta and meta["open"]["run"] not in self.books:
            self.ledger.obey("open", None, {"open": meta["open"]})
        function = (meta["function"], bytes(parts[meta["frames"]])) if "function" in meta else None
        answer: dict[str, Any] = {"firsts": []}
        for part in parts[: meta["frames"]]:
            frame = Frame.decode(bytes(part))
            put = await self._put_frame(frame, meta["wait"], meta.get("lost"), function)
            answer["verdict"] = put.verdict.name
            if put.verdict not in (Verdict.ACCEPTED, Verdict.DUPLICATE):
                if put.verdict is Verdict.FULL:
                    answer |= self._fullness(frame)
                break
            answer["firsts"].append(put.first)
        if function is not None:
            self.ledger.forget_unnamed(function[0])
        self._dispatch()
        await asyncio.sleep(0)  # who waits for these messages is answered first
        await self._store.durable()
        return pack(answer)

    async def _put_frame(
        self, frame: Frame, wait: float, lost: int | None, function: tuple[bytes, bytes] | None
    ) -> Put:
        def attempt() -> Put:
            if not self._has_function(frame, function):
                return Put(Verdict.NO_FUNCTION)
            return self.shard.put(frame, lost=lost is not None and self._takes_lost(frame.run, lost))

        put = attempt()
        if put.verdict in (Verdict.FULL, Verdict.EARLY):

            def taken() -> bool:
                nonlocal put
                put = attempt()
                return put.verdict not in (Verdict.FULL, Verdict.EARLY)

            self._puts_waiting += 1
            try:
                self._dispatch()
                await self._changed.until(taken, wait)
            finally:
                self._puts_waiting -= 1
        if lost is not None and put.verdict is Verdict.ACCEPTED:
            self.ledger.go_on(frame.run, self._clock.wall())
        return put

    def _takes_lost(self, run: bytes, claim: int) -> bool:
        """Return whether lost documents are taken from who holds this claim: it is the newest, and nobody cancelled."""
        book = self.ledger.book(run)
        return book.bid(claim) and not (book.record is not None and book.record.cancelled)

    def _has_function(self, frame: Frame, brought: tuple[bytes, bytes] | None) -> bool:
        """Return whether a frame's function is here; keep it if it was brought along."""
        if frame.function == NO_ID or frame.function in self.ledger.functions or frame.run not in self.books:
            return True
        if brought is None or brought[0] != frame.function:
            return False
        self.ledger.keep_function(frame.run, *brought)
        return True

    def _fullness(self, frame: Frame) -> dict[str, Any]:
        lane, no_room = self.shard.lanes[frame.run], self._store.no_room(frame.nbytes)
        return {
            "disk": None if no_room is None else no_room.fields,
            "messages": lane.alive,
            "maxsize": lane.maxsize,
            "bytes": lane.nbytes,
            "max_bytes": lane.max_bytes,
            "consumers": len(self._lot.known),
            "paused": lane.paused or self.shard.paused,
        }

    async def function(self, body: bytes) -> bytes:
        """Return a function's blob by its hash; consumers ask once."""
        meta, _ = unpack(body)
        blob = self.ledger.functions.get(meta["hash"])
        return pack({"known": blob is not None}, blob or b"")

    # --- messages out -----------------------------------------------------------------------

    async def lease(self, body: bytes) -> bytes:
        """Park a consumer slot's call until there are messages or orders for it.

        Takes {consumer, session, credit}; answers {lease?, orders} and the lease's frames.
        """
        meta, _ = unpack(body)
        loop = asyncio.get_running_loop()
        call = ParkedLease(
            meta["consumer"], meta["session"], Credit(*meta["credit"]), loop.create_future(), loop.time()
        )
        self._returning.discard(call.consumer.split("#")[0])  # one that has just been made had nothing to say first
        self._recalls.answered(call.consumer)  # it has obeyed every order, also one that found nothing to give back
        self._lot.park(call)
        self._dispatch()
        try:
            await rung(call.answer, LEASE_PARK)
        except asyncio.CancelledError:
            given = None if call.answer.cancelled() else call.answer.result()
            if given is not None:  # its caller will never see it
                with suppress(DqlabError):  # the log takes nothing: the lease lasts
                    self.ledger.take_back(given)
                self._dispatch()
            raise
        finally:
            self._lot.leave(call)
        lease: Lease | None = call.answer.result()
        orders = self._lot.take_orders(call.consumer) if self._lot.known.get(call.consumer) == call.session else []
        if lease is None:
            return pack({"orders": orders, "epoch": self.shard.epoch})
        return await self._delivery(lease, orders)

    async def reclaim(self, body: bytes) -> bytes:
        """Let a consumer go on with what an earlier epoch gave it, but for what others have now.

        Takes {consumer, held}: what its slots have in hand, a list of {slot, lease, run, ids, age, early}.
        """
        meta, _ = unpack(body)
        for held in meta["held"]:
            slot, lease = held["slot"], held["lease"]
            claim = held["run"], held["ids"]
            others = self.shard.reclaim(slot, lease, *claim, age=held["age"], early=held["early"])
            if others:
                self._lot.order(slot, op="cancel", lease=lease, ids=others)
        self._returning.discard(meta["consumer"])
        self._dispatch()
        return pack({})

    async def _delivery(self, lease: Lease, orders: list[dict[str, Any]]) -> bytes:
        lane = self.shard.lanes.get(lease.run)
        cuts, firsts = [], []
        for piece, found in [(piece, lane.batches.at(piece.frame)) for piece in lease.pieces] if lane else ():
            if found is None:  # cancelled since this was leased, in the same turn of the event loop
                continue
            batch, _ = found
            try:
                frame = await self._store.frame(batch)
            except RecordCorrupt as error:
                self._lose(lease.run, batch, error)
                continue
            cuts.append(frame.cut(piece.lo, piece.n, function=piece.function, ordinal=piece.ordinal))
            firsts.append(piece.frame + piece.lo)
        answer: dict[str, Any] = {"orders": orders, "epoch": self.shard.epoch}
        if cuts:
            record = self.books[lease.run].record if lease.run in self.books else None
            process = record.process if record is not None else None
            answer["lease"] = {"id": lease.id, "timeout": lease.timeout, "firsts": firsts, "process": process}
        return pack(answer, *cuts)

    def _lose(self, run: bytes, batch: Batch, error: RecordCorrupt) -> None:
        """Give up a frame that cannot be read; its messages are counted as lost, so nobody waits for them."""
        first, stop = batch.first, batch.first + len(batch.states)
        lost = self.ledger.lose(run, [(first, stop)]) if run in self.shard.lanes else 0
        if lost:  # else they were settled or dropped while the frame was read
            logger.error("event=messages_lost queue=%s first=%d count=%d %s", self.shard.name, first, lost, error)
            self._dispatch()

    async def settle(self, body: bytes) -> bytes:
        """Take in outcomes and results of one lease, and the consumer's credit."""
        meta, parts = unpack(body)
        settlement = Settlement.decode(parts[0])
        settlement.check_order()
        lane = self.shard.lanes.get(settlement.run)
        before = lane.settled_units if lane is not None else 0
        settled = self.ledger.settle(settlement)
        self._note_effort(settlement, settled, before)
        self._stop_when_full(settlement.run)
        if "credit" in meta:
            self._lot.credit(meta["consumer"], Credit(*meta["credit"]))
        self._recalls.answered(meta["consumer"])
        self._dispatch()
        await asyncio.sleep(0)  # who waits for these results is answered first
        await self._store.durable()
        return pack({"duplicates": settled.duplicates, "stale": settled.stale})

    def _note_effort(self, settlement: Settlement, settled: Settled, before: int) -> None:
        documents = sum(piece.n for piece, _ in settled.results) + len(settled.failed)
        book = self.books.get(settlement.run)
        if documents and book is not None:
            book.effort.add(settlement.busy_s, book.lane.settled_units - before, documents)

    def _stop_when_full(self, run: bytes) -> None:
        """Pause a run when there is no room for more results."""
        book = self.books.get(run)
        if book is not None and self._store.full and not book.stopped:
            book.stopped = True
            self.shard.pause(run)
            self._give_back_untouched(run)

    async def renew(self, body: bytes) -> bytes:
        """Renew leases; answer those that are gone."""
        meta, _ = unpack(body)
        gone = self.shard.extend(meta["leases"])
        self._reporter.touch()
        return pack({"gone": gone})

    async def begin(self, body: bytes) -> bytes:
        """Early ack: nothing of this lease will ever be delivered again."""
        meta, _ = unpack(body)
        begun = self.ledger.begin(meta["lease"])
        if begun:
            self._store.noted()
            await self._store.durable()
        return pack({"begun": begun})

    async def release(self, body: bytes) -> bytes:
        """Return at once the messages of consumers whose worker died: {consumers, why?}."""
        meta, _ = unpack(body)
        returned = 0
        self._returning.difference_update(meta["consumers"])
        for consumer in [name for name in self._lot.known if name.split("#")[0] in meta["consumers"]]:
            returned += self.ledger.release(consumer, meta.get("why", ""))
            self._lot.release(consumer)
        self._dispatch()
        return pack({"returned": returned})

    async def close(self, body: bytes) -> bytes:
        """End: consumers stop, everybody else who waits hears that there is no such queue, and all is dropped."""
        for consumer in list(self._lot.known):
            self._lot.order(consumer, op="stop")
        return await self.hand_over(body)

    async def hand_over(self, body: bytes) -> bytes:
        """Let go of the log, for the next epoch; who waits, or calls later, is to look for that."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._reporter.close()
        for consumer in list(self._lot.known):
            self._lot.release(consumer)
        self._changed.give_up(NoSuchActor(self.shard.name))
        if self._upkeep is not None:
            await self._upkeep.close()
        await self._store.close()
        return pack({})
