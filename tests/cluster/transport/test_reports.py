"""Reports that cannot be sent or read harm nothing else, and what shards say of a run is joined."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.transport.reports import ConsumerReport, Progress, Reporter, ShardProgress, unpacked
from dqlab.rules.reports import LaneReport
from tests.cluster.reports import consumer_report

pytestmark = pytest.mark.lowest


class Stream:
    """Stands where a worker's stream to the scheduler is."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.comm = SimpleNamespace(closed=lambda: False)

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


def test_report_that_cannot_be_packed_is_counted_and_the_next_one_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Dask used to find out, and closed the stream with everything that lived behind it."""
    stream, said = Stream(), iter([{"at": object()}, ZeroDivisionError, {"at": 2**70}, {"last_error": "caf\udce9"}])

    def totals() -> ConsumerReport:
        one: Any = next(said)
        if isinstance(one, type):
            raise one
        return consumer_report(**one)

    async def send_all() -> None:
        worker: Any = SimpleNamespace(batched_stream=stream, address="tcp://w")
        reporter = Reporter(worker, totals)
        for _ in range(4):
            reporter.send()

    asyncio.run(send_all())

    assert [unpacked(each["totals"]) for each in stream.sent] == [consumer_report(last_error="caf\\xe9", unsent=3)]
    assert caplog.text.count("event=report_not_sent") == 3


def send_junk(dask_worker: Any) -> None:
    dask_worker.loop.add_callback(dask_worker.batched_stream.send, {"op": "dq-report", "totals": b"\xc1 no report"})


def untaken(dask_scheduler: Any) -> int:
    """Return how many reports could not be read, and forget them: others use the same cluster."""
    collector = dask_scheduler.plugins[Registry.name].collector
    count: int = collector.untaken
    collector.untaken = 0
    return count


def test_report_that_cannot_be_read_leaves_its_worker_alone(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """An exception in a stream's handler closes the stream."""
    before = set(lab.client.scheduler_info(n_workers=-1)["workers"])

    lab.client.run(send_junk)
    assert list(queue.map(str, range(5)).results(timeout=30)) == list("01234")

    assert set(lab.client.scheduler_info(n_workers=-1)["workers"]) == before
    assert lab.client.run_on_scheduler(untaken) >= len(before)


def shard(acked: int, lost: int, came: list[tuple[int, int]], **more: Any) -> ShardProgress:
    own = {part: more.pop(part) for part in ("submitted", "digest", "beyond") if part in more}
    rest = {"sealed": True, "incomplete": None, "total": 100}
    lane = LaneReport(run="", counts=[0, 0, 0, acked, 0, 0, lost], **rest | more)
    return ShardProgress(lane=lane, done=True, came=came, **{"submitted": 100, "digest": "d"} | own)


def test_lost_is_what_no_shard_has_of_a_complete_input() -> None:
    progress = Progress([shard(30, 40, [(0, 10), (60, 80)]), shard(30, 0, [(10, 40)])])

    assert progress.lost == [(40, 60), (80, 100)]


def test_what_was_never_submitted_of_an_incomplete_input_is_not_lost() -> None:
    cut_off = {"incomplete": "the input ended", "submitted": 50, "digest": "d", "beyond": [(60, 80)]}
    progress = Progress([shard(20, 10, [(0, 20)], **cut_off), shard(40, 0, [(30, 50), (60, 80)])])

    assert progress.lost == [(20, 30)]
