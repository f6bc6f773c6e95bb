"""The fixtures that users get, and the signals between a test and functions elsewhere."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import dqlab as dq
from dqlab.testing import FakeClock, Gate, Tally


def test_queue_of_the_plugin_runs_functions(dq_queue: dq.QueuePool, dq_lab: dq.Lab) -> None:
    """Two lines of conftest, and a test can map."""
    assert list(dq_queue.map(abs, [-1, 2, -3]).results(timeout=20)) == [1, 2, 3]
    assert dq_queue in dq_lab.queues


def test_clock_of_the_plugin_stands_still(dq_clock: FakeClock) -> None:
    """Until it is told to go on, and never back."""
    before = dq_clock.monotonic(), dq_clock.wall()

    dq_clock.advance(5)

    assert (dq_clock.monotonic() - before[0], dq_clock.wall() - before[1]) == (5, 5)
    with pytest.raises(ValueError, match="back"):
        dq_clock.advance(-1)


def test_tally_counts_calls_of_other_processes(dq_queue: dq.QueuePool, tmp_path: Path) -> None:
    """How often a function ran, and where, whatever became of its results."""
    tally = Tally(tmp_path)

    def work(x: int) -> None:
        tally.add(os.getpid())

    dq_queue.map(work, range(100)).wait(timeout=20)

    assert len(tally) == 100
    assert str(os.getpid()) not in tally.seen()


def test_gate_lets_no_call_through_before_it_is_opened(tmp_path: Path) -> None:
    """And says who came."""
    gate = pickle.loads(pickle.dumps(Gate(tmp_path)))

    with pytest.raises(TimeoutError, match="7"):
        gate.wait(7, timeout=0.01)
    gate.open()
    gate.wait(8, timeout=0)

    assert gate.until_arrived(2, timeout=0) == ["7", "8"]
