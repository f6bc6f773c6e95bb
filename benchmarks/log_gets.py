"""Gets and acks of room `log`: whole batches beside SQLite and LMDB, and acks of ids picked at random."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Better, Figure, Peer, Series, Target, ratios
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.log_peers import Lmdb, drain_sqlite
from benchmarks.log_shard import ack, close, frames, open_shard, pieces_of, put, settle
from benchmarks.sizes import Sizes
from dqlab.frame import NO_ID, Frame, Piece, Settlement
from dqlab.rules.leases import Lease
from dqlab.store.durable_shard import DurableShard

__all__ = ["gets_and_acks", "scattered_acks"]

BATCH, SIZE = 100, 100
BATCHES, SLOWER = 3_000, 300
FLOORS = {"get": {"SQLite": 2.0, "LMDB": 0.7}, "ack": {"SQLite": 8.0}}
PEERS = {
    "SQLite": "SQLite, WAL, synchronous = OFF, a state for each message",
    "LMDB": "LMDB, nosync, a state for each message",
    "LMDB, leases": "LMDB, nosync, one record for each lease",
}
ACKED = 90
"""Of the 100 messages of each lease, picked at random."""
PATTERNS = 50
SCATTERED, BESIDE = Target(floor=300_000, aim=600_000), Target(floor=4, aim=2.5)


def gets_and_acks(directory: Path, lmdb: Lmdb | None, sizes: Sizes) -> Iterator[Figure]:
    """Measure gets and acks of 100 messages of 100 B, nothing synced, each by its own time."""
    those = frames(SIZE, BATCH)
    n = BATCHES if sizes.full else BATCHES // 3
    contestants = [
        Contestant("dqlab", partial(_drain, directory, n)),
        Contestant("SQLite", partial(drain_sqlite, directory, those, SLOWER)),
    ]
    if lmdb is not None:
        contestants += [
            Contestant("LMDB", partial(lmdb.drain, BATCH, SIZE, n, state="message")),
            Contestant("LMDB, leases", partial(lmdb.drain, BATCH, SIZE, n, state="lease")),
        ]
    found = alternate(contestants, rounds=sizes.rounds)
    for at, (what, floors) in enumerate(FLOORS.items()):
        series = {who: Series.of([pair[at] for pair in pairs]) for who, pairs in found.items()}
        ours = series.pop("dqlab")
        name = f"{what} {BATCH} x {SIZE} B, sync os"
        yield Figure(name, "msg/s", Better.HIGHER, ours, None, tuple(Peer(PEERS[who], series[who]) for who in series))
        for who, floor in floors.items():
            if who in series:
                yield Figure(f"{name}, over {who}", "x", Better.HIGHER, ratios(ours, series[who]), Target(floor))


def _drain(directory: Path, n: int) -> tuple[float, float]:
    """Return messages got and acked per second, each by its own time."""
    shard = open_shard(directory / "log")
    put(shard, frames(SIZE, BATCH), n)
    rules, got, acked = shard.ledger.shard, 0.0, 0.0
    for _ in range(n):
        start = time.perf_counter()
        lease = _get(shard)
        got += time.perf_counter() - start
        blob = ack(lease, pieces_of(lease), rules.epoch)
        start = time.perf_counter()
        settle(shard, Settlement.decode(blob))
        shard.journal.log.commit()
        acked += time.perf_counter() - start
    _check_left(shard, 0)
    close(shard)
    return n * BATCH / got, n * BATCH / acked


def _get(shard: DurableShard) -> Lease:
    """Lease a batch, and read and cut its frames for the consumer."""
    lease = shard.ledger.shard.lease("consumer", BATCH)
    assert lease is not None
    batches = shard.ledger.shard.lanes[NO_ID].batches
    for piece in lease.pieces:
        Frame.decode(shard.journal.body(batches[piece.frame].place)).cut(piece.lo, piece.n)
    return lease


def _check_left(shard: DurableShard, expected: int) -> None:
    alive = shard.ledger.shard.lanes[NO_ID].alive
    if alive != expected:
        raise WrongAnswer(f"{alive:,} messages are not acked, {expected:,} should be")


# --- picked at random -----------------------------------------------------------------------


def scattered_acks(directory: Path, sizes: Sizes) -> Iterator[Figure]:
    """Measure getting 100 messages and acking 90 of them, picked at random; the others stay leased."""
    n = BATCHES // 3 if sizes.full else BATCHES // 10
    found = alternate([Contestant("dqlab", partial(_scatter, directory, n))], rounds=sizes.rounds)["dqlab"]
    rates, beside = (Series.of(values) for values in zip(*found, strict=True))
    name = f"get {BATCH} and ack {ACKED} of them at random, sync os"
    yield Figure(name, "msg/s", Better.HIGHER, rates, SCATTERED)
    yield Figure(f"{name}: disk for each ack", "B", Better.LOWER, beside, BESIDE)


def _scatter(directory: Path, n: int) -> tuple[float, float]:
    """Return messages got and acked per second, and bytes that the log has grown by for each."""
    shard = open_shard(directory / "log")
    put(shard, frames(SIZE, BATCH), n)
    log, rules = shard.journal.log, shard.ledger.shard
    chance = random.Random(0)
    patterns = [_runs(sorted(chance.sample(range(BATCH), ACKED))) for _ in range(PATTERNS)]
    before, elapsed = log.usage().segments, 0.0
    for at in range(n):
        start = time.perf_counter()
        lease = _get(shard)
        elapsed += time.perf_counter() - start
        (whole,) = pieces_of(lease)
        pieces = [Piece(whole.first + lo, whole.ordinal + lo, hi - lo) for lo, hi in patterns[at % PATTERNS]]
        blob = ack(lease, pieces, rules.epoch)
        start = time.perf_counter()
        settle(shard, Settlement.decode(blob))
        log.commit()
        elapsed += time.perf_counter() - start
    _check_left(shard, n * (BATCH - ACKED))
    grown = log.usage().segments - before
    close(shard)
    return n * ACKED / elapsed, grown / (n * ACKED)


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as half-open intervals."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs
