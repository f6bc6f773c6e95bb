"""How often a consumer's process collects garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import dqlab as dq
from dqlab.cluster.consumer.actor import DEFAULT_YOUNG, YOUNG, _collect_less_often


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("before", "after"), [(DEFAULT_YOUNG, YOUNG), (0, 0), (300, 300), (50_000, 50_000)])
def test_only_the_default_of_the_garbage_collector_is_changed(before: int, after: int) -> None:
    """A user may have turned it off, or have it look more often because functions leave large cycles."""
    gc.set_threshold(before, 11, 12)

    _collect_less_often()

    assert gc.get_threshold() == (after, 11, 12)


def threshold(_: int) -> int:
    return gc.get_threshold()[0]


def test_consumers_collect_garbage_as_often_as_newer_pythons(queue: dq.QueuePool) -> None:
    assert set(queue.map(threshold, range(20)).results(timeout=30)) == {max(YOUNG, gc.get_threshold()[0])}
