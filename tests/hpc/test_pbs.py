"""Jobs of a sham PBS, which is three shell scripts on the PATH: they come, die, are replaced, and go."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import dqlab as dq
from tests.kit.waiting import is_alive, until, until_in

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")
pytestmark = [pytest.mark.lowest, pytest.mark.timeout(90)]

FAILS_AT_FIRST = """\
#!/bin/sh
if [ -e {marker} ]; then exec python3 "$@"; fi
touch {marker}
echo "no such module" >&2
exit 1
"""


def alive(jobs: Path) -> set[int]:
    """Numbers of the processes of jobs that run."""
    return {number for path in jobs.glob("*.pid") if is_alive(number := int(path.read_text()))}


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_jobs_come_die_are_replaced_and_go(pbs_jobs: Path, tmp_path: Path) -> None:
    made_of = dq.hpc.recipe("pbs", jobs=1, memory="1GB", directory=pbs_jobs, security=False)
    with pytest.warns(UserWarning, match="too few workers"):
        lab = dq.connect(made_of, store=tmp_path / "store", timeout="30s")
    with lab:
        (first,) = alive(pbs_jobs)
        run = lab.map(abs, range(-200, 0), name="before")
        assert list(run.results(timeout=30)) == list(range(200, 0, -1))

        os.killpg(first, signal.SIGKILL)
        until_in(lab, lambda: bool(alive(pbs_jobs) - {first}) and lab.stats().workers == 1)
        run = lab.map(abs, range(-100, 0), name="after")
        assert list(run.results(timeout=30)) == list(range(100, 0, -1))
        assert list(lab.attach("before").results(timeout=30)) == list(range(200, 0, -1))
    until(lambda: not alive(pbs_jobs), 15)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_job_that_died_at_its_start_is_submitted_again(pbs_jobs: Path, tmp_path: Path) -> None:
    """Dask would wait for its worker for ever."""
    import sys

    python = tmp_path / "python"
    python.write_text(FAILS_AT_FIRST.format(marker=tmp_path / "failed").replace("python3", sys.executable))
    python.chmod(0o755)
    cluster = dq.hpc.pbs(jobs=1, memory="1GB", directory=pbs_jobs, security=False, python=str(python))
    try:
        while not cluster.scheduler_info["workers"]:
            cluster.sync(cluster._adaptive.adapt)
        assert len(list(pbs_jobs.glob("*.pid"))) == 2
        assert any("no such module" in path.read_text() for path in pbs_jobs.glob("*.ER"))
    finally:
        cluster.close()
