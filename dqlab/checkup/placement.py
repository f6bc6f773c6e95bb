"""Who hosts what: shards, consumers, and whether they stand in each other's way."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.checkup.facts import Actor, Facts, Registered
from dqlab.checkup.findings import Finding
from dqlab.numbers import many
from dqlab.stats import Severity

__all__ = ["placement", "placement_fine"]


def placement(facts: Facts) -> Iterator[Finding]:
    """Judge where shards and consumers live."""
    registry = facts.registry
    if registry is None:
        return
    if registry.shared and facts.workers:
        few = many(len(facts.workers), "worker")
        yield Finding(
            "placement",
            Severity.WARNING,
            f"the cluster has {few}, so queues share a worker with functions: one that holds the GIL stalls them",
            "Workers that are missing are made again in seconds; if they stay away, close this lab and connect again"
            if facts.embedded
            else "Start three workers or more, so that one is kept for queues, or mark one with a resource",
            "lab.close(); lab = dq.connect(...)"
            if facts.embedded
            else "dask worker ADDRESS --nthreads 1 --resources dq-queue=1",
            {"workers": len(facts.workers)},
        )
    for actor in registry.actors:
        yield from _actor(facts, actor)
        if actor.is_shard and not registry.shared and actor.address in registry.serving and actor.gone is None:
            yield _beside_functions(facts, actor)
    yield from _unserved(facts, registry)


def _actor(facts: Facts, actor: Actor) -> Iterator[Finding]:
    values = {"name": actor.name, "worker": actor.address, "epoch": actor.epoch}
    what = _called(actor)
    if actor.gone is not None:
        advice, line = "Restart its consumers", "consumers.start()"
        if actor.is_shard:
            advice = "Open the queue again; what a durable one held is in its store"
            line = f"lab.queue({actor.queue!r})"
        yield Finding("placement", Severity.PROBLEM, f"{what} is gone: {_sentence(actor.gone)}", advice, line, values)
    elif not actor.made and actor.failure:
        yield Finding(
            "placement",
            Severity.PROBLEM,
            f"the log of {what} fails: {_sentence(actor.failure)}",
            "It is opened again by itself, once a minute at least, and runs go on then. See to its disk, then have it "
            "opened at once",
            f"lab.queue({actor.queue!r})",
            values,
        )
    elif not actor.made:
        yield Finding(
            "placement",
            Severity.WARNING,
            f"{what} is being opened, epoch {actor.epoch}; calls to it wait",
            "Look again in some seconds. If it stays so, no worker can take it: see the other findings",
            values=values,
        )
    elif facts.workers and all(worker.address != actor.address for worker in facts.workers):
        yield Finding(
            "placement",
            Severity.PROBLEM,
            f"{what} is registered on {actor.address}, which is not a worker of this cluster any more",
            "Open its queue again",
            f"lab.queue({actor.queue!r})",
            values,
        )


def _beside_functions(facts: Facts, actor: Actor) -> Finding:
    worker = next((worker.who for worker in facts.workers if worker.address == actor.address), actor.address)
    durable = facts.registry is not None and any(
        queue.name == actor.queue and queue.directory is not None for queue in facts.registry.queues
    )
    stays = "it loses nothing by that" if durable else "in memory it loses all by that, so wait until it is empty"
    return Finding(
        "placement",
        Severity.WARNING,
        f"{_called(actor)} lives on {worker}, which runs functions too, though another worker is kept for queues: a "
        "function that holds the GIL stalls it",
        f"To move it close the queue, and open it again ({stays})",
        f"lab.queue({actor.queue!r}).close(force=True); lab.queue({actor.queue!r})",
        {"name": actor.name, "worker": actor.address},
    )


def _unserved(facts: Facts, registry: Registered) -> Iterator[Finding]:
    """Find workers that should have a consumer and have none."""
    for queue in registry.served:
        there = {actor.address for actor in registry.actors if actor.queue == queue and not actor.is_shard}
        bare = [
            worker for worker in facts.workers if worker.address in registry.serving and worker.address not in there
        ]
        if bare:
            names = ", ".join(worker.who for worker in bare[:3]) + (" and others" if len(bare) > 3 else "")
            yield Finding(
                "placement",
                Severity.WARNING,
                f"queue {queue} has no consumer on {names}; work goes on without them",
                "Look for `spawn_failed` in the scheduler's log; a worker that is restarted is given its consumers",
                f"lab.client.restart_workers({[worker.address for worker in bare]!r})",
                {"queue": queue, "workers": [worker.address for worker in bare]},
            )


def placement_fine(facts: Facts) -> str:
    """Report which workers host what."""
    registry = facts.registry
    if registry is None or not registry.actors:
        return "no queue is open"
    shards = [actor for actor in registry.actors if actor.is_shard]
    consumers = [actor for actor in registry.actors if not actor.is_shard]
    processes = {worker.address: worker for worker in facts.workers}
    said = []
    for shard in shards[:3]:
        worker = processes.get(shard.address)
        process = None if worker is None else worker.process
        where = "" if process is None else f", pid {process.pid} on {process.host}"
        name = shard.address if worker is None else f"worker {worker.name}"
        said.append(f"{_called(shard)} on {name}{where}, epoch {shard.epoch}")
    if len(shards) > 3:
        said.append(f"{len(shards) - 3} more shards")
    on = len({actor.address for actor in consumers})
    return "; ".join([*said, f"{many(len(consumers), 'consumer')} on {many(on, 'worker')}"])


def _called(actor: Actor) -> str:
    kind, _, rest = actor.name.partition("/")
    queue, _, number = rest.rpartition("/")
    return f"shard {number} of queue {queue}" if kind == "queue" else f"consumer {number} of queue {queue}"


def _sentence(text: str) -> str:
    return text.strip().removesuffix(".")
