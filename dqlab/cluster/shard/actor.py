"""The actor that holds one shard of a queue: a thin asynchronous shell around the rules.

Every method is async, and takes and returns one `bytes` (see `wire`); state is touched on the
worker's event loop only, so no locks. Payloads and results are never unpickled here.

Between reading the rules and changing them there must be no `await`: another call would change them meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from distributed import get_worker

from dqlab.clock import SystemClock
from dqlab.cluster.shard.blocks import LASTS, Blocks
from dqlab.cluster.shard.confirmed import Confirmed
from dqlab.cluster.shard.durable import open_durable
from dqlab.cluster.shard.memory import MemoryStore, Store
from dqlab.cluster.shard.recalls import Recalls
from dqlab.cluster.shard.upkeep import Upkeep
from dqlab.cluster.shard.vault import PAGE_VALUES, page, page_behind
from dqlab.cluster.shard.vitals import open_functions, shard_vitals
from dqlab.cluster.transport.blocking import Blocked
from dqlab.cluster.transport.internals import NoSuchActor
from dqlab.cluster.transport.parking import Bell, Credit, ParkedLease, ParkingLot, rung
from dqlab.cluster.transport.progress import ShardProgress
from dqlab.cluster.transport.protocol import LEASE_PARK
from dqlab.cluster.transport.reports import Reporter, ShardReport
from dqlab.cluster.transport.wire import Packed, pack, pack_apart, unpack
from dqlab.errors import DqlabError, MessageNotFound, RunCancelled
from dqlab.frame import NO_ID, Frame, Outcome, Piece, Settlement
from dqlab.log import DiskFull, NoDescriptors, RecordCorrupt
from dqlab.rules.batches import Batch
from dqlab.rules.book import CUT_OFF, Book, RunRecord
from dqlab.rules.deliveries import Settled
from dqlab.rules.journal import Op
from dqlab.rules.leases import Lease
from dqlab.rules.ledger import Ledger
from dqlab.rules.options import QueueOptions
from dqlab.rules.past import Past, recall
from dqlab.rules.ranges import Ranges
from dqlab.rules.retry import Retry
from dqlab.rules.shard import Put, Shard, described, holding
from dqlab.rules.states import State, Verdict
from dqlab.stats import QueueState
from dqlab.store.values import Compacted

__all__ = ["SWITCH_S", "QueueActor"]

SWITCH_S = 0.0005
"""Seconds another thread may hold the interpreter while messages wait; it packs checkpoints and compaction."""
RETURN_S = 5.0
"""Seconds a recreated shard waits for its consumers; one may be in a function that holds the interpreter."""
BESIDE_S = 10.0
"""Seconds that a recreated shard leases nothing to consumers in its own process."""
CHUNK_S = 0.075
"""Seconds of work in one lease: long enough to hide the network, short enough to share out fairly."""
WAITS = frozenset({Verdict.FULL, Verdict.EARLY})
"""Verdicts on frames that may be accepted later."""
logger = logging.getLogger("dqlab.queue")


class QueueActor:
    """One shard of one queue.

    Parameters
    ----------
    name : str
        The queue's name.
    index : int
        Which shard, from 0.
    epoch : int
        Grows each time the shard is recreated.
    options : dict
        Fields of `QueueOptions`; `results_memory`, `results_maxsize` in bytes; and `store`, for a durable
        queue: see `open_durable`.
    clients : collection of str
        Clients that are alive: what others were submitting is cut off.
    past : Past, optional
        What is known of the earlier epochs, which were in memory.
    consumers : collection of str
        Live consumers of the epoch before: nothing is leased until they have reported what they have in hand,
        for at most five seconds.
    beside : collection of str
        Consumers in this very process, which others are about to replace: nothing is leased to them meanwhile.

    Attributes
    ----------
    closed : bool
        It no longer answers calls.
    """

    def __init__(
        self,
        name: str,
        index: int,
        epoch: int,
        options: dict[str, Any],
        clients: Collection[str] = (),
        past: Past | None = None,
        consumers: Collection[str] = (),
        beside: Collection[str] = (),
    ) -> None:
        self._identity = name, index, epoch
        self._past = past
        self._clients = clients
        self._returning = set(consumers)
        self._beside = set(beside)
        self._options = options
        self._clock = SystemClock()
        self._lot = ParkingLot()
        self._recalls = Recalls()
        self._changed = Bell()
        self._timer: asyncio.TimerHandle | None = None
        self._compacting: asyncio.Task[Compacted] | None = None
        self._puts_waiting = 0
        self._without_room: set[bytes] = set()
        """Runs that were stopped because there was no room for results: they continue when there is."""
        self._blocks = Blocks()
        self._blocked: set[bytes] = set()
        """Runs that are held up."""
        self._reports, self._whole = 0, True
        self._reported: set[bytes] = set()
        """Runs that were reported to the scheduler."""
        self.closed = self._begun = False
        self._born = self._begin = 0
        """Epoch and first id of a shard without a log, which starts without history; 0 for a durable one."""

    async def start(self, body: bytes) -> bytes:
        """Open what was stored, and bind to this worker's event loop; the constructor ran in a thread.

        Raises
        ------
        NoSuchActor
            It was handed over before it could begin; its log is closed.
        """
        await self._open()
        try:
            if self.closed:  # its worker leaves, and handed it over while it was opened
                raise NoSuchActor(self.shard.name)
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
            self._worker = get_worker()
            self._reporter = Reporter(self._worker, self.news)
            self._begun = True
            self._reporter.touch()
            self._cut_off(self.ledger.submitting().difference(self._clients))
            self._dispatch()
        except BaseException:
            await self._store.close()  # it would never be used
            raise
        return pack({"epoch": self.shard.epoch})

    async def _open(self) -> None:
        name, index, epoch = self._identity
        options = dict(self._options)
        memory, maxsize = options.pop("results_memory"), options.pop("results_maxsize")
        store = options.pop("store", None)
        rules = QueueOptions(**options | {"retry": Retry(**options["retry"])})
        self._store: Store
        self._upkeep: Upkeep | None = None
        if store is None:
            self._store = kept = MemoryStore(memory, maxsize)
            shard = Shard(
                name, index, epoch=epoch, options=rules, clock=self._clock, random=random.Random(), journal=kept
            )
            self.ledger = Ledger(shard)
            if self._past is not None:
                recall(self.ledger, self._past)
            self._born, self._begin = epoch, shard.next_id
        else:
            patience = RETURN_S if self._returning else 0.0
            durable, self._store = await open_durable(name, index, rules, store, self._clock, patience)
            self.ledger, self._upkeep = durable.ledger, Upkeep(durable)
            self._store.recorded, self._store.turned = self._upkeep.recorded, self._store_turned
        self.shard = self.ledger.shard
        self._confirmed = Confirmed(self._store, self.books.items())
        if self._returning:
            asyncio.get_running_loop().call_later(RETURN_S, self._wait_no_longer)
        if self._beside:
            asyncio.get_running_loop().call_later(BESIDE_S, self._serve_beside)

    # --- messages in ------------------------------------------------------------------------

    async def put(self, body: bytes) -> bytes:
        """Accept frames of one producer, in order, until one is not accepted.

        A frame waits up to `wait` seconds for room, and for earlier frames of its producer. Takes
        {frames, wait, epoch?, lost?, open?, function?}, the frames, and the function's blob; answers the first
        ids of the accepted ones, the verdict on the last, `unserved` while no consumer is known, and `opened` where
        it did not have the run. `epoch` is the one that the frames were numbered for: another epoch accepts none. With
        `lost`, the number of a claim, they hold documents that were lost.
        """
        meta, parts = unpack(body)
        if meta.get("epoch") not in (None, self._born):
            return pack({"firsts": [], "verdict": "MOVED"})
        answer: dict[str, Any] = {"firsts": []}
        if "open" in meta and meta["open"]["run"] not in self.books:
            self.ledger.obey(Op.OPEN, None, {"open": meta["open"]})
            answer["opened"] = True
        function = (meta["function"], bytes(parts[meta["frames"]])) if "function" in meta else None
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
        # The client that asked for consumers may not know that the queue was closed and opened again.
        if not self._lot.known:
            answer["unserved"] = True
        self._dispatch()
        await asyncio.sleep(0)  # calls that wait for these messages are answered first
        await self._store.durable()
        return pack(answer)

    async def _put_frame(
        self, frame: Frame, wait: float, lost: int | None, function: tuple[bytes, bytes] | None
    ) -> Put:
        def takes_lost() -> bool:
            return lost is not None and self._takes_lost(frame.run, lost)

        def attempt() -> Put:
            if not self._has_function(frame, function):
                return Put(Verdict.NO_FUNCTION)
            return self.shard.put(frame, lost=takes_lost())

        put = attempt()
        if put.verdict in WAITS:

            def judged() -> bool:
                return self.shard.judge(frame, lost=takes_lost()).verdict not in WAITS

            self._puts_waiting += 1
            try:
                self._dispatch()
                if await self._changed.until(judged, wait):
                    put = attempt()  # without an await in between: what was judged still holds
            finally:
                self._puts_waiting -= 1
        if lost is not None and put.verdict is Verdict.ACCEPTED:
            self.ledger.go_on(frame.run, self._clock.wall())
        return put

    def _takes_lost(self, run: bytes, claim: int) -> bool:
        """Return whether a claim may resend lost documents: it is the newest, and the run is not cancelled."""
        book = self.ledger.book(run)
        return book.bid(claim) and not (book.record is not None and book.record.cancelled)

    def _has_function(self, frame: Frame, brought: tuple[bytes, bytes] | None) -> bool:
        """Return whether a frame's function is here; keep it if it came with the frame."""
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

    async def sink(self, body: bytes) -> bytes:
        """Return where the rows of a run are written, its name, and whether this queue is durable: {run}.

        Consumers ask once.
        """
        meta, _ = unpack(body)
        record = self.ledger.book(meta["run"]).record
        assert record is not None, "its leases have it from there"
        return pack({"sink": record.sink, "name": record.name, "durable": self._upkeep is not None})

    async def hold(self, body: bytes) -> bytes:
        """Lease nothing of a run as long as a consumer cannot do something: {run, consumer, why, what?}.

        `why` "" = it can. Answers {wanted, others}: whether results of the run are still wanted, and whether another
        consumer cannot do that.
        """
        meta, _ = unpack(body)
        run, lane = meta["run"], self.shard.lanes.get(meta["run"])
        if lane is None:
            return pack({"wanted": False})
        consumer, what = meta["consumer"], Blocked(meta.get("what", Blocked.RESULTS))
        self._blocks.note(run, consumer, meta["why"], self._clock.monotonic(), what)
        self._apply_blocks()
        if meta["why"]:
            asyncio.get_running_loop().call_later(LASTS + 1.0, self._apply_blocks)
        return pack({"wanted": lane.alive > 0, "others": self._blocks.others(run, consumer, what)})

    def _apply_blocks(self) -> None:
        """Hold up the runs that consumers have reported, and no others."""
        if self.closed:
            return
        now, changed = self._clock.monotonic(), False
        for run in self._blocks.runs | self._blocked:
            lane, why = self.shard.lanes.get(run), self._blocks.why(run, now)
            if lane is None or why == lane.held:
                continue
            begins, lane.held, changed = not lane.held, why, True
            self.shard.activity.touch(run)
            if begins:
                self._give_back_untouched(run)
        self._blocked = self._blocks.runs
        if changed:
            self._dispatch()

    # --- messages out -----------------------------------------------------------------------

    async def lease(self, body: bytes) -> Packed:
        """Park a consumer slot's call until there are messages or orders for it.

        Takes {consumer, session, credit}; answers {lease?, orders} and the lease's frames.
        """
        meta, _ = unpack(body)
        loop = asyncio.get_running_loop()
        call = ParkedLease(
            meta["consumer"], meta["session"], Credit(*meta["credit"]), loop.create_future(), loop.time()
        )
        self._returning.discard(call.consumer.split("#")[0])  # a new consumer has nothing to report
        self._recalls.answered(call.consumer)  # it has carried out every order, even if it gave back nothing
        self._lot.park(call)
        self._dispatch()
        try:
            await rung(call.answer, LEASE_PARK)
        except asyncio.CancelledError:
            given = None if call.answer.cancelled() else call.answer.result()
            if given is not None:
                self._give_back(given)
            raise
        finally:
            self._lot.leave(call)
        lease: Lease | None = call.answer.result()
        orders = self._lot.take_orders(call.consumer) if self._lot.known.get(call.consumer) == call.session else []
        if lease is None:
            return pack({"orders": orders, "epoch": self.shard.epoch})
        try:
            return await self._delivery(lease, orders)
        except asyncio.CancelledError:  # while its frames were read
            self._give_back(lease)
            raise

    async def reclaim(self, body: bytes) -> bytes:
        """Let a consumer keep what an earlier epoch leased to it, except what others have now.

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

    async def _delivery(self, lease: Lease, orders: list[dict[str, Any]]) -> Packed:
        lane = self.shard.lanes.get(lease.run)
        cuts, firsts = [], []
        for piece, found in [(piece, lane.batches.at(piece.frame)) for piece in lease.pieces] if lane else ():
            if found is None:  # cancelled since this was leased, in the same turn of the event loop
                continue
            batch, _ = found  # a kept one, since it is leased: see `Store.frame`
            try:
                frame = await self._store.frame(batch)
            except RecordCorrupt as error:
                self._lose(lease.run, batch, error)
                continue
            except (DiskFull, NoDescriptors):
                self._give_back(lease)
                return pack({"orders": orders, "epoch": self.shard.epoch})
            cuts.append(frame.cut(piece.lo, piece.n, function=piece.function, ordinal=piece.ordinal))
            firsts.append(piece.frame + piece.lo)
        answer: dict[str, Any] = {"orders": orders, "epoch": self.shard.epoch}
        if cuts:
            record = self.books[lease.run].record if lease.run in self.books else None
            process = record.process if record is not None else None
            answer["lease"] = {"id": lease.id, "timeout": lease.timeout, "firsts": firsts, "process": process}
            if record is not None and record.sink is not None:
                answer["lease"]["sink"] = True
            if record is not None and record.unit:
                answer["lease"]["unit"] = record.unit
            if attempts := lane.attempts(lease.remaining) if lane is not None else ():
                answer["lease"]["attempts"] = attempts
            if lease.suspect:
                answer["lease"]["suspect"] = {"isolate": lease.isolate, "in_vain": lease.in_vain}
        return pack_apart(answer, *cuts)

    def _give_back(self, lease: Lease) -> None:
        """Give back, uncounted, what is left of a lease that does not reach its consumer."""
        pieces = [Piece(piece.frame + piece.lo, piece.ordinal, piece.n) for piece in lease.pieces]
        n = sum(piece.n for piece in pieces)
        blob = Settlement.encode(
            pieces, bytes([Outcome.RETURN]) * n, [b""] * n, run=lease.run, epoch=self.shard.epoch, lease=lease.id
        )
        with suppress(DqlabError):  # the log takes nothing: the lease lasts
            self.ledger.settle(Settlement.decode(blob))
        self._dispatch()

    def _lose(self, run: bytes, batch: Batch, error: RecordCorrupt) -> None:
        """Give up a frame that cannot be read; count its messages as lost, so that no call waits for them."""
        first, stop = batch.first, batch.first + len(batch.states)
        lost = self.ledger.lose(run, [(first, stop)]) if run in self.shard.lanes else 0
        if lost:  # else they were settled or dropped while the frame was read
            logger.error("event=messages_lost queue=%s first=%d count=%d %s", self.shard.name, first, lost, error)
            self._dispatch()

    async def settle(self, body: Packed) -> bytes:
        """Accept outcomes and results of one lease, and the consumer's credit."""
        meta, parts = unpack(body)
        settlement = Settlement.decode(parts[0])
        settlement.check_order()
        lane = self.shard.lanes.get(settlement.run)
        before = lane.settled_units if lane is not None else 0
        settled = self.ledger.settle(settlement)
        self._note_effort(settlement, settled, before)
        self._stop_when_full(settlement.run)
        # Credit and recall before `_dispatch`: else this slot gets nothing until something else happens.
        if "credit" in meta:
            self._lot.credit(meta["consumer"], Credit(*meta["credit"]))
        self._recalls.answered(meta["consumer"])
        self._dispatch()
        await asyncio.sleep(0)  # calls that wait for these results are answered first
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
            self._without_room.add(run)
            self.shard.pause(run)
            self._give_back_untouched(run)

    async def renew(self, body: bytes) -> bytes:
        """Renew leases; return those that are gone."""
        meta, _ = unpack(body)
        gone = self.shard.extend(meta["leases"])
        self._reporter.touch()
        return pack({"gone": gone})

    async def begin(self, body: bytes) -> bytes:
        """Early ack: never deliver a message of this lease again."""
        meta, _ = unpack(body)
        begun = self.ledger.begin(meta["lease"])
        if begun:
            self.ledger.note_functions()
            self._note_touched()
            await self._store.durable()
        return pack({"begun": begun})

    async def isolate(self, body: bytes) -> bytes:
        """Note whether nothing runs beside a suspect in its consumer's process: {lease, alone}."""
        meta, _ = unpack(body)
        return pack({"held": self.shard.isolate(meta["lease"], alone=meta["alone"])})

    async def ran(self, body: bytes) -> bytes:
        """Note that a suspect has run, and that its outcome comes later: {lease}."""
        meta, _ = unpack(body)
        self.shard.note_run(meta["lease"])
        self._dispatch()
        return pack({})

    async def release(self, body: bytes) -> bytes:
        """Return the messages of consumers whose worker died to the queue at once: {consumers, why?}."""
        meta, _ = unpack(body)
        returned = 0
        self._returning.difference_update(meta["consumers"])
        for consumer in [name for name in self._lot.known if name.split("#")[0] in meta["consumers"]]:
            returned += self.ledger.release(consumer, meta.get("why", ""))
            self._lot.release(consumer)
        self._blocks.forget(meta["consumers"])
        self._apply_blocks()
        self._dispatch()
        return pack({"returned": returned})

    async def close(self, body: bytes) -> bytes:
        """Close: stop consumers, raise in all other waiting calls that the queue is gone, and drop everything."""
        for consumer in list(self._lot.known):
            self._lot.order(consumer, op="stop")
        return await self.hand_over(body)

    async def hand_over(self, body: bytes) -> bytes:
        """Release the log for the next epoch; waiting and later calls have to look that one up."""
        # `closed` first, so that `_dispatch` changes nothing more; the store last, since the upkeep still writes to it.
        self.closed = True
        if not self._begun:  # `start` closes what it opens
            return pack({})
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

    # --- orders -----------------------------------------------------------------------------------

    async def control(self, body: bytes) -> bytes:
        """Apply one order of a user: {op, run?, ...}; answers {count}."""
        meta, _ = unpack(body)
        op, run = Op(meta.pop("op")), meta.pop("run", None)
        if op is Op.REOPEN:
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
        count = await self._obey(Op.RETRY, run, meta)
        return pack({"count": count, "after": found[-1][0] if limit and len(found) == limit else None})

    async def let_go(self, body: bytes) -> bytes:
        """Take leased messages from their consumers: {run, ids, why}; with `why` they are dead. Answers {count}."""
        meta, _ = unpack(body)
        count = self.ledger.let_go(meta["run"], meta["ids"], meta["why"])
        self._dispatch()
        await self._store.durable()
        return pack({"count": count})

    async def _obey(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> int:
        """Carry out one order, keep it, and do what follows from it."""
        count = self.ledger.obey(op, run, meta)
        if op in (Op.PAUSE, Op.DRAIN, Op.ADOPT):
            self._give_back_untouched(run)
        if op in (Op.DROP, Op.FORGET) and not self._store.full:
            for id in sorted(self._without_room):
                if id in self.books and self.books[id].stopped:
                    self.ledger.obey(Op.RESUME, id, {})
                self._without_room.discard(id)  # only now: a log that refuses leaves the others to the next order
        self._dispatch()
        await self._store.durable()
        return count

    async def claim(self, body: bytes) -> bytes:
        """Refuse lost documents of a run under any older claim: {run, claim}."""
        meta, _ = unpack(body)
        self.ledger.book(meta["run"]).bid(meta["claim"])
        return pack({})

    async def submitting(self, body: bytes) -> bytes:
        """Answer the clients of the runs that are being submitted: {clients}."""
        return pack({"clients": sorted(self.ledger.submitting())})

    async def cut_off(self, body: bytes) -> bytes:
        """Seal the runs whose submitting client is in `gone`: {gone, run?}; answers how many.

        Also seal `run`, which its own client gave up.
        """
        meta, _ = unpack(body)
        sealed = self._cut_off(meta["gone"], meta.get("run"))
        await self._store.durable()
        return pack({"sealed": sealed})

    async def compact(self, body: bytes) -> bytes:
        """Free disk space, or continue to wait for that: {wait}.

        Answers {done, copied, of}: bytes copied and to be copied now, and what a finished compaction freed. A
        transient shard has nothing to free.
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
        """Raise `RunCancelled` for a run that takes no more messages."""
        book = self.ledger.book(run)
        if book.record is not None and book.record.cancelled:
            counts = book.lane.counts
            raise RunCancelled(
                run=book.record.name,
                cancelled=counts[State.CANCELLED],
                total=sum(counts),
                acked=counts[State.ACKED],
            )

    # --- questions: results, progress, dead letters -----------------------------------------------

    async def settled(self, body: bytes) -> Packed:
        """Wait until no message of [lo, hi) is ready, delayed or leased, then return them: {run, lo, hi, wait}.

        Messages of an earlier epoch in memory are `lost`.
        """
        meta, _ = unpack(body)
        run, lo, hi = meta["run"], meta["lo"], meta["hi"]
        lost = max(0, min(hi, self._begin) - lo)
        book = self.ledger.book(run)
        await self._until(lambda: lost > 0 or book.stopped or self.shard.unsettled(run, lo, hi) == 0, meta["wait"])
        left = self.shard.unsettled(run, lo, hi)
        paused = self.shard.paused or self.shard.lanes[run].paused
        if not left and not self._are_safe(run, lo, hi) and not await self._is_safe(run, meta["wait"]):
            left = hi - lo
        parts = [] if left or lost else await page(book.results, self._store.read, lo, hi)
        return pack_apart(
            {
                "left": left,
                "acked": 0 if left or lost else self.shard.lanes[run].acked_among(lo, hi),
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
        """Return whether a run is stopped because there is no room for results, the bytes kept, and their limit."""
        return {
            "stopped": book.stopped,
            "stored": self._store.nbytes,
            "results_maxsize": self._options["results_maxsize"],
        }

    async def idle(self, body: bytes) -> bytes:
        """Wait until nothing here is ready, delayed or leased, or until `stuck` changes: {wait, stuck}.

        Answers {alive, stuck, full, stored}; `stuck` is why nothing will be processed, else "".
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

    async def page(self, body: bytes) -> Packed:
        """Return one page of results by ordinal: {run, lo, hi}."""
        meta, _ = unpack(body)
        run, lo, hi = meta["run"], meta["lo"], meta["hi"]
        results = self.ledger.book(run).results
        if not self._confirmed.all_of(run) and not self._confirmed.results(run, results, lo, hi)[1]:
            await self._store.durable(self._confirmed.number(run))
        return pack_apart({}, *await page(results, self._store.read, lo, hi))

    async def stream(self, body: bytes) -> Packed:
        """Return results in the order of completion: {run, cursor, epoch?, wait, most?}; drops nothing.

        Answers {cursor, epoch, more, done}: whether there are results after that cursor, and whether none will come.
        A cursor of an earlier epoch in memory counts from 0.
        """
        meta, _ = unpack(body)
        book, lane = self.ledger.book(meta["run"]), self.shard.lanes[meta["run"]]
        results, cursor = book.results, meta["cursor"] if meta.get("epoch", self._born) == self._born else 0
        await self._until(lambda: results.end > cursor or lane.done, meta["wait"])
        if self._confirmed.end(meta["run"]) <= cursor:
            await self._is_safe(meta["run"], meta["wait"])
        end, most = self._confirmed.end(meta["run"]), meta.get("most", PAGE_VALUES)
        parts, cursor = await page_behind(results, self._store.read, cursor, end, most)
        more = cursor < results.end
        done = lane.done and not more and self._confirmed.all_of(meta["run"])
        return pack_apart({"cursor": cursor, "epoch": self._born, "more": more, "done": done}, *parts)

    async def watch(self, body: bytes) -> bytes:
        """Wait until a run is done or stopped: {run, wait}; answers counts and what is known of it.

        A call that waits for the end gets it once it is as safe as the store promises; one that does not wait gets
        what is in memory.
        """
        meta, _ = unpack(body)
        book, lane, wait = self.ledger.book(meta["run"]), self.shard.lanes[meta["run"]], meta.get("wait", 0.0)
        safe = True
        if wait:
            await self._until(lambda: lane.done or book.stands, wait)
            safe = not lane.done or await self._is_safe(meta["run"], wait)
        progress = self._progress(book)
        if meta.get("covered"):
            progress.covered, progress.came = list(book.results.covered), list(lane.came)
            progress.missing_ordinals = book.missing_ordinals()
        progress.done &= safe
        return pack(progress.to_wire())

    def _progress(self, book: Book) -> ShardProgress:
        record = book.record or RunRecord("", [])
        return ShardProgress(
            lane=book.report(book.lane.run),
            done=book.lane.done,
            consumers=len(self._lot.known),
            parked=len(self._lot.parked),
            failure="" if self._store.failure is None else str(self._store.failure),
            short="" if self._store.short is None else str(self._store.short),
            trouble=self._store.trouble,
            queue_paused=self.shard.paused,
            stored=self._store.nbytes,
            results_maxsize=self._options["results_maxsize"],
            codes=record.codes,
            submitted=record.submitted,
            digest=record.digest,
            beyond=record.beyond,
            end_digest=record.end_digest,
            keyed=record.keyed,
            cancelled=record.cancelled,
            client=record.client,
            process=record.process,
            sink=record.sink,
            options=record.options,
            unit=record.unit,
        )

    async def dead(self, body: bytes) -> bytes:
        """Return a page of dead letters: {run, after, limit, classes}, classes by fingerprint, none = all.

        Parts are failure record and payload of each; with `bare` the payload is left out, and its kind is None.
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
                except MessageNotFound:  # purged, or retried and done, while others were read; never the first one
                    continue
                frame = await self._store.frame(self.shard.lanes[run].batches[first])
                kind = int(frame.kind)
                message = [frame.message(index)]
            parts += [letter.failure, *message]
            rows.append([letter.id, letter.ordinal, letter.reason, letter.deliveries, letter.exceptions, kind])
        return pack({"rows": rows}, *parts)

    async def dead_ordinals(self, body: bytes) -> bytes:
        """Return the ids and ordinals of dead documents, by id: {run, after, limit}."""
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
        """Return the live leases: rows of (run, consumer, messages, seconds held, seconds left, delivery, renewals)."""
        rows = []
        for lease in self.shard.leases.values():
            known = described(self.shard, lease)
            rows.append(
                [lease.run, known.consumer, known.messages, known.age, known.left, known.delivery, known.renewals]
            )
        return pack({"rows": rows})

    async def runs(self, body: bytes) -> bytes:
        """Return name and id of the runs with a record in this shard, all or those of one name: {name?}."""
        meta, _ = unpack(body)
        names = self.ledger.names
        wanted = names if meta.get("name") is None else [meta["name"]]
        return pack({"runs": [[run, name] for name in wanted for run in names.get(name, ())]})

    async def opening(self, body: bytes) -> bytes:
        """Return what a run was opened with, and the state of its input: {run}.

        For a shard that does not have the run: opening it may not have come that far, as long as the input is open or
        was cut off before anything of it was recorded.
        """
        meta, _ = unpack(body)
        book = self.ledger.book(meta["run"])
        assert book.record is not None, "only runs have names"
        record = {part: getattr(book.record, part) for part in ("name", "codes", "client", "process", "stop_if")}
        record |= {} if book.record.sink is None else {"sink": book.record.sink}
        record |= {"options": book.record.options} if book.record.options else {}
        record |= {"unit": book.record.unit} if book.record.unit else {}
        cut_off = book.record.incomplete == CUT_OFF
        may_be_missing = not book.lane.sealed or (cut_off and not book.record.submitted)
        retry = asdict(book.lane.retry)
        return pack({"record": record, "retry": retry, "may_be_missing": may_be_missing, "cut_off": cut_off})

    async def stats(self, body: bytes) -> bytes:
        """Return the totals that are reported to the scheduler."""
        return pack(self.report().to_wire())

    @property
    def unsent_reports(self) -> int:
        """Reports that were left out because they could not be made or packed."""
        return self._reporter.unsent

    def vitals(self) -> dict[str, Any]:
        """Return what an examination needs to know of this shard; called in its own process."""
        return shard_vitals(self.ledger, self._store, len(self._lot.known))

    def open_functions(self) -> list[tuple[bytes, str]]:
        """Return the functions of open runs: pickle and source; called in its own process."""
        return open_functions(self.ledger)

    # --- reports ----------------------------------------------------------------------------

    def _cut_off(self, gone: Collection[str], given_up: bytes | None = None) -> int:
        """Seal what clients that are gone were submitting, and one run that its own client gave up."""
        seals = self.ledger.cut_off(gone, given_up)
        for seal in seals:
            self.ledger.obey(Op.SEAL, None, {"seal": seal})
        if seals:
            self._dispatch()
        return len(seals)

    @property
    def books(self) -> dict[bytes, Book]:
        """Books by run."""
        return self.ledger.books

    def report(self) -> ShardReport:
        """Return absolute totals of this shard, with all its lanes."""
        return self._totals(self.books)

    def news(self) -> ShardReport:
        """Return absolute totals of this shard for the scheduler, with the lanes that changed since the last time.

        ``number`` counts these reports from 1. The first is ``whole``: it has all lanes; so is the one after a
        call of `resend`, which the scheduler makes when a number is missing. ``dropped`` are runs that are gone.
        """
        self.ledger.note_functions()
        changed, self.ledger.news = self.ledger.news, {}
        whole, self._whole = self._whole, False
        runs = self.books if whole else [run for run in changed if run in self.books]
        self._reports += 1
        self._reported.update(runs)
        dropped: list[str] = []
        if len(self._reported) > len(self.books):
            gone = [run for run in self._reported if run not in self.books]
            self._reported.difference_update(gone)
            dropped = [run.hex() for run in gone]
        return replace(self._totals(runs), number=self._reports, whole=whole, dropped=dropped)

    async def report_due(self, body: bytes) -> bytes:
        """Report at once what changed since the last report."""
        if self._begun:
            self._reporter.send_due()
        return pack({})

    async def resend(self, body: bytes) -> bytes:
        """Put all lanes into the next report: the scheduler has missed one."""
        self._whole = True
        self._reporter.touch()
        return pack({})

    def _totals(self, runs: Iterable[bytes]) -> ShardReport:
        shard, (held, oldest) = self.shard, holding(self.shard)
        return ShardReport(
            queue=shard.name,
            shard=shard.index,
            epoch=shard.epoch,
            next_id=shard.next_id,
            at=self._clock.wall(),
            state=QueueState.DRAINING if shard.draining else QueueState.PAUSED if shard.paused else QueueState.RUNNING,
            lag=shard.lag(),
            maxsize=shard.options.maxsize,
            consumers=len(self._lot.known),
            stored=self._store.nbytes,
            puts_waiting=self._puts_waiting,
            failure="" if self._store.failure is None else str(self._store.failure),
            short="" if self._store.short is None else str(self._store.short),
            trouble=self._store.trouble,
            storage=self._upkeep.report() if self._upkeep is not None else None,
            lanes=[self.books[run].report(run) for run in runs],
            held=held,
            oldest=oldest,
            leases_lost=shard.leases_lost,
            redelivered=shard.redelivered,
        )

    def _store_turned(self) -> None:
        """Continue when there is room again; when the store has failed, raise its error in all calls, now and later."""
        if self._store.failure is not None:
            self._changed.give_up(self._store.failure)
            self._reporter.touch()
        else:
            self._dispatch()

    async def _until(self, condition: Callable[[], bool], wait: float) -> bool:
        """Wait until a condition holds; return whether it does after `wait` seconds.

        Raises
        ------
        LogFailed, Fenced
            What is in memory may be ahead of the log, and stays there.
        """
        holds = await self._changed.until(condition, wait)
        if self._store.failure is not None:
            raise self._store.failure
        return holds

    async def _is_safe(self, run: bytes, wait: float) -> bool:
        """Return whether all of a run so far is as safe as the store promises; wait for that, at least 0.25 s.

        A full disk makes calls wait; it is not a reason to give up.
        """
        try:
            async with asyncio.timeout(max(wait, 0.25)):
                await self._store.durable(self._confirmed.number(run))
        except (TimeoutError, DiskFull, NoDescriptors):
            return False
        return True

    def _are_safe(self, run: bytes, lo: int, hi: int) -> bool:
        """Return whether messages of a run, by ordinal, have results that are all safe."""
        there, safe = self._confirmed.results(run, self.ledger.book(run).results, lo, hi)
        return safe and there == hi - lo

    def _serve_beside(self) -> None:
        self._beside.clear()
        self._dispatch()

    def _wait_no_longer(self) -> None:
        self._returning.clear()
        self._dispatch()

    # --- after every change -----------------------------------------------------------------

    def _dispatch(self) -> None:
        """Do what the rules require, hand out messages, wake waiting calls, set the alarm.

        Nothing is handed out while the disk is full: outcomes that cannot be written would fill the memory.
        """
        # The order matters:
        #
        # 1. `tick` before `_halt_failing`: leases that expire may bring the deaths for which a run is paused.
        # 2. `_halt_failing` before anything is leased: else a run that fails throughout is leased once more.
        # 3. `note_ends` before `_note_touched`: it enters in `touched` what the latter takes.
        # 4. The alarm last: what is leased here has deadlines too.
        # 5. No await: the calls that `ring` wakes ask `_confirmed`, and have to find all of this done.
        if self.closed or self._store.failure is not None:
            return
        self.shard.tick()
        self._halt_failing()
        self._apply_effects()
        for call in self._lot.hungry() if not self._returning and self._store.short is None else ():
            if self._beside and call.consumer.split("#")[0] in self._beside:
                continue
            _, want, at_least = call.credit
            lease = self.shard.lease(call.consumer, want, budget=CHUNK_S, at_least=at_least)
            if lease is not None:
                self._lot.serve(call, lease)
            elif not any(lane.suspects for lane in self.shard.activity.alive()):
                break  # with suspects it depends on the caller; else there is nothing for the others either
        again = self._recalls.consider(self.shard, self._lot)
        self.ledger.note_ends()
        self._note_touched()
        self._changed.ring()
        self._reporter.touch()
        self._set_alarm(again)

    def _note_touched(self) -> None:
        """Record what else has changed, and note which record the changed runs have to wait for."""
        self._store.noted()  # first: the number that is noted has to be that of the record with the change
        touched, self.ledger.touched = self.ledger.touched, {}
        for run in touched:
            self._confirmed.note(run, self.books.get(run))

    def _halt_failing(self) -> None:
        """Pause runs in which everything fails; while the log takes nothing, the next change tries again."""
        if self._store.short is None:
            with suppress(DqlabError):
                for run in self.ledger.halt_failing():
                    self._give_back_untouched(run)

    def _give_back_untouched(self, run: bytes | None) -> None:
        for lease in list(self.shard.leases.values()):
            if run in (None, lease.run):
                self._lot.order(lease.consumer, op="give_back", lease=lease.id, n=1 << 30)

    def _apply_effects(self) -> None:
        effects = self.shard.effects
        while effects:
            revoked = effects.popleft()
            self._lot.order(revoked.consumer, op="cancel", lease=revoked.lease_id, ids=list(revoked.ranges))

    def _set_alarm(self, again: float | None) -> None:
        """Dispatch again when something falls due, at the latest in `again` seconds."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.shard.next_deadline()
        if due is not None or again is not None:
            now = self._clock.monotonic()
            delay = max(0.0, min(due if due is not None else math.inf, now + (again or math.inf)) - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._dispatch)
