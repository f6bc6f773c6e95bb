"""Rows of files and ranges of numbers are put without a message each, and are documents as any others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.cluster.transport import calls
from tests.kit.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ROWS = 5_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two row groups, and a row in the second that the function refuses."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": list(range(ROWS))}), path, row_group_size=3_000)
    return path


def test_rows_fail_are_retried_and_are_read_by_their_keys(queue: dq.QueuePool, table: Path) -> None:
    def half(doc: dq.Document) -> int:
        if doc["n"] == 4_321:
            raise dq.Reject("odd one")
        return doc["n"] // 2

    run = queue.map(half, dq.Documents.from_parquet(table), name=f"rows-{queue.name}")
    results = run.results(errors="return", timeout=60)

    assert [each for at, each in enumerate(results) if at != 4_321] == [n // 2 for n in range(ROWS) if n != 4_321]
    (letter,) = run.failures()
    assert letter.document == dq.Documents.from_parquet(table)[4_321]
    assert letter.key == "t.parquet:4321"

    assert run.retry(fn=lambda doc: doc["n"] // 2) == 1
    run.wait(timeout=60)
    assert list(run.results()) == [n // 2 for n in range(ROWS)]


def test_a_queue_holds_any_range_of_numbers_in_some_kilobytes(lab: dq.Lab, queue: dq.QueuePool) -> None:
    queue.pause()
    run = queue.map(abs, range(60_000), name=f"numbers-{queue.name}", consumers=None)
    until(lambda: run.counts["ready"] == 60_000)

    reports = lab.client.sync(queue.handle.ask_all, calls.StatsCall())
    assert sum(lane.nbytes for report in reports for lane in report.lanes) < 1 << 14
    run.cancel()
