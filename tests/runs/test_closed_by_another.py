"""A queue that another client closes while consumers have its documents in hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport.reports import ShardReport, packed
from dqlab.errors import DqlabError
from dqlab.runs.submit.sender import RunSender
from dqlab.testing import Tally
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until

pytestmark = pytest.mark.cluster
DOCUMENTS = 300


@pytest.fixture
def clients(lab: dq.Lab, queue_name: str, tmp_path: Path) -> Iterator[tuple[dq.Lab, dq.Lab]]:
    """One that works and one that closes, of one cluster and one store."""
    address, store = lab.session.link.address, tmp_path / "store"
    with (
        dq.connect(address, name=f"works-{queue_name}", store=store) as works,
        dq.connect(address, name=f"closes-{queue_name}", store=store) as closes,
    ):
        yield works, closes
        works.queue(queue_name).close(force=True)


def counting(tally: Tally) -> Callable[[int], int]:
    def work(x: int) -> int:
        tally.add(x)
        time.sleep(0.01)  # the work it does
        return -x

    return work


def until_begun(tally: Tally, n: int, lab: dq.Lab) -> None:
    since, deadline = -1, time.monotonic() + 30
    while len(tally) < n:
        assert time.monotonic() < deadline, f"{len(tally)} documents have begun after 30 s"
        since = lab.wait_for_change(since, timeout=0.05).seq


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_documents_of_a_queue_that_another_client_closes_at_work_run_once_where_it_is_durable(
    clients: tuple[dq.Lab, dq.Lab], queue_name: str, tmp_path: Path, *, durable: bool
) -> None:
    """What is in hand ends and is recorded. A transient queue forgets that too, and all runs once more."""
    (works, closes), tally = clients, Tally(tmp_path)
    work = counting(tally)
    run = works.queue(queue_name, durable=durable).map(work, range(DOCUMENTS), name="shared")
    until_begun(tally, 40, works)

    closes.queue(queue_name, durable=durable).close(force=True)
    before = tally.seen()
    assert len(before) < DOCUMENTS, "it was not closed at work"
    with pytest.raises(DqlabError, match=queue_name):
        run.wait(timeout=30)
    assert tally.seen() == before, "documents ran though their queue was closed"

    again = works.queue(queue_name, durable=durable).map(work, range(DOCUMENTS), name="shared")
    assert list(again.results(timeout=60)) == [-x for x in range(DOCUMENTS)]
    assert again.counts["acked"] == sum(again.counts.values()) == DOCUMENTS
    expected = [str(x) for x in range(DOCUMENTS)]
    assert sorted(tally.seen()) == sorted(expected if durable else before + expected)


def same(x: int) -> int:
    return x


def slowly(n: int, *, at: int, until: threading.Event) -> Iterator[int]:
    """Give the first documents, and the rest once something has happened."""
    yield from range(at)
    assert until.wait(60)
    yield from range(at, n)


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
@pytest.mark.parametrize("closer", mostly_slow(["it", "another client"], "another client"))
@pytest.mark.parametrize("moment", ["before it is mapped again", "while it is submitted again"])
def test_a_submission_that_ends_late_does_not_end_the_one_that_goes_on_with_its_run(
    clients: tuple[dq.Lab, dq.Lab],
    queue_name: str,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    closer: str,
    *,
    durable: bool,
) -> None:
    """Its queue was closed, and opened again before it could report its end: the run looked cancelled, or whole."""
    lab, other = clients
    late, begins, land = threading.Event(), threading.Event(), RunSender.land

    def land_late(sender: RunSender) -> None:
        begins.set()
        assert late.wait(60)
        land(sender)

    monkeypatch.setattr(RunSender, "land", land_late)
    pool = lab.queue(queue_name, durable=durable)
    run = pool.map(same, slowly(DOCUMENTS, at=100, until=begins), name="again", consumers=None)
    until(lambda: sum(pool.counts().values()) == 100)
    first = run.submitter
    assert first is not None
    if closer == "it":
        closing = threading.Thread(target=pool.close, kwargs={"force": True})
        closing.start()
        until(lambda: first.sender.failure is not None)
        begins.set()  # its input gives the next document, and it meets the close
        closing.join(30)
    else:
        other.queue(queue_name, durable=durable).close(force=True)
        begins.set()

    ended = threading.Event()

    def end_first() -> None:
        late.set()
        assert first.join(30)
        ended.set()

    pool = lab.queue(queue_name, durable=durable)
    if moment.startswith("before"):
        end_first()
    again = pool.map(same, slowly(DOCUMENTS, at=200, until=ended), name="again")
    if moment.startswith("while"):
        until(lambda: sum(pool.counts().values()) == 200)
        end_first()

    assert again.results(timeout=30)[:] == list(range(DOCUMENTS))
    assert again.counts["acked"] == DOCUMENTS


def test_a_report_that_comes_after_its_queue_was_closed_hides_none_of_the_queue_that_is_opened_then(
    lab: dq.Lab, queue_name: str
) -> None:
    """Its epoch was above those of the new queue, whose reports were dropped as late ones: views showed nothing."""
    pool = lab.queue(queue_name)
    pool.map(same, range(3)).wait(timeout=30)

    def last_report(dask_scheduler: Any = None) -> ShardReport:
        return dask_scheduler.plugins["dqlab"].collector.known.shard(queue_name, 0)

    def come_late(report: ShardReport, dask_scheduler: Any = None) -> None:
        dask_scheduler.plugins["dqlab"].collect("tcp://10.0.0.9:1", packed(report))

    late = replace(lab.client.run_on_scheduler(last_report), epoch=7, lanes=[], whole=True)
    pool.close(force=True)
    lab.client.run_on_scheduler(come_late, late)
    assert queue_name not in [queue.name for queue in lab.snapshot().queues]

    pool = lab.queue(queue_name)
    run = pool.map(same, range(5), name=f"run-{queue_name}").wait(timeout=30)
    until(lambda: [each.counts.acked for each in lab.snapshot().runs if each.name == run.name] == [5])
    pool.close(force=True)


def test_a_call_is_served_though_consumers_of_the_queue_before_it_had_parked_for_a_moment(
    lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were retired with that queue; `RunStalled` came after ten seconds without a consumer."""
    monkeypatch.setattr("dqlab.runs.puts.PARK", 1.0)
    stored: dict[str, Any] = {"name": queue_name, "durability": dq.Durability.DURABLE, "dirpath": tmp_path}
    pool = dq.QueuePool(lab.client, served=True, **stored)
    assert pool.submit(same, 1).results(timeout=30) == [1]
    with Client(lab.client.scheduler.address, set_as_default=False) as theirs:
        dq.QueuePool(theirs, **stored).close(force=True)
        dq.QueuePool(theirs, **stored)
        pool._puts._sender.on_unserved = None  # the shard knew them, and did not report that it has no consumer

        assert pool.submit(same, 2).results(timeout=30) == [2]
        pool.close(force=True)


def go_on(dask_scheduler: Any = None) -> None:
    queues = dask_scheduler.plugins["dqlab"].queues
    queues.go_on.set()
    del queues._kept, queues.go_on, queues.reached
