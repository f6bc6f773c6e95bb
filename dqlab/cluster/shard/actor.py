"""The actor that holds one shard of a queue: a thin asynchronous shell around the rules.

Every method is async, and takes and returns one `bytes` (see `wire`). State is touched only on the worker's event loop,
so there are no locks. Payloads and results are never unpickled here.

Between reading the rules and changing them there must be no `await`: another call would change them meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from distributed import get_worker

from dqlab.clock import SystemClock
from dqlab.cluster.shard.durable import Confirmed, open_log_of
from dqlab.cluster.shard.pages import PAGE_VALUES, keys_of, page, page_behind, rider_behind, rider_of, slowest_behind
from dqlab.cluster.shard.recalls import LASTS, Blocks, Recalls
from dqlab.cluster.shard.upkeep import Upkeep
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.internals import NoSuchActor
from dqlab.cluster.transport.parking import Bell, Do, ParkedLease, ParkingLot, SlotOrder, rung
from dqlab.cluster.transport.protocol import LEASE_PARK
from dqlab.cluster.transport.reports import Reporter, ShardProgress, ShardReport
from dqlab.cluster.transport.wire import Packed, pack
from dqlab.errors import DqlabError, MessageNotFound, RunCancelled
from dqlab.frame import NO_ID, Frame, Outcome, Piece, Settlement
from dqlab.log.errors import DiskFull, NoDescriptors, RecordCorrupt
from dqlab.rules.batches import Batch
from dqlab.rules.book import Book, RunRecord
from dqlab.rules.deliveries import Settled
from dqlab.rules.journal import Op
from dqlab.rules.leases import Lease
from dqlab.rules.ranges import Ranges
from dqlab.rules.reports import LaneReport
from dqlab.rules.shard import Put, described, holding
from dqlab.rules.states import State, Verdict
from dqlab.stats import QueueState
from dqlab.store.directories import StoredQueue, log_directory, shard_directory
from dqlab.store.values import Compacted

SWITCH_S = 0.0005
"""Seconds that the thread for checkpoints and compaction may hold the interpreter while messages wait."""
RETURN_S = 5.0
"""Seconds that a recreated shard waits for its consumers: a function may hold the interpreter of one."""
BESIDE_S = 10.0
"""Seconds that a recreated shard leases nothing to consumers in its own process."""
KEYS_AGAIN_S = 1.0
"""Seconds until the keys of a frame that could not be read are read again."""
CHUNK_S = 0.075
"""Seconds of work in one lease: long enough to hide the network, short enough to share out fairly."""
WAITS = frozenset({Verdict.FULL, Verdict.EARLY})
"""Verdicts on frames that the shard may accept later."""
OF_RECORD = (
    *("codes", "submitted", "digest", "beyond", "end_digest", "keyed", "cancelled", "client"),
    *("process", "options", "unit", "needs", "flow", "marks"),
)
"""Parts of a run's record that its progress has as they are."""
logger = logging.getLogger("dqlab.queue")


class QueueActor:
    """One shard of one queue."""

    def __init__(
        self,
        name: str,
        index: int,
        epoch: int,
        options: dict[str, Any],
        clients: Collection[str] = (),
        consumers: Collection[str] = (),
        beside: Collection[str] = (),
    ) -> None:
        self._identity = name, index, epoch  # the epoch grows each time the shard is recreated
        self._clients = clients
        """Clients that are alive; what others were submitting is cut off."""
        self._returning = set(consumers)
        """Consumers of the epoch before: nothing is leased until they have reported what they hold, or for RETURN_S."""
        self._beside = set(beside)
        """Consumers in this process, which others are about to replace: nothing is leased to them meanwhile."""
        self._options = options
        """Fields of QueueOptions, `results_maxsize` in bytes, and `store` or `scratch`, see `_open`."""
        self._clock = SystemClock()
        self._lot = ParkingLot()
        self._recalls = Recalls()
        self._changed = Bell()
        self._timer: asyncio.TimerHandle | None = None
        self._compacting: asyncio.Task[Compacted] | None = None
        self._puts_waiting = 0
        self._without_room: set[bytes] = set()
        """Runs that were stopped for lack of room for results; they continue when there is room."""
        self._blocks = Blocks()
        self._blocked: set[bytes] = set()
        self._reading_keys: dict[tuple[bytes, int], asyncio.Task[None]] = {}  # by run and first id of a frame
        """Runs that consumers reported as held up."""
        self._reports, self._whole = 0, True
        self._reported: set[bytes] = set()
        """Runs that the scheduler knows from reports."""
        self.closed = self._begun = False

    async def start(self, body: bytes) -> bytes:
        """Open what was stored and bind to this worker's event loop, or raise NoSuchActor if it was handed over."""
        # Not in the constructor, which Dask runs in a thread.
        await self._open()
        try:
            if self.closed:  # its worker leaves, and handed the shard over while the log was opened
                raise NoSuchActor(self.shard.name)
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
            self._worker = get_worker()
            self._reporter = Reporter(self._worker, self.news)
            self._begun = True
            self._reporter.touch()
            self._cut_off(self.ledger.submitting().difference(self._clients))
            self._dispatch()
        except BaseException:
            await self._store.close()  # nobody else would close it
            raise
        return calls.Done().pack()

    async def _open(self) -> None:
        name, index, epoch = self._identity
        options = dict(self._options)
        maxsize, store, scratch = (options.pop(key, None) for key in ("results_maxsize", "store", "scratch"))
        rules = StoredQueue(name, 1, options).rules
        # A durable queue's `store` has its directory and fields of `LogOptions`. A transient one's `scratch` is where
        # its log lies relative to `private_directory`, until the queue is closed.
        self._durable = store is not None
        if store is None:
            directory = log_directory(scratch, index)
        else:
            store = dict(store)
            directory = shard_directory(Path(store.pop("directory")), index)
        patience = RETURN_S if self._returning else 0.0
        takeover = epoch > 1  # the last owner may be alive but unreachable
        stored, self._store = await open_log_of(
            name, index, rules, directory, store, self._clock, takeover=takeover, patience=patience
        )
        self._store.maxsize = None if self._durable else maxsize
        self.ledger, self._upkeep = stored.ledger, Upkeep(stored)
        self._store.recorded, self._store.turned = self._upkeep.recorded, self._store_turned
        self.shard = self.ledger.shard
        self._confirmed = Confirmed(self._store, self.books.items())
        if self._returning:
            asyncio.get_running_loop().call_later(RETURN_S, self._wait_no_longer, self._returning)
        if self._beside:
            asyncio.get_running_loop().call_later(BESIDE_S, self._wait_no_longer, self._beside)

    # --- messages in ------------------------------------------------------------------------

    async def put(self, body: bytes) -> bytes:
        """Accept frames of one producer in order, until one is not accepted."""
        asked, parts = calls.PutCall.unpack(body)
        opened = asked.open is not None and asked.open["run"] not in self.books
        if opened:
            self.ledger.obey(Op.OPEN, None, {"open": asked.open})
        function = None if asked.function is None else (asked.function, bytes(parts[asked.frames]))
        firsts, verdict, full = list[int | None](), None, None
        for part in parts[: asked.frames]:
            frame = Frame.decode(bytes(part))
            # Waits for room, and for earlier frames of the producer.
            put = await self._put_frame(frame, asked, function)
            verdict = put.verdict
            if put.verdict not in (Verdict.ACCEPTED, Verdict.DUPLICATE):
                if put.verdict is Verdict.FULL:
                    full = self._fullness(frame)
                break
            firsts.append(put.first)
        if function is not None:
            self.ledger.forget_unnamed(function[0])
        # The client started consumers once, and may not know that the queue was closed and opened again.
        unserved = not self._lot.known
        self._dispatch()
        await asyncio.sleep(0)  # calls that get these messages answer before this one waits for the log
        await self._store.durable()
        return calls.PutAnswer(firsts, verdict, full, opened, unserved).pack()

    async def _put_frame(self, frame: Frame, asked: calls.PutCall, function: tuple[bytes, bytes] | None) -> Put:
        def attempt() -> Put:
            if not self._has_function(frame, function):
                return Put(Verdict.NO_FUNCTION)
            if asked.unique is not None:
                return self.ledger.put_unique(frame, asked.unique, within=asked.within, delay=asked.delay)
            return self.shard.put(frame)

        put = attempt()
        if put.verdict in WAITS:

            def judged() -> bool:
                return self.shard.judge(frame).verdict not in WAITS

            self._puts_waiting += 1
            try:
                self._dispatch()
                if await self._changed.until(judged, asked.wait):
                    put = attempt()  # no await in between, so the verdict still holds
            finally:
                self._puts_waiting -= 1
        return put

    def _has_function(self, frame: Frame, brought: tuple[bytes, bytes] | None) -> bool:
        """Return whether a frame's function is here, after keeping one that was sent with the frame."""
        if frame.function == NO_ID or frame.function in self.ledger.functions or frame.run not in self.books:
            return True
        if brought is None or brought[0] != frame.function:
            return False
        self.ledger.keep_function(frame.run, *brought)
        return True

    def _fullness(self, frame: Frame) -> calls.Fullness:
        lane, no_room = self.shard.lanes[frame.run], self._store.no_room(frame.nbytes)
        return calls.Fullness(
            disk=None if no_room is None else no_room.fields,
            messages=lane.alive,
            maxsize=lane.maxsize,
            bytes=lane.nbytes,
            max_bytes=lane.max_bytes,
            consumers=self._lot.serving(lane.needs),
            paused=lane.paused or self.shard.paused,
        )

    async def function(self, body: bytes) -> bytes:
        """Return a function's blob by its hash."""
        asked, _ = calls.FunctionCall.unpack(body)
        blob = self.ledger.functions.get(asked.hash)
        return calls.FunctionAnswer(blob is not None).pack(blob or b"")

    async def sink(self, body: bytes) -> bytes:
        """Return where the rows of a run are written."""
        asked, _ = calls.FindSinkCall.unpack(body)
        record = self.ledger.book(asked.run).record
        assert record is not None, "only runs have sinks"
        assert record.sink is not None, "the lease said so"
        return calls.SinkAnswer(self._placed(record.sink), record.name, self._durable).pack()

    def _placed(self, sink: dict[str, Any]) -> dict[str, Any]:
        """Return the record of a sink with the place of this queue, which a copy of its log cannot show."""
        return sink | {"store": self._options.get("store", {}).get("directory", "")}

    async def hold(self, body: bytes) -> bytes:
        """Lease nothing of a run while a consumer cannot keep its results."""
        asked, _ = calls.HoldCall.unpack(body)
        run, lane = asked.run, self.shard.lanes.get(asked.run)
        if lane is None:
            return calls.HoldAnswer(wanted=False).pack()
        self._blocks.note(run, asked.consumer, asked.why, self._clock.monotonic())
        self._apply_blocks()
        if asked.why:
            # A report expires by itself: its consumer may be gone.
            asyncio.get_running_loop().call_later(LASTS + 1.0, self._apply_blocks)
        return calls.HoldAnswer(lane.alive > 0).pack()

    def _apply_blocks(self) -> None:
        """Hold up exactly the runs that consumers have reported."""
        if self.closed:
            return
        now, changed = self._clock.monotonic(), False
        for run in self._blocks.runs | self._blocked:
            lane, why = self.shard.lanes.get(run), self._blocks.why(run, now)
            if lane is None or why == lane.held:
                continue
            begins, changed = not lane.held, True
            lane.held = why
            self.shard.activity.touch(run)
            if begins:
                self._give_back_untouched(run)
        self._blocked = self._blocks.runs
        if changed:
            self._dispatch()

    # --- messages out -----------------------------------------------------------------------

    async def lease(self, body: bytes) -> Packed:
        """Park a consumer slot's call until there are messages or orders for it."""
        asked, _ = calls.LeaseCall.unpack(body)
        loop = asyncio.get_running_loop()
        call = ParkedLease(
            asked.consumer, asked.session, asked.credit, loop.create_future(), loop.time(), asked.has or {}, asked.stays
        )
        self._returning.discard(call.consumer.split("#")[0])  # it has reported what it held, or is new
        self._recalls.answered(call.consumer)  # it has carried out every order, even if it returned nothing
        if call.consumer not in self._lot.known:
            self._touch_needy()
        self._lot.park(call)
        self._dispatch()
        try:
            await rung(call.answer, LEASE_PARK)
        except asyncio.CancelledError:
            # A lease may have been assigned in the same turn of the loop: without this it would last until it expires.
            given = None if call.answer.cancelled() else call.answer.result()
            if given is not None:
                self._give_back(given)
            raise
        finally:
            self._lot.leave(call)
        lease: Lease | None = call.answer.result()
        # Taken once: only the slot's newest session may have them.
        orders = self._lot.take_orders(call.consumer) if self._lot.known.get(call.consumer) == call.session else []
        if lease is None:
            return calls.LeaseAnswer(orders, self.shard.epoch).pack()
        try:
            return await self._delivery(lease, orders)
        except asyncio.CancelledError:  # while its frames were read
            self._give_back(lease)
            raise

    def _touch_needy(self) -> None:
        """Have the runs reported that only some slots can run, since those have changed."""
        for lane in self.shard.activity.alive():
            if lane.needs:
                self.shard.activity.touch(lane.run)

    async def reclaim(self, body: bytes) -> bytes:
        """Let a consumer keep what an earlier epoch leased to it, except messages that others have now."""
        asked, _ = calls.ReclaimCall.unpack(body)
        for held in asked.held:
            others = self.shard.reclaim(held.slot, held.lease, held.run, held.ids, age=held.age, early=held.early)
            if others:
                self._lot.order(held.slot, SlotOrder(Do.CANCEL, held.lease, others))
        self._returning.discard(asked.consumer)
        self._dispatch()
        return calls.Done().pack()

    async def _delivery(self, lease: Lease, orders: list[SlotOrder]) -> Packed:
        lane = self.shard.lanes.get(lease.run)
        cuts, firsts = [], []
        for piece, found in [(piece, lane.batches.at(piece.frame)) for piece in lease.pieces] if lane else ():
            if found is None:  # cancelled after it was leased, in the same turn of the loop
                continue
            batch, _ = found  # a leased batch is kept, as `Store.frame` requires
            try:
                frame = await self._store.frame(batch)
            except RecordCorrupt as error:
                self._lose(lease.run, batch, error)
                continue
            except (DiskFull, NoDescriptors):
                self._give_back(lease)
                return calls.LeaseAnswer(orders, self.shard.epoch).pack()
            cuts.append(frame.cut(piece.lo, piece.n, function=piece.function, ordinal=piece.ordinal))
            firsts.append(piece.frame + piece.lo)
        if not cuts or lane is None:
            return calls.LeaseAnswer(orders, self.shard.epoch).pack()
        record = self.books[lease.run].record if lease.run in self.books else None
        delivery = calls.Delivery(
            id=lease.id,
            timeout=lease.timeout,
            firsts=firsts,
            process=record.process if record is not None else None,
            sink=record is not None and record.sink is not None,
            unit=record.unit if record is not None else "",
            attempts=lane.attempts(lease.remaining),
            once=lane.kept(lease.remaining),
            suspect=lease.suspect,
            paced=lane.flow is not None and lane.flow.counts_calls,
        )
        return calls.LeaseAnswer(orders, self.shard.epoch, delivery).pack_apart(*cuts)

    async def _read_keys(self, run: bytes, first: int) -> None:
        """Tell a run's caps the keys of a frame's messages, so that they can be leased."""
        try:
            lane = self.shard.lanes.get(run)
            found = None if lane is None else lane.batches.at(first)
            if lane is None or found is None or lane.flow is None or lane.flow.caps is None:
                return
            lane.batches.keep(found[0])  # as `Store.frame` requires
            try:
                keys = keys_of(await self._store.frame(found[0]), lane.flow.caps.cap.by)
            except RecordCorrupt as error:
                self._lose(run, found[0], error)
                return
            if lane.flow is not None and lane.flow.caps is not None:
                lane.flow.caps.know(first, keys, lane.batches)
        except DqlabError:  # nothing can be read now
            await asyncio.sleep(KEYS_AGAIN_S)
        finally:
            del self._reading_keys[run, first]
        self._dispatch()

    def _want_keys(self) -> None:
        for lane in self.shard.activity.alive():
            for first in () if lane.flow is None or lane.flow.caps is None else lane.flow.caps.wanted:
                if (lane.run, first) not in self._reading_keys:
                    task = asyncio.get_running_loop().create_task(self._read_keys(lane.run, first), name="dqlab-keys")
                    self._reading_keys[lane.run, first] = task

    def _give_back(self, lease: Lease) -> None:
        """Return the rest of a lease that does not reach its consumer, without counting a delivery."""
        pieces = [Piece(piece.frame + piece.lo, piece.ordinal, piece.n) for piece in lease.pieces]
        n = sum(piece.n for piece in pieces)
        blob = Settlement.encode(
            pieces, bytes([Outcome.RETURN]) * n, [b""] * n, run=lease.run, epoch=self.shard.epoch, lease=lease.id
        )
        with suppress(DqlabError):  # the log takes nothing now: the lease expires later
            self.ledger.settle(Settlement.decode(blob))
        self._dispatch()

    def _lose(self, run: bytes, batch: Batch, error: RecordCorrupt) -> None:
        """Count the messages of an unreadable frame as lost, so that no call waits for them."""
        first, stop = batch.first, batch.first + len(batch.states)
        lost = self.ledger.lose(run, [(first, stop)]) if run in self.shard.lanes else 0
        if lost:  # else they were settled or dropped meanwhile
            logger.error("event=messages_lost queue=%s first=%d count=%d %s", self.shard.name, first, lost, error)
            self._dispatch()

    async def settle(self, body: Packed) -> bytes:
        """Accept outcomes and results of one lease, and the consumer's credit."""
        asked, parts = calls.SettleCall.unpack(body)
        settlement = Settlement.decode(parts[0])
        settlement.check_order()
        lane = self.shard.lanes.get(settlement.run)
        before = lane.settled_units if lane is not None else 0
        flow, now = lane.flow if lane is not None else None, self._clock.monotonic()
        open_before = flow is None or not flow.shut(now)
        settled = self.ledger.settle(settlement)
        if asked.answered is not None:
            self.shard.note_answered(settlement.lease, asked.answered)
        if open_before and lane is not None and lane.flow is not None and lane.flow.shut(now):
            self._give_back_untouched(settlement.run)
        self._note_effort(settlement, settled, before)
        self._stop_when_full(settlement.run)
        # Credit and recall before `_dispatch`: otherwise this slot gets nothing until another call dispatches.
        if asked.credit is not None:
            self._lot.credit(asked.consumer, asked.credit)
        self._recalls.answered(asked.consumer)
        self._dispatch()
        await asyncio.sleep(0)  # calls that get these results answer before this one waits for the log
        await self._store.durable()
        return calls.SettleAnswer(settled.duplicates, settled.stale).pack()

    def _note_effort(self, settlement: Settlement, settled: Settled, before: int) -> None:
        documents = sum(piece.n for piece, _ in settled.results) + len(settled.failed)
        book = self.books.get(settlement.run)
        if documents and book is not None:
            book.effort.add(settlement.busy_s, book.lane.settled_units - before, documents)

    def _stop_when_full(self, run: bytes) -> None:
        """Pause a run while there is no room for more results."""
        book = self.books.get(run)
        if book is not None and self._store.full and not book.stopped:
            book.stopped = True
            self._without_room.add(run)
            self.shard.pause(run)
            self._give_back_untouched(run)

    async def renew(self, body: bytes) -> bytes:
        """Renew leases, and return those that are gone."""
        asked, _ = calls.RenewCall.unpack(body)
        gone = self.shard.extend(asked.leases)
        self._reporter.touch()
        return calls.RenewAnswer(gone).pack()

    async def begin(self, body: bytes) -> bytes:
        """Acknowledge a lease early, so that its messages are never delivered again."""
        asked, _ = calls.BeginCall.unpack(body)
        begun = self.ledger.begin(asked.lease)
        if begun:
            # The answer waits for the log: the consumer starts the function when it has it.
            self.ledger.note_functions()
            self._note_touched()
            await self._store.durable()
        return calls.BeginAnswer(begun).pack()

    async def isolate(self, body: bytes) -> bytes:
        """Note that a suspect runs in its consumer's process."""
        asked, _ = calls.IsolateCall.unpack(body)
        return calls.IsolateAnswer(self.shard.isolate(asked.lease)).pack()

    async def ran(self, body: bytes) -> bytes:
        """Note that a suspect has run, and that its outcome follows."""
        asked, _ = calls.RanCall.unpack(body)
        self.shard.note_run(asked.lease)
        self._dispatch()
        return calls.Done().pack()

    async def release(self, body: bytes) -> bytes:
        """Return the messages of consumers whose worker died to the queue at once."""
        asked, _ = calls.ReleaseCall.unpack(body)
        returned = 0
        self._returning.difference_update(asked.consumers)
        for consumer in [name for name in self._lot.known if name.split("#")[0] in asked.consumers]:
            returned += self.ledger.release(consumer, asked.why)
            self._lot.release(consumer)
        self._touch_needy()
        self._blocks.forget(asked.consumers)
        self._apply_blocks()
        self._dispatch()
        return calls.ReleaseAnswer(returned).pack()

    async def hand_over(self, body: bytes) -> bytes:
        """End and release the log; calls that wait, and later ones, must look up the next epoch."""
        # `closed` first, so that `_dispatch` changes nothing more. The store last: the upkeep still writes to it.
        self.closed = True
        if not self._begun:  # `start` sees `closed`, and closes what it opened
            return calls.Done().pack()
        if self._timer is not None:
            self._timer.cancel()
        self._reporter.close()
        for consumer in list(self._lot.known):
            self._lot.release(consumer)
        self._changed.give_up(NoSuchActor(self.shard.name))
        await self._upkeep.close()
        await self._store.close()
        return calls.Done().pack()

    # --- orders -----------------------------------------------------------------------------------

    async def control(self, body: bytes) -> bytes:
        """Carry out one order of a user."""
        asked, _ = calls.ControlCall.unpack(body)
        order = asked.message
        op, run = Op(order.pop("op")), order.pop("run", None)
        if op is Op.REOPEN and not order.get("redo"):  # an update runs what was cancelled
            self._refuse_cancelled(run)
        return calls.Count(await self._obey(op, run, order)).pack()

    async def retry(self, body: bytes) -> bytes:
        """Deliver a page of dead messages again."""
        asked, _ = calls.RetryCall.unpack(body)
        found = list(islice(self.shard.lane(asked.run).dead_ids(asked.after, asked.classes), asked.limit))
        order: dict[str, Any] = {
            "ids": list(Ranges((id, id + 1) for id, _ in found)),
            "ordinals": list(Ranges((ordinal, ordinal + 1) for _, ordinal in found)),
        }
        if asked.function is not None:
            order |= {"function": asked.function, "blob": asked.blob}
        count = await self._obey(Op.RETRY, asked.run, order)
        return calls.RetryAnswer(count, found[-1][0] if asked.limit and len(found) == asked.limit else None).pack()

    async def let_go(self, body: bytes) -> bytes:
        """Take leased messages from their consumers."""
        asked, _ = calls.LetGoCall.unpack(body)
        count = self.ledger.let_go(asked.run, asked.ids, asked.why)
        self._dispatch()
        await self._store.durable()
        return calls.Count(count).pack()

    async def _obey(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> int:
        """Carry out one order, keep it, and do what follows from it."""
        count = self.ledger.obey(op, run, meta)
        if op in (Op.PAUSE, Op.DRAIN, Op.ADOPT, Op.HALT):
            self._give_back_untouched(run)
        if op in (Op.DROP, Op.FORGET) and not self._store.full:
            for id in sorted(self._without_room):
                if id in self.books and self.books[id].stopped:
                    self.ledger.obey(Op.RESUME, id, {})
                self._without_room.discard(id)  # after it: if the log refuses, the next order tries again
        self._dispatch()
        await self._store.durable()
        return count

    async def submitting(self, body: bytes) -> bytes:
        """Return the clients that are submitting runs."""
        return calls.SubmittingAnswer(sorted(self.ledger.submitting())).pack()

    async def cut_off(self, body: bytes) -> bytes:
        """Seal the runs of submitting clients that are gone, and a run that its own client gave up."""
        asked, _ = calls.CutOffCall.unpack(body)
        sealed = self._cut_off(asked.gone, asked.run)
        await self._store.durable()
        return calls.CutOffAnswer(sealed).pack()

    async def compact(self, body: bytes) -> bytes:
        """Free disk space, or continue to wait for a compaction under way."""
        asked, _ = calls.CompactCall.unpack(body)
        # A task of its own: it may take longer than a call, which then returns how far it is, and is repeated.
        if self._compacting is None:
            self._compacting = asyncio.get_running_loop().create_task(self._upkeep.compact(), name="dqlab-compact")
        task = self._compacting
        await asyncio.wait([task], timeout=asked.wait)  # unlike wait_for, it does not cancel the task
        copied, of = self._upkeep.copied
        if not task.done():
            return calls.CompactAnswer(copied, of).pack()
        if self._compacting is task:  # another call may have begun the next one
            self._compacting = None
        return calls.CompactAnswer(of, of, task.result()).pack()

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
        """Wait until no message of a range is ready, delayed or leased, then return their results."""
        asked, _ = calls.WaitSettledCall.unpack(body)
        run, lo, hi = asked.run, asked.lo, asked.hi
        book = self.ledger.book(run)
        await self._until(lambda: book.stopped or self.shard.unsettled(run, lo, hi) == 0, asked.wait)
        left = self.shard.unsettled(run, lo, hi)  # counted again: the wait may have run out
        paused = self.shard.paused or self.shard.lanes[run].paused
        if not left and not self._are_safe(run, lo, hi) and not await self._is_safe(run, asked.wait):
            left = hi - lo  # a result that is not safe may be lost, so it is none yet
        parts = [] if left else await page(book.results, self._store.read, lo, hi)
        return calls.WaitSettledAnswer(
            left=left,
            acked=0 if left else self.shard.lanes[run].acked_among(lo, hi),
            consumers=len(self._lot.known),
            paused=paused,
            why="" if self._store.short is None else f" Blocked by: {self._store.short}",
            stopped=book.stopped,
            stored=self._store.stored,
            results_maxsize=self._options["results_maxsize"],
        ).pack_apart(*parts)

    async def idle(self, body: bytes) -> bytes:
        """Wait until nothing here is ready, delayed or leased, or the reason why nothing is processed changes."""
        asked, _ = calls.IdleCall.unpack(body)
        await self._until(lambda: not self._alive() or self._stuck() != asked.stuck, asked.wait)
        full = any(self.books[lane.run].stopped for lane in self.shard.activity.alive() if lane.run in self.books)
        return calls.IdleAnswer(self._alive(), self._stuck(), full, self._store.stored).pack()

    def _alive(self) -> int:
        return sum(lane.alive for lane in self.shard.activity.alive())

    def _stuck(self) -> str:
        if not self._lot.known:
            return "there has been no consumer"
        waiting = self.shard.activity.alive()
        if any(lane.counts[State.LEASED] for lane in waiting):
            return ""
        paused = self.shard.paused or (waiting and all(lane.paused for lane in waiting))
        if paused:
            return "it has been paused"
        unable = [self._lot.unable(lane.needs) for lane in waiting]
        return unable[0] if unable and all(unable) else ""

    async def page(self, body: bytes) -> Packed:
        """Return one page of results by ordinal, once they are as safe as the store promises."""
        asked, _ = calls.PageCall.unpack(body)
        run, lo, hi = asked.run, asked.lo, asked.hi
        results = self.ledger.book(run).results
        if not self._confirmed.all_of(run) and not self._confirmed.results(run, results, lo, hi)[1]:
            await self._store.durable(self._confirmed.number(run))
        return calls.Done().pack_apart(*await page(results, self._store.read, lo, hi, bare=asked.bare))

    async def rider(self, body: bytes) -> bytes:
        """Return what a side column of results has of one document."""
        asked, _ = calls.RiderCall.unpack(body)
        results, read, cursor = self.ledger.book(asked.run).results, self._store.read, None
        if asked.ordinal is not None:
            found, entry = await rider_of(results, read, asked.name, asked.ordinal)
        else:
            found, entry, cursor = await rider_behind(results, read, asked.name, asked.key, asked.cursor)
        return calls.RiderAnswer(found, cursor).pack(entry)

    async def slowest(self, body: bytes) -> bytes:
        """Return the slowest results behind a cursor."""
        asked, _ = calls.SlowestCall.unpack(body)
        results = self.ledger.book(asked.run).results
        rows, cursor = await slowest_behind(results, self._store.read, asked.n, asked.cursor)
        return calls.SlowestAnswer([calls.SlowRow(*row) for row in rows], cursor).pack()

    async def stream(self, body: bytes) -> Packed:
        """Return results behind a cursor in the order of completion, and drop none."""
        asked, _ = calls.StreamCall.unpack(body)
        book, lane = self.ledger.book(asked.run), self.shard.lanes[asked.run]
        results, cursor = book.results, asked.cursor
        await self._until(lambda: results.end > cursor or lane.done, asked.wait)
        if self._confirmed.end(asked.run) <= cursor:
            await self._is_safe(asked.run, asked.wait)
        end, most = self._confirmed.end(asked.run), PAGE_VALUES if asked.most is None else asked.most
        parts, cursor = await page_behind(results, self._store.read, cursor, end, most)
        more = cursor < results.end
        done = lane.done and not more and self._confirmed.all_of(asked.run)
        return calls.StreamAnswer(cursor, more, done).pack_apart(*parts)

    async def watch(self, body: bytes) -> bytes:
        """Wait until a run is done or stopped, and return its progress."""
        asked, _ = calls.WatchCall.unpack(body)
        book, lane = self.ledger.book(asked.run), self.shard.lanes[asked.run]
        # A caller that waits for the end gets it once it is as safe as the store promises; one that does not wait gets
        # the state in memory.
        safe = True
        if asked.wait:
            await self._until(lambda: lane.done or book.stands, asked.wait)
            safe = not lane.done or await self._is_safe(asked.run, asked.wait)
        progress = self._progress(book)
        if asked.covered:
            progress.covered, progress.came = list(book.results.covered), list(lane.came)
            progress.missing_ordinals = book.missing_ordinals()
        progress.done &= safe
        return pack(progress.to_wire())

    def _progress(self, book: Book) -> ShardProgress:
        record = book.record or RunRecord("", [])
        return ShardProgress(
            lane=self._report_of(book.lane.run),
            done=book.lane.done,
            consumers=self._lot.serving(book.lane.needs),
            parked=len(self._lot.parked),
            failure="" if self._store.failure is None else str(self._store.failure),
            short="" if self._store.short is None else str(self._store.short),
            queue_paused=self.shard.paused,
            stored=self._store.stored,
            results_maxsize=self._options["results_maxsize"],
            sink=record.sink and self._placed(record.sink),
            **{name: getattr(record, name) for name in OF_RECORD},
        )

    def _report_of(self, run: bytes) -> LaneReport:
        report = self.books[run].report(run, self._clock.monotonic(), self._clock.wall())
        report.unable = self._lot.unable(self.books[run].lane.needs)
        return report

    async def dead(self, body: bytes) -> bytes:
        """Return a page of dead letters."""
        asked, _ = calls.DeadCall.unpack(body)
        run = asked.run
        letters = self.shard.dead_letters(run, after=asked.after, limit=asked.limit, classes=asked.classes)
        rows: list[calls.DeadRow] = []
        parts: list[bytes | memoryview] = []
        for letter in letters:
            kind: int | None = None
            message: list[bytes | memoryview] = []
            if not asked.bare:
                try:
                    first, index = self.shard.locate(run, letter.id)
                except MessageNotFound:  # purged or retried during an await; never the first one
                    continue
                frame = await self._store.frame(self.shard.lanes[run].batches[first])
                kind = int(frame.kind)
                message = [frame.message(index)]
            parts += [letter.failure, *message]
            rows.append(
                calls.DeadRow(letter.id, letter.ordinal, letter.reason, letter.deliveries, letter.exceptions, kind)
            )
        return calls.DeadAnswer(rows).pack(*parts)

    async def dead_ordinals(self, body: bytes) -> bytes:
        """Return the ids and ordinals of dead documents, by id."""
        asked, _ = calls.DeadOrdinalsCall.unpack(body)
        found = list(islice(self.shard.lane(asked.run).dead_ids(asked.after), asked.limit))
        return calls.DeadOrdinalsAnswer([id for id, _ in found], [ordinal for _, ordinal in found]).pack()

    async def dead_counts(self, body: bytes) -> bytes:
        """Return how many messages are dead in each lane that has dead ones."""
        asked, _ = calls.DeadCountsCall.unpack(body)
        lanes = [self.shard.lane(asked.run)] if asked.run is not None else self.shard.lanes.values()
        counts = [(lane.run, lane.dead_count(asked.classes)) for lane in lanes]
        return calls.DeadCountsAnswer([row for row in counts if row[1]]).pack()

    async def leases(self, body: bytes) -> bytes:
        """Return the live leases."""
        return calls.LeasesAnswer([described(self.shard, lease) for lease in self.shard.leases.values()]).pack()

    async def runs(self, body: bytes) -> bytes:
        """Return name and id of the runs with a record in this shard."""
        asked, _ = calls.RunsCall.unpack(body)
        names = self.ledger.names
        wanted = names if asked.name is None else [asked.name]
        return calls.RunsAnswer([(run, name) for name in wanted for run in names.get(name, ())]).pack()

    async def opening(self, body: bytes) -> bytes:
        """Return what a run was opened with."""
        asked, _ = calls.OpeningCall.unpack(body)
        book = self.ledger.book(asked.run)
        assert book.record is not None, "only runs have names"
        parts = ("name", "codes", "client", "process", "stop_if", "stop_despite")
        record = {part: getattr(book.record, part) for part in parts}
        optional = ("sink", "options", "needs", "unit", "flow")
        record |= {part: value for part in optional if (value := getattr(book.record, part))}
        return calls.OpeningAnswer(record, book.lane.retry.record()).pack()

    async def stats(self, body: bytes) -> bytes:
        """Return the totals of this shard."""
        return pack(self.report().to_wire())

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
        """Return absolute totals for the scheduler, with the lanes that changed since the last report."""
        # `number` counts reports from 1, so the scheduler sees a gap and calls `resend`. The first report, and the one
        # after `resend`, are `whole`: they have all lanes. `dropped` are runs that are gone.
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
        return calls.Done().pack()

    async def resend(self, body: bytes) -> bytes:
        """Put all lanes into the next report, since the scheduler missed one."""
        self._whole = True
        self._reporter.touch()
        return calls.Done().pack()

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
            stored=self._store.stored,
            puts_waiting=self._puts_waiting,
            failure="" if self._store.failure is None else str(self._store.failure),
            short="" if self._store.short is None else str(self._store.short),
            storage=self._upkeep.report() if self._durable else None,
            lanes=[self._report_of(run) for run in runs],
            held=held,
            oldest=oldest,
            leases_lost=shard.leases_lost,
            redelivered=shard.redelivered,
        )

    def _store_turned(self) -> None:
        """Continue when there is room again, or raise the error of a failed store in all calls."""
        if self._store.failure is not None:
            self._changed.give_up(self._store.failure)
            self._reporter.touch()
        else:
            self._dispatch()

    async def _until(self, condition: Callable[[], bool], wait: float) -> bool:
        """Wait until a condition holds, return whether it holds after `wait` seconds, and raise the store's failure."""
        holds = await self._changed.until(condition, wait)
        # Memory may be ahead of a log that failed, and stays so: no answer may be built from it.
        if self._store.failure is not None:
            raise self._store.failure
        return holds

    async def _is_safe(self, run: bytes, wait: float) -> bool:
        """Wait until all of a run so far is as safe as the store promises, and return whether it is."""
        try:
            # At least 0.25 s, so that a call that does not wait can succeed at all. A full disk makes it unsafe for
            # now; callers wait on.
            async with asyncio.timeout(max(wait, 0.25)):
                await self._store.durable(self._confirmed.number(run))
        except (TimeoutError, DiskFull, NoDescriptors):
            return False
        return True

    def _are_safe(self, run: bytes, lo: int, hi: int) -> bool:
        """Return whether all messages in a range of ordinals have results that are safe."""
        there, safe = self._confirmed.results(run, self.ledger.book(run).results, lo, hi)
        return safe and there == hi - lo

    def _wait_no_longer(self, awaited: set[str]) -> None:
        awaited.clear()
        self._dispatch()

    # --- after every change -----------------------------------------------------------------

    def _dispatch(self) -> None:
        """Do what the rules require, lease messages, wake waiting calls, and set the alarm."""
        # The order matters:
        #
        # 1. `tick` before `_halt_failing`: expired leases may cause the deaths for which a run is paused.
        # 2. `_halt_failing` before leasing: otherwise a run in which everything fails is leased once more.
        # 3. `_recalls.consider` after leasing: it takes work from one slot only if another one got nothing.
        # 4. `note_ends` before `_note_touched`: it adds to `touched`, which the latter takes.
        # 5. The alarm last: the new leases have deadlines too.
        # 6. No await: the calls that `ring` wakes read `_confirmed`, and must find all of this done.
        if self.closed or self._store.failure is not None:
            return
        self.shard.tick()
        self._halt_failing()
        self._apply_effects()
        # Nothing is leased while the disk is full: outcomes that cannot be written would fill the memory.
        for call in self._lot.hungry() if not self._returning and self._store.short is None else ():
            if self._beside and call.consumer.split("#")[0] in self._beside:
                continue
            _, want, at_least = call.credit
            lease = self.shard.lease(
                call.consumer, want, budget=CHUNK_S, at_least=at_least, has=call.has, stays=call.stays
            )
            if lease is not None:
                self._lot.serve(call, lease)
            elif not any(lane.suspects or lane.needs for lane in self.shard.activity.alive()):
                break  # without suspects and needs, no other call gets anything either
        self._want_keys()
        again = self._recalls.consider(self.shard, self._lot)
        self.ledger.note_ends()
        self._note_touched()
        self._changed.ring()
        self._reporter.touch()
        self._set_alarm(again)

    def _note_touched(self) -> None:
        """Record what else has changed, and note the record that the changed runs must wait for."""
        self._store.noted()  # first: `note` takes the number of the record that contains the change
        touched, self.ledger.touched = self.ledger.touched, {}
        for run in touched:
            self._confirmed.note(run, self.books.get(run))

    def _halt_failing(self) -> None:
        """Pause runs in which everything fails."""
        # While the log takes nothing, the next change tries again.
        if self._store.short is None:
            with suppress(DqlabError):
                for run in self.ledger.halt_failing():
                    self._give_back_untouched(run)

    def _give_back_untouched(self, run: bytes | None) -> None:
        for lease in list(self.shard.leases.values()):
            if run in (None, lease.run):
                self._lot.order(lease.consumer, SlotOrder(Do.GIVE_BACK, lease.id, n=1 << 30))

    def _apply_effects(self) -> None:
        effects = self.shard.effects
        while effects:
            revoked = effects.popleft()
            self._lot.order(revoked.consumer, SlotOrder(Do.CANCEL, revoked.lease_id, list(revoked.ranges)))

    def _set_alarm(self, again: float | None) -> None:
        """Dispatch again at the next deadline, or in `again` seconds if that is earlier."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.shard.next_deadline()
        if due is not None or again is not None:
            now = self._clock.monotonic()
            delay = max(0.0, min(due if due is not None else math.inf, now + (again or math.inf)) - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._dispatch)
