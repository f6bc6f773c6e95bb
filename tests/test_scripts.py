"""Scripts start a lab without a word about processes, and none outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit import forking
from tests.kit.sampled import mostly_slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SCRIPT = """
import dqlab as dq

class Page:
    def __init__(self, number): self.number = number

def double(page): return page.number * 2

lab = dq.connect(n=1)
print(list(lab.map(double, [Page(1), Page(2)]).results(timeout=90)), flush=True)
"""
WITHOUT_A_LAB = """
import dqlab as dq

def double(x): return 2 * x

print(list(dq.map(double, [1, 2]).results(timeout=90)), list(dq.map(double, range(3), retry=1).results(timeout=90)))
try:
    dq.map(double, [1], retires=1)
except TypeError as error:
    print(error)
lab = dq.connect()
print(len(lab.runs))
more = dq.connect(n=1)
try:
    dq.map(double, [1])
except dq.DqlabError as error:
    print(error)
lab.close()
print(list(dq.map(double, [4]).results(timeout=90)), len(more.runs))
"""
WAITING = """
import os, signal, sys
import dqlab as dq
lab = dq.connect(n=1)
here = lab.client.run(os.getpid)
try:  # the test interrupts as soon as it has read the line
    print(lab.session.link.address.removeprefix("unix://").rpartition(":")[0], *here.values(), flush=True)
    signal.pause()
except KeyboardInterrupt:
    print(len(lab.client.run(os.getpid)), flush=True)
    lab.close()
"""


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "error::UserWarning"}


@pytest.mark.parametrize(
    "how", ["file", pytest.param("-c", marks=pytest.mark.slow), pytest.param("stdin", marks=pytest.mark.slow)]
)
def test_script_needs_no_guard(tmp_path: Path, how: str) -> None:
    """A page of tracebacks that end in "Nanny failed to start" is no beginning; workers do not import the script."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = {"file": [str(path)], "-c": ["-c", SCRIPT], "stdin": ["-"]}[how]
    said = subprocess.run(
        [sys.executable, *command],
        input=SCRIPT if how == "stdin" else None,
        capture_output=True,
        text=True,
        timeout=110,
        env=environ(),
        cwd=tmp_path,
        check=False,
    )
    assert (said.returncode, said.stdout.split("\n")[0]) == (0, "[2, 4]"), said.stderr
    assert "Traceback" not in said.stderr
    assert "event=" not in said.stderr  # nobody can act on what a lab logs while it ends


def test_the_first_line_needs_no_lab_and_later_ones_use_the_one_that_it_opened(tmp_path: Path) -> None:
    """It is told once, apart from what the script prints; which of two labs is meant, only its writer knows."""
    path = tmp_path / "script.py"
    path.write_text(WITHOUT_A_LAB)
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environ(), timeout=100)

    assert ran.returncode == 0, ran.stderr
    first, misspelt, runs, several, last = ran.stdout.splitlines()
    assert (first, runs, last) == ("[2, 4] [0, 2, 4]", "2", "[8] 1")
    assert "retires" in misspelt
    assert several.startswith("several labs are open: 'script.py in ")
    assert ran.stderr.count("dq.map opened a lab") == 1
    assert ran.stderr.endswith(". lab = dq.connect() is this lab.\n"), ran.stderr


def start(tmp_path: Path) -> tuple[subprocess.Popen[str], Path, list[psutil.Process]]:
    """Start a script with a lab; return it, the directory of its sockets, and all processes that belong to it."""
    script = forking.Popen(
        [sys.executable, "-c", WAITING],
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
        cwd=tmp_path,
        process_group=0,
    )
    assert script.stdout is not None
    directory, *pids = script.stdout.readline().split()
    processes = psutil.Process(script.pid).children(recursive=True)
    assert {int(pid) for pid in pids} <= {process.pid for process in processes}
    return script, Path(directory), processes


def end(script: subprocess.Popen[Any]) -> None:
    with suppress(ProcessLookupError):
        script.kill()
    script.communicate(timeout=10)


def test_nothing_outlives_a_script_that_is_killed(tmp_path: Path) -> None:
    """The system kills the largest process when memory is short: a kernel. Its workers would hold stores and memory."""
    script, directory, processes = start(tmp_path)
    try:
        os.kill(script.pid, signal.SIGKILL)
        script.wait(10)
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert not alive
        gone_within(directory)
    finally:
        end(script)


def gone_within(directory: Path, seconds: float = 5.0) -> None:
    """Wait until a directory is removed; no event marks when."""
    deadline = time.monotonic() + seconds
    while directory.exists():
        assert time.monotonic() < deadline, f"{directory} is left"
        time.sleep(0.02)


def test_ctrl_c_in_a_terminal_is_for_the_script_alone(tmp_path: Path) -> None:
    """A terminal sends it to all processes of the group; workers that die of it take the run along."""
    script, directory, processes = start(tmp_path)
    try:
        os.killpg(script.pid, signal.SIGINT)
        said, _ = script.communicate(timeout=30)
        assert said.split() == ["2"], "both workers answered after it"
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert not alive
        gone_within(directory)
    finally:
        end(script)


def test_nursery_that_dies_is_started_again(tmp_path: Path) -> None:
    """It is a process as others are; without it no worker that died could be replaced."""
    import dqlab as dq

    with dq.connect(n=1, name="nursery") as lab:
        (nursery,) = {psutil.Process(pid).ppid() for pid in lab.client.run(os.getpid).values()}
        assert nursery != os.getpid()

        def workers(dask_scheduler: Any) -> set[str]:
            return set(dask_scheduler.workers)

        before = lab.client.run_on_scheduler(workers)
        psutil.Process(nursery).kill()
        deadline = time.monotonic() + 60
        while len(lab.client.run_on_scheduler(workers) - before) < 2:
            assert time.monotonic() < deadline, "not replaced"
            time.sleep(0.05)
        assert list(lab.map(abs, [-1, -2], name="after").results(timeout=90)) == [1, 2]


CUT_SHORT = """
import sys, time
from pathlib import Path
import dqlab as dq

GO = sys.argv[2]

def f(x):
    while x >= 3 and not Path(GO).exists():
        time.sleep(0.05)
    return x

lab = dq.connect(n=2, store=sys.argv[3] or None)
run = lab.map(f, range(20), name="f-1")
run.submitter.join(60)  # else the sentence is that of a run whose input was not read to the end
while run.counts["acked"] < 3:
    time.sleep(0.05)
{end}
"""
ENDS = {
    "nothing": "",
    "close": "lab.close()",
    "with": "with lab: pass",
    "twice": "lab.close(); lab.close()",
    "cancelled": "run.cancel(); lab.close()",
    "cancelled at exit": "run.cancel()",
    "done": "Path(GO).touch(); run.wait()",
}


@pytest.mark.parametrize(
    ("end", "store"), mostly_slow(product(ENDS, ["", "runs"]), ("nothing", "runs"), ("done", "runs"))
)
def test_a_script_that_ends_before_its_run_says_what_was_not_done(tmp_path: Path, end: str, store: str) -> None:
    """Exit code 0, no output, and 7 of 20 documents done."""
    place = str(tmp_path / store) if store else ""
    script = CUT_SHORT.replace("{end}", ENDS[end])
    said = forking.run(
        [sys.executable, "-c", script, "", str(tmp_path / "go"), place],
        env={**os.environ, "PYTHONWARNINGS": "default"},  # in a run of tests it may make an error of the warning
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    ).stderr

    quiet = end.startswith(("cancelled", "done"))
    sentence = f"17 of 20 documents of run 'f-1' ({'in the store' if store else 'lost'}) were not done when the cluster"
    next_step = "What is in the store goes on there: dq.connect(store=" if store else "Let a run end before you close"
    assert said.count(sentence) == said.count(next_step) == (0 if quiet else 1), said
    assert "Traceback" not in said
