"""Runs over rows of files and frames: resumed, retried, sent again, joined with where they came from."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dqlab as dq
from dqlab.errors import SubmissionIncomplete
from tests.kit import forking
from tests.kit.sampled import mostly_slow
from tests.runs.submit.test_cut_off import soon  # noqa: F401 - a fixture

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
KINDS = ["parquet", "frame", "jsonl", "csv"]
N = 600


def frame(n: int = N) -> pd.DataFrame:
    return pd.DataFrame({"id": range(1_000, 1_000 + n), "text": [f"word {at} " * (at % 7) for at in range(n)]})


def documents(kind: str, folder: Path, n: int = N, first: int = 0) -> dq.Documents:
    """Write a table, as that kind of file, and list it."""
    table = frame(n)[first:]
    path = folder / f"table-{n}-{first}.{kind}"
    if kind == "frame":
        return dq.Documents.from_frame(table, key="id")
    if kind == "parquet":
        if not path.exists():
            table.to_parquet(path, row_group_size=n // 5)
        return dq.Documents.from_parquet(path, key="id", columns=["text"])
    if kind == "jsonl":
        records = "".join(f"{json.dumps(row)}\n" for row in table.to_dict("records"))
        path.write_bytes(gzip.compress(records.encode()))
        return dq.Documents.from_jsonl(path, key="id")
    table.to_csv(path, index=False)
    return dq.Documents.from_csv(path, key="id")


def words(document: dq.Document) -> dict[str, Any]:
    return {"words": len(document["text"].split())}


def joined(results: Any, kind: str, n: int = N) -> pd.DataFrame:
    """Join results with their rows by key."""
    table = frame(n)
    if kind == "csv":
        table["id"] = table["id"].astype(str)  # CSV has no types
    return table.merge(results.to_frame(), left_on="id", right_index=True, validate="one_to_one")


def expected(n: int = N) -> list[int]:
    return frame(n)["text"].str.split().str.len().tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_results_join_with_their_rows_and_the_same_input_attaches(
    lab: dq.Lab, queue: dq.QueuePool, kind: str, tmp_path: Path
) -> None:
    """Compared with pandas over the same table."""
    run = queue.map(words, documents(kind, tmp_path), name=f"words-{queue.name}")
    assert joined(run.results(timeout=60), kind)["words"].tolist() == expected()

    again = queue.map(words, documents(kind, tmp_path), name=run.name)
    assert joined(again.results(timeout=60), kind)["words"].tolist() == expected()
    assert again.counts["acked"] == N


def until_put(pool: dq.QueuePool, n: int) -> None:
    """Wait until a queue holds so many messages: a process starts first, on a machine that may have others to run."""
    deadline = time.monotonic() + 120
    while (there := sum(pool.counts().values())) < n:
        assert time.monotonic() < deadline, f"{there} of {n} messages are there after 120 s"
        time.sleep(0.01)  # for the process that is to put them


SCRIPT = """
    import sys
    from pathlib import Path
    import dqlab as dq
    from tests.runs.test_row_documents import documents, words

    lab = dq.connect(sys.argv[1], name="first")
    found = documents(sys.argv[3], Path(sys.argv[4]), 6_000)
    lab.queue(sys.argv[2], maxsize=500).map(words, found, name=sys.argv[2], consumers=None).submitter.join(600)
"""


@pytest.mark.parametrize("kind", mostly_slow(KINDS, "parquet", "csv"))
@pytest.mark.usefixtures("soon")
def test_a_submission_that_was_killed_goes_on_where_it_was(
    lab: dq.Lab, queue_name: str, kind: str, tmp_path: Path
) -> None:
    """By key and version: each row is in the run once."""
    n = 6_000
    found = documents(kind, tmp_path, n)
    pool = lab.queue(queue_name, maxsize=500)
    arguments = [lab.client.scheduler.address, queue_name, kind, str(tmp_path)]
    with forking.Popen([sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments], cwd=ROOT) as child:
        try:
            until_put(pool, 300)  # frames go in whole: it stops somewhere above that
        finally:
            os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(SubmissionIncomplete, match="again to go on"):
        lab.attach(queue_name).wait(timeout=30)

    run = pool.map(words, found, name=queue_name)
    results = run.results(timeout=120)
    assert joined(results, kind, n)["words"].tolist() == expected(n)
    assert run.counts["acked"] == sum(run.counts.values()) == n
    run.drop()
    pool.close(force=True)


def test_a_bad_line_fails_alone_and_a_changed_file_fails_its_rows(queue: dq.QueuePool, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "text": "x y"}\n{"id": "b", "tex\n{"id": "c", "text": "x"}\n')
    run = queue.map(words, dq.Documents.from_jsonl(path, key="id"))
    results = run.results(timeout=60, errors="skip")
    assert dict(results.items()) == {"a": {"words": 2}, "c": {"words": 1}}
    (letter,) = run.failures()
    assert (letter.key, letter.error, letter.deliveries) == ("a.jsonl:1", "RecordInvalid", 1)

    table = tmp_path / "a.parquet"
    frame(10).to_parquet(table)
    listed = list(dq.Documents.from_parquet(table))
    frame(11).to_parquet(table)
    run = queue.map(words, listed)
    run.results(timeout=60, errors="skip")
    assert {(letter.error, letter.deliveries) for letter in run.failures()} == {("DocumentChanged", 1)}
    assert len(run.failures()) == 10


def test_a_large_row_fails_by_name_and_the_others_go_on(queue: dq.QueuePool) -> None:
    table = pd.DataFrame({"id": ["a", "b"], "text": ["x", "x " * (1 << 20)]})
    run = queue.map(words, dq.Documents.from_frame(table, key="id"))

    assert dict(run.results(timeout=60, errors="skip").items()) == {"a": {"words": 1}}
    assert [(letter.key, letter.error) for letter in run.failures()] == [("b", "DocumentError")]


def longer(row: Any) -> Any:
    if row.id == 1_003:
        raise ValueError(row.text)
    return row._replace(text=row.text * 2)


def test_rows_of_itertuples_are_mapped_returned_and_attached_to(queue: dq.QueuePool) -> None:
    """20,000 of them took 55 s, for each brought its class along; and the same cell was refused when it ran again."""
    run = queue.map(longer, frame().itertuples(), name="rows", retry=dq.Retry(0))
    wanted = [row for row in frame().itertuples() if row.id != 1_003]

    results = list(run.results(errors="skip", timeout=30))

    assert results == [row._replace(text=row.text * 2) for row in wanted]
    assert [type(each).__name__ for each in results[:2]] == ["Pandas", "Pandas"]
    assert run.failures()[0].argument == list(frame().itertuples())[3]
    again = queue.map(longer, frame().itertuples(), name="rows")
    again.until_over(30)
    assert again.id == run.id
