"""Room `memory`: what a queued message costs beside its payload."""

from __future__ import annotations

import os
import time

import dqlab as dq
from benchmarks.figures import Better, Figure, Series, Target
from benchmarks.harness import WrongAnswer
from benchmarks.processes import resident_bytes
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["memory"]

BESIDE_PAYLOAD = Target(floor=20, aim=2)
WARM_UP = 20_000
BATCH = 10_000
REPORT_S = 10.0
"""Seconds within which the queue's counters must have arrived."""


def memory(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure the growth of the queue's process; a new process for each run, since freed memory is used again."""
    beside = Series.of([_bytes_beside(sizes.queued, run) for run in range(sizes.rounds)])
    return [
        Figure(f"{sizes.queued:,} queued messages, each beside its payload", "B", Better.LOWER, beside, BESIDE_PAYLOAD)
    ]


def _bytes_beside(n: int, run: int) -> float:
    with dq.connect(n=1, name=f"memory-{run}") as lab:
        queue = dq.QueuePool(lab.client, name="memory", maxsize=None)
        pid = _pid_of(lab, queue)
        _put(queue, WARM_UP)
        resident, payload = resident_bytes(pid), _payload(queue, WARM_UP)
        _put(queue, n)
        grown, payload = resident_bytes(pid) - resident, _payload(queue, WARM_UP + n) - payload
        return (grown - payload) / n


def _put(queue: dq.QueuePool, n: int) -> None:
    """Put paths of documents, and wait until the queue has confirmed all of them."""
    for at in range(0, n, BATCH):
        queue.put_many(f"archive/2026/report-{number:08d}.pdf" for number in range(at, min(n, at + BATCH)))
    queue.flush("5m")


def _payload(queue: dq.QueuePool, expected: int) -> int:
    """Return the payload bytes the queue says it holds, once its counters show all messages."""
    deadline = time.monotonic() + REPORT_S
    while time.monotonic() < deadline:
        stats = queue.stats()
        if stats.counts.ready == expected:
            return stats.nbytes
        time.sleep(0.05)
    raise WrongAnswer(f"{stats.counts.ready:,} messages are ready, {expected:,} were put")


def _pid_of(lab: dq.Lab, queue: dq.QueuePool) -> int:
    """Return the process id of the worker that hosts the queue."""
    handle = queue.handle
    place = handle.link.sync(handle.refs[0].place())
    return int(lab.client.run(os.getpid)[place.address])
