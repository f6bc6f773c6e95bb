"""A shard with the books of its runs: the orders it executes, and the results and failures that settlements bring.

Every change is one call with plain data, so a log of these calls brings back the same ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from dqlab.errors import RunNotFound
from dqlab.frame import NO_ID, Frame, Settlement
from dqlab.rules.book import CANCELLED, CUT_OFF, REHEARSED, WORDS, Book, RunRecord
from dqlab.rules.budget import SPENT, amounts_of
from dqlab.rules.deliveries import Settled
from dqlab.rules.flow import FlowTerms
from dqlab.rules.journal import Op
from dqlab.rules.lane import Lane
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import Ranges
from dqlab.rules.result_index import Stretch
from dqlab.rules.retry import Retry
from dqlab.rules.shard import Put, Shard
from dqlab.rules.states import State, Verdict
from dqlab.stats.counts import StopReason
from dqlab.texts import brief

_RULING, _RULED = 1024, 320
"""Most bytes that a settlement's record has besides the settlement: in all, and per message."""
MANY_UNWANTED = 1000
"""Stretches of unwanted results of calls; above that, those that will never have a result are dropped."""
_NONE: AbstractSet[bytes] = frozenset()


class Ledger:
    """One shard and its books."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.books: dict[bytes, Book] = {}
        """By run; the book of lane 0 is always there."""
        self.functions: dict[bytes, bytes] = {}
        """Blobs of the functions that a lane names, by hash; see `note_functions`."""
        self.names: dict[str, dict[bytes, None]] = {}
        """Runs that have a record, by name."""
        self.news: dict[bytes, None] = {}
        """Runs in which something has changed, for a shell to read and clear."""
        self.touched: dict[bytes, None] = {}
        """The same, for a shell that does this after each change."""
        self.packed: dict[bytes, Callable[[], bytes]] = {}
        """By run, what a store caches here for lanes that hold nothing alive; removed when something changes in
        them."""
        self._named_by: dict[bytes, set[bytes]] = {}
        """By run, the functions that its lane names."""
        self._uses: Counter[bytes] = Counter()
        """How many lanes name a function."""
        self._unended: dict[bytes, Book] = {}
        """Books that have not ended, and perhaps some that just have."""
        self._judged: dict[bytes, Book] = {}
        """Books of runs that may still pause themselves because documents fail."""
        self._budgeted: dict[bytes, Book] = {}
        """Books of runs with a budget."""
        self.rebuilding = False
        """No function is forgotten before `check_functions`: the records read back do not have all that named one."""
        self.book(NO_ID)

    def book(self, run: bytes) -> Book:
        """Return a run's book, or raise RunNotFound when it has no lane here."""
        book = self.books.get(run)
        if book is None:
            if run not in self.shard.lanes:
                raise RunNotFound(run=run.hex(), hint="", known="-")
            book = Book(self.shard.lanes[run], started=self.shard.clock.wall())
            self.keep(run, book)
        return book

    def keep(self, run: bytes, book: Book) -> None:
        """Keep a run's book."""
        self.books[run] = self._unended[run] = book
        self.shard.activity.touch(run)
        if book.record is not None:
            self._note_record(run, book.record)
            self._judge(run, book)

    def _judge(self, run: bytes, book: Book) -> None:
        if book.record is not None and book.record.stop_if is not None:
            self._judged[run] = book

    def _note_record(self, run: bytes, record: RunRecord) -> None:
        self.names.setdefault(record.name, {})[run] = None
        self.shard.lane(run).needs = record.needs
        owner = record.codes[0].get("owner") if record.codes else ""
        self.shard.fairness.belongs(run, (owner or "").partition(", ")[0])  # without the notebook
        if record.unit:
            self.shard.fairness.weighs_bytes(run)
        if record.flow is not None:
            self._set_terms(run, record.flow)

    def note_ends(self) -> None:
        """Record the end of each run that has just ended."""
        for run in [run for run, book in self._unended.items() if book.lane.done]:
            self.end(run, self.shard.clock.wall())
            self._unended.pop(run, None)
        self.note_functions()

    def halt_failing(self) -> list[bytes]:
        """Pause the runs that fail too much, each once, and those whose budget is spent, and return them."""
        due: list[tuple[bytes, dict[str, Any]]] = []
        for run, book in list(self._budgeted.items()):
            if book.lane.done:
                del self._budgeted[run]
            elif book.spent_up:
                due.append((run, {"halted": book.explain_spent(), "halt": StopReason.BUDGET}))
        for run, book in list(self._judged.items()):
            stop = book.stop
            if stop is None or book.lane.done or stop.over(acked=book.lane.counts[State.ACKED]):
                del self._judged[run]
            elif book.fails_too_much:
                due.append((run, {"halted": book.explain_failing()}))
        for run, meta in due:
            self.shard.journal.admit()
            self.shard.journal.noted()  # what time has just changed is not part of the order
            # An order, so that the log has the verdict and replaying it judges nothing.
            self.obey(Op.HALT, run, meta)
        return [run for run, _ in due]

    # --- functions --------------------------------------------------------------------------

    def keep_function(self, run: bytes, hash: bytes, blob: bytes) -> None:
        """Keep a function for frames of a run that come next, or raise PutError."""
        if hash in self.functions:
            self.shard.journal.admit()  # the lane names it from now on, and the put that records it may be refused
        else:
            self.shard.journal.function(hash, blob)
            self.functions[hash] = blob
        self.shard.lane(run).functions.came(hash)
        self.shard.activity.touch(run)
        self._names_now(run, self.book(run).named_functions())  # even if only until the next look

    def forget_unnamed(self, hash: bytes) -> None:
        """Forget a function if no lane names it after all."""
        self.note_functions()
        if not self._uses[hash]:
            self._forget_function(hash)

    def _forget_function(self, hash: bytes) -> None:
        if not self.rebuilding:
            self.functions.pop(hash, None)

    def note_functions(self) -> None:
        """Enter the runs that have changed in `news` and `touched`, and forget what depends on their old state."""
        # A checkpoint takes lanes from `packed` as they are. So each change of something that it holds touches the
        # run (`Activity.touch`, or `note` for messages), and this is called before `packed` is read: a change that is
        # missed here is gone after a restart. A compaction moves frames and touches no run; it drops them itself.
        for run in self.shard.activity.take_changed():
            self.news[run] = self.touched[run] = None
            book = self.books.get(run)
            # Forgets the functions that no lane names any more.
            self._names_now(run, set() if book is None else book.named_functions())
            self.packed.pop(run, None)

    def check_functions(self) -> None:
        """Forget every function that no lane names, and count again, in a ledger that was read back."""
        self.rebuilding = False
        self.note_functions()
        self._named_by = {run: book.named_functions() for run, book in self.books.items()}
        self._uses = Counter(hash for named in self._named_by.values() for hash in named)
        for hash in self.functions.keys() - self._uses.keys():
            del self.functions[hash]

    def _names_now(self, run: bytes, named: set[bytes]) -> None:
        before = self._named_by.get(run, _NONE)
        if named == before:
            return
        self._uses.update(named - before)
        for hash in before - named:
            self._uses[hash] -= 1
            if not self._uses[hash]:
                del self._uses[hash]
                self._forget_function(hash)
        if named:
            self._named_by[run] = named
        else:
            del self._named_by[run]

    def end(self, run: bytes, at: float) -> None:
        """Record the end of a run at `at`, seconds since 1970 UTC, if it has ended."""
        book = self.books.get(run)
        if book is not None and book.ended is None and book.lane.done:
            book.ended = at
            self._unended.pop(run, None)
            self.shard.activity.touch(run)

    def go_on(self, run: bytes, now: float) -> None:
        """Record that more messages follow a run's end."""
        self._unended[run] = book = self.books[run]
        self._judge(run, book)
        book.go_on(now)
        self.shard.activity.touch(run)

    def record(self, settlement: Settlement, settled: Settled, stretches: Iterable[Stretch]) -> None:
        """Record a settlement's results, which are kept at these places, and its failures."""
        book = self.books.get(settlement.run)
        if book is None:
            return
        stretches = list(stretches)
        for stretch in stretches:
            if freed := book.results.add(stretch):
                self.shard.journal.forgot(freed)
            if book.lane.retrying or len(book.classes):
                book.classes.settled_well(stretch.piece.ordinal, stretch.piece.n)
        for stretch in stretches:  # when all are known: the results of one settlement are kept at one place
            if book.unwanted:
                self._forget_unwanted(book, stretch.piece.ordinal, stretch.piece.ordinal + stretch.piece.n)
        if SPENT in settlement.riders:
            for amounts in amounts_of(settlement, settled.called):
                book.pay(amounts)
        for failed in settled.failed:
            entry = bytes(settlement.entry(failed.at))
            book.failed(entry, dead=failed.dead, ordinal=failed.ordinal, id=failed.id)

    # --- recorded changes: each is admitted, executed and recorded, or refused with nothing changed -----------------

    def settle(self, settlement: Settlement) -> Settled:
        """Apply a consumer's outcomes, and keep what they brought."""
        journal = self.shard.journal
        journal.admit(len(settlement.blob) + _RULING + _RULED * settlement.count)
        settled = self.shard.settle(settlement)
        # In this order: the rules decide, the journal keeps the bytes, and the book gets the place where they are.
        self.record(settlement, settled, journal.settled(settlement, settled))
        return settled

    def obey(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> int:
        """Execute one order and record it, and return how many messages it touched."""
        journal = self.shard.journal
        journal.admit_order(op, run, meta)
        count = self.order(op, run, meta)
        # After the execution, because that adds to `meta` what a replay must find there: times, and what depended on
        # leases.
        journal.ordered(op, run, meta)
        return count

    def put_unique(self, frame: Frame, key: bytes, *, within: float, delay: float) -> Put:
        """Put one message unless its key stands for another, which is the answer then."""
        # A key stands for a message while that waits or runs, and for `within` seconds from its put.
        shard, now = self.shard, self.shard.clock.wall()
        known = shard.uniques.find(key, shard.lane(NO_ID), now)
        if known is not None:
            return Put(Verdict.DUPLICATE, first=known)
        meta: dict[str, Any] = {"key": key, "until": now + within}
        shard.journal.admit_order(Op.UNIQUE, NO_ID, meta)
        put = shard.put(frame)
        if put.verdict is Verdict.ACCEPTED and put.first is not None:
            if delay:
                shard.delay(put.first, delay)
            meta["id"] = put.first
            self.order(Op.UNIQUE, NO_ID, meta)
            shard.journal.ordered(Op.UNIQUE, NO_ID, meta)
        return put

    def begin(self, lease_id: int) -> bool:
        """Ack a lease early, as `Shard.begin` does, and record it."""
        shard = self.shard
        shard.tick()  # first: it may end this very lease
        lease = shard.leases.get(lease_id)
        if lease is not None:
            shard.journal.begun(lease)  # before the change, since nothing was admitted: it may raise
        return lease is not None and shard.begin(lease_id)

    def release(self, consumer: str, why: str = "") -> int:
        """Take back all that a dead consumer held, and record it."""
        return self._recorded(lambda: self.shard.release(consumer, why))

    def let_go(self, run: bytes, ids: Iterable[tuple[int, int]], why: str = "") -> int:
        """Take leased messages from their consumers, and record it."""
        self.shard.lane(run)  # raises before anything is asked of the log
        self.shard.activity.touch(run)
        return self._recorded(lambda: self.shard.let_go(run, ids, why))

    def lose(self, run: bytes, ids: Iterable[tuple[int, int]]) -> int:
        """Give up messages whose bytes cannot be read, and record it."""
        return self._recorded(lambda: self.shard.lose(run, ids))

    def _recorded(self, change: Callable[[], int]) -> int:
        self.shard.journal.admit()
        changed = change()
        self.shard.journal.noted()
        return changed

    # --- orders -----------------------------------------------------------------------------

    def order(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> int:
        """Execute one order without recording it, and return how many messages it touched."""
        # Also called when a log is replayed. `run` is None for the whole queue, where that makes sense.
        count = self.orders(run)[op](meta) or 0
        if run is not None and run in self.books:
            self.shard.activity.touch(run)
        if meta.get("function"):
            self.forget_unnamed(meta["function"])
        return count

    def orders(self, run: Any) -> dict[Op, Callable[[dict[str, Any]], int | None]]:
        """Return the orders, by name."""
        shard = self.shard
        # Logs hold orders, and a replay executes them again. So an order reads nothing but the ledger and `meta`, and
        # what it takes from the clock or from leases it notes in `meta` (`setdefault`).
        return {
            Op.OPEN: lambda meta: self.open(meta["open"]),
            Op.SEAL: lambda meta: self._seal(**meta["seal"]),
            Op.PAUSE: lambda meta: shard.pause(run),
            Op.RESUME: lambda meta: self._resume(run),
            Op.DRAIN: lambda meta: shard.drain(),
            Op.CANCEL: lambda meta: self._cancel(run, meta),
            Op.PURGE: lambda meta: shard.purge(run, State[meta["state"]]),
            Op.RETRY: lambda meta: self._retry(run, meta),
            Op.ADOPT: lambda meta: self._adopt(run, meta),
            Op.RETRIES: lambda meta: self._set_retries(run, meta["retries"]),
            Op.REOPEN: lambda meta: self._reopen(run, meta),
            Op.DROP: lambda meta: self._drop(run),
            Op.FORGET: lambda meta: self._forget(run, meta),
            Op.HALT: lambda meta: self._halt(run, **meta),
            Op.WHY: lambda meta: self._explain(run, meta["why"]),
            Op.FLOW: lambda meta: self._set_flow(run, meta["flow"]),
            Op.JUDGE: lambda meta: self._note_marks(run, meta["marks"]),
            Op.SUBMITTED: lambda meta: self._submitted(run, meta),
            Op.UNIQUE: lambda meta: shard.uniques.note(meta["key"], meta["id"], meta["until"]),
        }

    def open(self, spec: dict[str, Any]) -> None:
        """Open a run's lane, with its options and its record, unless it is open."""
        run = spec["run"]
        if run in self.books:
            return
        retry = spec.get("retry")
        limits = {k: spec[k] for k in ("max_deliveries", "visibility_timeout", "maxsize", "max_bytes") if k in spec}
        self.shard.open_lane(run, retry=Retry(**retry) if retry else None, **limits)
        book = self.book(run)
        if "record" in spec:
            spec["record"].setdefault("started", self.shard.clock.wall())  # so that replaying the log gives the same
            book.record = RunRecord(**spec["record"])
            self._note_record(run, book.record)
            self._judge(run, book)

    def _seal(
        self, run: bytes, here: int, total: int | None = None, incomplete: str | None = None, by: bytes | None = None
    ) -> None:
        lane = self.shard.lane(run)
        # A submission that was cut off may report its end late, as when its queue was closed and opened again. The run
        # would end with what it had, while another submission puts the rest.
        if lane.is_left_by(by):
            return
        if not lane.sealed:
            self.shard.seal_lane(run, here)
        record = self.book(run).record
        self.shard.activity.touch(run)
        if record is not None:
            record.total, record.incomplete = total, incomplete and brief(incomplete, WORDS)

    def submitting(self) -> set[str]:
        """Return the clients of the runs that are being submitted."""
        return {record.client for _, record, _ in self._open()}

    def cut_off(self, gone: Collection[str], given_up: bytes | None = None) -> list[dict[str, Any]]:
        """Return the orders that seal open runs whose clients are gone, and `given_up`, which its client left."""
        return [
            {"run": run, "here": sum(lane.counts), "incomplete": CUT_OFF}
            for run, record, lane in self._open()
            if record.client in gone or run == given_up
        ]

    def _open(self) -> list[tuple[bytes, RunRecord, Lane]]:
        return [
            (run, book.record, book.lane)
            for run, book in self.books.items()
            if book.record is not None and not book.lane.sealed
        ]

    def _resume(self, run: bytes | None) -> None:
        for id, book in self.books.items():
            if run in (None, id) and book.stopped:
                book.stopped = False
                self.shard.activity.touch(id)
            if run in (None, id):
                self._end_halt(id)
        self.shard.resume(run)

    def _halt(
        self, run: bytes, *, halted: str, halt: str = StopReason.ALL_FAILED, function: bytes | None = None
    ) -> None:
        """Pause a run for a reason, unless that is a function which other code has replaced."""
        replaced = self.shard.lane(run).replaced
        if function is not None and (replaced is None or function in replaced):
            return
        record = self.book(run).record
        if record is not None:
            record.halted, record.halt = brief(halted, WORDS), StopReason(halt)
        if halt == StopReason.ALL_FAILED:  # never again for that reason
            self._judged.pop(run, None)
            if record is not None:
                record.stop_if = None
        self.shard.pause(run)

    def _end_halt(self, run: bytes) -> bool:
        """End the pause of a run that paused itself because everything failed, and return whether it had."""
        record = self.book(run).record
        if record is None or not record.halted:
            return False
        record.halted = ""
        self.shard.resume(run)
        self.shard.activity.touch(run)
        return True

    def _cancel(self, run: bytes, meta: dict[str, Any]) -> int:
        """Cancel what is left of a run and refuse further puts, also those in flight."""
        lane, record = self.shard.lane(run), self.book(run).record
        if record is not None:
            incomplete = bool(lane.counts[State.LOST]) or not lane.done or record.incomplete is not None
            record.cancelled |= meta.setdefault("cancelled", incomplete)  # the same when read from a log
        if not lane.sealed:
            self._seal(run, sum(lane.counts), incomplete=CANCELLED)
        elif record is not None and (record.incomplete or "").startswith(REHEARSED):
            record.incomplete = CANCELLED  # it no longer waits for its user
        return self.shard.cancel(run)

    def _adopt(self, run: bytes, meta: dict[str, Any]) -> int:
        """Give a run's documents new code, also those still to come, and return how many wait for it."""
        self._new_version(run, meta)
        self._end_halt(run)
        record = self.book(run).record
        if record is not None:  # what runs now may still fail, and that is the old code's failure
            record.stop_if = None
            self._judged.pop(run, None)
        return self.adopt(run, meta["function"])

    def adopt(self, run: bytes, function: bytes) -> int:
        """Make waiting messages, and later ones that name another function of the run, run this function."""
        record = self.book(run).record
        others = None if record is None else {code.get("blob", b"") for code in record.codes} - {function}
        return self.shard.adopt(run, function, others)

    def _new_version(self, run: bytes, meta: dict[str, Any]) -> None:
        """Record the code that an order brings."""
        record, code = self.book(run).record, meta.get("code")
        self.functions[meta["function"]] = meta["blob"]
        if record is None or code is None:
            return
        # Equal versions may have read different values, and the later ones count; but a retry with settings or a note
        # is a version of its own, of which an order may bring word twice.
        own = "process" in code or "process" in record.code
        if record.code.get("blob") == code.get("blob") or (record.code["hash"] == code["hash"] and not own):
            former = [blob for blob in (*record.code.get("former", ()), record.code.get("blob")) if blob]
            record.codes[-1] = code | {"former": [blob for blob in former if blob != code.get("blob")]}
        else:
            record.codes.append(code)

    def _retry(self, run: bytes, meta: dict[str, Any]) -> int:
        book = self.book(run)
        if meta.get("function"):
            self._new_version(run, meta)
        if self._end_halt(run) and meta.get("function"):  # the code of the rest is what failed
            self.adopt(run, meta["function"])
        # A replay has none of the leases, so the meaning of the order is recorded with it.
        first_lease = meta.setdefault("first_lease", self.shard.leases.next_id)
        count = self.shard.retry(run, meta["ids"], meta.get("function"), first_lease=first_lease)
        for lo, hi in meta["ordinals"]:
            book.classes.retried(lo, hi - lo)
        if count:
            self.go_on(run, meta.setdefault("at", self.shard.clock.wall()))  # the same when read from a log
        return count

    def _set_retries(self, run: bytes, retries: int) -> None:
        lane = self.shard.lane(run)
        lane.retry = replace(lane.retry, retries=retries)

    def _note_marks(self, run: bytes, marks: list[list[Any]]) -> None:
        record = self.book(run).record
        if record is not None:
            known = dict(record.marks) | {int(ordinal): right for ordinal, right in marks}
            record.marks = [(ordinal, right) for ordinal, right in known.items() if right is not None]

    def _set_flow(self, run: bytes, flow: dict[str, Any]) -> None:
        record = self.book(run).record
        if record is not None:
            record.flow = flow
        self._set_terms(run, flow)

    def _set_terms(self, run: bytes, flow: dict[str, Any]) -> None:
        terms, book = FlowTerms.of(flow), self.books[run]
        self.shard.set_flow(run, terms)
        book.fill_purse()
        if terms.budget is not None:
            self._budgeted[run] = book

    def _reopen(self, run: bytes, meta: dict[str, Any]) -> None:
        self.shard.reopen_lane(run, meta.get("producer", NO_ID), redo=meta.get("redo", False))
        book = self.book(run)
        if meta.get("redo", False) and book.record is not None and book.record.cancelled:
            book.lane.forget_cancelled(book.results.covered)
        for lo, hi in meta.get("gone", ()):
            self.shard.lapse(run, lo, hi)
            self.shard.journal.forgot(book.results.forget(lo, hi))
        self.go_on(run, meta.setdefault("at", self.shard.clock.wall()))
        if book.record is not None:
            book.record.total = book.record.incomplete = None
            book.record.cancelled = False
            book.record.client = meta.get("client", "")

    def _drop(self, run: bytes) -> int:
        book = self.books.pop(run, None)
        if book is None:
            return 0
        self._unended.pop(run, None)
        self._judged.pop(run, None)
        self._budgeted.pop(run, None)
        if book.record is not None:
            self._forget_record(run, book.record)
        self.shard.journal.forgot(book.results)
        self.shard.drop_lane(run)
        self.news.pop(run, None)
        self.packed.pop(run, None)
        self._names_now(run, set())
        if run == NO_ID:
            self.book(NO_ID)
        return 1

    def _forget(self, run: bytes, meta: dict[str, Any]) -> int:
        """Forget results, and with `coming` also those that are still to come."""
        book = self.book(run)
        before = len(book.results)
        # Single calls have their ids as ordinals, so one range serves both loops.
        for lo, hi in meta["ids"]:
            self.shard.journal.forgot(book.results.forget(lo, hi))
            for batch, a, b, state in book.lane.stretches(lo, hi) if meta.get("coming") else ():
                if not state.final:
                    book.unwanted.add(batch.first + a, batch.first + b)
        intervals = list(book.unwanted)
        if len(intervals) > MANY_UNWANTED:  # cancelled or purged messages will have none
            for lo, hi in intervals:
                left = Ranges(
                    (batch.first + a, batch.first + b)
                    for batch, a, b, state in book.lane.stretches(lo, hi)
                    if not state.final
                )
                for a, b in list(left.gaps(lo, hi)):
                    book.unwanted.discard(a, b)
        return before - len(book.results)

    def _forget_unwanted(self, book: Book, lo: int, hi: int) -> None:
        for a, b in list(book.unwanted.within(lo, hi)):
            book.unwanted.discard(a, b)
            self.shard.journal.forgot(book.results.forget(a, b))

    def _forget_record(self, run: bytes, record: RunRecord) -> None:
        named = self.names.get(record.name, {})
        named.pop(run, None)
        if not named:
            self.names.pop(record.name, None)

    def _explain(self, run: bytes, why: str) -> None:
        self.book(run).why = brief(why, WORDS)

    def _submitted(self, run: bytes, meta: dict[str, Any]) -> None:
        record = self.book(run).record
        if record is not None and not self.shard.lane(run).is_left_by(meta.get("by")):
            known = Submitted.of(meta)
            record.submitted, record.digest = known.through, known.digest
            record.beyond, record.end_digest = list(known.beyond), known.end_digest
