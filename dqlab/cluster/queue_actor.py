"""The actor that holds one shard of a queue: a thin asynchronous shell around the rules.

Every method is async and takes and returns one `bytes` (see `wire`); state is touched on the
worker's event loop only, so no locks. Payloads and results are never unpickled here. Rules are
in `queue.shard`, parked calls in `parking`, results in `results`; this module connects them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from distributed import get_worker

from dqlab.clock import SystemClock
from dqlab.cluster.book import Book, RunRecord
from dqlab.cluster.orders import Recalls
from dqlab.cluster.parking import Bell, ParkedLease, ParkingLot
from dqlab.cluster.protocol import PARK
from dqlab.cluster.reporter import Reporter
from dqlab.cluster.results import ResultLog, Vault
from dqlab.cluster.wire import pack, unpack
from dqlab.errors import BadOption, RunNotFound
from dqlab.frame import NO_ID, Frame, Settlement
from dqlab.queue.failures import Failure
from dqlab.queue.leases import Lease
from dqlab.queue.options import QueueOptions
from dqlab.queue.retry import Retry
from dqlab.queue.effects import Freed, Revoked
from dqlab.queue.shard import Shard
from dqlab.queue.states import State, Verdict

__all__ = ["QueueActor"]

CHUNK_S = 0.075
"""Seconds of work in one lease: long enough to hide the network, short enough to share out fairly."""


class QueueActor:
    """One shard of one queue.

    Parameters
    ----------
    name : str
        The queue's name.
    index : int
        Which shard, from 0.
    epoch : int
        Grows with each re-creation of the shard.
    options : dict
        Fields of `QueueOptions`, and `results_memory`, `results_maxsize` in bytes.
    """

    def __init__(self, name: str, index: int, epoch: int, options: dict[str, Any]) -> None:
        options = dict(options)
        self._vault = Vault(options.pop("results_memory"), options.pop("results_maxsize"))
        options["retry"] = Retry(**options["retry"])
        self._clock = SystemClock()
        self.shard = Shard(
            name, index, epoch=epoch, options=QueueOptions(**options), clock=self._clock, random=random.Random()
        )
        self._frames: dict[int, Frame] = {}
        self._functions: dict[bytes, bytes] = {}
        self.books: dict[bytes, Book] = {}
        self._lot = ParkingLot()
        self._recalls = Recalls()
        self._changed = Bell()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def start(self, body: bytes) -> bytes:
        """Bind to this worker's event loop; the constructor ran in a thread."""
        self._worker = get_worker()
        self._reporter = Reporter(self._worker, self.report)
        self._book(NO_ID)
        self._reporter.touch()
        return pack({"epoch": self.shard.epoch})

    # --- messages in ------------------------------------------------------------------------

    async def put(self, body: bytes) -> bytes:
        """Take in a frame; wait for room, and for earlier frames of its producer, at most `wait` seconds.

        Takes {wait, open?, seal?} and the parts named in `parts`: "frame", "function".
        """
        meta, views = unpack(body)
        parts = dict(zip(meta["parts"], views, strict=True))
        if "open" in meta:
            self._open(meta["open"])
        if "function" in parts:
            self._functions[meta["hash"]] = bytes(parts["function"])
        answer: dict[str, Any] = {"verdict": Verdict.ACCEPTED.name, "epoch": self.shard.epoch}
        if "frame" in parts:
            answer |= await self._put_frame(Frame.decode(bytes(parts["frame"])), meta["wait"])
        if "seal" in meta and answer["verdict"] in (Verdict.ACCEPTED.name, Verdict.DUPLICATE.name):
            self._seal(**meta["seal"])
        self._dispatch()
        return pack(answer)

    async def _put_frame(self, frame: Frame, wait: float) -> dict[str, Any]:
        put = self.shard.put(frame)
        if put.verdict in (Verdict.FULL, Verdict.EARLY):

            def taken() -> bool:
                nonlocal put
                put = self.shard.put(frame)
                return put.verdict not in (Verdict.FULL, Verdict.EARLY)

            self._dispatch()
            await self._changed.until(taken, wait)
        if put.verdict is Verdict.ACCEPTED:
            assert put.first is not None
            self._frames[put.first] = frame
        answer: dict[str, Any] = {"verdict": put.verdict.name, "first": put.first, "expected": put.expected}
        if put.verdict is Verdict.FULL:
            answer |= self._fullness(frame.run)
        return answer

    def _fullness(self, run: bytes) -> dict[str, Any]:
        lane = self.shard.lanes[run]
        return {
            "messages": lane.alive,
            "maxsize": lane.maxsize,
            "bytes": lane.nbytes,
            "max_bytes": lane.max_bytes,
            "consumers": len(self._lot.known),
            "paused": lane.paused or self.shard.paused,
        }

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

    def _book(self, run: bytes) -> Book:
        book = self.books.get(run)
        if book is None:
            if run not in self.shard.lanes:
                raise RunNotFound(run=run.hex(), hint="", known="-")
            book = Book(self.shard.lanes[run], ResultLog(self._vault), started=self._clock.wall())
            self.books[run] = book
        return book

    def _seal(self, run: bytes, here: int, total: int | None = None, incomplete: str | None = None) -> None:
        self.shard.seal_lane(run, here)
        record = self._book(run).record
        if record is not None:
            record.total, record.incomplete = total, incomplete

    async def function(self, body: bytes) -> bytes:
        """Return a function's blob by its hash; consumers ask once."""
        meta, _ = unpack(body)
        blob = self._functions.get(meta["hash"])
        return pack({"known": blob is not None}, blob or b"")

    # --- messages out -----------------------------------------------------------------------

    async def lease(self, body: bytes) -> bytes:
        """Park a consumer slot's call until there are messages or orders for it.

        Takes {consumer, session, want}; answers {lease?, orders} and the lease's frames.
        """
        meta, _ = unpack(body)
        loop = asyncio.get_running_loop()
        call = ParkedLease(meta["consumer"], meta["session"], meta["want"], loop.create_future(), loop.time())
        self._lot.park(call)
        self._dispatch()
        try:
            if not call.answer.done():
                await asyncio.wait((call.answer,), timeout=PARK)
        finally:
            self._lot.leave(call)
        lease: Lease | None = call.answer.result() if call.answer.done() else None
        orders = self._lot.take_orders(call.consumer) if self._lot.known.get(call.consumer) == call.session else []
        if lease is None:
            return pack({"orders": orders, "epoch": self.shard.epoch})
        return self._delivery(lease, orders)

    def _delivery(self, lease: Lease, orders: list[dict[str, Any]]) -> bytes:
        cuts, firsts = [], []
        for piece in lease.pieces:
            frame = self._frames[piece.frame]
            cuts.append(frame.cut(piece.lo, piece.n, function=piece.function, ordinal=piece.ordinal))
            firsts.append(piece.frame + piece.lo)
        meta = {"id": lease.id, "timeout": lease.timeout, "firsts": firsts}
        return pack({"lease": meta, "orders": orders, "epoch": self.shard.epoch}, *cuts)

    async def settle(self, body: bytes) -> bytes:
        """Take in outcomes and results of one lease; `want` renews the consumer's credit."""
        meta, parts = unpack(body)
        settlement = Settlement.decode(parts[0])
        settled = self.shard.settle(settlement)
        book = self.books.get(settlement.run)
        if book is not None:
            self._record(book, settlement, settled)
        if "want" in meta:
            self._lot.credit(meta["consumer"], meta["want"])
        self._recalls.answered(meta["consumer"])
        self._dispatch()
        return pack({"duplicates": settled.duplicates, "stale": settled.stale})

    def _record(self, book: Book, settlement: Settlement, settled: Any) -> None:
        if settled.results:
            book.results.append(settlement, settled.results)
            if book.lane.retrying or len(book.classes):
                for piece, _ in settled.results:
                    book.classes.settled_well(piece.ordinal, piece.n)
        for failed in settled.failed:
            failure = Failure.from_bytes(bytes(settlement.entry(failed.at)))
            book.classes.add(failure, dead=failed.dead, ordinal=failed.ordinal)
        if self._vault.full and not book.stopped:
            book.stopped = True
            self.shard.pause(settlement.run)
            self._give_back_untouched(settlement.run)

    async def renew(self, body: bytes) -> bytes:
        """Renew leases; answer those that are gone."""
        meta, _ = unpack(body)
        return pack({"gone": self.shard.extend(meta["leases"])})

    async def begin(self, body: bytes) -> bytes:
        """Early ack: nothing of this lease will ever be delivered again."""
        meta, _ = unpack(body)
        return pack({"begun": self.shard.begin(meta["lease"])})

    async def release(self, body: bytes) -> bytes:
        """A worker died: its consumers' messages return at once."""
        meta, _ = unpack(body)
        returned = 0
        for consumer in [name for name in self._lot.known if name.split("#")[0] in meta["consumers"]]:
            self._lot.release(consumer)
            returned += self.shard.release(consumer)
        self._dispatch()
        return pack({"returned": returned})

    # --- control ----------------------------------------------------------------------------

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
            "cancel": lambda meta: shard.cancel(run, meta.get("ids")),
            "purge": lambda meta: shard.purge(run, State[meta["state"]]),
            "retry": lambda meta: self._retry(run, meta),
            "drop": lambda meta: self._drop(run),
            "why": lambda meta: self._explain(run, meta["why"]),
            "submitted": lambda meta: self._submitted(run, meta),
        }

    def _explain(self, run: bytes, why: str) -> None:
        self._book(run).why = why

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

    # --- looking ----------------------------------------------------------------------------

    async def settled(self, body: bytes) -> bytes:
        """Wait until no message of [lo, hi) is ready, delayed or leased: {run, lo, hi, wait}."""
        meta, _ = unpack(body)
        run, lo, hi = meta["run"], meta["lo"], meta["hi"]
        await self._changed.until(lambda: self.shard.unsettled(run, lo, hi) == 0, meta["wait"])
        paused = self.shard.paused or self.shard.lanes[run].paused
        return pack({"left": self.shard.unsettled(run, lo, hi), "consumers": len(self._lot.known), "paused": paused})

    async def page(self, body: bytes) -> bytes:
        """Return one page of results by ordinal: {run, lo, hi}."""
        meta, _ = unpack(body)
        return pack({}, *await self._book(meta["run"]).results.page(meta["lo"], meta["hi"]))

    async def stream(self, body: bytes) -> bytes:
        """Return results in the order of completion: {run, cursor, wait}; the cursor confirms nothing away."""
        meta, _ = unpack(body)
        book, lane = self._book(meta["run"]), self.shard.lanes[meta["run"]]
        results = book.results
        await self._changed.until(lambda: len(results) > meta["cursor"] or lane.done or book.stopped, meta["wait"])
        parts, cursor = await results.after(meta["cursor"])
        return pack({"cursor": cursor, "done": lane.done and cursor >= len(results)} | self._progress(book), *parts)

    async def watch(self, body: bytes) -> bytes:
        """Wait until a run is done or stands still: {run, wait}; answers counts and what is known of it."""
        meta, _ = unpack(body)
        book, lane = self._book(meta["run"]), self.shard.lanes[meta["run"]]
        await self._changed.until(lambda: lane.done or book.stopped, meta.get("wait", 0.0))
        return pack(self._progress(book) | {"covered": list(book.results.covered)} if meta.get("covered") else self._progress(book))

    def _progress(self, book: Book) -> dict[str, Any]:
        record = book.record
        return book.report(book.lane.run) | {
            "done": book.lane.done,
            "consumers": len(self._lot.known),
            "parked": len(self._lot.parked),
            "queue_paused": self.shard.paused,
            "stored": self._vault.nbytes,
            "codes": record.codes if record else [],
            "submitted": record.submitted if record else 0,
            "digest": record.digest if record else "",
            "keyed": record.keyed if record else False,
        }

    async def dead(self, body: bytes) -> bytes:
        """Return a page of dead letters: {run, after, limit}; parts are failure record and payload of each."""
        meta, _ = unpack(body)
        letters = self.shard.dead_letters(meta["run"], after=meta["after"], limit=meta["limit"])
        rows, parts = [], []
        for letter in letters:
            first, index = self.shard.locate(letter.id)
            frame = self._frames[first]
            rows.append([letter.id, letter.ordinal, letter.reason, letter.deliveries, letter.exceptions, int(frame.kind)])
            parts += [letter.failure, frame.message(index)]
        return pack({"rows": rows}, *parts)

    async def runs(self, body: bytes) -> bytes:
        """Return every run's name and id that this shard keeps a record of."""
        return pack({"runs": [[run, book.record.name] for run, book in self.books.items() if book.record is not None]})

    async def stats(self, body: bytes) -> bytes:
        """Return the same totals that are reported to the scheduler."""
        return pack(self.report())

    def report(self) -> dict[str, Any]:
        """Return absolute totals of this shard."""
        shard = self.shard
        return {
            "kind": "shard",
            "queue": shard.name,
            "shard": shard.index,
            "epoch": shard.epoch,
            "at": self._clock.wall(),
            "state": "draining" if shard.draining else "paused" if shard.paused else "running",
            "lag": shard.lag(),
            "maxsize": shard.options.maxsize,
            "consumers": len(self._lot.known),
            "stored": self._vault.nbytes,
            "lanes": [book.report(run) for run, book in self.books.items()],
        }

    async def close(self, body: bytes) -> bytes:
        """Answer everybody who waits and drop all."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._reporter.close()
        for consumer in list(self._lot.known):
            self._lot.order(consumer, op="stop")
        self._changed.ring()
        self._vault.close()
        return pack({})

    # --- after every change -----------------------------------------------------------------

    def _dispatch(self) -> None:
        """Do what the rules ask for, hand out messages, wake who waits, set the alarm."""
        if self._closed:
            return
        self.shard.tick()
        self._apply_effects()
        hungry = None
        for call in self._lot.hungry():
            lease = self.shard.lease(call.consumer, call.want, budget=CHUNK_S)
            if lease is None:
                hungry = call
                break
            self._lot.serve(call, lease)
        if hungry is not None:
            self._recalls.consider(self.shard, self._lot, hungry.consumer)
        for book in self.books.values():
            if book.ended is None and book.lane.done:
                book.ended = self._clock.wall()
        self._changed.ring()
        self._reporter.touch()
        self._set_alarm()

    def _apply_effects(self) -> None:
        effects = self.shard.effects
        while effects:
            effect = effects.popleft()
            if isinstance(effect, Freed):
                self._frames.pop(effect.first, None)
            elif isinstance(effect, Revoked):
                self._lot.order(effect.consumer, op="cancel", lease=effect.lease_id, ids=list(effect.ranges))
            else:
                raise BadOption(option="effect", value=effect, problem="unknown effect")

    def _set_alarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.shard.next_deadline()
        if due is not None:
            delay = max(0.0, due - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._dispatch)
