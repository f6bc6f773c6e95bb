"""An embedded cluster keeps its number of workers, also where Dask gives one up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from dqlab.cluster.transport.internals import replace_lost_workers

pytestmark = pytest.mark.lowest


class Nanny:
    def __init__(self, status: Status = Status.running, process: Status = Status.running) -> None:
        self.status, self.closed = status, False
        self.process = SimpleNamespace(status=process, is_alive=lambda: process is Status.running)

    async def close(self, reason: str) -> None:
        self.closed = True


class Cluster:
    """Workers a and b; b is as a test wants it."""

    def __init__(self, b: Nanny | None, *, known: bool = False) -> None:
        self.status = Status.running
        self.worker_spec = {"a": {}, "b": {}}
        self.workers: dict[str, Any] = {"a": Nanny(), **({"b": b} if b is not None else {})}
        self.scheduler = SimpleNamespace(aliases={"a": "tcp://a", **({"b": "tcp://b"} if known else {})})
        self.corrected = 0

    async def _correct_state(self) -> None:
        self.corrected += 1
        for name in self.worker_spec:
            self.workers.setdefault(name, Nanny())


def looks(cluster: Cluster, kept_away: tuple[str, ...] = (), n: int = 2) -> list[list[Any]]:
    async def scenario() -> list[list[Any]]:
        absent: dict[Any, int] = {}
        return [await replace_lost_workers(cluster, kept_away, absent) for _ in range(n)]  # type: ignore[arg-type]

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    "nanny", [None, Nanny(Status.closed), Nanny(process=Status.failed)], ids=["given up", "ended", "start failed"]
)
def test_a_worker_that_is_not_replaced_is_made_again_at_the_second_look(nanny: Nanny | None) -> None:
    """A kernel that was stopped for a minute used to be one worker short for good, and it was that of the queues."""
    cluster = Cluster(nanny)
    assert looks(cluster) == [[], ["b"]]
    assert cluster.corrected == 1
    assert nanny is None or nanny.closed


@pytest.mark.parametrize("how", ["registered", "starting", "retired", "closing"])
def test_a_worker_that_is_there_or_comes_or_was_retired_is_left(how: str) -> None:
    """Two nannies of one name would fight; who was sent away is to stay away."""
    cluster = Cluster(Nanny() if how == "starting" else Nanny(Status.closed), known=how == "registered")
    if how == "closing":
        cluster.status = Status.closing
    assert looks(cluster, ("b",) if how == "retired" else (), n=4) == [[]] * 4
    assert cluster.corrected == 0


def test_a_worker_that_takes_long_to_start_is_left() -> None:
    """After its nursery died, a worker on a loaded machine waits for the next one; it was closed as soon as it came."""
    slow = Nanny(process=Status.starting)
    cluster = Cluster(slow)
    assert looks(cluster, n=10) == [[]] * 10
    assert not slow.closed
