"""What takes minutes in a real Slurm: walltimes, nodes that fail, clients that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.testing import Gate, Tally
from tests.hpc.single_node import Slurm, wait_until
from tests.hpc.test_slurm import consumers
from tests.kit.notebooks import copy
from tests.kit.waiting import until_in

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(300)]


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"memory": "1GB", "walltime": "10m", "jobs": (3, 4), "directory": tmp_path / "jobs"} | more


@pytest.mark.timeout(420)
def test_run_outlives_the_walltime_of_all_its_jobs(slurm: Slurm, tmp_path: Path) -> None:
    """None of the jobs gets as far as that; they begin to leave in the middle, for a machine may be busy.

    The run lasts as long as its first jobs, however long these take, and some time more.
    """
    tally = Tally(tmp_path)
    first: set[str] = set()
    cut_off: set[str] = set()

    def documents() -> Iterator[int]:
        numbers = count()
        while not first or first & slurm.jobs("R").keys():
            cut_off.update(slurm.jobs("TO"))  # Slurm forgets them after a minute
            time.sleep(0.5)
            yield from islice(numbers, 3)
        yield from islice(numbers, 50)

    def work(x: int) -> int:
        time.sleep(0.5)  # the work it does
        tally.add(x)
        return -x

    made_of = dq.hpc.recipe("slurm", **options(tmp_path, walltime="2m", drain="60s", security=False))
    with dq.connect(made_of, store=tmp_path / "store", timeout="40s") as lab:
        run = lab.map(work, documents(), name="long")
        until_in(lab, lambda: len(consumers(lab)) >= 2)
        first |= slurm.jobs("R").keys()
        results = list(run.results(timeout=300))
        assert not cut_off | slurm.jobs("TO").keys()
        assert len(results) > 100
        assert results == [-x for x in range(len(results))]
        assert sum(run.counts.values()) == run.counts["acked"] == len(results)
        assert sorted(int(x) for x in tally.seen()) == list(range(len(results)))


def test_notebook_for_batch_systems_shows_what_is_stored_in_it(slurm: Slurm, tmp_path: Path) -> None:
    """Its outputs are all that a reader without a cluster sees of it."""
    copy(ROOT / "notebooks" / "slurm.ipynb", tmp_path)
    options = ["-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--timeout=200", "--color=no"]
    options += ["--nbval-lax", "--nbval-current-env", f"--nbval-sanitize-with={ROOT / 'tests' / 'notebooks.cfg'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path / "slurm.ipynb"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_run_goes_on_when_a_node_fails(slurm: Slurm, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def work(x: int) -> int:
        if x >= 100:
            gate.wait(os.getpid())
        return -x

    made_of = dq.hpc.recipe("slurm", **options(tmp_path, security=False))
    with dq.connect(made_of, store=tmp_path / "store", timeout="40s") as lab:
        run = lab.map(work, range(400), name="node")
        until_in(lab, lambda: len(consumers(lab)) >= 2)
        before = set(slurm.jobs("R"))
        slurm.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
        try:
            until_in(lab, lambda: bool(slurm.jobs("R").keys() - before) and len(consumers(lab)) >= 2)
        finally:
            with suppress(subprocess.CalledProcessError):  # it may have come back by itself
                slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")
        gate.open()
        assert list(run.results(timeout=120)) == [-x for x in range(400)]


def test_jobs_cannot_be_requeued(slurm: Slurm, tmp_path: Path) -> None:
    """The same job once more would have the name of the one that replaces it."""
    with (
        dq.connect(dq.hpc.recipe("slurm", **options(tmp_path)), timeout="40s"),
        pytest.raises(subprocess.CalledProcessError) as refused,
    ):
        slurm.run("scontrol", "requeue", next(iter(slurm.jobs("R"))))
    assert "disabled" in refused.value.stderr


def test_no_process_without_the_key_reaches_the_cluster(slurm: Slurm, tmp_path: Path) -> None:
    with dq.connect(dq.hpc.recipe("slurm", **options(tmp_path)), timeout="40s") as lab:
        address = lab.client.scheduler_info()["address"]
        assert address.startswith("tls://")
        assert list(lab.map(abs, range(-9, 0)).results(timeout=30)) == list(range(9, 0, -1))
        keys = list((tmp_path / "jobs").glob(".dask-jobqueue.*"))
        assert keys
        assert not any(path.stat().st_mode & 0o077 for path in [*keys, tmp_path / "jobs"])
        with pytest.raises(OSError, match=r"Timed out|TLS|Connection"):
            Client(address.replace("tls", "tcp"), timeout="2s", set_as_default=False)
    assert not any(path.exists() for path in keys)


CLIENT = """
import sys
import dqlab as dq

if __name__ == "__main__":
    directory, store = sys.argv[1:]
    made_of = dq.hpc.recipe("slurm", memory="1GB", walltime="10m", jobs=2, directory=directory)
    lab = dq.connect(made_of, store=store, timeout="40s")

    def work(x):
        import time
        time.sleep(0.05)
        return -x

    run = lab.map(work, range(600), name="left")
    while run.counts["acked"] < 50 or sum(run.counts.values()) < 600:
        lab.wait_for_change(lab.stats().seq, timeout=0.2)
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_run_of_a_client_that_was_killed_is_opened_again(slurm: Slurm, tmp_path: Path) -> None:
    """The scheduler dies with the notebook; its jobs end by themselves, and all that was confirmed is in the store."""
    script, store = tmp_path / "client.py", tmp_path / "store"
    script.write_text(CLIENT)
    command = [sys.executable, str(script), str(tmp_path / "jobs"), str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        client.send_signal(signal.SIGKILL)
    wait_until(lambda: not slurm.jobs(), 60, "the jobs of a client that is gone to end")

    made_of = dq.hpc.recipe("slurm", **options(tmp_path, jobs=(2, 3)))
    with dq.connect(made_of, store=store, timeout="40s") as lab:
        run = lab.attach("left")
        assert list(run.results(timeout=120)) == [-x for x in range(600)]
