"""Runs whose documents have sizes and no pages: bars, estimates and speeds count bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.documents import Document
from dqlab.live.run_picture import run_view
from dqlab.stats import Counts
from tests.kit.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SIZES = [0, 0, 10, 1_000, 20_000, 300_000]
IN_ALL = sum(SIZES) + 2
"""An empty file weighs 1, or it would be done before it is."""


@pytest.fixture
def files(tmp_path: Path) -> dq.Documents:
    for at, size in enumerate(SIZES):
        (tmp_path / f"{at}.txt").write_bytes(b"a" * size)
    return dq.Documents.from_glob(tmp_path / "*.txt")


def length(document: Document) -> int:
    return len(document.bytes())


def only_short(document: Document) -> int:
    if document.size == 300_000:
        raise ValueError(document.key)
    return length(document)


def test_a_run_over_files_counts_their_bytes_and_a_retry_those_that_failed(
    queue: dq.QueuePool, files: dq.Documents
) -> None:
    """One file of six is nearly all of the work."""
    run = queue.map(only_short, files, name="bytes", retry=dq.Retry(0))
    run.until_over(60)

    stats = run.stats()
    assert (stats.unit, stats.counts.all, stats.counts.dead) == ("bytes", 6, 1)
    assert stats.units == Counts(acked=IN_ALL - 300_000, dead=300_000)
    view = run_view(stats)
    assert view.unit == "bytes"
    assert "6 documents, 321 kB in" in view.sentence
    assert next((each.label, each.value, each.unit) for each in view.figures) == ("Left", "0", "B")

    run.retry(fn=length)
    run.wait(timeout=60)
    assert run.stats().units == Counts(acked=IN_ALL)
    assert list(run.results()) == SIZES
    assert queue.map(length, files, name="bytes").stats().unit == "bytes"  # attached to


def test_speeds_of_consumers_count_documents_while_runs_count_bytes(queue: dq.QueuePool, files: dq.Documents) -> None:
    """They serve several runs: a sum of bytes and rows is a speed of nothing, and all but one would be slow."""
    run = queue.map(length, files, name="bytes")
    run.wait(timeout=60)
    snapshot = queue.snapshot()

    assert snapshot.units == "documents"
    assert sum(each.done for each in snapshot.consumers) >= 1
    assert all((each.units_rate or 0.0) <= (each.rate or 0.0) + 1e-9 for each in snapshot.consumers)


def test_an_input_in_which_a_size_is_unknown_counts_documents(queue: dq.QueuePool, files: dq.Documents) -> None:
    """Beside bytes it would weigh nothing, or as much as somebody guessed."""
    documents: list[Any] = list(files)
    documents[3] = Document("3.txt", "", documents[3].where)

    run = queue.map(length, documents, name="mixed")
    run.wait(timeout=60)

    stats = run.stats()
    assert (stats.unit, stats.units, stats.progress) == ("documents", None, Counts(acked=6))


def test_a_run_that_was_cut_off_counts_bytes_after_everything_was_started_again(
    tmp_path_factory: pytest.TempPathFactory, files: dq.Documents
) -> None:
    """What comes later is weighed as what came before; the log has what that counts, also once it is compacted."""
    store = tmp_path_factory.mktemp("store")
    with dq.connect(n=1, store=store, name="before") as lab:
        pool = lab.queue("later", maxsize=4)
        cut: dq.Run = pool.map(length, files, name="cut", consumers=None)
        until(lambda: cut.counts["ready"] == 4, 30)
        pool.compact()
    with dq.connect(n=1, store=store, name="after") as lab:
        run = lab.attach("cut")
        begun = run.stats()
        assert (begun.unit, begun.counts.all) == ("bytes", 4)
        assert begun.progress.left == sum(SIZES[:4]) + 2

        whole: dq.Run = lab.queue("later").map(length, files, name="cut")
        whole.wait(timeout=60)
        assert whole.stats().units == Counts(acked=IN_ALL)
