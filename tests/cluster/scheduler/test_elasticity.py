"""Clusters that scale by themselves follow the backlog, which Dask does not see."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.cluster.scheduler.departures import Backlog, workers_for
from dqlab.cluster.statistics.collector import Collector
from dqlab.stats.eta import Effort
from dqlab.testing import FakeClock, Gate
from tests.cluster.reports import lane_report, shard_report
from tests.kit.waiting import until_in

pytestmark = pytest.mark.lowest


def need(*backlogs: Backlog, threads: int = 1, hosts: int = 1) -> int:
    return workers_for(backlogs, threads=threads, duration=60.0, hosts=hosts)


def test_nothing_to_do_needs_the_hosts_of_queues_alone() -> None:
    assert need() == 1
    assert need(hosts=0) == 0
    assert need(Backlog(0, 0.0)) == 1


def test_little_work_is_done_by_one_worker() -> None:
    assert need(Backlog(1000, 30.0)) == 1


def test_work_is_done_in_time() -> None:
    assert need(Backlog(1000, 600.0)) == 10 + 1
    assert need(Backlog(1000, 600.0), threads=4) == 3 + 1
    assert need(Backlog(1000, 600.0), Backlog(1000, 600.0)) == 20 + 2


def test_no_more_workers_than_messages() -> None:
    """One long document does not go faster on many."""
    assert need(Backlog(3, 36_000.0)) == 3 + 1


def test_backlog_is_what_is_ready_or_leased_times_what_a_message_took(clock: FakeClock) -> None:
    collector, effort = Collector(clock=clock), Effort()
    effort.add(5.0, 0.0, 10)
    known = lane_report("known", counts=[100, 50, 8, 10, 0, 0, 0], effort=effort.to_list())
    unknown = lane_report("unknown", counts=[6, 0, 0, 0, 0, 0, 0])
    paused = lane_report("paused", counts=[1000, 0, 4, 0, 0, 0, 0], paused=True)
    collector.take(shard_report("pages", known, unknown, paused))

    assert collector.backlog("pages", 2.0) == (108 + 6 + 4, 108 * 0.5 + (6 + 4) * 2.0)
    assert collector.backlog("unheard of", 2.0) == (0, 0.0)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[dq.Lab]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        with pytest.warns(UserWarning, match="too few workers"):
            lab = dq.connect(client, store=tmp_path / "store")
        cluster.adapt(minimum=1, maximum=4, interval="100ms", wait_count=5, target_duration="1s")
        with lab:
            yield lab


def holds(prefix: str, dask_worker: Any) -> bool:
    return any(str(key).startswith(prefix) for key in dask_worker.state.actors)


@pytest.mark.slow
@pytest.mark.cluster
def test_cluster_grows_with_the_backlog_and_shrinks_to_the_host_of_the_queue(lab: dq.Lab, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def work(x: int) -> int:
        gate.wait(os.getpid())
        return -x

    run = lab.map(work, range(60), name="elastic")
    until_in(lab, lambda: lab.stats().workers == 4)
    until_in(lab, lambda: lab.stats().consumers_total >= 3)
    gate.open()

    assert list(run.results(timeout=40)) == [-x for x in range(60)]
    until_in(lab, lambda: lab.stats().workers == 1)
    assert all(lab.client.run(partial(holds, "dq-queue/default/")).values())
    assert run.counts["acked"] == 60
