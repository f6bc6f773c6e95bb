"""Runs in an environment that has LMDB: puts, and gets and acks, in transactions of a batch each.

Only the standard library and LMDB can be imported here. A key is a message's id, eight bytes, big-endian.
"""

import json
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import lmdb  # type: ignore[import-not-found]

MAP_BYTES = 8 << 30
pack = struct.Struct(">Q").pack


class Messages:
    """A queue kept in LMDB: one database of messages for each state, and the leases."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.ready, self.leased, self.leases = (environment.open_db(name) for name in (b"ready", b"leased", b"lease"))
        self._next = self._position = 0
        self._numbers = count()

    def put(self, payloads: list[bytes]) -> None:
        """Add a batch, in one transaction."""
        first, self._next = self._next, self._next + len(payloads)
        with self.environment.begin(write=True) as transaction:
            cursor = transaction.cursor(self.ready)
            cursor.putmulti(zip(map(pack, range(first, self._next)), payloads, strict=True), append=True)

    def get(self, n: int) -> list[tuple[bytes, bytes]]:
        """Bring the first `n` messages that are ready into another state; return them."""
        with self.environment.begin(write=True) as transaction:
            cursor = transaction.cursor(self.ready)
            cursor.first()
            messages = list(islice(cursor.iternext(), n))
            transaction.cursor(self.leased).putmulti(messages, append=True)
            for key, _ in messages:
                transaction.delete(key, db=self.ready)
        return messages

    def ack(self, messages: list[tuple[bytes, bytes]]) -> None:
        """Delete messages that were got."""
        with self.environment.begin(write=True) as transaction:
            for key, _ in messages:
                transaction.delete(key, db=self.leased)

    def get_behind(self, n: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Return `n` messages behind those got last, which is only known in memory, and the lease written for them."""
        lease = pack(next(self._numbers))
        with self.environment.begin(write=True) as transaction:
            cursor = transaction.cursor(self.ready)
            cursor.set_range(pack(self._position))
            messages = list(islice(cursor.iternext(), n))
            transaction.put(lease, messages[0][0] + messages[-1][0], db=self.leases)
        self._position += n
        return lease, messages

    def ack_lease(self, lease: bytes) -> None:
        """Delete a lease, and its messages as a range."""
        with self.environment.begin(write=True) as transaction:
            span = transaction.pop(lease, db=self.leases)
            cursor = transaction.cursor(self.ready)
            cursor.set_key(span[:8])
            for _ in range(int.from_bytes(span[8:]) - int.from_bytes(span[:8]) + 1):
                cursor.delete()


def put(messages: Messages, payloads: list[list[bytes]], batches: int) -> dict[str, float]:
    """Return messages put a second."""
    start = time.perf_counter()
    for at in range(batches):
        messages.put(payloads[at % len(payloads)])
    return {"put": batches * len(payloads[0]) / (time.perf_counter() - start)}


def drain(messages: Messages, payloads: list[list[bytes]], batches: int) -> dict[str, float]:
    """Return messages got and acked a second, each by its own time."""
    put(messages, payloads, batches)
    n, got, acked = len(payloads[0]), 0.0, 0.0
    for _ in range(batches):
        start = time.perf_counter()
        held = messages.get(n)
        between = time.perf_counter()
        messages.ack(held)
        got, acked = got + between - start, acked + time.perf_counter() - between
    return {"get": batches * n / got, "ack": batches * n / acked, "left": left(messages)}


def drain_leases(messages: Messages, payloads: list[list[bytes]], batches: int) -> dict[str, float]:
    """Return the same with one record for each lease, in place of a state for each message."""
    put(messages, payloads, batches)
    n, got, acked = len(payloads[0]), 0.0, 0.0
    for _ in range(batches):
        start = time.perf_counter()
        lease, _ = messages.get_behind(n)
        between = time.perf_counter()
        messages.ack_lease(lease)
        got, acked = got + between - start, acked + time.perf_counter() - between
    return {"get": batches * n / got, "ack": batches * n / acked, "left": left(messages)}


def left(messages: Messages) -> int:
    """Return how many messages and leases are there."""
    with messages.environment.begin() as transaction:
        databases = (messages.ready, messages.leased, messages.leases)
        return sum(int(transaction.stat(database)["entries"]) for database in databases)


@contextmanager
def fresh(directory: str, sync: str) -> Iterator[Messages]:
    """Open an empty environment; with "os" nothing is synced."""
    path = Path(directory) / "lmdb"
    environment = lmdb.open(str(path), map_size=MAP_BYTES, max_dbs=3, sync=sync == "always")
    try:
        yield Messages(environment)
    finally:
        environment.close()
        shutil.rmtree(path)


def main() -> None:
    print(json.dumps("ready"), flush=True)
    steps = {"put": put, "drain": drain, "drain leases": drain_leases}
    for line in sys.stdin:
        asked = json.loads(line)
        payloads = [[os.urandom(asked["size"]) for _ in range(asked["batch"])] for _ in range(10)]
        with fresh(asked["directory"], asked["sync"]) as messages:
            print(json.dumps(steps[asked["step"]](messages, payloads, asked["batches"])), flush=True)


if __name__ == "__main__":
    main()
