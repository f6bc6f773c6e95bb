"""Functions fork processes that end by signals: these are their own, and their worker stays what it was."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster

import dqlab as dq
from tests.kit import forking
from tests.kit.cells import of_a_cell
from tests.kit.sampled import mostly_slow

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def lab() -> Iterator[dq.Lab]:
    """A cluster that may be hurt."""
    with dq.connect(n=1, name="forking") as lab:
        yield lab


@of_a_cell
def by_fork(x: int) -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    os.kill(child, signal.SIGTERM)  # at once: it may not have run a line of Python yet
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@of_a_cell
def by_process(x: int) -> int | None:
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    child.terminate()
    child.join()
    return child.exitcode


@of_a_cell
def by_popen(x: int) -> int:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as child:
        child.terminate()
        return child.wait()


@of_a_cell
def by_prepared_popen(x: int) -> int:
    """As `by_popen`, by way of Python's own fork."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], preexec_fn=os.setsid) as child:
        child.terminate()
        return child.wait()


BY = [by_fork, by_process, by_popen, by_prepared_popen]
CASES = [
    pytest.param(by, executor, marks=[] if (at % 2 == 0) == (executor == "thread") else pytest.mark.slow)
    for at, by in enumerate(BY)
    for executor in ("thread", "process")
]
"""Each way to fork, in a thread or in a process; the other half of them is slow."""


def processes(lab: dq.Lab) -> list[int]:
    return sorted(lab.client.run(os.getpid).values())


def terminate(pid: int) -> None:
    """Terminate a worker, and wait for that."""
    process = psutil.Process(pid)
    process.terminate()
    process.wait(timeout=12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 on: fork beside threads
@pytest.mark.parametrize(("by", "executor"), CASES)
def test_child_of_a_function_that_is_terminated_ends_alone(
    lab: dq.Lab, by: Callable[[int], int], executor: str, queue_name: str
) -> None:
    before = processes(lab)
    run = lab.queue(queue_name).map(by, range(8), executor=executor)  # type: ignore[arg-type]

    assert list(run.results(timeout=30)) == [-15] * 8
    assert processes(lab) == before


@of_a_cell
def back_by_return(x: int) -> int:
    if x % 5 == 2:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
    return x


@of_a_cell
def back_by_exception(x: int) -> int:
    if x % 5 == 2:
        child = os.fork()
        if child == 0:
            os.execvp("no-such-program", ["no-such-program"])
        os.waitpid(child, 0)
    return x


@of_a_cell
async def back_by_coroutine(x: int) -> int:
    return back_by_return(x)


@of_a_cell
def note_and_add(note: str, x: int) -> int:
    with open(note, "a") as file:  # noqa: PTH123 - one line, one write
        file.write(f"{x}\n")
    return x + 1000


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("by", "executor"),
    mostly_slow(
        [*product([back_by_return, back_by_exception], ["thread", "process"]), (back_by_coroutine, "auto")],
        *[(back_by_return, "process"), (back_by_exception, "thread"), (back_by_coroutine, "auto")],
    ),
)
def test_child_that_comes_back_from_its_function_reports_nothing_and_runs_nothing(
    lab: dq.Lab, by: Callable[[int], int], executor: str, queue_name: str, tmp_path: Path
) -> None:
    """A copy that went on took messages and outcomes of the original, in later runs too."""
    pool, before = lab.queue(queue_name), processes(lab)
    run = pool.map(by, range(100), executor=executor, retry=dq.Retry(0))  # type: ignore[arg-type]
    assert list(run.results(timeout=60)) == list(range(100))

    note = str(tmp_path / "ran")
    later = pool.map(partial(note_and_add, note), range(200), executor="process", retry=dq.Retry(0))
    assert list(later.results(timeout=60)) == list(range(1000, 1200))
    assert sorted(map(int, Path(note).read_text().split())) == list(range(200))
    assert processes(lab) == before


def leave_thread(x: int) -> int:
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    return os.getpid()


def leave_process(x: int) -> int:
    multiprocessing.get_context("fork").Process(target=signal.pause).start()
    return os.getpid()


@pytest.mark.parametrize("leave", [leave_thread, leave_process])
def test_worker_that_terminates_comes_back_whatever_functions_have_left_in_it(
    lab: dq.Lab, leave: Callable[[int], int], queue_name: str
) -> None:
    """Python waits at its end for threads and child processes, without end."""
    pool = lab.queue(queue_name)
    (first,) = pool.map(leave, [1]).results(timeout=30)
    left = psutil.Process(first).children()
    try:
        terminate(first)
        (second,) = pool.map(lambda x: os.getpid(), [2]).results(timeout=30)
        assert second != first
    finally:
        for child in left:
            with suppress(psutil.NoSuchProcess):  # those of slots end with their worker
                child.kill()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:this cluster has too few workers")
@pytest.mark.parametrize("nanny", [pytest.param("--nanny", marks=pytest.mark.slow), "--no-nanny"])
def test_child_is_terminated_under_the_command_dask_worker_too(nanny: str, queue_name: str) -> None:
    """Without a nanny the worker's process has handlers of Dask's own."""
    command = "from distributed.cli.dask_worker import main; main()"
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        options = ["--nthreads", "1", "--no-dashboard", "--death-timeout", "10", nanny]
        worker = forking.Popen(
            [sys.executable, "-c", command, cluster.scheduler_address, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            cluster.wait_for_workers(1, timeout=30)
            with dq.connect(cluster) as lab:
                before = processes(lab)
                pool = lab.queue(queue_name)
                for by in (by_fork, by_prepared_popen):  # multiprocessing refuses: Dask's workers are daemonic
                    assert list(pool.map(by, range(5)).results(timeout=20)) == [-15] * 5
                assert processes(lab) == before
        finally:
            worker.terminate()
            try:
                worker.wait(timeout=15)
            finally:
                worker.kill()
