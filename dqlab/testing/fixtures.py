"""pytest fixtures for users' tests; see `dqlab.testing`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import pytest

from dqlab.connecting import connect
from dqlab.lab import Lab
from dqlab.runs.pool import QueuePool
from dqlab.testing.clock import FakeClock
from dqlab.testing.leaks import no_leaks

__all__ = ["dq_clock", "dq_lab", "dq_no_leaks", "dq_queue"]


class LeakCheck(Protocol):
    """The type of `dq_no_leaks`, which is `no_leaks` for the cluster of `dq_lab`."""

    def __call__(self, *, timeout: float = ...) -> AbstractContextManager[None]:
        """Return the context manager."""
        ...


@pytest.fixture(scope="session")
def dq_lab() -> Iterator[Lab]:
    """Start two consumer processes and one for queues, once for the whole test run, since it takes seconds."""
    with connect(n=2, name="tests") as lab:
        yield lab


@pytest.fixture
def dq_queue(dq_lab: Lab) -> Iterator[QueuePool]:
    """Return a fresh queue with consumers; the end of the test closes it with all its contents."""
    pool = dq_lab.queue(f"test-{uuid.uuid4().hex[:12]}")
    yield pool
    pool.close()


@pytest.fixture
def dq_clock() -> FakeClock:
    """Return a clock that stands still until ``dq_clock.advance(seconds)``."""
    return FakeClock()


@pytest.fixture
def dq_no_leaks(dq_lab: Lab) -> LeakCheck:
    """Return a check for ``with dq_no_leaks():``, which fails when its block leaves something behind."""
    return partial(no_leaks, dq_lab.client)
