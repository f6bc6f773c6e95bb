"""Room `recovery`: how long people wait when something dies or hangs, and what watching over it costs.

Not part of `make bench`; `make bench-recovery` measures it, on a cluster of its own that is hurt on purpose.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import dqlab as dq
from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.harness import WrongAnswer
from benchmarks.idle import DASKS_OWN, cost_above_dask
from benchmarks.recovery_rules import supervised
from benchmarks.recovery_stamps import Stamps
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["recovery"]

CONSUMERS = 4
QUIET_S = {signal.SIGKILL: 3.0, signal.SIGSTOP: 15.0}
"""Seconds before an injury: the nanny has replaced the last victim, which has imported what it needs; and one that
is watched for hanging is given more time while it is new."""
PATIENCE_S = 120.0
"""Seconds after which whatever a run is waited for has not come."""


def recovery(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure deaths and hangs of a durable queue's worker, the death of a consumer, a crash, and idle supervision."""
    times = 50 if sizes.full else 3
    with dq.connect(n=CONSUMERS, name="bench-recovery", store=stage.directory / "recovery") as lab:
        killed = _outages(lab, signal.SIGKILL, times)
        stopped = _outages(lab, signal.SIGSTOP, max(3, times // 3))
        deaths = [_consumer_dies(lab) for _ in range(sizes.rounds)]
        crash = [_crash(lab) for _ in range(sizes.slow_rounds)]
    return [
        _seconds("SIGKILL of a queue's worker -> next answer, median", killed, Target(0.8, 0.5)),
        _seconds(f"the same, worst of {len(killed)}", [max(killed)], Target(3.0)),
        _seconds("SIGSTOP of a queue's worker -> next answer, median", stopped, Target(3.0)),
        _seconds(
            "one of four consumers dies -> work goes on as fast as three can",
            [d.goes_on() for d in deaths],
            Target(1.0),
        ),
        _seconds("the same -> first answer of its replacement", [d.replaced() for d in deaths], None),
        _seconds("one segfault among 10,000 documents: seconds more than without", crash, None),
        _idle(sizes),
        *supervised(sizes),
    ]


def _seconds(name: str, values: list[float], target: Target | None) -> Figure:
    return Figure(name, "s", Better.LOWER, Series.of(values), target)


# --- outages --------------------------------------------------------------------------------


def _outages(lab: dq.Lab, how: signal.Signals, times: int) -> list[float]:
    """Hurt the worker of a queue; return the seconds until a put that was begun then is confirmed, each time."""
    pool, took = lab.queue(f"outage-{how.name}", served=False), []
    expected = 0
    for _ in range(times):
        pool.put(0).ids  # noqa: B018 - waits until it is confirmed
        time.sleep(QUIET_S[how])  # meanwhile it may come home from where it had to go
        process = _host(lab, pool)
        pool.put(1).ids  # noqa: B018 - this client knows where it is
        start = time.perf_counter()
        os.kill(process, how)
        pool.put(1).ids  # noqa: B018
        took.append(time.perf_counter() - start)
        expected += 3
        if pool.counts()["ready"] != expected:
            raise WrongAnswer(f"{pool.counts()['ready']} of {expected} confirmed messages are there")
    pool.close()
    return took


def _host(lab: dq.Lab, pool: dq.QueuePool) -> int:
    answers = lab.client.run(_process_with, f"dq-queue/{pool.name}/", on_error="ignore")
    return next(pid for pid in answers.values() if isinstance(pid, int))


def _process_with(prefix: str, dask_worker: Any) -> int | None:
    return os.getpid() if any(str(key).startswith(prefix) for key in dask_worker.state.actors) else None


# --- consumers ------------------------------------------------------------------------------


def _stamp(_: int) -> tuple[float, int]:
    time.sleep(0.001)
    return time.time(), os.getpid()


def _consumer_dies(lab: dq.Lab) -> Stamps:
    """Return the stamps of a run during which one of four consumers died; long enough for a replacement to come."""
    pool = lab.queue("dying")
    documents = 10_000 * CONSUMERS
    run = pool.map(_stamp, range(documents), executor="thread")
    _await_acked(run, documents // 4)
    _, victim = next(iter(run.as_completed()))[1]
    died = time.time()
    os.kill(victim, signal.SIGKILL)
    stamps = Stamps(list(run.results(timeout=PATIENCE_S)), died, CONSUMERS)
    run.drop()
    return stamps


def _await_acked(run: dq.Run, n: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (acked := run.counts["acked"]) < n:
        if time.monotonic() > deadline:
            raise WrongAnswer(f"{acked:,} of {n:,} documents were acked within {PATIENCE_S:g} s, before anybody died")
        time.sleep(0.01)


def _one_crashes(x: int) -> int:
    if x == 5_000:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x


def _none_crashes(x: int) -> int:
    return x


def _crash(lab: dq.Lab) -> float:
    """Return the seconds that one crashing document costs a run of 10,000 in processes."""
    pool, took = lab.queue("crashing", max_deliveries=1), []
    functions: tuple[Callable[[int], int], ...] = (_none_crashes, _one_crashes)
    for function in functions:
        start = time.perf_counter()
        run = pool.map(function, range(10_000), executor="process")
        run.wait(timeout=PATIENCE_S)
        took.append(time.perf_counter() - start)
        counts = run.counts
        if (counts["acked"], counts["dead"]) != ((10_000, 0) if function is _none_crashes else (9_999, 1)):
            raise WrongAnswer(f"{counts}")
        run.drop()
    return took[1] - took[0]


# --- costs ----------------------------------------------------------------------------------


def _idle(sizes: Sizes) -> Figure:
    """Measure the CPU of an idle cluster of four consumers with a durable queue, above one without dqlab."""
    above, without = cost_above_dask(sizes, str(CONSUMERS), "durable")
    name = f"idle durable queue, {CONSUMERS} consumers, above Dask's own CPU"
    return Figure(name, "% of a core", Better.LOWER, above, Target(0.5), (Peer(DASKS_OWN, without),))
