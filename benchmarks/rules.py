"""Room `rules`: frames and the rules of a queue alone, in this process, without Dask."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from benchmarks.figures import Better, Figure, Series
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from dqlab.clock import SystemClock
from dqlab.frame import Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.leases import Lease
from dqlab.rules.retry import QueueOptions
from dqlab.rules.shard import Shard
from tests.rules.memory_journal import MemoryJournal

__all__ = ["rules"]

COUNT = 1_000
"""Messages in a frame."""
RUN, PRODUCER, FUNCTION = b"run-of-the-bench", b"producer-of-them", b"function-of-them"
MESSAGES = [b"archive/2026/report-%08d.pdf" % number for number in range(COUNT)]


def rules(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure each step by itself; there is no target, the figures say where a whole run's time goes."""
    steps: dict[str, Callable[[], float]] = {
        f"encode a frame of {COUNT:,}": _encode,
        f"decode a frame of {COUNT:,} and take its messages out": _decode,
        f"put, lease and settle {COUNT:,}": _put_lease_settle,
    }
    contestants = [Contestant(name, partial(_mean_us, step, sizes.passes)) for name, step in steps.items()]
    found = alternate(contestants, rounds=sizes.rounds)
    return [Figure(f"{name}, each", "µs", Better.LOWER, Series.of(values)) for name, values in found.items()]


def _mean_us(step: Callable[[], float], passes: int) -> float:
    """Return the mean of several passes, microseconds per message."""
    return 1e6 * sum(step() for _ in range(passes)) / passes / COUNT


def _frame(sequence: int) -> bytes:
    return Frame.encode(MESSAGES, kind=Kind.ELEMENT, run=RUN, function=FUNCTION, producer=PRODUCER, sequence=sequence)


def _encode() -> float:
    start = time.perf_counter()
    _frame(0)
    return time.perf_counter() - start


def _decode() -> float:
    blob = _frame(0)
    start = time.perf_counter()
    messages = Frame.decode(blob).messages()
    elapsed = time.perf_counter() - start
    if messages != MESSAGES:
        raise WrongAnswer("a frame returned other messages")
    return elapsed


def _put_lease_settle() -> float:
    """Return the seconds the rules took; frames and settlements are decoded outside the measured time."""
    options, clock, journal = QueueOptions(), SystemClock(), MemoryJournal()
    shard = Shard("bench", 0, epoch=1, options=options, clock=clock, random=random.Random(0), journal=journal)
    shard.open_lane(RUN)
    frame = Frame.decode(_frame(0))
    start = time.perf_counter()
    shard.put(frame)
    lease = shard.lease("consumer", COUNT)
    elapsed = time.perf_counter() - start
    assert lease is not None
    settlement = _settlement(lease, shard.epoch)
    start = time.perf_counter()
    settled = shard.settle(settlement)
    elapsed += time.perf_counter() - start
    if sum(piece.n for piece, _ in settled.results) != COUNT:
        raise WrongAnswer("not every message was settled")
    return elapsed


def _settlement(lease: Lease, epoch: int) -> Settlement:
    pieces = [Piece(piece.frame + piece.lo, piece.ordinal, piece.n) for piece in lease.pieces]
    blob = Settlement.encode(
        pieces, bytes([Outcome.ACK]) * COUNT, [b"result"] * COUNT, run=RUN, epoch=epoch, lease=lease.id
    )
    return Settlement.decode(blob)
