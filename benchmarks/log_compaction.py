"""Puts of room `log` while a compaction copies beside them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

from benchmarks.figures import Better, Figure, Series, Target, ratios
from benchmarks.harness import WrongAnswer
from benchmarks.log_shard import ack, close, frames, open_shard, put, settle
from benchmarks.sizes import Sizes
from dqlab.cluster.shard.actor import SWITCH_S
from dqlab.frame import Frame, Piece, Settlement
from dqlab.store.durable_shard import MOSTLY, DurableShard, compaction
from dqlab.store.values import Compacted

__all__ = ["puts_beside_compaction"]

FRAMES, BATCH, SIZE = 1_000, 100, 1_000
LEFT = 10
"""Messages of each frame that are still needed when the rest is compacted away."""


def puts_beside_compaction(directory: Path, sizes: Sizes) -> Figure:
    """Measure put p99.9 beside a compaction of 100 MB, a tenth of it needed, over the same without one."""
    found = [_stalls(directory / "log") for _ in range(sizes.rounds)]
    beside, idle = (Series.of(values) for values in zip(*found, strict=True))
    return Figure("put p99.9 during compaction over idle", "x", Better.LOWER, ratios(beside, idle), Target(2.0, 1.5))


def _stalls(directory: Path) -> tuple[float, float]:
    """Return the 99.9th percentile of puts of 100 x 100 B in seconds, with a compaction and without."""
    sys.setswitchinterval(SWITCH_S)  # as in a process with queues
    shard, (frame, *_) = open_shard(directory), frames(100, 100)
    put(shard, frames(SIZE, BATCH), FRAMES)
    _ack_most(shard)
    beside: list[float] = []

    def carry_out(step: Callable[[], Any]) -> Any:
        ended, answers = Event(), []

        def run() -> None:
            answers.append(step())
            ended.set()

        thread = Thread(target=run)
        thread.start()
        beside.extend(_put_until(ended.is_set, shard, frame))
        thread.join()
        return answers[0]

    started = time.perf_counter()
    done = _compact(shard, carry_out)
    until = time.perf_counter() + (time.perf_counter() - started)  # as long, so that the system writes back as much
    idle = _put_until(lambda: time.perf_counter() > until, shard, frame)
    if shard.journal.log.garbage() > 0.5:
        raise WrongAnswer(f"after {done}, {shard.journal.log.garbage():.0%} of the log is not needed")
    close(shard)
    return _percentile(beside), _percentile(idle)


def _ack_most(shard: DurableShard) -> None:
    rules = shard.ledger.shard
    while (lease := rules.lease("consumer", BATCH)) is not None:
        (piece,) = lease.pieces
        done = [Piece(piece.frame, piece.ordinal, BATCH - LEFT)]
        settle(shard, Settlement.decode(ack(lease, done, rules.epoch)))
    shard.journal.log.commit()


def _compact(shard: DurableShard, carry_out: Callable[[Callable[[], Any]], Any]) -> Compacted:
    steps, result = compaction(shard, below=MOSTLY), None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as end:
            done: Compacted = end.value
            return done
        result = carry_out(step)


def _put_until(done: Callable[[], bool], shard: DurableShard, frame: Frame) -> list[float]:
    """Return the seconds of each put and commit."""
    took = []
    while not done():
        start = time.perf_counter()
        shard.ledger.shard.put(frame)
        shard.journal.log.commit()
        took.append(time.perf_counter() - start)
    return took


def _percentile(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.999)]
