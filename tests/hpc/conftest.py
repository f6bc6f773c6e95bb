"""A Slurm for the tests that need one, and a PBS that is made of three shell scripts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

import dqlab as dq
from dqlab.hpc import clusters, recipes
from tests.hpc.single_node import MISSING, TOLD, Slurm, single_node

QSUB = """\
#!/bin/sh
# The script is the last word; its job is a group of processes of its own.
for script; do :; done
number=$$
cp "$script" "{jobs}/$number.sh"
PBS_JOBID=$number.shim setsid bash "{jobs}/$number.sh" </dev/null >"{jobs}/$number.OU" 2>"{jobs}/$number.ER" &
job=$!
# Until `setsid` has run, there is no group for `qdel` to end.
while kill -0 $job 2>/dev/null && ! kill -0 -$job 2>/dev/null; do sleep 0.01; done
echo $job >"{jobs}/$number.pid"
echo $number.shim
"""
QDEL = """\
#!/bin/sh
kill -TERM "-$(cat "{jobs}/${{1%.shim}}.pid")"
"""
QSTAT = """\
#!/bin/sh
# Of all jobs that are asked for at once.
shift
status=0
for job; do
    if kill -0 "$(cat "{jobs}/${{job%.shim}}.pid")"; then
        printf 'Job Id: %s\\n    job_state = R\\n' "$job"
    else
        echo "qstat: Unknown Job Id $job" >&2
        status=153
    fi
done
exit $status
"""


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[Slurm]:
    """Started once, before its environment is set."""
    if MISSING:
        pytest.skip(TOLD)
    with (
        tempfile.TemporaryDirectory(prefix="dqlab-slurm-", ignore_cleanup_errors=True) as root,
        single_node(Path(root)) as slurm,
    ):
        yield slurm


@pytest.fixture
def slurm(running_slurm: Slurm, monkeypatch: pytest.MonkeyPatch, hurried: None) -> Iterator[Slurm]:
    """A Slurm without jobs."""
    for name, value in running_slurm.environ.items():
        monkeypatch.setenv(name, value)
    yield running_slurm
    running_slurm.cancel_all()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seconds where a real cluster takes minutes."""
    monkeypatch.setattr(recipes, "AHEAD", "1s")
    monkeypatch.setattr(recipes, "INTERVAL", 0.5)
    monkeypatch.setattr(clusters, "LOOK_EVERY", 0.5)
    monkeypatch.setattr(clusters, "FIRST_WAIT", 0.5)
    monkeypatch.setattr(clusters, "ASK_EVERY", 0.5)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}):
        yield
        dq.hpc.give_up()


@pytest.fixture
def pbs_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurried: None) -> Path:
    """Where the scripts, process numbers and logs of the jobs of a sham PBS lie."""
    programs, jobs = tmp_path / "bin", tmp_path / "jobs"
    programs.mkdir()
    jobs.mkdir()
    for name, text in (("qsub", QSUB), ("qdel", QDEL), ("qstat", QSTAT)):
        (programs / name).write_text(text.format(jobs=jobs))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return jobs
