"""What is opened is closed: by dqlab, and as far as the leak check can tell."""

from __future__ import annotations

import threading

import pytest

import dqlab as dq
from tests.kit.leaks import Leaked, no_leaks

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


def test_queues_and_runs_leave_nothing_behind(lab: dq.Lab, queue_name: str) -> None:
    """A notebook is open for weeks: each queue that leaves a thread, a key or a connection adds up."""
    for n in range(2):
        use(lab, f"{queue_name}-warm-{n}")

    with no_leaks(lab.client):
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
