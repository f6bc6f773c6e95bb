"""Facts of a cluster with nothing wrong, and ways to plant one thing that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dqlab.checkup.facts import (
    Actor,
    Facts,
    LeaseFacts,
    Process,
    Queue,
    Registered,
    Scheduler,
    ShardFacts,
    StoreFacts,
    WorkerFacts,
)
from dqlab.log.ownership import Holder
from dqlab.stats import ConsumerStats, Counts, QueueStats, RunState, RunStats, Snapshot, StopReason
from dqlab.stats.attention import QueueFacts, Thresholds, find, find_leaving
from dqlab.store.inspection import SurveyedShard
from dqlab.store.probe import Probe

DIRECTORY = "/data/runs"
PACKAGES = {"dask": "2026.8.0", "distributed": "2026.8.0", "cloudpickle": "3.1.2", "msgpack": "1.2.4"}
LOG = {
    "directory": f"{DIRECTORY}/pages-1/000",
    "lock": "held",
    "corrupt": 0,
    "checkpoint_lost": False,
    "quarantine": 0,
    "room": True,
}


def process(pid: int, **more: Any) -> Process:
    given = {"host": "n1", "python": "3.12.4", "protocol": 1, "version": "0.1.0", "packages": PACKAGES}
    return Process(**given | {"pid": pid, "descriptors": 30, "descriptors_max": 4096} | more)


def seen(**more: Any) -> Probe:
    given = {"filesystem": "ext4", "device": 1, "inode": 2, "writable": True, "lock": "held", "marker": "locked"}
    return Probe(DIRECTORY, **given | {"free": 10**11, "size": 10**12} | more)


def shard(**more: Any) -> ShardFacts:
    return ShardFacts(**{"queue": "pages", "shard": 0, "consumers": 2, "log": LOG} | more)


def stored(**more: Any) -> SurveyedShard:
    given = {"queue": "pages", "index": 0, "directory": f"{DIRECTORY}/pages-1/000", "format": "1.0", "epoch": 1}
    return SurveyedShard(**given | {"holder": Holder("n1", 10, "pages", held=True), "clean": False} | more)


def worker(number: int, **more: Any) -> WorkerFacts:
    given = {
        "address": f"tcp://n1:{number}",
        "name": str(number),
        "process": process(10 + number),
        "path": "direct",
        "memory": 10**8,
        "memory_limit": 8 * 10**9,
        "shards": (shard(),) if number == 0 else (),
        "probes": (seen(),),
        "missing": (),
    }
    return WorkerFacts(**given | more)


def queue(**more: Any) -> QueueStats:
    given = {"name": "pages", "state": "running", "counts": Counts(ready=5, leased=1), "maxsize": 1000, "consumers": 2}
    return QueueStats(**given | more)


def snapshot(queue: QueueStats, runs: tuple[RunStats, ...] = (), **scene: Any) -> Snapshot:
    """What a scheduler's statistics know of one queue, with their alerts."""
    unserved = queue.lag if queue.counts.waiting and not queue.consumers else None
    alerts = find([QueueFacts(queue, runs=runs, unserved=unserved, **scene)], Thresholds())
    return Snapshot(at=0.0, seq=1, workers=3, queues=(queue,), queues_total=1, runs=runs, attention=tuple(alerts))


def leaving() -> Snapshot:
    """What they know when a worker's job ends."""
    return replace(snapshot(queue()), attention=tuple(find_leaving(1, 3, 240.0)))


def consumer(**more: Any) -> ConsumerStats:
    return ConsumerStats(**{"name": "c0", "queue": "pages", "worker": "w-1", "document": "a.pdf"} | more)


def actor(name: str, number: int, **more: Any) -> Actor:
    return Actor(name, "pages", f"tcp://n1:{number}", **more)


REGISTERED = Registered(
    hosts=("tcp://n1:0",),
    serving=("tcp://n1:1", "tcp://n1:2"),
    actors=(actor("queue/pages/0", 0), actor("consumer/pages/0", 1), actor("consumer/pages/1", 2)),
    queues=(Queue("pages", 1, f"{DIRECTORY}/pages-1", 10**9),),
    served=("pages",),
)
HEALTHY = Facts(
    "lab test",
    process(1),
    scheduler=Scheduler("tcp://n1:8786", process(2), registry=REGISTERED),
    workers=(worker(0), worker(1), worker(2)),
    stores=(StoreFacts(DIRECTORY, seen(marker=""), (stored(),)),),
    snapshot=snapshot(queue()),
)


def with_worker(number: int, **more: Any) -> Facts:
    """Change one worker."""
    workers = tuple(replace(each, **more) if each.name == str(number) else each for each in HEALTHY.workers)
    return replace(HEALTHY, workers=workers)


def with_process(number: int, **more: Any) -> Facts:
    """Change one worker's process."""
    return with_worker(number, process=process(10 + number, **more))


def with_scheduler(**more: Any) -> Facts:
    """Change the scheduler."""
    assert HEALTHY.scheduler is not None
    return replace(HEALTHY, scheduler=replace(HEALTHY.scheduler, **more))


def with_registry(**more: Any) -> Facts:
    """Change what the registry believes."""
    return with_scheduler(registry=replace(REGISTERED, **more))


def with_shard(**more: Any) -> Facts:
    """Change the one shard there is."""
    return with_worker(0, shards=(shard(**more),))


def with_log(**more: Any) -> Facts:
    """Change its log."""
    return with_shard(log=LOG | more)


def with_scene(*runs: RunStats, **scene: Any) -> Facts:
    """Change what else is known of the queue, and its runs."""
    return replace(HEALTHY, snapshot=snapshot(queue(), runs, **scene))


def a_run(**more: Any) -> RunStats:
    """A run of the queue."""
    return RunStats(**{"name": "count", "queue": "pages", "state": RunState.RUNNING, "counts": Counts(ready=1)} | more)


def with_queue(**more: Any) -> Facts:
    """Change what the queue reports."""
    return replace(HEALTHY, snapshot=snapshot(queue(**more)))


def with_store(probe: Probe | None = None, shards: tuple[SurveyedShard, ...] = (), error: str = "") -> Facts:
    """Change the store as it is seen from here."""
    return replace(HEALTHY, stores=(StoreFacts(DIRECTORY, probe or seen(marker=""), shards, error),))


def with_lease(**more: Any) -> Facts:
    """Change the oldest lease."""
    given = {"consumer": "consumer/pages/0#0", "messages": 3, "held": 2.0, "left": 58.0, "timeout": 60.0}
    return with_shard(oldest=LeaseFacts(**given | more))


def stopped_run(reason: StopReason = StopReason.RESULTS_FULL, why: str = "no room for more results") -> Facts:
    """A run that paused itself."""
    return with_scene(a_run(state=RunState.STOPPED, why=why, stop=reason))
