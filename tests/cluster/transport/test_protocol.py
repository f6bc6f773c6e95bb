"""Jobs of a batch system end; their workers leave before that, with nothing begun that is not finished."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.cluster.scheduler import departures
from dqlab.cluster.scheduler.departures import MOST, STAGGER, Deadlines, Departures
from dqlab.cluster.transport.protocol import JobEnd, batch_system, read_end
from dqlab.testing import Gate, Tally
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import is_alive, until_in


def deadlines(*names: str, left: float = 1000.0, drain: float = 100.0) -> Deadlines:
    known = Deadlines()
    for name in names:
        known.note(name, name, JobEnd(left, drain), 0.0)
    return known


def test_job_says_when_it_ends() -> None:
    assert read_end({"DQLAB_JOB_DEADLINE": "1100", "DQLAB_JOB_DRAIN": "30"}, 1000.0) == JobEnd(100.0, 30.0)
    assert read_end({"DQLAB_JOB_DEADLINE": "1100"}, 1000.0) == JobEnd(100.0, 180.0)


@pytest.mark.parametrize("environ", [{}, {"DQLAB_JOB_DEADLINE": ""}, {"DQLAB_JOB_DEADLINE": "$(( x ))"}])
def test_job_that_says_nothing_has_no_end(environ: dict[str, str]) -> None:
    assert read_end(environ, 1000.0) is None


def test_batch_system_is_known_by_the_environment_of_its_jobs() -> None:
    assert batch_system({"SLURM_JOB_ID": "7"}) == "Slurm"
    assert batch_system({"PBS_JOBID": "7.server"}) == "PBS"
    assert batch_system({"HOME": "/"}) == ""


def test_worker_leaves_its_margin_before_the_end_and_once() -> None:
    known = deadlines("a")

    assert known.due(1000 - 100 * (1 + STAGGER) - 1) == []
    assert known.due(1000 - 100 * (1 - STAGGER)) == ["a"]
    assert known.due(1000.0, leaving={"a"}) == []


def test_workers_of_jobs_that_end_together_leave_one_after_another() -> None:
    names = [str(number) for number in range(100)]
    known = deadlines(*names)
    gone = [len(known.due(float(now))) for now in range(880, 921)]

    assert gone[0] == 0
    assert gone[-1] == 100
    assert len(set(gone)) > 15


def test_documents_that_take_long_begin_no_more_earlier() -> None:
    known = deadlines("a")
    known.longest = 300.0

    assert known.due(1000 - 400 * (1 - STAGGER)) == ["a"]


def test_worker_whose_functions_take_longer_than_its_job_still_works_for_half_of_its_life() -> None:
    known = deadlines("a")
    known.longest = 10_000.0

    assert known.due(1000 * MOST - 1) == []
    assert known.due(1000 * MOST) == ["a"]


def test_a_worker_whose_leaving_fails_leaves_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one look that failed was the last for all workers: their jobs ended in the middle of what they ran."""
    known = SimpleNamespace(longest=failing_once(0.0), thresholds=SimpleNamespace(leaving=600.0))
    collector = SimpleNamespace(known=known, touch=lambda: None)
    began: list[str] = []

    async def leave(self: Departures, worker: str) -> None:
        assert worker in self._state.leaving, "nothing new may be placed there meanwhile"
        began.append(worker)
        if len(began) == 1:
            raise OSError("its shard did not answer")
        again.set()

    again = asyncio.Event()

    async def scenario() -> set[str]:
        state = SimpleNamespace(collector=collector, entries={}, leaving=set(), in_background=asyncio.ensure_future)
        watching = Departures(state, None, None)  # type: ignore[arg-type]
        watching.deadlines.note("a", "a", JobEnd(0.0, 0.0), 0.0)
        task = asyncio.create_task(watching._watch())
        try:
            await asyncio.wait_for(again.wait(), 20)
        finally:
            task.cancel()
        return state.leaving

    monkeypatch.setattr(departures, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(Departures, "_leave_in_time", leave)
    assert asyncio.run(scenario()) == {"a"}
    assert began == ["a", "a"]


def failing_once(value: float) -> Callable[[], float]:
    """Return a function that raises at its first call."""
    calls = iter([True])

    def call() -> float:
        if next(calls, False):
            raise RuntimeError("a report without a time")
        return value

    return call


# --- with workers ---------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dq.Lab]:
    """Three workers; what takes minutes before the end of a job takes a second here."""
    monkeypatch.setattr("dqlab.cluster.scheduler.departures.FINAL", 0.5)
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        dq.connect(client, store=tmp_path / "store") as lab,
    ):
        yield lab


def workers_of(prefix: str, dask_worker: Any) -> int | None:
    """Process of a worker that holds such an actor."""
    held = (str(key) for key, actor in dask_worker.state.actors.items() if not actor.closed)
    return os.getpid() if any(key.startswith(prefix) for key in held) else None


def hosts(lab: dq.Lab, prefix: str) -> dict[str, int]:
    """Addresses and processes of the workers that hold such actors."""
    held = lab.client.run(partial(workers_of, prefix), on_error="ignore")
    return {address: pid for address, pid in held.items() if pid is not None}


def tell(worker: str, left: float, dask_scheduler: Any) -> None:
    """As its job would: it ends in so many seconds."""
    dask_scheduler.plugins["dqlab"].departures.note_deadline(worker, left=left, drain=left)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", mostly_slow(["queue", "consumer"], "queue"))
def test_worker_whose_job_ends_finishes_what_it_has_begun_and_is_gone(lab: dq.Lab, tmp_path: Path, kind: str) -> None:
    gate, tally = Gate(tmp_path), Tally(tmp_path)

    def work(x: int) -> int:
        if x == 200:
            gate.wait(os.getpid())
        tally.add(x)
        return -x

    pool = lab.queue("walltime")
    run = pool.map(work, range(600), name="walltime")
    gate.until_arrived(1)
    ending = hosts(lab, f"dq-{kind}/walltime/")
    worker = next(iter(ending))
    lab.client.run_on_scheduler(partial(tell, worker, 8.0))
    until_in(lab, lambda: any(need.kind == "leaving" for need in lab.stats().attention))
    need = next(need for need in lab.stats().attention if need.kind == "leaving")
    assert need.subject == "1 of 3 workers"
    assert need.text.startswith("leaves ")
    until_in(lab, lambda: lab.client.run_on_scheduler(partial(leaves, worker)))
    gate.open()

    assert list(run.results(timeout=40)) == [-x for x in range(600)]
    until_in(lab, lambda: not is_alive(ending[worker]))
    assert sorted(int(x) for x in tally.seen()) == list(range(600))
    assert worker not in hosts(lab, "dq-")


def leaves(worker: str, dask_scheduler: Any) -> bool:
    return worker in dask_scheduler.plugins["dqlab"].state.leaving or worker not in dask_scheduler.workers
