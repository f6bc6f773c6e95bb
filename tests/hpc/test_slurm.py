"""A cluster of real jobs in a real Slurm: it grows, loses jobs, shrinks, and no document is lost."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.testing import Gate, Tally
from tests.hpc.single_node import Slurm
from tests.kit.waiting import until_in

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]


def job_of(prefix: str, dask_worker: Any) -> str:
    """Id of the job of a worker that holds such an actor, else ""."""
    held = [str(key) for key, actor in dask_worker.state.actors.items() if not actor.closed]
    return os.environ["SLURM_JOB_ID"] if any(key.startswith(prefix) for key in held) else ""


def jobs_with(lab: dq.Lab, prefix: str) -> set[str]:
    """Ids of the jobs whose workers hold such actors."""
    return set(lab.client.run(partial(job_of, prefix), on_error="ignore").values()) - {"", None}


def consumers(lab: dq.Lab) -> set[str]:
    """Ids of the jobs that serve queues, and host none."""
    return jobs_with(lab, "dq-consumer/") - jobs_with(lab, "dq-queue/")


@pytest.mark.slow
@pytest.mark.parametrize("stored", [True, False], ids=["a store", "no store"])
def test_run_loses_nothing_while_its_jobs_come_and_go(slurm: Slurm, tmp_path: Path, stored: bool) -> None:
    """Without a store, the log is in the directory that all jobs share."""
    gate, tally = Gate(tmp_path), Tally(tmp_path)

    def work(x: int) -> int:
        if x >= 100:
            gate.wait(os.getpid())
        tally.add(x)
        return -x

    made_of = dq.hpc.recipe(
        "slurm", memory="1GB", walltime="10m", jobs=(1, 3), idle="2s", directory=tmp_path / "jobs", security=False
    )
    store = tmp_path / "store" if stored else None
    with dq.connect(made_of, store=store, timeout="30s") as lab:
        assert dq.connect(made_of, store=store) is lab
        assert lab.dashboard.startswith("http://127.0.0.1:")
        run = lab.map(work, range(400), name="jobs")
        until_in(lab, lambda: lab.stats().workers == 3 and len(consumers(lab)) == 2)

        (queues,) = jobs_with(lab, "dq-queue/")
        one, other = sorted(consumers(lab))
        slurm.run("scancel", one, queues)
        until_in(lab, lambda: jobs_with(lab, "dq-queue/") not in (set(), {queues}))
        until_in(lab, lambda: lab.stats().workers == 3 and not {one, queues} & jobs_with(lab, "dq-"))
        assert other in slurm.jobs("R")
        assert not {one, queues} & slurm.jobs("R").keys()
        gate.open()

        assert list(run.results(timeout=60)) == [-x for x in range(400)]
        assert run.counts["acked"] == sum(run.counts.values()) == 400
        assert {int(x) for x in tally.seen()} == set(range(400))
        until_in(lab, lambda: lab.stats().workers == 1)
        until_in(lab, lambda: jobs_with(lab, "dq-queue/") == slurm.jobs("R").keys())  # Slurm ends jobs in its own time


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"memory": "1GB", "walltime": "10m", "jobs": 1, "directory": tmp_path / "jobs", "security": False} | more


@pytest.mark.slow
def test_jobs_that_wait_say_why_and_can_be_waited_for(slurm: Slurm, tmp_path: Path) -> None:
    made_of = dq.hpc.recipe("slurm", **options(tmp_path, queue="closed"))

    with pytest.raises(dq.hpc.JobsPending, match="PartitionDown") as raised:
        dq.connect(made_of, timeout="5s")
    assert len(slurm.jobs("PD")) == 1
    slurm.run("scontrol", "update", "PartitionName=closed", "State=UP")
    try:
        with pytest.warns(UserWarning, match="too few workers"), dq.connect(made_of, timeout="30s") as lab:
            assert lab.stats().workers == 1
    finally:
        slurm.run("scontrol", "update", "PartitionName=closed", "State=DOWN")
    assert "dq.connect(..., timeout='30m')" in str(raised.value)


def test_jobs_that_die_at_their_start_show_the_end_of_their_log(slurm: Slurm, tmp_path: Path) -> None:
    """What a wrong environment looks like."""
    broken = dq.hpc.recipe("slurm", **options(tmp_path, python="/nowhere/python"))

    with pytest.raises(dq.hpc.JobsDied, match="/nowhere/python: No such file") as raised:
        dq.connect(broken, timeout="30s")
    assert str(tmp_path / "jobs") in str(raised.value)
    assert not slurm.jobs("PD,R")


def test_what_slurm_refuses_is_told_in_its_words(slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(dq.hpc.SubmitFailed, match="invalid partition"):
        dq.connect(dq.hpc.recipe("slurm", **options(tmp_path, queue="nowhere")), timeout="30s")


@pytest.mark.slow
def test_cluster_that_was_made_elsewhere_works_and_says_what_it_does_without(slurm: Slurm, tmp_path: Path) -> None:
    from dask_jobqueue import SLURMCluster

    with (
        SLURMCluster(
            cores=1,
            memory="1GB",
            walltime="00:10:00",
            log_directory=str(tmp_path),
            scheduler_options={"dashboard_address": ":0"},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.scale(jobs=1)
        with pytest.warns(UserWarning, match="too few"):
            lab = dq.connect(client, timeout="30s")
        with lab:
            assert list(lab.map(abs, range(-9, 0)).results(timeout=20)) == list(range(9, 0, -1))
            jobs = {(row["job"], row["leaves_in"]) for row in lab.doctor().processes if row["job"]}
    assert jobs == {("Slurm", None)}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, to mount")
def test_store_that_jobs_see_as_another_directory_is_refused(slurm: Slurm, tmp_path: Path) -> None:
    """As a directory of this machine alone looks from a node."""
    store = tmp_path / "store"
    store.mkdir()
    python = tmp_path / "python"
    script = f'mount -t tmpfs none {store} && exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{script}' sh \"$@\"\n")
    python.chmod(0o755)
    made_of = dq.hpc.recipe("slurm", **options(tmp_path, python=str(python), jobs=(1, 3)))

    with pytest.raises(dq.errors.BadOption, match="another directory under the path"):
        dq.connect(made_of, store=store, timeout="30s")
    with dq.connect(made_of, store=tmp_path / "elsewhere", timeout="30s") as lab:  # the same jobs, still there
        assert lab.store == tmp_path / "elsewhere"
