"""Room `log`: a durable shard alone, rules and log in this process, beside raw writes and SQLite.

Not part of `make bench`, which looks at the whole way of a message; `make bench-log` measures it.
"""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.figures import Better, Figure, Peer, Series, Target, ratios
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.processes import resident_bytes
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from dqlab.frame import NO_ID, Frame, Kind, Piece, Settlement
from dqlab.log import LogOptions
from dqlab.log.options import SyncMode
from dqlab.queue.options import QueueOptions
from dqlab.store.compaction import compaction
from dqlab.store.shard import DurableShard

__all__ = ["log"]

BATCH = 100
SYNCED, UNSYNCED = 300, 3_000
"""Batches in one round, with a sync for each and without."""
QUEUED = 1_000_000


def log(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure puts, gets, acks, reopening, compaction, disk and memory of one shard."""
    with _directory() as directory:
        return [
            *_puts(directory, sizes, size=100),
            *_puts(directory, sizes, size=4096),
            *_gets_and_acks(directory, sizes),
            *_reopening(directory, sizes, batch=BATCH, n=QUEUED if sizes.full else QUEUED // 10),
            *_single_messages(directory, sizes),
            _during_compaction(directory, sizes),
        ]


# --- puts -----------------------------------------------------------------------------------


def _puts(directory: Path, sizes: Sizes, *, size: int) -> Iterator[Figure]:
    targets: dict[SyncMode, tuple[float, float]] = {"os": (0.25, 6.0), "always": (0.75, 1.5)}
    if size > 1000:
        targets = {"os": (0.35, 3.0), "always": (0.7, 1.0)}
    for sync, (of_raw, over_sqlite) in targets.items():
        n = SYNCED if sync == "always" else UNSYNCED // (1 if size < 1000 else 8)
        found = alternate(
            [
                Contestant("dqlab", partial(_put_log, directory, n, size, sync)),
                Contestant("raw", partial(_put_raw, directory, n, size, sync)),
                Contestant("SQLite", partial(_put_sqlite, directory, n, size, sync)),
            ],
            rounds=sizes.rounds,
        )
        ours, raw, sqlite = (Series.of(values) for values in found.values())
        name = f"put {BATCH} x {size} B, sync {sync}"
        peers = (Peer("raw write of the same bytes", raw), Peer("SQLite, WAL", sqlite))
        yield Figure(name, "msg/s", Better.HIGHER, ours, None, peers)
        yield Figure(f"{name}, of raw", "x", Better.HIGHER, ratios(ours, raw), Target(of_raw))
        yield Figure(f"{name}, over SQLite", "x", Better.HIGHER, ratios(ours, sqlite), Target(over_sqlite))


def _frames(size: int, batch: int = BATCH) -> list[Frame]:
    return [Frame.decode(Frame.encode([os.urandom(size) for _ in range(batch)], kind=Kind.VALUE)) for _ in range(10)]


def _put_log(directory: Path, n: int, size: int, sync: SyncMode) -> float:
    frames = _frames(size)
    shard = _open(directory / "log", sync=sync)
    start = time.perf_counter()
    for at in range(n):
        shard.ledger.shard.put(frames[at % 10])
        shard.journal.log.commit()
    elapsed = time.perf_counter() - start
    _close(shard, directory / "log")
    return n * BATCH / elapsed


def _put_raw(directory: Path, n: int, size: int, sync: SyncMode) -> float:
    blobs = [bytes(frame.blob) for frame in _frames(size)]
    descriptor = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    start = time.perf_counter()
    for at in range(n):
        os.write(descriptor, blobs[at % 10])
        if sync == "always":
            os.fdatasync(descriptor)
    elapsed = time.perf_counter() - start
    os.close(descriptor)
    return n * BATCH / elapsed


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


def _put_sqlite(directory: Path, n: int, size: int, sync: SyncMode) -> float:
    batches = [[(payload,) for payload in frame.messages()] for frame in _frames(size)]
    with _sqlite(directory, sync) as database:
        start = time.perf_counter()
        for at in range(n):
            _insert(database, batches[at % 10])
        return n * BATCH / (time.perf_counter() - start)


def _insert(database: sqlite3.Connection, rows: list[tuple[bytes]]) -> None:
    database.execute("BEGIN")
    database.executemany("INSERT INTO message (state, payload) VALUES (0, ?)", rows)
    database.execute("COMMIT")


# --- gets and acks --------------------------------------------------------------------------


def _gets_and_acks(directory: Path, sizes: Sizes) -> Iterator[Figure]:
    found = alternate(
        [
            Contestant("dqlab", partial(_drain_log, directory, UNSYNCED)),
            Contestant("SQLite", partial(_drain_sqlite, directory, UNSYNCED // 10)),
        ],
        rounds=sizes.rounds,
    )
    ours, theirs = found["dqlab"], found["SQLite"]
    for at, (what, floor) in enumerate((("get", 2.0), ("ack", 8.0))):
        mine, sqlite = Series.of([pair[at] for pair in ours]), Series.of([pair[at] for pair in theirs])
        name = f"{what} {BATCH} x 100 B, sync os"
        yield Figure(name, "msg/s", Better.HIGHER, mine, None, (Peer("SQLite, WAL", sqlite),))
        yield Figure(f"{name}, over SQLite", "x", Better.HIGHER, ratios(mine, sqlite), Target(floor))


def _drain_log(directory: Path, n: int) -> tuple[float, float]:
    """Return messages got and acked per second, each by its own time."""
    frames, shard = _frames(100), _open(directory / "log")
    for at in range(n):
        shard.ledger.shard.put(frames[at % 10])
    shard.journal.log.commit()
    rules, got, acked = shard.ledger.shard, 0.0, 0.0
    for _ in range(n):
        start = time.perf_counter()
        lease = rules.lease("consumer", BATCH)
        assert lease is not None
        lane = rules.lanes[NO_ID]
        for piece in lease.pieces:
            Frame.decode(shard.journal.body(lane.batches[piece.frame].place)).cut(piece.lo, piece.n)
        got += time.perf_counter() - start
        pieces = [Piece(piece.frame + piece.lo, piece.ordinal, piece.n) for piece in lease.pieces]
        blob = Settlement.encode(pieces, bytes(BATCH), [b""] * BATCH, run=NO_ID, epoch=rules.epoch, lease=lease.id)
        start = time.perf_counter()
        settlement = Settlement.decode(blob)
        settled = rules.settle(settlement)
        shard.ledger.record(settlement, settled, shard.journal.settled(settlement, settled))
        shard.journal.log.commit()
        acked += time.perf_counter() - start
    if rules.lanes[NO_ID].alive:
        raise WrongAnswer(f"{rules.lanes[NO_ID].alive} messages were not acked")
    _close(shard, directory / "log")
    return n * BATCH / got, n * BATCH / acked


def _drain_sqlite(directory: Path, n: int) -> tuple[float, float]:
    batches = [[(payload,) for payload in frame.messages()] for frame in _frames(100)]
    got = acked = 0.0
    with _sqlite(directory, "os") as database:
        for at in range(n):
            _insert(database, batches[at % 10])
        for _ in range(n):
            start = time.perf_counter()
            database.execute("BEGIN")
            query = "SELECT id, payload FROM message WHERE state = 0 ORDER BY id LIMIT ?"
            ids = [(id,) for id, _ in database.execute(query, (BATCH,))]
            database.executemany("UPDATE message SET state = 1 WHERE id = ?", ids)
            database.execute("COMMIT")
            got += time.perf_counter() - start
            start = time.perf_counter()
            database.execute("BEGIN")
            database.executemany("DELETE FROM message WHERE id = ?", ids)
            database.execute("COMMIT")
            acked += time.perf_counter() - start
    return n * BATCH / got, n * BATCH / acked


# --- a full queue ---------------------------------------------------------------------------


def _reopening(directory: Path, sizes: Sizes, *, batch: int, n: int) -> Iterator[Figure]:
    pauses, with_one, without, overheads, grown = [], [], [], [], []
    for _ in range(sizes.slow_rounds):
        gc.collect()
        resident = resident_bytes(os.getpid())
        frames, shard = _frames(100, batch), _open(directory / "log")
        for at in range(n // batch):
            shard.ledger.shard.put(frames[at % 10])
            if at % 1000 == 0:
                shard.journal.log.commit()
        shard.journal.log.commit()
        overheads.append((shard.journal.log.usage().segments - 100 * n) / n)
        grown.append((resident_bytes(os.getpid()) - resident) / n)
        shard.journal.log.close()
        without.append(_open_ms(directory / "log", n))
        shard = _open(directory / "log")
        start = time.perf_counter()
        write = shard.checkpoint()
        pauses.append(1e3 * (time.perf_counter() - start))
        write()
        shard.journal.log.close()
        del shard, write
        with_one.append(_open_ms(directory / "log", n))
        shutil.rmtree(directory / "log")
    what = f"{n:,} queued in frames of {batch}"
    yield Figure(
        f"{what}: disk beside the payload, each",
        "B",
        Better.LOWER,
        Series.of(overheads),
        Target(6 if batch > 1 else 150),
    )
    yield Figure(f"{what}: memory, each", "B", Better.LOWER, Series.of(grown), Target(4 if batch > 1 else 20))
    yield Figure(f"{what}: pause of a checkpoint", "ms", Better.LOWER, Series.of(pauses), Target(2))
    yield Figure(f"{what}: reopen with a checkpoint", "ms", Better.LOWER, Series.of(with_one), Target(20))
    yield Figure(f"{what}: reopen without", "ms", Better.LOWER, Series.of(without), Target(300 if batch > 1 else 4000))


def _single_messages(directory: Path, sizes: Sizes) -> Iterator[Figure]:
    """The same with a frame for each message, a tenth as many: the figures hold for each, or for a million."""
    yield from _reopening(directory, sizes, batch=1, n=100_000 if sizes.full else 20_000)


def _open_ms(directory: Path, n: int) -> float:
    gc.collect()
    start = time.perf_counter()
    shard = _open(directory)
    elapsed = time.perf_counter() - start
    if shard.ledger.shard.lanes[NO_ID].alive != n:
        raise WrongAnswer(f"{shard.ledger.shard.lanes[NO_ID].alive:,} of {n:,} messages came back")
    shard.journal.log.close(clean=False)
    return 1e3 * elapsed


# --- compaction -----------------------------------------------------------------------------


def _during_compaction(directory: Path, sizes: Sizes) -> Figure:
    """Put p99.9 beside a compaction of 100 MB in another thread, over the same without one."""
    found = [_stalls(directory) for _ in range(sizes.slow_rounds)]
    beside, idle = Series.of([pair[0] for pair in found]), Series.of([pair[1] for pair in found])
    return Figure("put p99.9 during compaction over idle", "x", Better.LOWER, ratios(beside, idle), Target(2.0))


def _stalls(directory: Path) -> tuple[float, float]:
    from threading import Event, Thread

    shard, frames = _open(directory / "log"), _frames(1000)
    for at in range(1000):
        shard.ledger.shard.put(frames[at % 10])
        if at % 50 == 0:
            shard.journal.log.commit()
    while (lease := shard.ledger.shard.lease("consumer", 90)) is not None:
        piece = lease.pieces[0]
        blob = Settlement.encode(
            [Piece(piece.frame + piece.lo, piece.ordinal, piece.n)],
            bytes(piece.n),
            [b""] * piece.n,
            run=NO_ID,
            epoch=shard.ledger.shard.epoch,
            lease=lease.id,
        )
        if piece.n < 50:
            break
        settlement = Settlement.decode(blob)
        shard.ledger.record(settlement, settled := shard.ledger.shard.settle(settlement), [])
        shard.journal.settled(settlement, settled)
    shard.journal.log.commit()

    def put_for(done: Callable[[], bool]) -> list[float]:
        took = []
        while not done():
            start = time.perf_counter()
            shard.ledger.shard.put(frames[0])
            shard.journal.log.commit()
            took.append(time.perf_counter() - start)
        return took

    until = time.perf_counter() + 1.0
    idle = put_for(lambda: time.perf_counter() > until)
    beside: list[float] = []
    steps, result = compaction(shard, below=0.95), None
    while True:
        try:
            step = steps.send(result)
        except StopIteration:
            break
        ended = Event()
        answer: list[object] = []

        def run(step: Callable[[], object] = step, ended: Event = ended, answer: list[object] = answer) -> None:
            answer.append(step())
            ended.set()

        Thread(target=run).start()
        beside += put_for(ended.is_set)
        result = answer[0]
    _close(shard, directory / "log")
    return _worst(beside), _worst(idle)


def _worst(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.999)]


# --- one shard ------------------------------------------------------------------------------


def _open(directory: Path, sync: SyncMode = "os") -> DurableShard:
    options = QueueOptions(maxsize=None, max_bytes=None)
    return DurableShard.open(directory, "bench", 0, options, log_options=LogOptions(sync=sync))


def _close(shard: DurableShard, directory: Path) -> None:
    shard.journal.log.close(clean=False)
    shutil.rmtree(directory)


@contextmanager
def _directory() -> Iterator[Path]:
    path = Path(mkdtemp(prefix="bench-log-", dir=Path.cwd()))
    try:
        yield path
    finally:
        shutil.rmtree(path)
