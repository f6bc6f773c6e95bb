"""pytest fixtures for users' tests; see `dqlab.testing`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dqlab.connecting import connect
from dqlab.lab import Lab
from dqlab.runs.pool import QueuePool
from dqlab.testing.clock import FakeClock


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
