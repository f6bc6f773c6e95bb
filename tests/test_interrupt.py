"""Ctrl-C reaches every process of a notebook's group; it is meant for the one that waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import forking

pytestmark = pytest.mark.cluster

SCRIPT = """
import os, signal, sys, threading, time
import dqlab as dq

def slow(x):
    time.sleep(0.05)
    return x

if __name__ == "__main__":
    with dq.connect(n=1) as lab:
        run = lab.map(slow, range(20))
        next(iter(run.as_completed()))
        threading.Timer(0.3, os.killpg, (0, signal.SIGINT)).start()
        try:
            run.wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        assert list(run.wait(timeout=30).results()) == list(range(20))
        try:
            os.killpg(0, signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            print("interrupted while idle", flush=True)
        assert list(lab.map(slow, range(3)).results(timeout=30)) == [0, 1, 2]
        print("all there", flush=True)
"""


def test_interrupt_of_the_whole_process_group_ends_the_wait_and_nothing_else(tmp_path: Path) -> None:
    """Jupyter interrupts a kernel by a signal to its group, in which an embedded cluster's workers are."""
    script = tmp_path / "notebook.py"
    script.write_text(SCRIPT)
    child = forking.run(
        [sys.executable, script], capture_output=True, text=True, timeout=55, start_new_session=True, check=False
    )

    assert child.stdout.split("\n")[:3] == ["interrupted", "interrupted while idle", "all there"], child.stderr
    assert child.returncode == 0, child.stderr


INTERRUPTING = """
import functools, gc, inspect, os, signal, sys, tempfile, threading
from collections import Counter
from pathlib import Path

import distributed, psutil
import dqlab as dq
from dqlab.cluster.embedded import cluster, sockets
from dqlab.lab import Lab
from dqlab.runs.session import Session

def interrupting(function, when):
    fired = []

    def fire(now):
        if now == when and not fired:
            fired.append(now)
            os.killpg(0, signal.SIGINT)

    @functools.wraps(function)
    def plain(*args, **given):
        fire("before")
        found = function(*args, **given)
        fire("after")
        return found

    @functools.wraps(function)
    async def waiting(*args, **given):
        fire("before")
        found = await function(*args, **given)
        fire("after")
        return found

    return waiting if inspect.iscoroutinefunction(function) else plain


ENDING = ("IO loop", "dqlab-connect", "dqlab-close")


def there():
    gc.collect()  # errors of tasks are printed when these go
    scratch = Path(tempfile.gettempdir()) / "dask-scratch-space"
    yield from (thread.name for thread in threading.enumerate() if thread.name in ENDING)
    yield from (f"{process.pid} {process.cmdline()}" for process in psutil.Process().children(recursive=True))
    own = f"dqlab-{os.getuid()}"  # of all clusters of this user: the next one cleans it
    left = (path.name for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith("dqlab"))
    yield from (name for name in left if name != own)
    yield from (path.name for path in scratch.glob("*") if path.suffix != ".lock")
    yield from (path.name for path in Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("dq-*"))
"""

CONNECTING = """
MOMENTS = [
    (sockets, "make_directory", "after"),
    (cluster.Nursery, "_start", "after"),
    (distributed.SpecCluster, "_start", "before"),
    (distributed.Scheduler, "start", "after"),
    (cluster.Nursery, "fork", "before"),
    (cluster.Nursery, "fork", "after"),
    (distributed.Nanny, "start", "after"),
    (distributed.LocalCluster, "__init__", "after"),
    (distributed.Client, "_ensure_connected", "before"),
    (distributed.Client, "__init__", "after"),
    (Session, "_install", "after"),
    (Lab, "announce", "after"),
]
CLIENTS = [
    (distributed.Client, "_start", "before"),
    (distributed.Client, "_ensure_connected", "after"),
    (distributed.Client, "__init__", "after"),
    (Session, "_install", "before"),
]


def interrupted(owner, name, when, *target, **given):
    function, before = getattr(owner, name), Counter(there())
    setattr(owner, name, interrupting(function, when))
    try:
        dq.connect(*target, **given)
        signal.pause()
    except KeyboardInterrupt:
        print(name, when, *Counter(there()) - before, flush=True)
    setattr(owner, name, function)


for moment in MOMENTS:
    interrupted(*moment, n=1)
with dq.connect(n=1) as lab:
    print(*lab.map(abs, [-1]).results(timeout=30))
    for moment in CLIENTS:
        interrupted(*moment, lab.session.link.address)
"""


def run_script(script: str, directory: Path, limit: float = 110) -> subprocess.CompletedProcess[str]:
    """Run a script in a process group of its own, with temporary directories of its own."""
    place = directory / "tmp"
    place.mkdir()
    environ = {**os.environ, "TMPDIR": str(place), "JUPYTER_RUNTIME_DIR": str(directory / "runtime")}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=limit, start_new_session=True, check=False, env=environ, cwd=directory,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_interrupted_connect_leaves_nothing_behind_and_prints_nothing(tmp_path: Path) -> None:
    """Ctrl-C beside a start that takes long: whatever had begun ends, and the next one works."""
    child = run_script(INTERRUPTING + CONNECTING, tmp_path)

    assert child.stdout.splitlines() == [
        "make_directory after",
        "_start after",
        "_start before",
        "start after",
        "fork before",
        "fork after",
        "start after",
        "__init__ after",
        "_ensure_connected before",
        "__init__ after",
        "_install after",
        "announce after",
        "1",
        "_start before",
        "_ensure_connected after",
        "__init__ after",
        "_install before",
    ], child.stderr
    assert (child.returncode, child.stderr) == (0, "")


CLOSING = """
import faulthandler, time

from dqlab.clusters_here import withdraw
from dqlab.runs.pool import QueuePool
from dqlab import lab as labs
from distributed.utils import LoopRunner

MOMENTS = [
    (labs, "withdraw", "after"),
    (QueuePool, "close", "before"),
    (QueuePool, "close", "after"),
    (distributed.Client, "_close", "before"),
    (distributed.Client, "_close", "after"),
    (distributed.SpecCluster, "_close", "before"),
    (distributed.SpecCluster, "_correct_state_internal", "before"),
    (distributed.Nanny, "close", "before"),
    (distributed.Nanny, "close", "after"),
    (distributed.Scheduler, "close", "before"),
    (distributed.Scheduler, "close", "after"),
    (cluster.Nursery, "close", "before"),
    (cluster.Nursery, "close", "after"),
    (sockets, "remove_directory", "after"),
    (cluster.EmbeddedCluster, "_close", "after"),
    (LoopRunner, "stop", "before"),
    (LoopRunner, "stop", "after"),
]


def connected():
    lab = dq.connect(n=1, store="store")
    assert lab.map(abs, [-1, -2]).results(timeout=20)[:] == [1, 2]
    lab.queue("another").submit(abs, -3).results(timeout=20)
    return lab


def interrupt(*_):
    raise KeyboardInterrupt


def ends(begin, *, connects):
    lab = connected()
    faulthandler.dump_traceback_later(25, exit=True)
    try:
        begin()
        lab.close()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    if connects:
        assert connected() is not lab  # the next one's
    else:
        lab.close()
    assert lab.closed
    faulthandler.cancel_dump_traceback_later()


before = Counter(there())
for number, (owner, name, when) in enumerate(MOMENTS):
    function = getattr(owner, name)
    begin = functools.partial(setattr, owner, name, interrupting(function, when))
    ends(begin, connects=number % 2)
    setattr(owner, name, function)
    print(name, when, *() if number % 2 else Counter(there()) - before, flush=True)
ends(lambda: None, connects=False)
signal.signal(signal.SIGALRM, interrupt)
for delay in [0.001, 0.03, 0.1, 0.15, 0.2, 0.3]:
    begin = functools.partial(signal.setitimer, signal.ITIMER_REAL, delay)
    ends(begin, connects=False)
print(*Counter(there()) - before)
"""


@pytest.mark.slow
@pytest.mark.timeout(220)
def test_interrupted_close_goes_on_and_can_be_repeated(tmp_path: Path) -> None:
    """An impatient second Ctrl-C, at many moments: closing again or connecting again waits for what is under way."""
    child = run_script(INTERRUPTING + CLOSING, tmp_path, limit=200)

    assert child.stdout.splitlines() == [
        "withdraw after",
        "close before",
        "close after",
        "_close before",
        "_close after",
        "_close before",
        "_correct_state_internal before",
        "close before",
        "close after",
        "close before",
        "close after",
        "close before",
        "close after",
        "remove_directory after",
        "_close after",
        "stop before",
        "stop after",
        "",
    ], child.stderr
    assert child.returncode == 0, child.stderr
    assert "Traceback" not in child.stderr, child.stderr
