"""Functions that take large values along: refused before anything is changed, or named with what makes them large."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import DqlabWarning, PutError, RunNotFound
from dqlab.store.values import MAX_FUNCTION
from tests.kit.sampled import mostly_slow

pytestmark = pytest.mark.cluster


@pytest.fixture
def durable(lab: dq.Lab, tmp_path: Path) -> Iterator[dq.QueuePool]:
    with closing(dq.QueuePool(lab.client, durability=dq.Durability.DURABLE, dirpath=tmp_path, served=True)) as pool:
        yield pool


def taking(size: int) -> Callable[[Any], int]:
    table = bytes(size)

    def look_up(x: int) -> int:
        return x + len(table)

    return look_up


@pytest.mark.parametrize("on_existing", mostly_slow(["attach", "new", "retry-failed"], "attach"))
def test_a_function_that_a_store_cannot_keep_takes_no_name(durable: dq.QueuePool, on_existing: Any) -> None:
    """The run stayed incomplete in its store, and the mended function was "RunExists: other code"."""
    with pytest.raises(PutError, match=r"nothing else changed.*Load large values inside") as caught:
        durable.map(taking(MAX_FUNCTION), [1, 2], name="big", on_existing=on_existing)

    assert "`table of look_up`" in str(caught.value)
    with pytest.raises(RunNotFound):
        durable.session.runs.attach("big")
    assert list(durable.map(taking(1), [1, 2], name="big", on_existing=on_existing).results(timeout=30)) == [2, 3]


def test_a_run_of_that_name_stays_as_it_is(durable: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqlab.runs.code.sealing.MAX_FUNCTION", 1 << 20)
    run = durable.map(taking(1), [1, 2], name="kept")
    assert list(run.results(timeout=30)) == [2, 3]

    with pytest.raises(PutError):
        durable.map(taking(1 << 20), [1, 2], name="kept", on_existing="new")
    with pytest.raises(PutError):
        run.retry(fn=taking(1 << 20))

    assert list(run.results()) == [2, 3]


@pytest.mark.slow
def test_a_large_function_in_memory_is_named_with_what_makes_it_large(queue: dq.QueuePool) -> None:
    """It was sent in silence."""
    with pytest.warns(DqlabWarning, match=r"as it is sent.*`table of look_up`, 60 MB.*functools\.cache"):
        run = queue.map(taking(60_000_000), [1])
    assert list(run.results(timeout=60)) == [60_000_001]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        queue.map(taking(1_000_000), [1]).wait(timeout=30)
