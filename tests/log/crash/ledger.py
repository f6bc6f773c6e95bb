"""A small journal on top of a log: who lives, where its bytes are, and what each record did.

Every payload follows from its id alone, so a wrong byte shows wherever it is read. Knows nothing
of crashes; `invariants` compares what a ledger finds after one with its history from before.
"""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from dqlab.log.log import Log
from dqlab.log.records import Position, Record, RecordType

__all__ = ["RESULTS", "Chunk", "Entry", "History", "Ledger", "payload"]

RESULTS = 1_000_000_000
"""Ids from here on are results: number RESULTS + serial of the record that brought it."""
_COUNT = struct.Struct("<I")


@lru_cache(maxsize=1 << 16)
def payload(id: int) -> bytes:
    """Return the bytes of a message: mostly few, sometimes more than a segment of the tests holds."""
    size = 1 + id * 7919 % 97
    if id % 41 == 7:
        size = 1500
    if id % 127 == 50:
        size = 6000
    return hashlib.shake_128(id.to_bytes(8, "little")).digest(size)


@dataclass(slots=True)
class Chunk:
    """One record whose body is (partly) needed: all ids in it, in order, and the ones alive."""

    position: Position
    sparse: bool
    ids: tuple[int, ...]
    alive: set[int]

    def body(self) -> bytes:
        """What the record's body must be."""
        head = _sparse_head(self.ids) if self.sparse else b""
        return head + b"".join(map(payload, self.ids))


def _sparse_head(ids: Sequence[int]) -> bytes:
    return _COUNT.pack(len(ids)) + struct.pack(f"<{len(ids)}Q", *ids)


def sparse_ids(body: bytes | memoryview) -> tuple[int, ...]:
    """The ids a copied record holds."""
    (n,) = _COUNT.unpack_from(body)
    return struct.unpack_from(f"<{n}Q", body, _COUNT.size)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one appended record did."""

    serial: int
    type: int
    added: tuple[int, ...]
    settled: tuple[int, ...]


@dataclass
class History:
    """All records appended since `first`, by serial, without gaps; when each id came and went."""

    first: int = 0
    entries: list[Entry] = field(default_factory=list)
    added: dict[int, int] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)

    @classmethod
    def after(cls, live: Iterable[int], first: int) -> History:
        """A history that begins with some ids alive and confirmed."""
        return cls(first, added=dict.fromkeys(live, -1))

    @property
    def issued(self) -> int:
        """The serial of the next record."""
        return self.first + len(self.entries)

    def add(self, entry: Entry) -> None:
        """Note a record."""
        assert entry.serial == self.issued
        self.entries.append(entry)
        self.added.update(dict.fromkeys(entry.added, entry.serial))
        self.settled.update(dict.fromkeys(entry.settled, entry.serial))

    def must_live(self, confirmed: int, issued: int) -> set[int]:
        """Ids whose put is among the first `confirmed` records and whose settle is not among the first `issued`."""
        return {id for id, at in self.added.items() if at < confirmed and self.settled.get(id, issued) >= issued}

    def may_live(self, confirmed: int, issued: int) -> set[int]:
        """Ids whose put was issued and whose settle was not confirmed."""
        return {id for id, at in self.added.items() if at < issued and self.settled.get(id, confirmed) >= confirmed}


class Ledger:
    """Writes records to a log and follows them.

    Parameters
    ----------
    log : Log
        Open, and not replayed yet: the ledger does that. Where threads share a ledger they hold its `lock` for
        each change; `checkpoint` and `compact` take it themselves, and not while they do I/O.
    history : History, optional
        To go on with, of the ledger before a clean reopening; by default one that begins with what was found.
    """

    def __init__(self, log: Log, history: History | None = None) -> None:
        self.log = log
        self.lock = threading.RLock()
        self.chunks: dict[int, Chunk] = {}
        self.replayed: list[int] = []
        self.doubled: set[int] = set()
        self.positions: dict[int, Position] = {}
        self.next_id = self.next_serial = 0
        self._restore()
        if history is None:
            history = History.after(self.live, self.next_serial)
        self.history = history
        self.next_serial = history.issued
        self.next_id = max([self.next_id, *(id + 1 for id in history.added if id < RESULTS)])
        self._first_serial = self.next_serial
        self._ends: list[int] = []

    # --- what is known ---------------------------------------------------------------------

    @property
    def live(self) -> set[int]:
        """Ids that were put and not settled."""
        return set(self.chunks)

    def distinct(self) -> list[Chunk]:
        """Every chunk that is needed, once."""
        return list({id(chunk): chunk for chunk in self.chunks.values()}.values())

    def confirmed(self) -> int:
        """How many records, from the first on, the log calls durable."""
        durable = self.log.durable
        return self._first_serial + sum(end <= durable for end in self._ends)

    def needed(self) -> dict[int, int]:
        """Bytes needed per segment."""
        out: dict[int, int] = {}
        for chunk in self.distinct():
            segment = chunk.position.segment
            out[segment] = out.get(segment, 0) + sum(len(payload(id)) for id in chunk.alive)
        return out

    # --- changes ---------------------------------------------------------------------------

    def put(self, count: int) -> Entry:
        """Append one record of `count` messages."""
        ids = tuple(range(self.next_id, self.next_id + count))
        self.next_id += count
        return self._append(RecordType.PUT, ids, ids, (), base=ids[0])

    def settle(self, first: int, count: int, *, result: bool) -> Entry:
        """Settle messages `first` to `first + count`; those that live end, the result (one id) lives."""
        ended = tuple(id for id in range(first, first + count) if id in self.chunks)
        brought = (RESULTS + self.next_serial,) if result else ()
        return self._append(RecordType.SETTLE, brought, brought, ended, base=first, count=count)

    def drop(self, result: int) -> Entry:
        """Give up a result."""
        return self._append(RecordType.RUN, (), (), (result,), base=result)

    def note(self) -> Entry:
        """Append a state record that is not needed."""
        return self._append(RecordType.LEASE, (), (), (), base=self.next_id)

    def _append(
        self,
        type: RecordType,
        ids: tuple[int, ...],
        added: tuple[int, ...],
        ended: tuple[int, ...],
        *,
        base: int,
        count: int | None = None,
    ) -> Entry:
        serial = self.next_serial
        parts = [payload(id) for id in ids]
        entry = Entry(serial, type, added, ended)
        self.history.add(entry)
        self.next_serial += 1
        position = self.log.append(
            type,
            parts,
            count=len(ids) if count is None else count,
            base=base,
            aux=serial,
            needed=sum(map(len, parts)),
        )
        self._ends.append(self.log.end)
        self.positions[serial] = position
        if ids:
            self._keep(Chunk(position, sparse=False, ids=ids, alive=set(ids)))
        self._end(ended)
        return entry

    def _keep(self, chunk: Chunk) -> None:
        for id in chunk.alive:
            self.chunks[id] = chunk

    def _end(self, ids: Iterable[int]) -> None:
        for id in ids:
            chunk = self.chunks.pop(id, None)
            if chunk is not None:
                chunk.alive.discard(id)
                if self._counting:
                    self.log.free(chunk.position.segment, len(payload(id)))

    # --- reading ---------------------------------------------------------------------------

    def read(self, chunk: Chunk) -> bytes:
        """Return a chunk's body from the log."""
        return bytes(self.log.read(chunk.position))

    # --- checkpoints and compaction --------------------------------------------------------

    def checkpoint(self) -> None:
        """Make a durable checkpoint."""
        with self.lock:
            mark, state = self.log.mark(), self.state()
        self.log.checkpoint(mark, state)

    def state(self) -> bytes:
        """The ledger as bytes."""
        chunks = [[*chunk.position, chunk.sparse, list(chunk.ids), sorted(chunk.alive)] for chunk in self.distinct()]
        return json.dumps({"chunks": chunks, "next_id": self.next_id, "next_serial": self.next_serial}).encode()

    def compact(self, between: Callable[[], None] = lambda: None) -> int:
        """Append again what is needed of the segments that the log wants compacted; return how many records moved.

        `between` is called before each record that is copied, and may use the ledger.
        """
        with self.lock:
            victims = set(self.log.victims())
            chosen = [chunk for chunk in self.distinct() if chunk.position.segment in victims]
        moved = 0
        for chunk in sorted(chosen, key=lambda chunk: chunk.position):
            between()
            body = self.read(chunk) if chunk.alive else b""
            assert not chunk.alive or body == chunk.body()
            with self.lock:
                if chunk.alive and chunk.position.segment in victims:
                    self._move(chunk)
                    moved += 1
        self.log.commit()
        return moved

    def _move(self, chunk: Chunk) -> None:
        old, ids = chunk.position, tuple(sorted(chunk.alive))
        parts = [payload(id) for id in ids]
        needed = sum(map(len, parts))
        chunk.position = self.log.append(
            RecordType.SPARSE,
            [_sparse_head(ids), *parts],
            count=len(ids),
            base=ids[0],
            aux=self.next_serial - 1,
            needed=needed,
        )
        self.log.free(old.segment, needed)
        chunk.sparse, chunk.ids = True, ids

    # --- reopening -------------------------------------------------------------------------

    def _restore(self) -> None:
        body = self.log.recovery.checkpoint
        if body is not None:
            state = json.loads(body)
            self.next_id, self.next_serial = state["next_id"], state["next_serial"]
            for segment, offset, size, sparse, ids, alive in state["chunks"]:
                self._keep(Chunk(Position(segment, offset, size), sparse, tuple(ids), set(alive)))
        self._counting = False
        for record in self.log.replay():
            self._replay(record)
        self.log.needs(self.needed())
        self._counting = True

    def _replay(self, record: Record) -> None:
        if record.type != RecordType.SPARSE:
            self.replayed.append(record.aux)
        self.next_serial = max(self.next_serial, record.aux + 1)
        ids: tuple[int, ...] = ()
        if record.type == RecordType.PUT:
            ids = tuple(range(record.base, record.base + record.messages))
            self.next_id = max(self.next_id, record.base + record.messages)
        elif record.type == RecordType.SPARSE:
            ids = sparse_ids(record.body)
        elif record.type == RecordType.SETTLE:
            self._end(range(record.base, record.base + record.messages))
            ids = (RESULTS + record.aux,) if len(record.body) else ()
        elif record.type == RecordType.RUN:
            self._end([record.base])
        if ids:
            copied = record.type == RecordType.SPARSE
            self.doubled |= set() if copied else self.chunks.keys() & set(ids)
            self._keep(Chunk(record.position, copied, ids, set(ids)))
