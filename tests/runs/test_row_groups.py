"""Rows of one row group are run by one consumer, which decodes it once, as long as there are groups for the others."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from tests.kit.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

GROUPS, ROWS = 8, 6_000


def test_two_consumers_decode_no_row_group_both_as_long_as_there_are_others(
    queue: dq.QueuePool, tmp_path: Path
) -> None:
    """A group may be 100 MB behind a network: each consumer more that reads a part of it fetches all of it."""
    table = pa.table({"text": [f"text {at}" for at in range(GROUPS * ROWS)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=ROWS)

    def reader(doc: dq.Document) -> tuple[int, int, str]:
        return doc.part.group, os.getpid(), doc["text"]

    queue.pause()
    run = queue.map(reader, dq.Documents.from_parquet(tmp_path / "t.parquet"), name="rows")
    until(lambda: run.counts["ready"] == GROUPS * ROWS)
    queue.resume()

    readers: defaultdict[int, set[int]] = defaultdict(set)
    texts = []
    for group, process, text in run.results(timeout=60):
        readers[group].add(process)
        texts.append(text)
    assert texts == table["text"].to_pylist()
    assert len(set().union(*readers.values())) == 2
    # The last one ends without a sign of it, and a consumer that has no group left helps the other one.
    assert sum(len(each) > 1 for each in readers.values()) <= 2
