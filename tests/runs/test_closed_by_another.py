"""A queue that another client closes while consumers have its documents in hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dqlab as dq
from dqlab.errors import DqlabError
from dqlab.testing import Tally

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
