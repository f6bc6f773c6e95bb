"""Puts of room `log`: in batches beside raw writes, SQLite and LMDB; one by one; from many producers at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from benchmarks.figures import Better, Figure, Peer, Series, Target, ratios
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.log_peers import Lmdb, put_raw, put_sqlite
from benchmarks.log_shard import close, frames, open_shard
from benchmarks.sizes import Sizes
from dqlab.log.files import Files
from dqlab.log.log import GroupCommit
from dqlab.log.writer import SyncMode

__all__ = ["group_commit", "puts", "single_puts"]

BATCH = 100
SYNCED, UNSYNCED = 300, 3_000
"""Batches in one round, with a sync for each and without."""
SMALL, LARGE = 100, 4096
FLOORS: dict[tuple[int, SyncMode], dict[str, float]] = {
    (SMALL, "os"): {"raw": 0.25, "SQLite": 6.0, "LMDB": 1.5},
    (SMALL, "always"): {"raw": 0.75, "SQLite": 1.5, "LMDB": 1.3},
    (LARGE, "os"): {"raw": 0.35, "SQLite": 3.0},
    (LARGE, "always"): {"raw": 0.7, "SQLite": 1.0},
}
PEERS = {
    "raw": "raw write of the same bytes",
    "SQLite": "SQLite, WAL, synchronous = OFF or FULL",
    "LMDB": "LMDB, nosync or sync",
}
PRODUCERS = 128
EACH = 20
"""Puts of each producer in one round."""
SYNC_S = 0.002
SINGLE = 1_600
OF_RAW_LOOP = Target(floor=0.7, aim=0.9)
OVER_ONE_BY_ONE, OF_PRODUCERS = Target(floor=50, aim=100), Target(floor=0.9 * PRODUCERS, aim=PRODUCERS)


def puts(directory: Path, lmdb: Lmdb | None, sizes: Sizes) -> Iterator[Figure]:
    """Measure puts of 100 messages, of 100 B and of 4 KiB, with a sync for each and without."""
    for (size, sync), floors in FLOORS.items():
        n = SYNCED if sync == "always" else UNSYNCED // (1 if size == SMALL else 8)
        those = frames(size, BATCH)
        contestants = [
            Contestant("dqlab", partial(_put, directory, size, BATCH, n, sync)),
            Contestant("raw", partial(put_raw, directory, those, n, sync)),
            Contestant("SQLite", partial(put_sqlite, directory, those, n, sync)),
        ]
        if lmdb is not None:
            contestants.append(Contestant("LMDB", partial(lmdb.put, BATCH, size, n, sync)))
        found = {name: Series.of(values) for name, values in alternate(contestants, rounds=sizes.rounds).items()}
        ours = found.pop("dqlab")
        name = f"put {BATCH} x {size:,} B, sync {sync}"
        yield Figure(name, "msg/s", Better.HIGHER, ours, None, tuple(Peer(PEERS[who], found[who]) for who in found))
        for who, series in found.items():
            if who in floors:
                over = "of raw" if who == "raw" else f"over {who}"
                yield Figure(f"{name}, {over}", "x", Better.HIGHER, ratios(ours, series), Target(floors[who]))


def _put(directory: Path, size: int, batch: int, n: int, sync: SyncMode) -> float:
    """Return messages per second, when each frame is committed for itself."""
    those, shard = frames(size, batch), open_shard(directory / "log", sync)
    rules, log = shard.ledger.shard, shard.journal.log
    start = time.perf_counter()
    for at in range(n):
        rules.put(those[at % len(those)])
        log.commit()
    elapsed = time.perf_counter() - start
    close(shard)
    return n * batch / elapsed


# --- one by one -----------------------------------------------------------------------------


def single_puts(directory: Path, sizes: Sizes) -> Iterator[Figure]:
    """Measure one producer that waits for each of its puts, in its own thread and through the committing one."""
    n = SINGLE if sizes.full else SINGLE // 4
    found = alternate(
        [
            Contestant("inline", partial(_put, directory, SMALL, 1, n, "always")),
            Contestant("thread", partial(_put_through_thread, directory, n)),
            Contestant("raw", partial(put_raw, directory, frames(SMALL, 1), n, "always")),
        ],
        rounds=sizes.rounds,
    )
    inline, thread, raw = (Series.of(values) for values in found.values())
    name = f"put 1 x {SMALL} B, sync always"
    yield Figure(name, "msg/s", Better.HIGHER, inline, None, (Peer("raw write and fdatasync, in a loop", raw),))
    yield Figure(f"{name}, of raw", "x", Better.HIGHER, ratios(inline, raw), OF_RAW_LOOP)
    yield Figure(f"{name}, by the committing thread, of raw", "x", Better.HIGHER, ratios(thread, raw))


def _put_through_thread(directory: Path, n: int) -> float:
    rate, _ = _put_together(directory, _Disk(), producers=1, each=n)
    return rate


# --- many producers -------------------------------------------------------------------------


class _Disk(Files):
    """Counts syncs; with `sync_s` each takes so many seconds, whatever the disk."""

    def __init__(self, sync_s: float | None = None) -> None:
        self.syncs = 0
        self._sync_s = sync_s

    def sync(self, descriptor: int) -> None:
        """Sync, or wait."""
        self.syncs += 1
        if self._sync_s is None:
            super().sync(descriptor)
        else:
            time.sleep(self._sync_s)


def group_commit(directory: Path, sizes: Sizes) -> Iterator[Figure]:
    """Measure many producers that each wait for their put before the next one, on a disk that syncs in 2 ms."""
    found = alternate(
        [
            Contestant("together", lambda: _put_together(directory, _Disk(SYNC_S), producers=PRODUCERS, each=EACH)),
            Contestant("one by one", partial(_put_one_by_one, directory, PRODUCERS * EACH // 10)),
        ],
        rounds=sizes.rounds,
    )
    rates, shared = (Series.of(values) for values in zip(*found["together"], strict=True))
    alone, _ = (Series.of(values) for values in zip(*found["one by one"], strict=True))
    name = f"{PRODUCERS} producers, put 1 x {SMALL} B, sync in 2 ms"
    yield Figure(name, "msg/s", Better.HIGHER, rates, None, (Peer("a sync for each put", alone),))
    yield Figure(f"{name}, over a sync each", "x", Better.HIGHER, ratios(rates, alone), OVER_ONE_BY_ONE)
    yield Figure(f"{name}, puts in one sync", "", Better.HIGHER, shared, OF_PRODUCERS)


def _put_together(directory: Path, disk: _Disk, *, producers: int, each: int) -> tuple[float, float]:
    """Return puts per second and per sync; a producer puts again when its last put is confirmed."""
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    (frame, *_), shard = frames(SMALL, 1), open_shard(directory / "log", "always", disk)
    log, rules = shard.journal.log, shard.ledger.shard
    commit = GroupCommit(log, wake=calls.put)
    waiting: deque[tuple[int, int]] = deque()
    confirmed, total = 0, producers * each

    def put(left: int) -> None:
        rules.put(frame)
        waiting.append((log.end, left - 1))
        commit.wanted()

    def on_durable(durable: int) -> None:
        nonlocal confirmed
        while waiting and waiting[0][0] <= durable:
            _, left = waiting.popleft()
            confirmed += 1
            if left:
                put(left)

    commit.on_durable = on_durable
    before, start = disk.syncs, time.perf_counter()
    for _ in range(producers):
        put(each)
    while confirmed < total:
        calls.get()()
    elapsed, syncs = time.perf_counter() - start, disk.syncs - before
    commit.close()
    if rules.lanes[frame.run].alive != total:
        raise WrongAnswer(f"{rules.lanes[frame.run].alive} of {total} puts were taken")
    close(shard)
    return total / elapsed, total / syncs


def _put_one_by_one(directory: Path, n: int) -> tuple[float, float]:
    """Return puts per second and per sync when each is committed for itself, whatever producer it comes from."""
    disk = _Disk(SYNC_S)
    (frame, *_), shard = frames(SMALL, 1), open_shard(directory / "log", "always", disk)
    before, start = disk.syncs, time.perf_counter()
    for _ in range(n):
        shard.ledger.shard.put(frame)
        shard.journal.log.commit()
    elapsed, syncs = time.perf_counter() - start, disk.syncs - before
    close(shard)
    return n / elapsed, n / syncs
