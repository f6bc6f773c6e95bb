"""What a durable shard is compared with: raw writes, SQLite, LMDB. All move the same messages in the same batches."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from benchmarks.environment import python_with
from benchmarks.harness import WrongAnswer
from benchmarks.processes import Child, ChildFailed
from dqlab.frame import Frame
from dqlab.log.writer import SyncMode

__all__ = ["Lmdb", "drain_sqlite", "put_raw", "put_sqlite"]


def put_raw(directory: Path, frames: Sequence[Frame], n: int, sync: SyncMode) -> float:
    """Return messages per second when `n` frames are only written, and with "always" synced, to one file."""
    blobs = [bytes(frame.blob) for frame in frames]
    descriptor = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    start = time.perf_counter()
    for at in range(n):
        os.write(descriptor, blobs[at % len(blobs)])
        if sync == "always":
            os.fdatasync(descriptor)
    elapsed = time.perf_counter() - start
    os.close(descriptor)
    (directory / "raw").unlink()
    return n * frames[0].count / elapsed


# --- SQLite ---------------------------------------------------------------------------------


def put_sqlite(directory: Path, frames: Sequence[Frame], n: int, sync: SyncMode) -> float:
    """Return messages per second when each frame is a transaction."""
    batches = [[(payload,) for payload in frame.messages()] for frame in frames]
    with _sqlite(directory, sync) as database:
        start = time.perf_counter()
        for at in range(n):
            _insert(database, batches[at % len(batches)])
        return n * frames[0].count / (time.perf_counter() - start)


def drain_sqlite(directory: Path, frames: Sequence[Frame], n: int) -> tuple[float, float]:
    """Return messages got and acked per second, each by its own time: a state for each message, an index of it."""
    batches = [[(payload,) for payload in frame.messages()] for frame in frames]
    batch, got, acked = frames[0].count, 0.0, 0.0
    with _sqlite(directory, "os") as database:
        for at in range(n):
            _insert(database, batches[at % len(batches)])
        for _ in range(n):
            start = time.perf_counter()
            database.execute("BEGIN")
            query = "SELECT id, payload FROM message WHERE state = 0 ORDER BY id LIMIT ?"
            ids = [(id,) for id, _ in database.execute(query, (batch,))]
            database.executemany("UPDATE message SET state = 1 WHERE id = ?", ids)
            database.execute("COMMIT")
            got += time.perf_counter() - start
            start = time.perf_counter()
            database.execute("BEGIN")
            database.executemany("DELETE FROM message WHERE id = ?", ids)
            database.execute("COMMIT")
            acked += time.perf_counter() - start
        (left,) = database.execute("SELECT count(*) FROM message").fetchone()
    if left:
        raise WrongAnswer(f"{left} messages were not acked in SQLite")
    return n * batch / got, n * batch / acked


@contextmanager
def _sqlite(directory: Path, sync: SyncMode) -> Iterator[sqlite3.Connection]:
    path = directory / "messages.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(f"PRAGMA synchronous = {'FULL' if sync == 'always' else 'OFF'}")
    database.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, state INTEGER, payload BLOB)")
    database.execute("CREATE INDEX by_state ON message (state, id)")
    try:
        yield database
    finally:
        database.close()
        for name in ("messages.db", "messages.db-wal", "messages.db-shm"):
            (directory / name).unlink(missing_ok=True)


def _insert(database: sqlite3.Connection, rows: list[tuple[bytes]]) -> None:
    database.execute("BEGIN")
    database.executemany("INSERT INTO message (state, payload) VALUES (0, ?)", rows)
    database.execute("COMMIT")


# --- LMDB -----------------------------------------------------------------------------------


class Lmdb:
    """A process that moves messages through LMDB, in an environment of its own.

    Raises
    ------
    ChildFailed
        It cannot be installed or started; says why.
    """

    def __init__(self, say: Callable[[str], None], directory: Path, *, install: bool) -> None:
        python = python_with("lmdb", ["lmdb"], say=say, install=install)
        self._directory = directory
        self._child = Child([str(python), str(Path(__file__).with_name("log_lmdb_child.py"))])
        try:
            self._child.wait_until_ready()
        except ChildFailed:
            self._child.close()
            raise

    def put(self, batch: int, size: int, n: int, sync: SyncMode) -> float:
        """Return messages per second when each of `n` batches is a transaction."""
        return float(self._ask("put", batch=batch, size=size, batches=n, sync=sync)["put"])

    def drain(self, batch: int, size: int, n: int, *, state: Literal["message", "lease"]) -> tuple[float, float]:
        """Return messages got and acked per second, with a state for each message or one record for a lease."""
        step = "drain" if state == "message" else "drain leases"
        answer = self._ask(step, batch=batch, size=size, batches=n, sync="os")
        if answer["left"]:
            raise WrongAnswer(f"{answer['left']} messages were not acked in LMDB")
        return answer["get"], answer["ack"]

    def close(self) -> None:
        """End its process."""
        self._child.close()

    def _ask(self, step: str, **sizes: int | str) -> dict[str, float]:
        answer: dict[str, float] = self._child.ask({"step": step, "directory": str(self._directory), **sizes})
        return answer
