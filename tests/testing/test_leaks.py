"""What is opened is closed: by dqlab, and as far as the leak check can tell."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import dqlab as dq
from dqlab.testing import Footprint, Leaked, no_leaks

pytestmark = pytest.mark.cluster


def same(x: int) -> int:
    return x


def use(lab: dq.Lab, name: str) -> None:
    """Open a queue, do a little of everything, close it."""
    pool = lab.queue(name)
    assert list(pool.map(same, range(50)).results(timeout=20)) == list(range(50))
    assert pool.submit(same, 1).results(timeout=20) == [1]
    run = pool.map(same, range(10_000))
    run.cancel()
    run.drop()
    pool.close()


def test_queues_and_runs_leave_nothing_behind(
    dq_no_leaks: Callable[[], AbstractContextManager[None]], lab: dq.Lab, queue_name: str
) -> None:
    """A notebook is open for weeks: each queue that leaves a thread, a key or a connection adds up."""
    for n in range(2):
        use(lab, f"{queue_name}-warm-{n}")

    with dq_no_leaks():
        for n in range(5):
            use(lab, f"{queue_name}-{n}")


@pytest.mark.slow
def test_labs_of_their_own_cluster_leave_nothing_behind() -> None:
    """Connecting and closing in one notebook, again and again."""

    def begin_and_end() -> None:
        with dq.connect(n=1, name="to-be-closed") as lab:
            use(lab, "pages")

    begin_and_end()

    with no_leaks(timeout=10):
        begin_and_end()


def test_check_names_a_thread_that_stays() -> None:
    """A check that finds nothing has to be shown something."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="forgotten")

    with pytest.raises(Leaked, match="forgotten"), no_leaks(timeout=0.05):
        thread.start()

    end.set()
    thread.join()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors can be listed on Linux only")
def test_check_names_a_file_that_stays_open(tmp_path: Path) -> None:
    """By its path, which is how one finds who opened it."""
    descriptor = -1

    with pytest.raises(Leaked, match=r"forgotten\.txt"), no_leaks(timeout=0.05):
        descriptor = os.open(tmp_path / "forgotten.txt", os.O_WRONLY | os.O_CREAT)

    os.close(descriptor)


def test_check_names_a_pinned_key(lab: dq.Lab, queue_name: str) -> None:
    """An actor without a client lives as long as its cluster."""
    before = Footprint.take(lab.client)
    pool = lab.queue(queue_name)

    more = Footprint.take(lab.client).beyond(before)
    pool.close()

    assert any(queue_name in key for key in more["pinned"])


def test_check_lets_pass_what_is_gone_in_time() -> None:
    """Threads end a moment after they were told to. In a process without clusters: those open connections."""
    block = "import threading\nwith no_leaks(timeout=5):\n    threading.Thread(target=len, args=('',)).start()"
    subprocess.run([sys.executable, "-c", f"from dqlab.testing import no_leaks\n{block}"], check=True, timeout=50)
