"""A shard with the books of its runs: what people order of it, and what settlements leave behind.

Pure, as the rules are. Every change is one call with plain data, so a log of these calls brings back the
same ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from dqlab.errors import RunNotFound
from dqlab.frame import NO_ID, Settlement
from dqlab.queue.book import CANCELLED, CUT_OFF, Book, RunRecord
from dqlab.queue.leases import Lease
from dqlab.queue.results import Stretch
from dqlab.queue.retry import Retry
from dqlab.queue.settling import Settled
from dqlab.queue.shard import Shard
from dqlab.queue.states import State

__all__ = ["Ledger"]

_RULING, _RULED = 1024, 320
"""Bytes, at most, that a settlement's record has beside the settlement: in all, and for each message."""


class Ledger:
    """One shard and its books.

    Parameters
    ----------
    shard : Shard

    Attributes
    ----------
    books : dict of bytes to Book
        By run; the one of lane 0 is always there.
    functions : dict of bytes to bytes
        Blobs by hash.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.books: dict[bytes, Book] = {}
        self.functions: dict[bytes, bytes] = {}
        self.book(NO_ID)

    def book(self, run: bytes) -> Book:
        """Return a run's book.

        Raises
        ------
        RunNotFound
            It has no lane here.
        """
        book = self.books.get(run)
        if book is None:
            if run not in self.shard.lanes:
                raise RunNotFound(run=run.hex(), hint="", known="-")
            book = self.books[run] = Book(self.shard.lanes[run], started=self.shard.clock.wall())
        return book

    def note_ends(self) -> None:
        """Note of each run that has just ended when it did."""
        for book in self.books.values():
            if book.ended is None and book.lane.done:
                book.ended = self.shard.clock.wall()

    def record(self, settlement: Settlement, settled: Settled, stretches: Iterable[Stretch]) -> None:
        """Enter a settlement's results, which are kept at these places, and its failures."""
        book = self.books.get(settlement.run)
        if book is None:
            return
        for stretch in stretches:
            book.results.add(stretch)
            if book.lane.retrying or len(book.classes):
                book.classes.settled_well(stretch.piece.ordinal, stretch.piece.n)
        for failed in settled.failed:
            entry = bytes(settlement.entry(failed.at))
            book.failed(entry, dead=failed.dead, ordinal=failed.ordinal, id=failed.id)

    # --- changes that are recorded: each is admitted, carried out and recorded, or refused and nothing changed ------

    def settle(self, settlement: Settlement) -> Settled:
        """Apply a consumer's outcomes, and keep what they brought; see `Shard.settle`."""
        journal = self.shard.journal
        journal.admit(len(settlement.blob) + _RULING + _RULED * settlement.count)
        settled = self.shard.settle(settlement)
        self.record(settlement, settled, journal.settled(settlement, settled))
        return settled

    def obey(self, op: str, run: bytes | None, meta: dict[str, Any]) -> int:
        """Carry out one order, and record it; return how many messages it touched. Parameters: see `order`."""
        journal = self.shard.journal
        journal.admit_order(op, run, meta)
        count = self.order(op, run, meta)
        journal.ordered(op, run, meta)
        return count

    def keep_function(self, hash: bytes, blob: bytes) -> None:
        """Keep a function for consumers to fetch.

        Raises
        ------
        FunctionTooLarge
            It cannot be kept.
        """
        if hash not in self.functions:
            self.shard.journal.function(hash, blob)
            self.functions[hash] = blob

    def begin(self, lease_id: int) -> bool:
        """Ack a lease early; see `Shard.begin`."""
        shard = self.shard
        shard.tick()
        lease = shard.leases.get(lease_id)
        if lease is not None:
            shard.journal.begun(lease)
        return lease is not None and shard.begin(lease_id)

    def release(self, consumer: str, why: str = "") -> int:
        """Take back all that a dead consumer held; see `Shard.release`."""
        self.shard.journal.admit()
        released = self.shard.release(consumer, why)
        self.shard.journal.noted()
        return released

    def take_back(self, lease: Lease) -> int:
        """Return to their lane the messages of a lease that never reached its consumer."""
        self.shard.journal.admit()
        returned = self.shard.end(lease)
        self.shard.journal.noted()
        return returned

    def lose(self, run: bytes, ids: Iterable[tuple[int, int]]) -> int:
        """Give up messages whose bytes cannot be read; see `Shard.lose`."""
        self.shard.journal.admit()
        lost = self.shard.lose(run, ids)
        self.shard.journal.noted()
        return lost

    # --- orders -----------------------------------------------------------------------------

    def order(self, op: str, run: bytes | None, meta: dict[str, Any]) -> int:
        """Apply one order and record nothing, as when it is read back; return how many messages it touched.

        Parameters
        ----------
        op : str
            One of `orders`.
        run : bytes or None
            Whose lane; None = the whole queue, where that makes sense.
        """
        return self.orders(run)[op](meta) or 0

    def orders(self, run: Any) -> dict[str, Callable[[dict[str, Any]], int | None]]:
        """Return what can be ordered, by name."""
        shard = self.shard
        return {
            "open": lambda meta: self.open(meta["open"]),
            "seal": lambda meta: self._seal(**meta["seal"]),
            "pause": lambda meta: shard.pause(run),
            "resume": lambda meta: self._resume(run),
            "drain": lambda meta: shard.drain(),
            "cancel": lambda meta: self._cancel(run, meta),
            "purge": lambda meta: shard.purge(run, State[meta["state"]]),
            "retry": lambda meta: self._retry(run, meta),
            "adopt": lambda meta: self._adopt(run, meta),
            "retries": lambda meta: self._set_retries(run, meta["retries"]),
            "reopen": lambda meta: self._reopen(run, meta),
            "drop": lambda meta: self._drop(run),
            "why": lambda meta: self._explain(run, meta["why"]),
            "submitted": lambda meta: self._submitted(run, meta),
        }

    def open(self, spec: dict[str, Any]) -> None:
        """Open a run's lane, with its options and its record; one that is open stays as it is."""
        run = spec["run"]
        if run in self.books:
            return
        retry = spec.get("retry")
        limits = {k: spec[k] for k in ("max_deliveries", "visibility_timeout", "maxsize", "max_bytes") if k in spec}
        self.shard.open_lane(run, retry=Retry(**retry) if retry else None, **limits)
        book = self.book(run)
        if "record" in spec:
            spec["record"].setdefault("started", self.shard.clock.wall())  # so that it is the same when read from a log
            book.record = RunRecord(**spec["record"])

    def _seal(self, run: bytes, here: int, total: int | None = None, incomplete: str | None = None) -> None:
        if not self.shard.lane(run).sealed:
            self.shard.seal_lane(run, here)
        record = self.book(run).record
        if record is not None:
            record.total, record.incomplete = total, incomplete

    def cut_off(self, alive: Collection[str], given_up: bytes | None = None) -> list[dict[str, Any]]:
        """Return the orders that seal what is still open of clients that are not alive, or was given up by its own."""
        books = [
            (run, book)
            for run, book in self.books.items()
            if book.record is not None and not book.lane.sealed and (book.record.client not in alive or run == given_up)
        ]
        return [{"run": run, "here": sum(book.lane.counts), "incomplete": CUT_OFF} for run, book in books]

    def _resume(self, run: bytes | None) -> None:
        for id, book in self.books.items():
            if run in (None, id):
                book.stopped = False
        self.shard.resume(run)

    def _cancel(self, run: bytes, meta: dict[str, Any]) -> int:
        """Cancel what is left of a run and take no more of it: puts on their way are refused."""
        lane, record = self.shard.lane(run), self.book(run).record
        if record is not None:
            incomplete = bool(lane.counts[State.LOST]) or not lane.done or record.incomplete is not None
            record.cancelled |= meta.setdefault("cancelled", incomplete)  # the same when read from a log
        if not lane.sealed:
            self._seal(run, sum(lane.counts), incomplete=CANCELLED)
        return self.shard.cancel(run)

    def _adopt(self, run: bytes, meta: dict[str, Any]) -> int:
        """Give a run's documents new code, those that are still to come included; return how many wait for it."""
        self._new_version(run, meta)
        return self.shard.adopt(run, meta["function"])

    def _new_version(self, run: bytes, meta: dict[str, Any]) -> None:
        record = self.book(run).record
        self.functions[meta["function"]] = meta["blob"]
        if record is not None and record.code["hash"] != meta["code"]["hash"]:
            record.codes.append(meta["code"])

    def _retry(self, run: bytes, meta: dict[str, Any]) -> int:
        book = self.book(run)
        if meta.get("function"):
            self._new_version(run, meta)
        count = self.shard.retry(run, meta["ids"], meta.get("function"))
        for lo, hi in meta["ordinals"]:
            book.classes.retried(lo, hi - lo)
        if count:
            book.go_on(meta.setdefault("at", self.shard.clock.wall()))  # the same when read from a log
        return count

    def _set_retries(self, run: bytes, retries: int) -> None:
        lane = self.shard.lane(run)
        lane.retry = replace(lane.retry, retries=retries)

    def _reopen(self, run: bytes, meta: dict[str, Any]) -> None:
        self.shard.reopen_lane(run)
        book = self.book(run)
        book.go_on(meta.setdefault("at", self.shard.clock.wall()))
        if book.record is not None:
            book.record.total = book.record.incomplete = None
            book.record.cancelled = False
            book.record.client = meta.get("client", "")

    def _drop(self, run: bytes) -> int:
        book = self.books.pop(run, None)
        if book is None:
            return 0
        self.shard.journal.forgot(book.results)
        self.shard.drop_lane(run)
        if run == NO_ID:
            self.book(NO_ID)
        return 1

    def _explain(self, run: bytes, why: str) -> None:
        self.book(run).why = why

    def _submitted(self, run: bytes, meta: dict[str, Any]) -> None:
        record = self.book(run).record
        if record is not None:
            record.submitted, record.digest = meta["submitted"], meta["digest"]
