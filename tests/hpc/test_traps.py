"""Traps of batch systems and of dask-jobqueue that no other test has: see docs/how-to/on-a-batch-system.md."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import dqlab as dq
from dqlab.hpc import clusters
from tests.hpc.single_node import Slurm, wait_until
from tests.kit.waiting import is_alive

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")
pytestmark = pytest.mark.timeout(90)


def recipe(directory: Path, **more: object) -> dq.hpc.Recipe:
    """Jobs of a partition that is closed: they wait."""
    usual = {"memory": "1GB", "walltime": "10m", "jobs": 1, "queue": "closed", "security": False}
    return dq.hpc.recipe("slurm", directory=directory, **(usual | more))  # type: ignore[arg-type]


@pytest.fixture
def idle_cluster(pbs_jobs: Path, tmp_path: Path) -> dq.hpc.Recipe:
    """Jobs that run without a worker ever connecting."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    return dq.hpc.recipe("pbs", jobs=2, memory="1GB", directory=pbs_jobs, security=False, python=python)


@pytest.mark.cluster
def test_cluster_that_is_closed_ends_the_wait_for_it(idle_cluster: dq.hpc.Recipe) -> None:
    """Its jobs are cancelled, so no worker comes."""
    cluster = dq.hpc.clusters.start(idle_cluster)
    with ThreadPoolExecutor(1) as threads:
        mine = threads.submit(dq.connect, cluster, timeout="60s")
        wait_until(lambda: any(job.job_id for job in cluster.workers.values()), 20, "jobs to be submitted")
        assert not mine.done()
        cluster.close()
        assert isinstance(mine.exception(timeout=20), dq.errors.UsageError)
    with pytest.raises(dq.errors.UsageError, match=r"dq\.hpc\.pbs"):
        dq.connect(cluster)


def run(cluster: Any, pbs_jobs: Path) -> bool:
    """Return whether a cluster knows both its jobs, and they lead their groups, by which they are cancelled."""
    if cluster is None or len(cluster.workers) != 2 or not all(job.job_id for job in cluster.workers.values()):
        return False
    return all(os.getpgid(number) == number for number in map(int, map(Path.read_text, pbs_jobs.glob("*.pid"))))


@pytest.mark.cluster
def test_wait_in_another_thread_can_be_given_up(idle_cluster: dq.hpc.Recipe, pbs_jobs: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        mine = threads.submit(dq.connect, idle_cluster, timeout="60s")
        wait_until(lambda: run(clusters._clusters.get(idle_cluster), pbs_jobs), 20, "jobs to run")
        jobs = [psutil.Process(int(path.read_text())) for path in pbs_jobs.glob("*.pid")]
        assert dq.hpc.give_up() == 2
        assert isinstance(mine.exception(timeout=20), dq.errors.UsageError)
    assert len(jobs) == 2
    wait_until(lambda: not any(map(is_alive, jobs)), 20, "jobs to end")  # their numbers may be taken again


@pytest.mark.slow
@pytest.mark.slurm
def test_jobs_that_wait_are_given_up_by_asking_for_others_or_by_a_word(slurm: Slurm, tmp_path: Path) -> None:
    """A smaller number replaces the one asked for before."""
    for _ in range(2):
        with pytest.raises(dq.hpc.JobsPending, match=r"give_up\(\)"):
            dq.connect(recipe(tmp_path), timeout=1)
        (first,) = slurm.jobs()
    with pytest.raises(dq.hpc.JobsPending):
        dq.connect(recipe(tmp_path, memory="500MB"), timeout=1)
    (second,) = slurm.jobs()
    assert second != first

    assert dq.hpc.give_up() == 1
    assert not slurm.jobs()
    assert dq.hpc.give_up() == 0


@pytest.mark.slow
@pytest.mark.slurm
def test_jobs_that_were_cancelled_while_they_waited_stay_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    """By a user who has looked at `squeue`."""
    made_of = recipe(tmp_path)
    with pytest.raises(dq.hpc.JobsPending):
        dq.connect(made_of, timeout=1)
    slurm.cancel_all()
    cluster = clusters._clusters[made_of]
    while not cluster._adaptive._dead:
        cluster.sync(cluster._adaptive.adapt)
    cluster._adaptive._backoff._until = 0.0

    cluster.sync(cluster._adaptive.adapt)

    assert not slurm.jobs()
    with pytest.raises(dq.hpc.JobsDied, match="cancelled before it ran"):
        dq.connect(made_of, timeout="20s")
