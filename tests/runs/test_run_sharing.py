"""Several people and several runs on one queue: who gets the consumers, and when a run starts."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import BadOption
from dqlab.runs.session import Durability
from dqlab.runs.terms import share_of


def short(x: int) -> int:
    time.sleep(0.002)
    return x


def test_a_second_persons_first_result_comes_within_two_seconds_of_a_full_queue(
    lab: dq.Lab, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = lab.queue(queue_name, maxsize=None)
    monkeypatch.setenv("LOGNAME", "ana")
    full = queue.map(short, range(1_000_000), stop_if=None)
    while full.stats().counts.left < 900_000:
        time.sleep(0.02)
    monkeypatch.setenv("LOGNAME", "bea")
    began = time.monotonic()
    run = queue.map(abs, range(10))
    first = next(iter(run.as_completed()))
    took = time.monotonic() - began
    left = full.stats().counts.left
    queue.close()

    assert first is not None
    assert took < 2.0
    assert left > 800_000


def test_weight_and_priority_are_changed_while_a_run_waits_and_are_shown(queue: dq.QueuePool) -> None:
    run = queue.map(abs, range(10), weight=3, delay="1h")
    stats = run.stats()
    assert stats.why.startswith("starts at ")
    assert stats.pace == "weight 3"
    with pytest.raises(BadOption, match="priority"):
        run.priority(11)

    run.weight(2).priority(5)

    stats = run.stats()
    assert stats.why.startswith("starts at "), "another share leaves the start as it was"
    assert stats.pace == "priority 5, weight 2"
    run.cancel()


def test_a_delayed_run_starts_by_itself(queue: dq.QueuePool) -> None:
    began = time.monotonic()
    run = queue.map(abs, range(10), at=datetime.now(UTC) + timedelta(seconds=1))

    assert list(run.results(timeout=20)) == list(range(10))
    assert time.monotonic() - began > 0.9


def test_a_start_survives_the_end_of_its_queue(client: Client, queue_name: str, tmp_path: Path) -> None:
    def opened() -> dq.QueuePool:
        return dq.QueuePool(client, durability=Durability.DURABLE, name=queue_name, dirpath=tmp_path, served=True)

    first = opened()
    first.map(abs, range(10), name=f"{queue_name}-late", delay="1h").stats()
    first.close()
    again = opened()
    run = again.map(abs, range(10), name=f"{queue_name}-late")

    assert run.stats().why.startswith("starts at ")
    again.close()


@pytest.mark.parametrize(
    "given",
    [
        {"delay": "soon"},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": "9999d"},
        {"delay": 1, "at": "18:00"},
        {"at": "25:00"},
        {"at": "tomorrow"},
        {"at": 18},
        {"at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"at": datetime.max.replace(tzinfo=UTC)},
    ],
)
def test_a_start_that_is_no_time_to_come_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=next(iter(given))):
        share_of(**{"weight": 1, "priority": 0, "delay": None, "at": None, **given})
