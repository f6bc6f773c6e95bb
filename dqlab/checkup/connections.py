"""Checks which processes answer, whether workers are reached without the scheduler, and whose clock is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import numbers
from dqlab.checkup.facts import Facts, WorkerFacts
from dqlab.checkup.findings import Finding
from dqlab.numbers import many
from dqlab.stats import Severity

__all__ = ["answers", "answers_fine", "clocks", "clocks_fine", "connections", "connections_fine"]

SKEW = 1.0
"""Seconds by which clocks may differ."""


def answers(facts: Facts) -> Iterator[Finding]:
    """Find the processes that do not answer."""
    scheduler = facts.scheduler
    if scheduler is None:
        return
    if scheduler.process is None:
        yield Finding(
            "answers",
            Severity.PROBLEM,
            f"the scheduler at {scheduler.address} does not answer: {scheduler.silence}",
            "See whether its process lives and can be reached from here. If it is gone, durable queues are in their "
            "store; connect again",
            "lab = dq.connect(...)",
            {"address": scheduler.address, "silence": scheduler.silence},
        )
        return
    if not facts.workers:
        yield Finding(
            "answers",
            Severity.PROBLEM,
            "the cluster has no worker: nothing can be queued and nothing runs",
            "Close this lab and connect again; durable queues are in their store"
            if facts.embedded
            else "Start some; with a scheduler of your own",
            "lab.close(); lab = dq.connect(...)"
            if facts.embedded
            else f"dask worker {scheduler.address} --nworkers 3 --nthreads 1",
        )
    for worker in facts.workers:
        if worker.process is None:
            yield _silent(facts, worker)
        elif worker.unsent:
            yield _unreported(f"{worker.who} could not send", worker.unsent, "that worker's", worker.address)
    if facts.registry is not None and facts.registry.untaken:
        yield _unreported("the scheduler could not read", facts.registry.untaken, "the scheduler's", scheduler.address)


def _unreported(who: str, amount: int, whose: str, address: str) -> Finding:
    return Finding(
        "answers",
        Severity.WARNING,
        f"{who} {many(amount, 'report')}: statistics and views may be out of date; messages and results are complete",
        f"This is a defect of dqlab. Please report what follows event=report_not in {whose} log",
        values={"address": address, "reports": amount},
    )


def _silent(facts: Facts, worker: WorkerFacts) -> Finding:
    hosted = facts.hosting(worker.address)
    holds = f"; it holds queue {', '.join(hosted)}" if hosted else ""
    heard = f"its last heartbeat came {numbers.duration(worker.silent)} ago"
    return Finding(
        "answers",
        Severity.PROBLEM,
        f"{worker.who} does not answer: {worker.silence}; {heard}{holds}",
        "Its process hangs, is stopped, or holds the GIL in native code. Restart it: what its consumers hold "
        f"is delivered again, durable queues are opened by another worker{_costs(facts, hosted)}",
        f"lab.client.restart_workers([{worker.address!r}])",
        {"worker": worker.address, "name": worker.name, "silence": worker.silence, "queues": hosted},
    )


def _costs(facts: Facts, hosted: list[str]) -> str:
    """Say what is lost with a worker."""
    queues = () if facts.registry is None else facts.registry.queues
    lost = [queue.name for queue in queues if queue.name in hosted and queue.directory is None]
    return f"; queue {', '.join(lost)} is in memory, and LOSES what it holds by that" if lost else ""


def answers_fine(facts: Facts) -> str:
    """Report which processes answered."""
    return f"the scheduler and {many(len(facts.workers), 'worker')} answer"


def connections(facts: Facts) -> Iterator[Finding]:
    """Find workers that are reached by the scheduler only."""
    proxied = [worker for worker in facts.answering if worker.path == "proxied"]
    advice = "Run this process where the workers can be reached: see interface= of Dask's workers, and firewalls"
    if proxied:
        names = ", ".join(worker.who for worker in proxied[:3]) + (" and others" if len(proxied) > 3 else "")
        yield Finding(
            "connections",
            Severity.WARNING,
            f"this process reaches {len(proxied)} of {len(facts.workers)} workers through the scheduler only "
            f"({names}): what goes through it is several times slower, and the scheduler carries every message",
            advice,
            values={"proxied": [worker.address for worker in proxied]},
        )
    elif not facts.direct:
        yield Finding(
            "connections",
            Severity.WARNING,
            "this lab sends everything through the scheduler, because a worker could not be reached when it connected; "
            "by now all can be",
            "Close the lab and connect again",
            "lab.close()",
        )


def connections_fine(facts: Facts) -> str:
    """Say how workers are reached."""
    direct = sum(worker.path == "direct" for worker in facts.workers)
    return f"{many(direct, 'worker')} reached directly from here"


def clocks(facts: Facts) -> Iterator[Finding]:
    """Find clocks that are wrong; leases do not depend on them, times in tables do."""
    for who, process in facts.processes[1:]:
        off = abs(process.skew) - process.doubt
        if off > SKEW:
            side = "ahead of" if process.skew > 0 else "behind"
            yield Finding(
                "clocks",
                Severity.WARNING,
                f"the clock of {who} is {numbers.duration(abs(process.skew))} {side} this process's; times of runs and "
                "failures are wrong by as much, leases are not",
                f"Have the clock of host {process.host} set by NTP",
                "timedatectl set-ntp true",
                {"who": who, "skew": process.skew, "doubt": process.doubt},
            )


def clocks_fine(facts: Facts) -> str:
    """Say how far apart clocks are."""
    most = max((max(0.0, abs(process.skew) - process.doubt) for _, process in facts.processes), default=0.0)
    return "all show the same time" if most < 0.1 else f"at most {numbers.duration(most)} apart"
