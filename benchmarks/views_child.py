"""A cluster at work, in a process of its own: its scheduler is what is measured. Answers questions line by line."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import dqlab as dq
from benchmarks.stage import SLOTS

DOCUMENT_S = 0.004
DOCUMENTS = 1_000_000
ROUNDS = 500


def nap(element: int) -> int:
    """Take a moment of a slot's time, and none of its CPU."""
    time.sleep(DOCUMENT_S)
    if element % 500 == 7:
        raise ValueError(f"document {element} has no total")
    return element


def reporting(dask_worker: Any) -> list[float]:
    """Return the CPU microseconds of one report, for each shard and each consumer of a worker."""
    from dqlab.cluster.transport.internals import actors_here

    costs = []
    for kind in ("queue", "consumer"):
        for actor in actors_here(dask_worker, kind).values():
            start = time.thread_time()
            for _ in range(ROUNDS):
                actor.report()
            costs.append((time.thread_time() - start) / ROUNDS * 1e6)
    return costs


def taking(dask_scheduler: Any) -> float:
    """Return the CPU microseconds of taking in one report, with all that follows within a second."""
    collector = dask_scheduler.plugins["dqlab"].collector
    reports = [report for queue in collector.known.queues for report in collector.known.shards(queue).reports]
    reports += list(collector.known.consumers.values())
    rounds = max(1, ROUNDS // len(reports))
    start = time.thread_time()
    for _ in range(rounds):
        for report in reports:
            for _ in range(4):  # as many as come in a second; what is remembered is so once in it
                collector.take(report)
        collector.remember()
    return (time.thread_time() - start) / (rounds * len(reports) * 4) * 1e6


def main() -> None:
    """Start the run, say where the dashboard is, and answer what reports cost."""
    with dq.connect(n=SLOTS) as lab:
        queue = lab.queue("bench", maxsize=None)
        run = queue.map(nap, range(DOCUMENTS), name="bench")
        address = lab.dashboard.rsplit("/", 1)[0]
        print(json.dumps(address), flush=True)
        for line in sys.stdin:
            answer: Any = None
            if json.loads(line) == "reports":
                per_actor = [cost for costs in lab.client.run(reporting).values() for cost in costs]
                answer = {"report": per_actor, "take": lab.client.run_on_scheduler(taking)}
            elif json.loads(line) == "address":
                answer = address
            print(json.dumps(answer), flush=True)
        run.cancel()


if __name__ == "__main__":
    main()
