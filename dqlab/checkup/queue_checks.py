"""Checks that queues move: waiting messages are leased, leased ones are settled, and there is room."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import numbers
from dqlab.checkup.alerts import alerted, alerts, in_shell
from dqlab.checkup.facts import Facts, LeaseFacts, ShardFacts, WorkerFacts
from dqlab.checkup.findings import Finding
from dqlab.numbers import few_of, many
from dqlab.stats import AttentionKind, QueueState, QueueStats, RunStats, Severity, short_name
from dqlab.stats.attention import at_rest

__all__ = ["leases", "leases_fine", "queues", "queues_fine"]

PATIENCE = 5.0
"""Seconds after its end within which a shard must have ended a lease."""
NEARLY_FULL = 0.9
MOST_QUEUES = 5
"""Most queues whose oldest lease is listed when nothing is wrong with it."""


def queues(facts: Facts) -> Iterator[Finding]:
    """Report the alerts, and note states that a user intended or that are not wrong yet."""
    snapshot = facts.snapshot
    if snapshot is None:
        return
    lag: dict[str, float] = {}
    for shard in (shard for worker in facts.workers for shard in worker.shards):
        lag[shard.queue] = max(lag.get(shard.queue, 0.0), shard.lag)
    yield from alerts(facts, "queues")
    for queue in snapshot.queues:
        if not alerted(facts, AttentionKind.NO_CONSUMER, queue=queue.name):
            yield from _waiting(queue, max(queue.lag, lag.get(queue.name, 0.0)))
        yield from _state(queue)
        if not alerted(facts, AttentionKind.PUTS_WAIT, queue=queue.name):
            yield from _full(queue)
        yield from _failed(facts, queue)
        yield from _put_off(facts, queue)


def _put_off(facts: Facts, queue: QueueStats) -> Iterator[Finding]:
    listed = {alert.run for alert in alerted(facts, AttentionKind.PUT_OFF, queue=queue.name)}
    for run in facts.snapshot.runs if facts.snapshot is not None else ():
        if run.queue == queue.name and run.only_put_off and run.name not in listed:
            whose = "its" if run.put_off == 1 else "their"
            yield Finding(
                "queues",
                Severity.NOTE,
                f"run {run.name}: {many(run.put_off, 'document')} put off by {whose} function",
                "It raised dq.Later, and they are delivered again when that time has come",
                f"lab.attach({run.name!r}).stats()",
                {"queue": queue.name, "run": run.name, "put_off": run.put_off},
            )


def _waiting(queue: QueueStats, lag: float) -> Iterator[Finding]:
    if queue.counts.left and not queue.consumers:
        yield Finding(
            "queues",
            Severity.NOTE,
            f"{many(queue.counts.left, 'message')} of queue {queue.name} wait and it has no consumer",
            "Start consumers: more workers, or a consumer pool of your own",
            f"dq.ConsumerPool(lab.client, lab.queue({queue.name!r})).start()",
            {"queue": queue.name, "waiting": queue.counts.left, "lag": lag},
        )


def _state(queue: QueueStats) -> Iterator[Finding]:
    line = f"lab.queue({queue.name!r}).resume()"
    if queue.state == QueueState.PAUSED:
        waits = f", and {many(queue.counts.left, 'message')} wait" if queue.counts.left else ""
        yield Finding("queues", Severity.NOTE, f"queue {queue.name} is paused{waits}", "To let it go on", line)
    elif queue.state == QueueState.DRAINING:
        yield Finding("queues", Severity.NOTE, f"queue {queue.name} is draining and takes no puts", "To open it", line)


def _full(queue: QueueStats) -> Iterator[Finding]:
    if queue.maxsize is None or queue.counts.left < NEARLY_FULL * queue.maxsize:
        return
    full = queue.counts.left >= queue.maxsize
    text = "is full" if full else "is nearly full"
    yield Finding(
        "queues",
        Severity.NOTE,
        f"queue {queue.name} {text}: {numbers.count(queue.counts.left)} messages, one lane takes "
        f"{numbers.count(queue.maxsize)}; further puts wait",
        "Runs wait by themselves. For plain puts add workers, or open a queue with a larger maxsize",
        values={"queue": queue.name, "messages": queue.counts.left, "maxsize": queue.maxsize},
    )


def _failed(facts: Facts, queue: QueueStats) -> Iterator[Finding]:
    runs = [run for run in facts.snapshot.runs if run.queue == queue.name] if facts.snapshot is not None else []
    if queue.counts.dead:
        yield _dead(facts, queue, runs)
    lost = queue.counts.lost - sum(run.counts.lost for run in runs)  # lost documents of runs have alerts
    if lost > 0:
        yield Finding(
            "queues",
            Severity.WARNING,
            f"queue {queue.name} has lost {many(lost, 'message')}",
            "`dqlab fsck` shows why; put them again",
            "dqlab fsck",
            {"queue": queue.name, "lost": lost},
        )


def _dead(facts: Facts, queue: QueueStats, runs: list[RunStats]) -> Finding:
    """Return the dead letters of a queue, with the severity that views give those at rest, else as a note."""
    snapshot = facts.snapshot
    all_runs = snapshot is not None and snapshot.runs_total == len(snapshot.runs)
    rests = at_rest(queue, runs, all_runs=all_runs)
    worst = max(runs, key=lambda run: run.counts.dead, default=None)
    named = rests.run if rests is not None else worst.name if worst is not None and worst.counts.dead else ""
    puts = not named and all_runs
    part = "" if rests is None or rests.amount == queue.counts.dead else f"{numbers.count(rests.amount)} of them "
    of = f", {part}{rests.text}" if rests is not None and (named or queue.failed_runs) else ""
    return Finding(
        "queues",
        Severity.NOTE if rests is None else rests.severity,
        f"queue {queue.name} has {many(queue.counts.dead, 'dead letter')}{of}",
        "They are of submit or put. See why, and put again what failed"
        if puts
        else "See why, and retry them with a function that was mended; or drop what is of no more use",
        f"lab.attach({named!r}).failures()"
        if named
        else f"lab.queue({queue.name!r}).dead()"
        if puts
        else "lab.all_runs() names their runs",
        {"queue": queue.name, "dead": queue.counts.dead},
        in_shell("failed", named) if named else "",
    )


def queues_fine(facts: Facts) -> str:
    """Return how many queues there are, and how many messages wait."""
    snapshot = facts.snapshot
    if snapshot is None or not snapshot.queues:
        return f"no queue has messages{facts.unknown}"
    counts = snapshot.totals.counts
    waiting = (
        f"{numbers.count(counts.ready + counts.delayed)} waiting and {numbers.count(counts.leased)} unacked messages"
    )
    return f"{many(snapshot.queues_total, 'queue')} with {waiting}{facts.unknown}"


def leases(facts: Facts) -> Iterator[Finding]:
    """Report the alerts, and judge the shards' oldest leases and what they can still keep."""
    shards = [shard for worker in facts.workers for shard in worker.shards]
    failing = {shard.queue for shard in shards if shard.failure or (shard.log is not None and not shard.log["room"])}
    yield from alerts(
        facts,
        "leases",
        without=[each for each in alerted(facts, AttentionKind.STORE, AttentionKind.NO_ROOM) if each.queue in failing],
    )
    for worker in facts.workers:
        yield from _abandoned(worker)
        for shard in worker.shards:
            yield from _lease(facts, shard, worker.address)
            if shard.failure:
                yield Finding(
                    "leases",
                    Severity.PROBLEM,
                    f"{shard.name} can confirm nothing any more: {shard.failure.strip().removesuffix('.')}",
                    "What was confirmed is on disk. Restart its worker: another one opens the log",
                    f"lab.client.restart_workers([{worker.address!r}])",
                    {"queue": shard.queue, "shard": shard.shard},
                )
            if shard.results_full:
                yield Finding(
                    "leases",
                    Severity.PROBLEM,
                    f"{shard.name} has no room for more results",
                    "Read and drop runs that are finished, then let the others go on",
                    "run.drop()",
                    {"queue": shard.queue, "shard": shard.shard},
                )


def _abandoned(worker: WorkerFacts) -> Iterator[Finding]:
    for consumer, names in worker.abandoned.items():
        yield Finding(
            "leases",
            Severity.WARNING,
            f"{consumer} on {worker.title} still runs {many(len(names), 'function')} that "
            f"{'was' if len(names) == 1 else 'were'} given up: {few_of(names)}; threads cannot be killed, and these "
            "slow the others",
            "Restart the worker; what its consumers hold goes back. Give such runs processes, which can be "
            "killed: map(..., timeout='90s')",
            f"lab.client.restart_workers([{worker.address!r}])",
            {"consumer": consumer, "worker": worker.address, "messages": list(names)},
        )


def _lease(facts: Facts, shard: ShardFacts, address: str) -> Iterator[Finding]:
    lease = shard.oldest
    if lease is None:
        return
    values = {"queue": shard.queue, "shard": shard.shard, "consumer": lease.consumer, "held": lease.held}
    held = (
        f"{lease.consumer} holds {many(lease.messages, 'message')} of {shard.name} for {numbers.duration(lease.held)}"
    )
    if lease.left < -PATIENCE:
        yield Finding(
            "leases",
            Severity.PROBLEM,
            f"{held}, and the lease ended {numbers.duration(-lease.left)} ago: the shard is stalled",
            "Restart the worker of the shard",
            f"lab.client.restart_workers([{address!r}])",
            values,
        )
    elif lease.held > lease.timeout and short_name(lease.consumer) not in {
        alert.target for alert in alerted(facts, AttentionKind.HELD, queue=shard.queue)
    }:
        yield Finding(
            "leases",
            Severity.NOTE,
            f"{held}, longer than the visibility timeout of {numbers.duration(lease.timeout)}; the lease is renewed",
            f"A slow document, or one that hangs: lab.queue({shard.queue!r}).unacked() names it. A limit ends such "
            "documents by itself, map(..., timeout='90s'). To retry it",
            f"lab.queue({shard.queue!r}).replace({short_name(lease.consumer)!r})",
            values,
        )


def leases_fine(facts: Facts) -> str:
    """Report which lease of each queue is the oldest."""
    oldest: dict[str, LeaseFacts] = {}
    for shard in (shard for worker in facts.workers for shard in worker.shards):
        known = oldest.get(shard.queue)
        if shard.oldest is not None and (known is None or shard.oldest.held > known.held):
            oldest[shard.queue] = shard.oldest
    if not oldest:
        return f"nothing is leased{facts.unknown}"
    first = sorted(oldest.items(), key=lambda held: -held[1].held)
    parts = [f"{queue} for {numbers.duration(lease.held)} by {lease.consumer}" for queue, lease in first[:MOST_QUEUES]]
    more = f", and {len(first) - MOST_QUEUES} more queues" if len(first) > MOST_QUEUES else ""
    return f"oldest lease of queue {', '.join(parts)}{more}{facts.unknown}"
