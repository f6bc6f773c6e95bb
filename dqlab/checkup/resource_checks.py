"""Checks that processes have what they need: files, memory, time on their event loop, and time until they end."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import numbers
from dqlab.checkup.alerts import alerted, alerts
from dqlab.checkup.facts import Facts, Process, WorkerFacts
from dqlab.checkup.findings import Finding
from dqlab.numbers import few_of, many
from dqlab.stats import AttentionKind, Severity

__all__ = ["jobs", "jobs_fine", "resources", "resources_fine"]

NEARLY = 0.8
"""Share of a limit above which the limit is nearly reached."""
FEW_DESCRIPTORS = 1024
LATE = 0.25
"""Seconds by which an event loop may be late, as the mean over a second."""
SOON = 900.0
"""Seconds before the end of a worker, or of its job, from which the end is reported."""


def resources(facts: Facts) -> Iterator[Finding]:
    """Judge how near processes are to their limits."""
    for name, process in facts.processes:
        yield from _descriptors(name, process)
        yield from _lag(name, process)
    for worker in facts.answering:
        yield from _memory(facts, worker)
        yield from _lifetime(worker)


def resources_fine(facts: Facts) -> str:
    """Return how late the latest event loop is, and how full the fullest memory."""
    lag = max(process.lag for _, process in facts.processes)
    shares = [worker.memory / worker.memory_limit for worker in facts.answering if worker.memory_limit]
    memory = f", memory at most {numbers.share(max(shares))} of a worker's limit" if shares else ""
    return f"event loops at most {lag * 1000:.0f} ms late{memory}"


def _descriptors(name: str, process: Process) -> Iterator[Finding]:
    limit, used = process.descriptors_max, process.descriptors
    if limit is None:
        return
    values = {"who": name, "descriptors": used, "limit": limit}
    line = f"ulimit -n {max(4096, 4 * limit)}"
    if used is not None and used > NEARLY * limit:
        yield Finding(
            "resources",
            Severity.WARNING,
            f"{name} has {numbers.count(used)} of {numbers.count(limit)} files and connections open; at the "
            "limit it can take no more",
            "Raise the limit in the shell that starts it, before it starts",
            line,
            values,
        )
    elif limit < FEW_DESCRIPTORS:
        yield Finding(
            "resources",
            Severity.NOTE,
            f"{name} may open {numbers.count(limit)} files and connections only; a cluster of many workers needs more",
            "Raise the limit in the shell that starts it, before it starts",
            line,
            values,
        )


def _lag(name: str, process: Process) -> Iterator[Finding]:
    if process.lag > LATE:
        yield Finding(
            "resources",
            Severity.WARNING,
            f"the event loop of {name} is {numbers.duration(process.lag)} late: calls to it wait as long",
            "The machine is overloaded, or a function holds the GIL. Run such functions in processes of their own",
            "lab.map(fn, docs, executor='process')",
            {"who": name, "lag": process.lag},
        )


def _memory(facts: Facts, worker: WorkerFacts) -> Iterator[Finding]:
    limit = worker.memory_limit
    if limit is None:
        return
    if worker.memory > NEARLY * limit:
        yield Finding(
            "resources",
            Severity.WARNING,
            f"{worker.title} has {numbers.size(worker.memory)} of {numbers.size(limit)} in memory; Dask ends it near "
            "the limit",
            "Give workers more memory",
            "",
            {"worker": worker.address, "memory": worker.memory, "limit": limit},
        )


def _lifetime(worker: WorkerFacts) -> Iterator[Finding]:
    left = worker.lifetime_left
    if left is not None:
        hosts = ", and the queues on it move or are gone" if worker.shards else ""
        yield Finding(
            "resources",
            Severity.WARNING if left < SOON else Severity.NOTE,
            f"{worker.title} ends itself in {numbers.duration(left)} (its lifetime){hosts}",
            "Have other workers ready by then; keep queues on workers without a lifetime",
            "dask worker ADDRESS --resources dq-queue=1",
            {"worker": worker.address, "left": left},
        )


def jobs(facts: Facts) -> Iterator[Finding]:
    """Judge what is known about the ends of jobs."""
    unknown = [worker for worker in facts.answering if worker.batch and worker.job_left is None]
    if unknown:
        names = [worker.title for worker in unknown]
        runs, says = ("runs in a job", "does not say") if len(unknown) == 1 else ("run in jobs", "do not say")
        yield Finding(
            "jobs",
            Severity.WARNING,
            f"{few_of(names)} {runs} of {unknown[0].batch} and {says} when that ends: the work in hand is cut off "
            "then, and done again elsewhere",
            "Let dqlab write the script of jobs, or take its lines into yours",
            f"print(dq.hpc.recipe({_kind(unknown[0].batch)!r}))",
            {"workers": [worker.address for worker in unknown]},
        )
    near = [(left, worker) for left, worker in _ends(facts) if left <= SOON]
    if near:
        left, first = near[0]
        alert = next(iter(alerted(facts, AttentionKind.LEAVING)), None)
        hosting = sorted({shard.queue for _, worker in near for shard in worker.shards})
        moves = f"; queue {', '.join(hosting)} moves, or waits for a worker" if hosting else ""
        yield Finding(
            "jobs",
            Severity.NOTE if alert is None else alert.severity,
            f"{len(near)} of {many(len(facts.workers), 'worker')} {'leaves' if len(near) == 1 else 'leave'} in "
            f"{numbers.duration(left)} or a little later, because jobs end: {first.name} first{moves}",
            "Nothing, if the cluster asks for more jobs by itself; else ask for some now",
            "cluster.scale(jobs=4)",
            {"workers": [worker.address for _, worker in near], "left": left},
        )
    else:
        yield from alerts(facts, "jobs")
    if facts.registry is not None and not facts.registry.shared_logs:
        yield from _on_one_machine(facts)


def jobs_fine(facts: Facts) -> str:
    """Return how many jobs there are, and when the first one ends."""
    ends = _ends(facts)
    first = f", the first ends in {numbers.duration(ends[0][0])}" if ends else ""
    return f"{many(sum(bool(worker.batch) for worker in facts.answering) or len(ends), 'worker')} in jobs{first}"


def _ends(facts: Facts) -> list[tuple[float, WorkerFacts]]:
    known = [(worker.job_left, worker) for worker in facts.answering if worker.job_left is not None]
    return sorted(known, key=lambda pair: pair[0])


def _on_one_machine(facts: Facts) -> Iterator[Finding]:
    registry = facts.registry
    here = {queue.name for queue in registry.queues if queue.directory is None} if registry is not None else set()
    for left, worker in _ends(facts):
        for queue in sorted({shard.queue for shard in worker.shards} & here):
            yield Finding(
                "jobs",
                Severity.WARNING,
                f"queue {queue} is on the machine of {worker.title}, whose job ends in {numbers.duration(left)}: what "
                "it holds then is LOST, unless another job of this cluster runs there",
                "Keep queues where all jobs see them",
                "dq.connect(cluster, store='/scratch/me/runs')",
                {"queue": queue, "worker": worker.address, "left": left},
            )


def _kind(title: str) -> str:
    """Return the name of a batch system in `dqlab.hpc`."""
    return "sge" if title == "Grid Engine" else title.lower()
