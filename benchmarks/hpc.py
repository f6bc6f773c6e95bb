"""Room `hpc`: the same work on jobs of a Slurm of its own on this machine, and what the end of the queue's job costs.

Not part of `make bench`; `make bench-hpc` measures it, where there is a Slurm to be started.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dqlab as dq
from benchmarks.figures import Better, Figure, Peer, Series, Target, ratios
from benchmarks.harness import Contestant, WrongAnswer, alternate, rate
from benchmarks.sizes import Sizes
from benchmarks.stage import SLOTS, Stage
from benchmarks.work import add, calibrate, crunch, heavy_tailed_pages, pairs, sum_of_sums
from dqlab.testing import Tally
from tests.hpc.single_node import MISSING, TOLD, single_node

__all__ = ["hpc"]

EMBEDDED, JOBS, PLAIN = "embedded", "jobs of Slurm", "jobs of Slurm, without TLS"
AS_FAST = Target(floor=0.9, aim=1.0)
"""Jobs over the embedded cluster, messages per second."""
AS_SHORT = Target(floor=1.1, aim=1.0)
"""The same of makespans, where less is better."""
DOCUMENT_S = 0.002
SHORT_ROUNDS = 5
"""Times as many rounds of additions that take half a second each."""
ENDED = 3
"""How often the job of a queue is cancelled."""


def hpc(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure additions, heavy-tailed documents, and `scancel` of the queue's job in a durable run."""
    if MISSING:
        stage.say(f"SKIPPED: {TOLD}")
        return []
    with slurm(), jobs(stage.directory / "jobs", security=True) as lab, jobs(stage.directory / "plain") as plain:
        labs = {EMBEDDED: stage.lab, JOBS: lab, PLAIN: plain}
        figures = _additions(labs, sizes) + _documents(labs, sizes)
    with slurm(), jobs(stage.directory / "ended", security=True, store=stage.directory / "kept") as lab:
        return figures + _ended(lab, stage.directory, 5_000 if sizes.full else 1_000)


@contextmanager
def slurm() -> Iterator[None]:
    """Run a Slurm that this process and its children find."""
    with (
        tempfile.TemporaryDirectory(prefix="dqlab-slurm-", ignore_cleanup_errors=True) as root,
        single_node(Path(root)) as node,
    ):
        before = dict(os.environ)
        os.environ.update(node.environ)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def jobs(directory: Path, *, security: bool = False, store: Path | None = None) -> Iterator[dq.Lab]:
    """Run a lab with as many workers as the embedded cluster has: one for each slot, and one for queues."""
    made_of = dq.hpc.recipe(
        "slurm", memory="4GB", walltime="50m", jobs=SLOTS + 1, directory=directory, security=security
    )
    with dq.connect(made_of, store=store, timeout="2m") as lab:
        lab.client.wait_for_workers(SLOTS + 1, timeout=120)
        yield lab


def _additions(labs: dict[str, dq.Lab], sizes: Sizes) -> list[Figure]:
    n = sizes.messages

    def added(lab: dq.Lab, n: int) -> list[int]:
        run = lab.queue("additions", maxsize=sizes.messages).map(add, pairs(n))
        results = list(run.results())
        run.drop()
        return results

    for lab in labs.values():
        added(lab, n // 10)
    contestants = [
        Contestant(name, partial(rate, partial(added, lab), n, sum_of_sums(n))) for name, lab in labs.items()
    ]
    rounds = SHORT_ROUNDS * sizes.rounds
    found = {name: Series.of(values) for name, values in alternate(contestants, rounds=rounds).items()}
    peers = tuple(Peer(name, found[name]) for name in (EMBEDDED, PLAIN))
    return [
        Figure(f"{n:,} add(a, b), {JOBS}", "msg/s", Better.HIGHER, found[JOBS], None, peers),
        Figure("the same over embedded", "x", Better.HIGHER, ratios(found[JOBS], found[EMBEDDED]), AS_FAST),
    ]


def _documents(labs: dict[str, dq.Lab], sizes: Sizes) -> list[Figure]:
    page = calibrate()
    todo = [pages * page for pages in heavy_tailed_pages(sizes.documents)]

    def makespan(lab: dq.Lab) -> float:
        start = time.perf_counter()
        run = lab.queue("documents").map(crunch, todo)
        done = len(list(run.results()))
        took = time.perf_counter() - start
        run.drop()
        if done != len(todo):
            raise WrongAnswer(f"{done:,} results from {len(todo):,} documents")
        return took

    contestants = [Contestant(name, partial(makespan, lab)) for name, lab in labs.items()]
    found = {name: Series.of(values) for name, values in alternate(contestants, rounds=sizes.rounds).items()}
    peers = tuple(Peer(name, found[name]) for name in (EMBEDDED, PLAIN))
    name = f"{len(todo):,} heavy-tailed documents, makespan, {JOBS}"
    return [
        Figure(name, "s", Better.LOWER, found[JOBS], None, peers),
        Figure("the same over embedded", "x", Better.LOWER, ratios(found[JOBS], found[EMBEDDED]), AS_SHORT),
    ]


def _ended(lab: dq.Lab, directory: Path, documents: int) -> list[Figure]:
    """Cancel the job of a durable queue in the middle of a run, some times."""
    waited, lost, twice = [], [], []
    for number in range(ENDED):
        place = directory / f"tally-{number}"
        place.mkdir()
        tally = Tally(place)
        work = _worker_of(tally)
        run = lab.queue(f"ended-{number}").map(work, range(documents))
        longest, before, ended = 0.0, time.perf_counter(), False
        for done, _ in enumerate(run.as_completed(), 1):
            now = time.perf_counter()
            if ended:
                longest = max(longest, now - before)
            elif done >= documents // 4:
                subprocess.run(["scancel", _job_of(lab, run.queue)], check=True)
                ended, now = True, time.perf_counter()
            before = now
        if not ended or run.counts["dead"]:
            raise WrongAnswer(f"{run.counts} when the job of its queue was to end in the middle of it")
        waited.append(longest)
        lost.append(float(documents - run.counts["acked"]))
        twice.append(float(len(list(tally.seen())) - documents))
        run.drop()
        lab.client.wait_for_workers(SLOTS + 1, timeout=120)
    return [
        Figure("scancel of the queue's job -> next result", "s", Better.LOWER, Series.of(waited)),
        Figure(f"the same, lost of {documents:,}", "messages", Better.LOWER, Series.of(lost), Target(0.0)),
        Figure(f"the same, run twice of {documents:,}", "messages", Better.LOWER, Series.of(twice)),
    ]


def _worker_of(tally: Tally) -> Callable[[int], int]:
    def work(x: int) -> int:
        time.sleep(DOCUMENT_S)
        tally.add(x)
        return x

    return work


def _job_of(lab: dq.Lab, queue: str) -> str:
    answers = lab.client.run(partial(_job_with, f"dq-queue/{queue}/"), on_error="ignore")
    return next(job for job in answers.values() if isinstance(job, str))


def _job_with(prefix: str, dask_worker: Any) -> str | None:
    held = any(str(key).startswith(prefix) for key in dask_worker.state.actors)
    return os.environ["SLURM_JOB_ID"] if held else None
