"""Full queues of room `log`: what a message takes, the pause of a checkpoint, reopening; and a long history."""

from __future__ import annotations

import gc
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Better, Figure, Series, Target
from benchmarks.harness import WrongAnswer
from benchmarks.log_shard import drain, frames, open_shard, order, put
from benchmarks.processes import Child
from benchmarks.sizes import Sizes
from dqlab.store.durable_shard import MOSTLY, DurableShard, compaction, run_through

__all__ = ["full_queue", "history"]

TWICE = 2
"""How often each queue is reopened with a checkpoint and without, and has one taken."""
FILL_S = 300.0
"""Seconds that filling a queue may take."""
REOPENED, PAUSE = Target(floor=20, aim=5), Target(floor=2, aim=0.5)
MIB = 1 << 20
HISTORY, LIVE = b"run-of-long-ago-", b"run-of-this-day-"
LIVE_MESSAGES = 1_000


def full_queue(directory: Path, sizes: Sizes, *, batch: int) -> Iterator[Figure]:
    """Measure a million queued messages of 100 B, in frames of `batch`; a new process fills the queue each time."""
    n = 1_000_000 if sizes.full else 400_000 if batch > 1 else 60_000
    memory, beside, pauses, with_one, without = [], [], [], [], []
    for _ in range(sizes.slow_rounds if batch > 1 else 1):  # a minute, when each message has a frame for itself
        filled = _fill(directory / "log", batch, n)
        memory.append(filled["memory"])
        beside.append(filled["beside"])
        without += _reopen_often(directory / "log", n, TWICE - 1)
        shard, milliseconds = _reopen(directory / "log", n)
        without.append(milliseconds)
        pauses += [_pause(shard) for _ in range(TWICE)]
        shard.journal.log.close()
        del shard
        with_one += _reopen_often(directory / "log", n, TWICE)
        shutil.rmtree(directory / "log")
    what = f"{n:,} queued in frames of {batch}"
    many = batch > 1
    figures: list[tuple[str, str, list[float], Target]] = [
        ("disk beside the payload, each", "B", beside, Target(6) if many else Target(150)),
        ("memory, each", "B", memory, Target(4, 2) if many else Target(20, 13)),
        ("pause of a checkpoint", "ms", pauses, PAUSE),
        ("reopen with a checkpoint", "ms", with_one, REOPENED),
        ("reopen without", "ms", without, Target(300, 100) if many else Target(4000, 2000)),
    ]
    for name, unit, values, target in figures:
        yield Figure(f"{what}: {name}", unit, Better.LOWER, Series.of(values), target)


def _fill(directory: Path, batch: int, n: int) -> dict[str, float]:
    child = Child([sys.executable, "-m", "benchmarks.log_fill_child"])
    try:
        child.wait_until_ready()
        asked = {"directory": str(directory), "batch": batch, "n": n, "first": n // 4}
        filled: dict[str, float] = child.ask(asked, timeout=FILL_S)
        return filled
    finally:
        child.close()


def _reopen(directory: Path, expected: int) -> tuple[DurableShard, float]:
    """Return a shard and how long it took to open, milliseconds."""
    gc.collect()
    start = time.perf_counter()
    shard = open_shard(directory)
    elapsed = time.perf_counter() - start
    alive = sum(lane.alive for lane in shard.ledger.shard.lanes.values())
    if alive != expected:
        raise WrongAnswer(f"{alive:,} of {expected:,} messages came back")
    return shard, 1e3 * elapsed


def _reopen_often(directory: Path, expected: int, times: int) -> list[float]:
    """Return how long it took to open a shard, each time as it was before, milliseconds."""
    took = []
    for _ in range(times):
        shard, milliseconds = _reopen(directory, expected)
        took.append(milliseconds)
        shard.journal.log.close(clean=False)
        del shard
    return took


def _pause(shard: DurableShard) -> float:
    """Return how long a checkpoint keeps everybody else waiting, milliseconds."""
    gc.collect()
    start = time.perf_counter()
    write = shard.checkpoint()
    elapsed = time.perf_counter() - start
    write()
    return 1e3 * elapsed


# --- history --------------------------------------------------------------------------------


def history(directory: Path, sizes: Sizes) -> Iterator[Figure]:
    """Measure reopening when a million of messages are done and few are left, and the disk when none are."""
    n = 2_000_000 if sizes.full else 200_000
    shard = open_shard(directory / "log")
    for run, count in ((HISTORY, n), (LIVE, LIVE_MESSAGES)):
        order(shard, "open", None, {"open": {"run": run}})
        put(shard, frames(100, 100, run), count // 100)
        if run == HISTORY:
            drain(shard, 100)
    shard.checkpoint()()
    shard.journal.log.close()
    results_kept = Series.of(_reopen_often(directory / "log", LIVE_MESSAGES, sizes.rounds))
    shard = open_shard(directory / "log")
    order(shard, "drop", HISTORY)
    shard.checkpoint()()
    shard.journal.log.close()
    dropped = Series.of(_reopen_often(directory / "log", LIVE_MESSAGES, sizes.rounds))
    name = f"{n:,} done, {LIVE_MESSAGES:,} live: reopen with a checkpoint"
    yield Figure(name, "ms", Better.LOWER, dropped, REOPENED)
    yield Figure(f"{name}, results kept", "ms", Better.LOWER, results_kept)
    shard = open_shard(directory / "log")
    drain(shard, 100)
    order(shard, "drop", LIVE)
    run_through(compaction(shard, below=MOSTLY))
    shard.journal.log.commit()
    files = [path for path in (directory / "log").rglob("*") if path.is_file()]
    nbytes = sum(path.stat().st_size for path in files)
    segments = sum(path.suffix == ".seg" for path in files)
    shutil.rmtree(directory / "log")
    shard.journal.log.close(clean=False)
    name = f"{n:,} done and collected"
    yield Figure(f"{name}: segments", "", Better.LOWER, Series.of([float(segments)]), Target(2))
    yield Figure(f"{name}: size", "MiB", Better.LOWER, Series.of([nbytes / MIB]), Target(1))
