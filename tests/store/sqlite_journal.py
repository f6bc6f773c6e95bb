"""A second opinion on what is stored: a journal that also tells SQLite, one row a message and one a result."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from dqlab.clock import Clock
from dqlab.frame import Frame, Settlement
from dqlab.log.log import Log
from dqlab.rules.batches import Batch
from dqlab.rules.deliveries import Settled
from dqlab.rules.lane import Lane
from dqlab.rules.ledger import Ledger
from dqlab.rules.result_index import Stretch
from dqlab.rules.states import State
from dqlab.store.journal import LogJournal, open_settle

__all__ = ["SqliteJournal", "differences", "new_database"]

_TABLES = """
    CREATE TABLE message (id INTEGER PRIMARY KEY, run BLOB, payload BLOB, state INTEGER);
    CREATE TABLE result (run BLOB, ordinal INTEGER, payload BLOB, UNIQUE (run, ordinal));
"""


def new_database() -> sqlite3.Connection:
    """Return an empty database in memory."""
    database = sqlite3.connect(":memory:")
    database.executescript(_TABLES)
    return database


class SqliteJournal(LogJournal):
    """Tells a database what it is told; what is only read back from the log stands there already."""

    def __init__(self, log: Log, clock: Clock, database: sqlite3.Connection) -> None:
        super().__init__(log, clock)
        self.database = database

    def put(self, frame: Frame, first: int) -> int:
        rows = [(first + at, frame.run, payload, State.READY) for at, payload in enumerate(frame.messages())]
        place = super().put(frame, first)
        self.database.executemany("INSERT INTO message VALUES (?, ?, ?, ?)", rows)
        return place

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        super().moved(lane, batch, a, b, old, new, suspect=suspect, due=due)
        if self.recording:
            rows = [(new, batch.first + index) for index in range(a, b)]
            self.database.executemany("UPDATE message SET state = ? WHERE id = ?", rows)

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        for piece, at in settled.results:
            rows = [
                (settlement.run, piece.ordinal + step, bytes(settlement.entry(at + step))) for step in range(piece.n)
            ]
            self.database.executemany("INSERT INTO result VALUES (?, ?, ?)", rows)
        return super().settled(settlement, settled)

    def ordered(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        super().ordered(op, run, meta)
        if op == "drop":
            for table in ("message", "result"):
                self.database.execute(f"DELETE FROM {table} WHERE run = ?", (run,))


def differences(database: sqlite3.Connection, ledger: Ledger, journal: LogJournal) -> list[str]:
    """Return in what a ledger that was opened from its log differs from the database."""
    wrong: list[str] = []
    with closing(database.execute("SELECT id, run, payload, state FROM message")) as rows:
        for id, run, payload, state in rows:
            found = ledger.shard.lanes[run].batches.at(id)
            if found is None:
                wrong += [] if State(state).final else [f"message {id} is gone, {State(state).name} in the database"]
                continue
            batch, index = found
            here, there = State(batch.states[index]), State(state)
            if there in (State.LEASED, State.DELAYED) and here in (State.READY, State.DEAD, State.DELAYED):
                there = here  # leases end with the process, delays with time
            if here is not there:
                wrong.append(f"message {id} is {here.name}, {there.name} in the database")
            if not here.final and Frame.decode(journal.body(batch.place)).messages()[index] != payload:
                wrong.append(f"message {id} has another payload")
    for run, book in ledger.books.items():
        there = dict(database.execute("SELECT ordinal, payload FROM result WHERE run = ?", (run,)).fetchall())
        here = {}
        for stretch in book.results:
            settlement = Settlement.decode(open_settle(journal.body(stretch.place))[1])
            for step in range(stretch.piece.n):
                here[stretch.piece.ordinal + step] = bytes(settlement.entry(stretch.at + step))
        if here != there:
            wrong.append(f"results of {run.hex()}: {sorted(here)}, {sorted(there)} in the database")
    return wrong
