"""What to do when workers are gone is what the error says, and it works."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.errors import (
    ActorGone,
    CallTimeout,
    DqlabError,
    LabClosed,
)
from tests.kit import forking
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until

pytestmark = pytest.mark.cluster


def same(x: int) -> int:
    return x


def lose_all_workers(lab: dq.Lab) -> None:
    lab._cluster.scale(0)
    deadline = time.monotonic() + 30
    while lab.stats().workers:
        assert time.monotonic() < deadline
        lab.wait_for_change(lab.stats().seq, timeout=0.2)


def ask_until_it_is_gone(run: dq.Run) -> None:
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline
        with suppress(CallTimeout):  # the registry waits a little for a worker
            _ = run.done


@pytest.fixture
def hurt(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dq.Lab, dq.Run]]:
    """A lab whose workers all ended, and a run it had."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.HOPELESS_AFTER", 0.2)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.5)
    lab = dq.connect(n=1, name="hurt")
    run = lab.map(same, range(10)).wait(timeout=30)
    lose_all_workers(lab)
    yield lab, run
    lab.close()


def test_lab_without_workers_says_what_works_and_it_does(hurt: tuple[dq.Lab, dq.Run]) -> None:
    """Advice that fails with the next error is worse than none; a repr is looked at most when something is wrong."""
    lab, run = hurt
    assert "no worker" in repr(lab)

    with pytest.raises(ActorGone, match=r"no worker has come back.*It held 10 acked"):
        ask_until_it_is_gone(run)
    with pytest.raises(LabClosed, match=r"lab 'hurt'.*dq.connect\(\) or %dq connect -o lab"):
        lab.map(same, [1])
    assert lab.ended
    again = dq.connect(n=1, name="hurt")

    assert again is not lab
    assert lab.closed
    assert repr(lab) == "<Lab 'hurt': closed; dq.connect() opens one>"
    assert list(again.map(same, range(3)).results(timeout=30)) == [0, 1, 2]
    again.close()


def test_queue_whose_worker_died_goes_on_without_being_opened_again() -> None:
    """Mapping again works without a word more, and the old run has its results."""
    with dq.connect(n=1, name="replaced") as lab:
        pool = lab.queue("held")
        run = pool.map(same, range(10)).wait(timeout=30)
        held = lab.client.run(lambda dask_worker: [str(key) for key in dask_worker.state.actors])
        [address] = [at for at, keys in held.items() if any(key.startswith("dq-queue/held/") for key in keys)]
        os.kill(lab.client.run(os.getpid, workers=[address])[address], signal.SIGKILL)

        assert not pool.gone
        assert lab.queue("held") is pool
        assert list(pool.map(same, range(5)).results(timeout=30)) == list(range(5))
        assert list(run.results(timeout=20)) == list(range(10))


def test_scheduler_that_is_gone_is_connected_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dq.connect(address)` must not hand out what no longer answers."""
    monkeypatch.setattr("dqlab.lab.LOOK_TIMEOUT", 0.5)
    cluster = LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0")
    address = cluster.scheduler_address
    lab = dq.connect(address, timeout=5)
    assert not lab.ended
    cluster.close()

    with pytest.raises(DqlabError):
        dq.connect(address, timeout=0.3)

    assert lab.closed
    assert isinstance(lab.client, Client)


def test_lab_shows_itself_in_one_helpful_line(lab: dq.Lab) -> None:
    """Where, how many, where to look, and what next."""
    assert "\n" not in repr(lab)
    assert repr(lab).startswith(f"<Lab 'tests' at {lab.client.scheduler.address}: 2 consumer processes, dashboard http")
    assert "%%dq submit --over" in repr(lab)


@contextmanager
def scheduler(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A scheduler in a process of its own, and the file with its address."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port=0", "--host=127.0.0.1", "--no-dashboard"]
    with (tmp_path / "log").open("wb") as log:
        process = forking.Popen([*command, f"--scheduler-file={file}"], stdout=log, stderr=log)
    try:
        yield process, file
    finally:
        process.kill()
        process.wait(20)


@contextmanager
def logged(name: str) -> Iterator[list[logging.LogRecord]]:
    """What a logger of Dask, whose records go no further, has to complain about meanwhile."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger(name).addHandler(handler)
    try:
        yield records
    finally:
        logging.getLogger(name).removeHandler(handler)


def loops() -> int:
    return sum(thread.name == "IO loop" for thread in threading.enumerate())


def test_lab_that_looks_for_its_scheduler_closes_in_silence(tmp_path: Path) -> None:
    """`dq.connect()` closes a lab whose scheduler is gone, and Dask's traceback for that stood in the cell."""
    before = loops()
    with scheduler(tmp_path) as (process, file), logged("distributed.client") as complaints:
        lab = dq.connect(scheduler_file=file, timeout=30)
        process.kill()
        until(lambda: lab.client.status == "connecting")
        lab.close()

    assert [record.getMessage() for record in complaints] == []
    assert loops() == before


def test_lab_that_has_given_its_scheduler_up_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook that outlives its clusters gathered a thread for each."""
    before = loops()
    with scheduler(tmp_path) as (process, file):
        lab = dq.connect(scheduler_file=file, timeout=30)
        monkeypatch.setattr(lab.client, "_timeout", 0.1)
        process.kill()
        until(lambda: lab.client.status == "closed")
        lab.close()

    assert loops() == before


def test_worker_with_a_heartbeat_under_way_closes_in_silence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its complaint that the scheduler could not be reached stood in the cell in which the lab was closed."""
    under_way = threading.Semaphore(0)

    async def beat(**_: object) -> dict[str, str]:
        under_way.release()
        await asyncio.Event().wait()
        return {}

    lab = dq.connect(n=1, name="beating")
    monkeypatch.setitem(lab._cluster.scheduler.handlers, "heartbeat_worker", beat)
    for _ in range(2):
        assert under_way.acquire(timeout=20)
    capfd.readouterr()
    lab.close()

    assert capfd.readouterr().err == ""


KILLED = """
import os, signal, subprocess, sys
import dqlab as dq
from dqlab.cluster.transport.link import Link
up = [sys.executable, "-m", "dqlab", "up", "-n", "1", "--name", sys.argv[1]]
with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as cluster:
    cluster.stdout.readline()
    lab = dq.connect("local", name=sys.argv[1])
    lab.map(abs, range(10), name="all").wait(timeout=30)
    os.killpg(cluster.pid, signal.SIGKILL)
lab.close()
"""


def test_lab_whose_cluster_was_just_killed_closes_in_silence() -> None:
    """Its client tries to connect again in this instant, and Dask logs that it failed, as if it had not been closed."""
    script = [sys.executable, "-c", KILLED, f"killed-{os.getpid()}"]
    ended = forking.run(script, check=True, timeout=60, capture_output=True, text=True)

    assert (ended.stdout, ended.stderr) == ("", "")


HELD = """
import os, signal, subprocess, sys, time
import dqlab as dq
from dqlab.cluster.transport.link import Link
name, *options = sys.argv[1:]
up = [sys.executable, "-m", "dqlab", "up", "-n", "1", "--name", name, *options]
with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as cluster:
    cluster.stdout.readline()
    lab = dq.connect("local", name=name)
    run = lab.map(time.sleep, [0.05] * 2000, name="all")
    next(run.as_completed())
    os.killpg(cluster.pid, signal.SIGKILL)
    kept = []
    for use in (run.wait, run.results, lab.stats, lambda: lab.attach("all")):
        try:
            use()
        except dq.DqlabError as error:
            print(f"{type(error).__name__}: {error}")
            kept.append(error.fields["kept"])
    print(repr(lab))
    print(kept)
from dqlab.jupyter.messages import end
print(end(lab))
"""


@pytest.mark.parametrize("store", mostly_slow([True, False], True))
def test_killed_cluster_names_its_store_and_the_lines_that_lead_back(tmp_path: Path, store: bool) -> None:
    """It named neither, and stood beside a line of Dask's about reconnecting."""
    name, place = f"gone-{os.getpid()}", tmp_path / "runs"
    options = ["--store", str(place)] if store else []
    ended = forking.run(
        [sys.executable, "-c", HELD, name, *options], check=True, timeout=120, capture_output=True, text=True
    )
    *errors, shown, kept, left = ended.stdout.splitlines()

    assert ended.stderr == ""
    assert len(errors) == 4
    for error in errors:
        assert f"`dqlab up --name {name}{f' --store {place}' if store else ''}` in a terminal" in error
        assert f"lab = dq.connect('local', name='{name}')" in error
        assert (f"is in the store {place}" if store else "with it: it had no store") in error
    assert ("lab.attach('all')" in errors[0]) is store
    assert kept == str([store] * 4)
    assert left == f"lab {name} is closed; its cluster had ended before"
    assert f"`dqlab up --name {name}" in shown


WAITING = """
import os, signal, subprocess, sys, threading, time
import dqlab as dq
from dqlab.cluster.transport.link import Link
name, *options = sys.argv[1:]
up = [sys.executable, "-m", "dqlab", "up", "-n", "1", "--name", name, *options]
with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as cluster:
    cluster.stdout.readline()
    run = dq.connect("local", name=name).map(time.sleep, [0.05] * 2000, name="all")
    next(run.as_completed())
    threading.Timer(0.5, os.killpg, (cluster.pid, signal.SIGKILL)).start()
    run.wait()  # the line
"""


@pytest.mark.slow
def test_a_script_whose_cluster_is_killed_shows_its_line_and_the_sentence(tmp_path: Path) -> None:
    """The sentence stood below 130 lines of chained tracebacks of tornado, distributed and asyncio."""
    script = tmp_path / "script.py"
    script.write_text(WAITING)
    command = [sys.executable, script, f"wait-{os.getpid()}", "--store", str(tmp_path / "runs")]
    ended = forking.run(command, timeout=120, capture_output=True, text=True, check=False)

    said = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert {line.split('"')[1] for line in said if line.startswith("  File ")} == {str(script)}, ended.stderr
    assert said[0] == "Traceback (most recent call last):"
    assert said[-1].startswith("dqlab.errors.SchedulerGone: ")
    assert len(said) < 8
