"""The blocks of docs/how-to/on-a-batch-system.md work: recipes without a batch system, schedulers as written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest

import dqlab as dq
from tests.kit.examples import ROOT, Block, blocks, examples
from tests.kit.waiting import until

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")

PAGE = "on-a-batch-system.md"
JOBS, PLAIN, TLS, GPUS = examples(PAGE)
START, SECURED = [
    block.text for block in blocks("console") if block.page.name == PAGE and "dask scheduler" in block.text
]
OF_TLS = (
    "distributed.comm.require-encryption",
    "distributed.comm.tls.ca-file",
    "distributed.comm.tls.client.cert",
    "distributed.comm.tls.client.key",
)
"""What the page sets, to be set back."""
(WORKER,) = [block.text for block in blocks("sh") if block.page.name == PAGE]


def _asked(block: Block) -> list[dq.hpc.Recipe]:
    """Run a block with recipes in place of clusters: options are checked alike, and nothing is submitted."""
    made: list[dq.hpc.Recipe] = []

    def slurm(**options: Any) -> dq.hpc.Recipe:
        made.append(dq.hpc.recipe("slurm", **options))
        return made[-1]

    connect = partial(_bound, dq.connect)
    block.run({"dq": SimpleNamespace(hpc=SimpleNamespace(slurm=slurm), connect=connect)})
    return made


def _bound(function: Any, *args: Any, **kwargs: Any) -> None:
    import inspect

    inspect.signature(function).bind(*args, **kwargs)


def test_clusters_of_the_page_are_jobs_with_what_it_asks_for() -> None:
    (jobs,) = _asked(JOBS)
    gpu, image, hosting = _asked(GPUS)

    script = jobs.job_script()
    assert all(each in script for each in ("--cpus-per-task=8", "-p short", "--mem=15G", "-t 02:00:00", "ib0"))
    assert "minimum_jobs=1, maximum_jobs=20" in repr(jobs)
    assert "--gres=gpu:1" in gpu.job_script()
    assert "apptainer exec --nv image.sif python3 -m" in image.job_script()
    assert "module load apptainer" in image.job_script()
    assert "dq-queue=1" in hosting.job_script()


@contextmanager
def _processes(home: Path, *scripts: str) -> Iterator[None]:
    """Run what the page has as jobs, as shells with that home directory."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "HOME": str(home), "PATH": path}
    started = []
    try:
        for script in scripts:
            with (home / "log").open("ab") as log:
                started.append(
                    subprocess.Popen(
                        ["bash", "-c", script], env=environ, stdout=log, stderr=log, start_new_session=True
                    )
                )
        yield
    finally:
        for process in started:
            with_all = os.getpgid(process.pid)
            os.killpg(with_all, 9)
            process.wait(20)


def _wrapped(command: str) -> str:
    """Return what `sbatch --wrap` runs."""
    return command.partition('--wrap "')[2].partition('"\n')[0].replace("\\\n", " ")


def _works(block: Block, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    until((home / "dq.json").exists, 60)
    monkeypatch.setenv("HOME", str(home))
    text = block.text.replace("/scratch/me", str(home)).replace("/home/me", str(home))
    names: dict[str, Any] = {"dq": dq, "dask": dask}
    block._replace(text=text).run(names)
    lab = names["lab"]
    try:
        lab.client.wait_for_workers(1, timeout=60)
        assert list(lab.map(abs, [-1, -2]).results(timeout=60)) == [1, 2]
        assert (home / "runs").is_dir()
    finally:
        lab.close()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_scheduler_of_ones_own_is_reached_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the page as they stand, each in a shell instead of a job."""
    with _processes(tmp_path, _wrapped(START), WORKER):
        _works(PLAIN, tmp_path, monkeypatch)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page makes its certificate by openssl")
def test_a_scheduler_with_a_certificate_is_reached_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, _, rest = SECURED.removeprefix("$ ").partition("\n$ ")
    given, _, start = rest.partition("\n$ ")
    environ = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(["bash", "-c", make], env=environ, check=True, capture_output=True)
    with (
        _processes(
            tmp_path,
            f"{given}\n{_wrapped(start)}",
            f"{given}\n" + WORKER.replace("--no-dashboard", "--no-dashboard $TLS"),
        ),
        dask.config.set({key: dask.config.get(key) for key in OF_TLS}),
    ):
        _works(TLS, tmp_path, monkeypatch)


def test_every_block_of_the_page_is_tried() -> None:
    """One that is added without a test is noticed."""
    assert len(examples(PAGE)) == 4
    assert all(block.page == ROOT / "docs" / "how-to" / PAGE for block in examples(PAGE))
