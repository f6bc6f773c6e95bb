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
    numbers = list(range(ROWS))
    columns = {"n": numbers, "id": [7 * n for n in numbers], "name": [f"r{n}" for n in numbers]}
    pq.write_table(pa.table(columns), path, row_group_size=3_000)
    return path


@pytest.mark.parametrize(("column", "key"), [(None, "t.parquet:4321"), ("id", 7 * 4321), ("name", "r4321")])
def test_rows_fail_are_retried_and_are_read_by_their_keys(
    queue: dq.QueuePool, table: Path, column: str | None, key: str | int
) -> None:
    def half(doc: dq.Document) -> int:
        if doc["n"] == 4_321:
            raise dq.Reject("odd one")
        return doc["n"] // 2

    documents = dq.Documents.from_parquet(table, key=column)
    run = queue.map(half, documents, name=f"rows-{queue.name}")
    results = run.results(errors="return", timeout=60)

    assert [each for at, each in enumerate(results) if at != 4_321] == [n // 2 for n in range(ROWS) if n != 4_321]
    (letter,) = run.failures()
    assert letter.document == documents[4_321]
    assert letter.key == key

    assert run.retry(fn=lambda doc: doc["n"] // 2) == 1
    run.wait(timeout=60)
    assert list(run.results()) == [n // 2 for n in range(ROWS)]
    assert [named for named, _ in run.results().items()] == [each.key for each in documents]


def test_a_queue_holds_any_range_of_numbers_in_some_kilobytes(lab: dq.Lab, queue: dq.QueuePool) -> None:
    queue.pause()
    run = queue.map(abs, range(60_000), name=f"numbers-{queue.name}", consumers=None)
    until(lambda: run.counts["ready"] == 60_000)

    reports = lab.client.sync(queue.handle.ask_all, calls.StatsCall())
    assert sum(lane.nbytes for report in reports for lane in report.lanes) < 1 << 14
    run.cancel()
