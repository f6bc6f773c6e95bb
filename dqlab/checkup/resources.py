"""Checks that processes have what they need: files, memory, time on their event loop, time to live."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import numbers
from dqlab.checkup.facts import Facts, Process, WorkerFacts
from dqlab.checkup.findings import Finding
from dqlab.stats import Severity

__all__ = ["resources", "resources_fine"]

NEARLY = 0.8
"""Share of a limit above which it is nearly reached."""
FEW_DESCRIPTORS = 1024
LATE = 0.25
"""Seconds by which an event loop may come late, mean over a second."""
SOON = 900.0
"""Seconds before a worker's end at which it is worth a warning."""


def resources(facts: Facts) -> Iterator[Finding]:
    """Judge limits and how near they are."""
    for who, process in facts.processes:
        yield from _descriptors(who, process)
        yield from _lag(who, process)
    for worker in facts.answering:
        yield from _memory(facts, worker)
        yield from _lifetime(worker)


def resources_fine(facts: Facts) -> str:
    """Say how late the latest event loop is, and how full the fullest memory."""
    lag = max(process.lag for _, process in facts.processes)
    shares = [worker.memory / worker.memory_limit for worker in facts.answering if worker.memory_limit]
    memory = f", memory at most {numbers.share(max(shares))} of a worker's limit" if shares else ""
    return f"event loops at most {lag * 1000:.0f} ms late{memory}"


def _descriptors(who: str, process: Process) -> Iterator[Finding]:
    limit, used = process.descriptors_max, process.descriptors
    if limit is None:
        return
    values = {"who": who, "descriptors": used, "limit": limit}
    line = f"ulimit -n {max(4096, 4 * limit)}"
    if used is not None and used > NEARLY * limit:
        yield Finding(
            "resources",
            Severity.WARNING,
            f"{who} has {numbers.count(used)} of {numbers.count(limit)} files and connections open; at the "
            "limit it can take no more",
            "Raise the limit in the shell that starts it, before it starts",
            line,
            values,
        )
    elif limit < FEW_DESCRIPTORS:
        yield Finding(
            "resources",
            Severity.NOTE,
            f"{who} may open {numbers.count(limit)} files and connections only; a cluster of many workers needs more",
            "Raise the limit in the shell that starts it, before it starts",
            line,
            values,
        )


def _lag(who: str, process: Process) -> Iterator[Finding]:
    if process.lag > LATE:
        yield Finding(
            "resources",
            Severity.WARNING,
            f"the event loop of {who} comes {numbers.duration(process.lag)} late: calls to it wait as long",
            "The machine is overloaded, or a function holds the GIL. Run such functions in processes of their own",
            "lab.map(fn, docs, executor='process')",
            {"who": who, "lag": process.lag},
        )


def _memory(facts: Facts, worker: WorkerFacts) -> Iterator[Finding]:
    limit = worker.memory_limit
    if limit is None:
        return
    if worker.memory > NEARLY * limit:
        yield Finding(
            "resources",
            Severity.WARNING,
            f"{worker.who} has {numbers.size(worker.memory)} of {numbers.size(limit)} in memory; Dask ends it near the "
            "limit, and transient queues on it with it",
            "Give workers more memory, or keep queues on disk",
            "dq.connect(store='runs/')",
            {"worker": worker.address, "memory": worker.memory, "limit": limit},
        )
    for queue in facts.registry.queues if facts.registry is not None else ():
        here = sum(shard.queue == queue.name for shard in worker.shards)
        most = here * ((queue.max_bytes or 0) + (queue.results_memory or 0))
        if queue.directory is None and most > limit:
            yield Finding(
                "resources",
                Severity.WARNING,
                f"queue {queue.name} may hold {numbers.size(most)} in the memory of {worker.who}, which has "
                f"{numbers.size(limit)}",
                "Set a lower bound, keep the queue on disk, or give the worker more memory",
                f"lab.queue({queue.name!r}, max_bytes={limit // (4 * here)})",
                {"queue": queue.name, "worker": worker.address, "most": most, "limit": limit},
            )


def _lifetime(worker: WorkerFacts) -> Iterator[Finding]:
    left = worker.lifetime_left
    if left is not None:
        hosts = ", and the queues on it move or are gone" if worker.shards else ""
        yield Finding(
            "resources",
            Severity.WARNING if left < SOON else Severity.NOTE,
            f"{worker.who} ends itself in {numbers.duration(left)} (its lifetime){hosts}",
            "Have other workers ready by then; keep queues on workers without a lifetime",
            "dask worker ADDRESS --resources dq-queue=1",
            {"worker": worker.address, "left": left},
        )
