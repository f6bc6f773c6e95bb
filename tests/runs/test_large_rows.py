"""Rows that are too large for a message: those of files are read where they are needed, others fail by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.bag
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.documents.parquet import ParquetTable
from dqlab.errors import DocumentError
from tests.kit.hugging_face import Dataset

LIMIT = 8_000
ROWS = {"a": "x", "b": "y" * (2 * LIMIT), "c": "z"}
TWO_GB = (1 << 31) - 64
"""Bytes in the largest cell that Parquet files of pyarrow have, nearly: a page of one is smaller than 2 GiB."""


def frame() -> pd.DataFrame:
    return pd.DataFrame({"id": list(ROWS), "text": list(ROWS.values())})


def records() -> list[dict[str, str]]:
    return [{"id": key, "text": text} for key, text in ROWS.items()]


def parquet(folder: Path) -> dq.Documents:
    frame().to_parquet(folder / "t.parquet")
    return dq.Documents.from_parquet(folder / "t.parquet", key="id")


def jsonl(folder: Path) -> dq.Documents:
    (folder / "t.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records()))
    return dq.Documents.from_jsonl(folder / "t.jsonl", key="id")


def csv(folder: Path) -> dq.Documents:
    frame().to_csv(folder / "t.csv", index=False)
    return dq.Documents.from_csv(folder / "t.csv", key="id")


ELSEWHERE: dict[str, Callable[[Path], dq.Documents]] = {"parquet": parquet, "jsonl": jsonl, "csv": csv}
INSIDE: dict[str, Callable[[Path], dq.Documents]] = {
    "pandas": lambda _: dq.Documents.from_frame(frame(), key="id"),
    "arrow": lambda _: dq.Documents.from_frame(pa.Table.from_pylist(records()), key="id"),
    "dask": lambda _: dq.Documents.from_dask(dask.bag.from_sequence(records(), npartitions=2), key="id"),
    "dataset": lambda _: dq.Documents.from_hf(
        Dataset({"id": list(ROWS), "text": list(ROWS.values())}), "id", columns=["text"]
    ),
}


def length(document: dq.Document) -> int:
    return len(document["text"])


@pytest.mark.cluster
@pytest.mark.parametrize("kind", INSIDE)
def test_a_row_that_is_only_in_the_notebook_and_too_large_fails_by_its_key(
    queue: dq.QueuePool, tmp_path: Path, kind: str
) -> None:
    """The others go on, and it is not delivered again: it would be as large."""
    with dask.config.set({"dqlab.message.max-bytes": LIMIT}):
        run = queue.map(length, INSIDE[kind](tmp_path), name=kind, retry=dq.Retry(3))
        results = run.results(timeout=60, errors="skip")

    assert dict(results.items()) == {"a": 1, "c": 1}
    [failure] = run.failures()
    assert (failure.key, failure.error, failure.deliveries) == ("b", "DocumentError", 1)
    assert "from_parquet" in failure.message


class _NoMemory:
    """A file that is larger than the memory there is."""

    def iter_batches(self, *_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 2147483584 failed")

    def close(self) -> None:
        """Have nothing to close."""


def test_a_row_group_that_does_not_fit_into_memory_is_not_called_damaged(tmp_path: Path) -> None:
    """Another consumer, or the same one later, may have the memory: a damaged file is given up at once."""
    parquet(tmp_path)
    table = ParquetTable(str(tmp_path / "t.parquet"))
    table._file = _NoMemory()

    with pytest.raises(MemoryError, match="malloc of size"):
        next(table.batches(0, ["text"], rows=1))


@pytest.fixture
def large() -> pa.Table:
    """Three rows, one of them with 2 GB."""
    with Path("/proc/meminfo").open() as lines:
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    if free < 14 << 30:
        pytest.skip("a row of 2 GB is written and read with about 10 GB of memory")
    return pa.table({"id": ["a", "b", "c"], "text": pa.array(["x", "y" * TWO_GB, "z"], pa.large_string())})


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="how much memory is free is read from /proc")
def test_a_row_of_two_gigabytes_in_a_parquet_file_is_read(large: pa.Table, tmp_path: Path) -> None:
    """It is the largest that the format has."""
    path = tmp_path / "large.parquet"
    pq.write_table(
        large, path, compression="zstd", use_dictionary=False, write_statistics=False, write_batch_size=1,
        data_page_size=1,
    )  # fmt: skip
    del large

    assert {each.key: length(each) for each in dq.Documents.from_parquet(path, key="id")} == {
        "a": 1, "b": TWO_GB, "c": 1,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="how much memory is free is read from /proc")
def test_a_row_of_two_gigabytes_in_a_frame_fails_by_its_key(large: pa.Table) -> None:
    """It is not sent, and neither is its message."""
    small, row, last = dq.Documents.from_frame(large, key="id")

    assert (length(small), length(last)) == (1, 1)
    with pytest.raises(DocumentError, match=r"row 'b' takes 2,147,48\d,\d+ bytes"):
        length(row)
