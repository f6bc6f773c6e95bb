"""Facts of a cluster with nothing wrong, and ways to plant one thing that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dqlab.checkup.facts import Actor, Facts, Process, Registered
from dqlab.stats import ConsumerStats, Counts, QueueStats, RunState, RunStats, Snapshot, StopReason
from dqlab.stats.attention import QueueFacts, Thresholds, find
from dqlab.store.probe import Probe

DIRECTORY = "/data/runs"
PACKAGES = {"dask": "2026.8.0", "distributed": "2026.8.0", "cloudpickle": "3.1.2", "msgpack": "1.2.4"}


def process(pid: int, **more: Any) -> Process:
    given = {"host": "n1", "python": "3.12.4", "protocol": 1, "version": "0.1.0", "packages": PACKAGES}
    return Process(**given | {"pid": pid, "descriptors": 30, "descriptors_max": 4096, "memory": 10**8} | more)


def seen(**more: Any) -> Probe:
    given = {"filesystem": "ext4", "writable": True, "lock": "held", "marker": "locked", "free": 10**11}
    return Probe(DIRECTORY, **given | more)


def worker(number: int) -> Process:
    place = {"name": f"worker {number}", "address": f"tcp://n1:{number}"}
    return process(10 + number, **place, memory_limit=8 * 10**9, stores=(seen(),))


def queue(**more: Any) -> QueueStats:
    given = {"name": "pages", "state": "running", "counts": Counts(ready=5, leased=1), "maxsize": 1000, "consumers": 2}
    return QueueStats(**given | more)


def snapshot(queue: QueueStats, runs: tuple[RunStats, ...] = (), **scene: Any) -> Snapshot:
    """What a scheduler's statistics know of one queue, with their alerts."""
    unserved = queue.lag if queue.counts.waiting and not queue.consumers else None
    alerts = find([QueueFacts(queue, runs=runs, unserved=unserved, **scene)], Thresholds())
    return Snapshot(at=0.0, seq=1, workers=3, queues=(queue,), queues_total=1, runs=runs, attention=tuple(alerts))


def consumer(**more: Any) -> ConsumerStats:
    return ConsumerStats(**{"name": "c0", "queue": "pages", "worker": "w-1", "document": "a.pdf"} | more)


def actor(name: str, number: int, **more: Any) -> Actor:
    return Actor(name, "pages", f"tcp://n1:{number}", **more)


HEALTHY = Facts(
    "lab test",
    process(1),
    scheduler=process(2, name="the scheduler", address="tcp://n1:8786"),
    registry=Registered(
        hosts=("tcp://n1:0",),
        actors=(actor("queue/pages/0", 0), actor("consumer/pages/0", 1), actor("consumer/pages/1", 2)),
        directories={"pages": f"{DIRECTORY}/pages-1"},
    ),
    workers=(worker(0), worker(1), worker(2)),
    stores=(seen(marker=""),),
    snapshot=snapshot(queue()),
)


def with_worker(number: int, facts: Facts = HEALTHY, **more: Any) -> Facts:
    """Change one worker."""
    workers = list(facts.workers)
    workers[number] = replace(workers[number], **more)
    return replace(facts, workers=tuple(workers))


def with_scheduler(**more: Any) -> Facts:
    """Change the scheduler."""
    return replace(HEALTHY, scheduler=replace(HEALTHY.scheduler, **more))


def with_actors(*actors: Actor) -> Facts:
    """Change what is registered."""
    return replace(HEALTHY, registry=replace(HEALTHY.registry, actors=actors))


def with_scene(*runs: RunStats, **scene: Any) -> Facts:
    """Change what else is known of the queue, and its runs."""
    return replace(HEALTHY, snapshot=snapshot(queue(), runs, **scene))


def a_run(**more: Any) -> RunStats:
    """A run of the queue."""
    return RunStats(**{"name": "count", "queue": "pages", "state": RunState.RUNNING, "counts": Counts(ready=1)} | more)


def with_queue(*runs: RunStats, **more: Any) -> Facts:
    """Change what the queue reports, and its runs."""
    return replace(HEALTHY, snapshot=replace(snapshot(queue(**more), runs), runs_total=len(runs)))


def with_store(probe: Probe) -> Facts:
    """Change the store as it is seen from here."""
    return replace(HEALTHY, stores=(probe,))


def stopped_run(reason: StopReason, why: str) -> Facts:
    """A run that paused itself."""
    return with_scene(a_run(state=RunState.STOPPED, why=why, stop=reason))
