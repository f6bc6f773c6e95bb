"""A cluster of real jobs in a real Slurm: it grows, loses jobs, shrinks, and no document is lost."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.testing import Gate, Tally
from tests.hpc.conftest import until
from tests.hpc.single_node import Slurm

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]


def job_of(prefix: str, dask_worker: Any) -> str:
    """Id of the job of a worker that holds such an actor, else ""."""
    held = [str(key) for key, actor in dask_worker.state.actors.items() if not actor.closed]
    return os.environ["SLURM_JOB_ID"] if any(key.startswith(prefix) for key in held) else ""


def jobs_with(lab: dq.Lab, prefix: str) -> set[str]:
    """Ids of the jobs of which the workers hold such actors."""
    return set(lab.client.run(partial(job_of, prefix), on_error="ignore").values()) - {"", None}


def consumers(lab: dq.Lab) -> set[str]:
    """Ids of the jobs that serve queues, and host none."""
    return jobs_with(lab, "dq-consumer/") - jobs_with(lab, "dq-queue/")


def test_run_loses_nothing_while_its_jobs_come_and_go(slurm: Slurm, tmp_path: Path) -> None:
    gate, tally = Gate(tmp_path), Tally(tmp_path)

    def work(x: int) -> int:
        if x >= 100:
            gate.wait(os.getpid())
        tally.add(x)
        return -x

    made_of = dq.hpc.recipe(
        "slurm", memory="1GB", walltime="10m", jobs=(1, 3), idle="2s", directory=tmp_path / "jobs", security=False
    )
    with dq.connect(made_of, store=tmp_path / "store", timeout="30s") as lab:
        assert dq.connect(made_of, store=tmp_path / "store") is lab
        run = lab.map(work, range(400), name="jobs")
        until(lambda: lab.stats().workers == 3 and len(consumers(lab)) == 2, lab)

        (queues,) = jobs_with(lab, "dq-queue/")
        one = min(consumers(lab))
        slurm.run("scancel", one)
        until(lambda: one not in consumers(lab) and len(consumers(lab)) == 2, lab)

        slurm.run("scancel", queues)
        until(lambda: jobs_with(lab, "dq-queue/") not in (set(), {queues}), lab)
        until(lambda: lab.stats().workers == 3, lab)
        assert not {one, queues} & slurm.jobs("R").keys()
        gate.open()

        assert list(run.results(timeout=60)) == [-x for x in range(400)]
        assert run.counts["acked"] == sum(run.counts.values()) == 400
        assert {int(x) for x in tally.seen()} == set(range(400))
        until(lambda: lab.stats().workers == 1, lab)
        assert jobs_with(lab, "dq-queue/") == slurm.jobs("R").keys()


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"memory": "1GB", "walltime": "10m", "jobs": 1, "directory": tmp_path / "jobs", "security": False} | more


def test_jobs_that_wait_say_why_and_can_be_waited_for(slurm: Slurm, tmp_path: Path) -> None:
    made_of = dq.hpc.recipe("slurm", **options(tmp_path, queue="closed"))

    with pytest.raises(dq.hpc.JobsPending, match="PartitionDown") as raised:
        dq.connect(made_of, timeout="2s")
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
