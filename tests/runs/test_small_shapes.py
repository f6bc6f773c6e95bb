"""Short forms that people expect of `map` and `retry`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import dqlab as dq

pytestmark = pytest.mark.lowest


def test_a_number_of_retries_and_classes_of_exceptions_say_what_is_retried(queue: dq.QueuePool) -> None:
    """Also classes of the notebook, which consumers know by value."""
    busy = type("Busy", (OSError,), {"__module__": "__main__"})
    now = dq.Retry(2, backoff=0.0, on=(TimeoutError, busy))

    def fails(x: int) -> None:
        raise (TimeoutError, busy, ValueError)[x]("not now")

    runs = queue.map(fails, range(3), retry=now).wait(timeout=30), queue.map(fails, [2], retry=0).wait(timeout=30)

    assert [letter.deliveries for letter in runs[0].failures()] == [3, 3, 1]
    assert [letter.deliveries for letter in runs[1].failures()] == [1]


def test_a_process_tells_of_classes_too(queue: dq.QueuePool) -> None:
    """What ends the process is a failure as any other, with a class of ours."""

    def ends(x: int) -> None:
        import os

        if x:
            os._exit(3)
        raise ValueError

    retry: Any = dq.Retry(1, backoff=0.0, never="ProcessDied")
    run = queue.map(ends, range(2), executor="process", retry=retry).wait(timeout=60)

    assert [letter.deliveries for letter in run.failures()] == [2, 1]


def test_map_without_a_lab_completes_to_the_options_of_a_labs_map() -> None:
    """Its help begins with them."""
    assert list(inspect.signature(dq.map).parameters) == list(inspect.signature(dq.Lab.map).parameters)[1:]
