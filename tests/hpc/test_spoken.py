"""Clusters on batch systems as a notebook's line asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

import dqlab as dq
from dqlab.errors import UsageError
from dqlab.hpc.recipes import spoken
from tests.jupyter.conftest import Notebook, notebook

__all__ = ["notebook"]

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")


def test_line_and_python_say_the_same() -> None:
    line = spoken("slurm", "cores=8,walltime=2h,queue=short,scheduler-interface=eth0", "1:20")

    assert line == dq.hpc.recipe(
        "slurm", cores=8, walltime="2h", queue="short", scheduler_interface="eth0", jobs=(1, 20)
    )
    assert spoken("pbs", "", None) == dq.hpc.recipe("pbs")
    assert spoken("pbs", "", "4").jobs == (4, 4)


@pytest.mark.parametrize(
    ("said", "jobs", "problem"),
    [
        ("cores", None, "is not an option with its value"),
        ("cores=", None, "is not an option with its value"),
        ("cores=many", None, "1 or more"),
        ("corse=8", None, "Did you mean 'cores'"),
        ("cores=8", "1-20", "write how many"),
        ("cores=8", "20:1", "fewest and the most"),
    ],
)
def test_what_cannot_be_read_is_named(said: str, jobs: str | None, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        spoken("slurm", said, jobs)


def test_line_connects_to_one_cluster(notebook: Notebook) -> None:
    assert "one cluster" in str(notebook.fails("%dq connect --slurm cores=1 --pbs cores=1"))
    assert "one cluster" in str(notebook.fails("%dq connect --slurm cores=1 tcp://127.0.0.1:1"))
    assert "goes with --slurm" in str(notebook.fails("%dq connect --jobs 1:20"))


@pytest.mark.cluster
@pytest.mark.timeout(90)
@pytest.mark.usefixtures("hurried")
def test_notebook_runs_on_a_batch_system(notebook: Notebook, pbs_jobs: Path) -> None:
    notebook["directory"] = pbs_jobs
    line = f"%dq connect --pbs cores=1,memory=1GB,directory={pbs_jobs} --jobs 1:3 --timeout 40s -o lab"
    notebook.run(line)
    lab = notebook["lab"]
    notebook.run("%%dq submit --over range(40) --wait -o run\ndef double(x):\n    return 2 * x")
    assert list(notebook["run"].results()) == list(range(0, 80, 2))
    notebook.run(line)
    assert notebook["lab"] is lab
    notebook.run("%dq close")
    assert lab.closed


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_jobs_that_no_lab_has_come_of_are_cancelled_by_close(
    notebook: Notebook, pbs_jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"%dq connect --pbs cores=1,memory=1GB,directory={pbs_jobs} --jobs 2 --timeout 0.1s"
    assert isinstance(notebook.fails(line), dq.hpc.JobsPending)

    notebook.run("%dq close")

    assert "2 jobs cancelled" in capsys.readouterr().out
    assert "2 jobs" not in str(notebook.fails("%dq close"))
