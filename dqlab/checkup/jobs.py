"""Checks of workers in jobs of a batch system: when their jobs end, and what ends with them."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import numbers
from dqlab.checkup.alerts import alerted, alerts
from dqlab.checkup.facts import Facts, WorkerFacts
from dqlab.checkup.findings import Finding
from dqlab.numbers import many
from dqlab.stats import Severity

__all__ = ["jobs", "jobs_fine"]

SOON = 900.0
"""Seconds before the end of a job at which it is worth saying."""


def jobs(facts: Facts) -> Iterator[Finding]:
    """Judge what is known of the ends of jobs."""
    unknown = [worker for worker in facts.answering if worker.batch and worker.job_left is None]
    if unknown:
        runs, says = ("runs in a job", "does not say") if len(unknown) == 1 else ("run in jobs", "do not say")
        yield Finding(
            "jobs",
            Severity.WARNING,
            f"{_some(unknown)} {runs} of {unknown[0].batch} and {says} when that ends: the work in hand is cut off "
            "then, and done again elsewhere",
            "Let dqlab write the script of jobs, or take its lines into yours",
            f"print(dq.hpc.recipe({_kind(unknown[0].batch)!r}))",
            {"workers": [worker.address for worker in unknown]},
        )
    near = [(left, worker) for left, worker in _ends(facts) if left <= SOON]
    if near:
        left, first = near[0]
        alert = next(iter(alerted(facts, "leaving")), None)
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
    yield from _in_memory(facts)


def jobs_fine(facts: Facts) -> str:
    """Say how many jobs there are, and which ends first."""
    ends = _ends(facts)
    first = f", the first ends in {numbers.duration(ends[0][0])}" if ends else ""
    return f"{many(sum(bool(worker.batch) for worker in facts.answering) or len(ends), 'worker')} in jobs{first}"


def _ends(facts: Facts) -> list[tuple[float, WorkerFacts]]:
    known = [(worker.job_left, worker) for worker in facts.answering if worker.job_left is not None]
    return sorted(known, key=lambda pair: pair[0])


def _in_memory(facts: Facts) -> Iterator[Finding]:
    registry = facts.registry
    transient = {queue.name for queue in registry.queues if queue.directory is None} if registry is not None else set()
    for left, worker in _ends(facts):
        for queue in sorted({shard.queue for shard in worker.shards} & transient):
            yield Finding(
                "jobs",
                Severity.WARNING,
                f"queue {queue} is in the memory of {worker.who}, whose job ends in {numbers.duration(left)}: what it "
                "holds then is LOST",
                "Keep queues on disk, where all jobs see it",
                "dq.connect(cluster, store='/scratch/me/runs')",
                {"queue": queue, "worker": worker.address, "left": left},
            )


def _kind(title: str) -> str:
    """Return what `dqlab.hpc` calls a batch system."""
    return "sge" if title == "Grid Engine" else title.lower()


def _some(workers: list[WorkerFacts]) -> str:
    names = ", ".join(worker.who for worker in workers[:3])
    return names if len(workers) <= 3 else f"{names} and {len(workers) - 3} more"
