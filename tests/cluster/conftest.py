"""What tests share that hurt a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dqlab as dq


@pytest.fixture
def own_lab(cluster: dq.Lab) -> Iterator[dq.Lab]:
    """A module's `cluster` of two consumers that may be hurt, whole again, and without the queues of other tests."""
    cluster.client.wait_for_workers(3, timeout=20)
    yield cluster
    for pool in cluster.queues:
        pool.close()
