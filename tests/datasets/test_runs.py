"""Runs as tables: the results that `run.results()` has, with their keys, as Arrow, pandas, SQL and Parquet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.datasets.files import TargetTaken
from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.errors import BadOption, ColumnNotFound, DqlabWarning, ResultUnreadable, RunError, RunFailed, UsageError
from dqlab.live.display import text_of
from dqlab.testing import Gate
from tests.kit.cells import of_a_cell
from tests.kit.waiting import until

pytestmark = pytest.mark.lowest

NONE = dq.Retry(0)


@of_a_cell
def count(n: int) -> dict[str, Any]:
    return {"n": n, "half": n / 2, "t": f"x{n % 7}"}


@of_a_cell
def odd(n: int) -> dict[str, Any]:
    if n % 2 == 0:
        raise ValueError(f"{n} is even")
    return {"n": n}


@of_a_cell
def mended(n: int) -> dict[str, Any]:
    return {"n": n, "even": True}


def documents(folder: Path, number: int = 6) -> list[dq.Document]:
    """Documents with keys out of alphabetical order."""
    return [dq.Document(f"{9 - n}/ä.txt", f"v{n}", str(folder / str(n)), size=n * 10) for n in range(number)]


@of_a_cell
def length(document: dq.Document) -> dict[str, Any]:
    return {"size": document.size}


# --- tables --------------------------------------------------------------------------------------


def test_a_table_has_what_the_results_have(queue: dq.QueuePool) -> None:
    run = queue.map(count, range(2_500))
    table = run.results(timeout=30).to_arrow()

    assert table.schema.names == ["_key", "_ordinal", "n", "half", "t", *ROW_LINEAGE, "_rest"]
    assert table.select(["n", "half", "t"]).to_pylist() == [count(n) for n in range(2_500)]
    assert table["_key"].to_pylist() == table["_ordinal"].to_pylist() == list(range(2_500))
    assert set(table["_code"].to_pylist()) == {run.versions[0].short}
    assert run.table().to_arrow().equals(table)
    assert pa.table(run.table()).equals(table)


def test_a_table_may_be_read_while_the_run_goes_on(queue: dq.QueuePool, tmp_path: Path) -> None:
    """The first rows show whether the function does what it should, an hour before the last."""
    gate = Gate(tmp_path)

    def waits(n: int) -> dict[str, Any]:
        if n >= 10:
            gate.wait()
        return {"n": n} if n < 10 else {"n": n, "late": "x"}

    run = queue.map(waits, range(20))
    until(lambda: run.counts["acked"] == 10)
    table = run.table()
    assert (table.count(), table.columns) == (10, ["_key", "_ordinal", "n", *ROW_LINEAGE, "_rest"])
    assert table.head(3)["n"].to_pylist() == [0, 1, 2]
    assert table.query("select sum(n) as n from results").n.tolist() == [45]
    assert "10 rows" in text_of(table)
    gate.open()
    run.wait(timeout=30)

    assert (table.count(), table.to_arrow()["late"].null_count) == (20, 10)


def test_failures_follow_the_rule_of_results(queue: dq.QueuePool, tmp_path: Path) -> None:
    run = queue.map(odd, range(6), retry=NONE)
    with pytest.raises(RunFailed):
        run.results(timeout=30)
    for refused in (
        lambda: run.to_parquet(tmp_path / "out"),
        lambda: run.query("select 1"),
        lambda: run.join(pd.DataFrame({"key": [1]})),
    ):
        with pytest.raises(RunFailed):
            refused()

    assert list(tmp_path.iterdir()) == []
    assert run.table().to_arrow()["_key"].to_pylist() == [1, 3, 5]
    assert run.query("select key from results", errors="skip").key.tolist() == [1, 3, 5]
    assert ds.dataset(run.to_parquet(tmp_path / "out", errors="skip")).count_rows() == 3
    beside = run.results(errors="return").to_arrow().to_pylist()
    assert [row["n"] for row in beside] == [None, 1, None, 3, None, 5]
    assert [bool(row["_error"]) for row in beside] == [True, False] * 3
    assert "0 is even" in beside[0]["_error"]
    with pytest.raises(BadOption, match="is 'raise' or 'skip' here"):
        run.query("select 1", errors="return")  # type: ignore[arg-type]


def test_each_row_has_the_code_that_made_it_after_a_retry_with_other_code(queue: dq.QueuePool) -> None:
    """The results of a run with two versions are compared by it; and a version is wrong for half of the rows."""
    run = queue.map(odd, range(4), retry=NONE)
    with pytest.warns(DqlabWarning, match="failed"):
        run.wait(timeout=30)
    before = run.table()
    first = run.versions[0].short
    assert before.to_arrow()["_code"].to_pylist() == [first] * 2

    run.retry(fn=mended)
    results = run.results(timeout=30)

    (second,) = {version.short for version in run.versions} - {first}
    assert results.to_arrow()["_code"].to_pylist() == [second, first] * 2
    assert before.to_arrow()["_code"].to_pylist() == [second, first] * 2
    assert results.to_frame(columns=["_code"])["_code"].tolist() == [second, first] * 2
    assert results.to_frame(columns=["_attempts"])["_attempts"].tolist() == [1] * 4


def test_a_result_that_cannot_be_opened_is_named(queue: dq.QueuePool) -> None:
    run = queue.map(Closed, range(3))

    with pytest.raises(ResultUnreadable, match="document 0"):
        run.results(timeout=30).to_arrow()
    assert [bool(row) for row in run.results("return").to_arrow()["_error"].to_pylist()] == [True] * 3


def _closed(*_: object) -> Any:
    raise RuntimeError("closed here")


class Closed:
    """Can be pickled, and not be opened."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __reduce__(self) -> tuple[Any, ...]:
        return _closed, (self.n,)


# --- frames --------------------------------------------------------------------------------------


def test_columns_of_a_frame_are_chosen_with_their_lineage(queue: dq.QueuePool, tmp_path: Path) -> None:
    listed = documents(tmp_path)
    run = queue.map(length, listed)

    frame = run.results(timeout=30).to_frame(columns=["_ordinal", "size", "_code", "_key"])

    assert list(frame) == ["_ordinal", "size", "_code", "_key"]
    assert frame.index.tolist() == frame["_key"].tolist() == [each.key for each in listed]
    assert frame["size"].tolist() == [each.size for each in listed]
    assert frame["_ordinal"].tolist() == list(range(6))
    assert set(frame["_code"]) == {run.versions[0].short}
    for column in ("nothere", "_error"):
        with pytest.raises(ColumnNotFound, match="Columns: 'size', '_key', '_ordinal'"):
            run.results().to_frame(columns=[column])


def test_a_column_of_the_user_is_chosen_by_its_name_also_if_dqlab_has_one(queue: dq.QueuePool) -> None:
    """`to_frame()` has the user's under that name; named, it was the version of the document."""
    run = queue.map(lambda n: {"_version": f"mine {n}", "_rest": n}, range(3)).wait(timeout=30)

    for columns in (None, ["_version", "_rest"]):
        frame = run.results().to_frame(columns=columns)
        assert frame.to_dict("list") == {"_version": ["mine 0", "mine 1", "mine 2"], "_rest": [0, 1, 2]}
    assert run.results().to_frame(columns=["_rest", "_ordinal"]).to_dict("list") == {
        "_rest": [0, 1, 2],
        "_ordinal": [0, 1, 2],
    }


# --- joins and queries ---------------------------------------------------------------------------


def test_a_query_joins_results_with_the_input(queue: dq.QueuePool, tmp_path: Path) -> None:
    listed = documents(tmp_path)
    run = queue.map(length, listed)

    sql = "select key, s.size as here, r.size as there, version, path from results r join source s using (key)"
    found = run.query(f"{sql} order by key", timeout=30)

    assert found.to_dict("list") == {
        "key": sorted(each.key for each in listed),
        "here": [each.size for each in reversed(listed)],
        "there": [each.size for each in reversed(listed)],
        "version": [each.version for each in reversed(listed)],
        "path": [each.where for each in reversed(listed)],
    }


def test_results_stand_beside_the_rows_that_they_belong_to(queue: dq.QueuePool, tmp_path: Path) -> None:
    """In the order of the table, whatever that of the input was; a row without a result stays."""
    listed = documents(tmp_path)
    run = queue.map(length, listed)
    names = [listed[3].key, "nothing", listed[0].key, listed[3].key]
    frame = pd.DataFrame({"key": names, "size": [1, 2, 3, 4]}, index=[7, 8, 9, 9])

    joined = run.join(frame, timeout=30)

    assert joined.index.tolist() == [7, 8, 9, 9]
    assert joined["size"].tolist() == [1, 2, 3, 4]
    assert joined["size_result"].fillna(-1).tolist() == [30, -1, 0, 30]
    by_index = frame.set_index("key").drop(columns="size")
    assert run.join(by_index)["size"].fillna(-1).tolist() == [30, -1, 0, 30]
    renamed = by_index.rename_axis("file")
    assert run.join(renamed, on="file")["size"].fillna(-1).tolist() == [30, -1, 0, 30]


def test_a_join_without_a_single_match_is_refused(queue: dq.QueuePool) -> None:
    """It would be a table of NaN, and look like results that are missing."""
    run = queue.map(count, range(3))

    with pytest.raises(UsageError, match=r"has keys like '0', the results have keys like 0.*astype\('int'\)"):
        run.join(pd.DataFrame({"key": ["0", "1"]}), timeout=30)
    with pytest.raises(BadOption, match=r"neither a column nor the index\. Columns: a"):
        run.join(pd.DataFrame({"a": [1]}), on="file")
    with pytest.raises(BadOption, match="is not a pandas DataFrame"):
        run.join([1, 2])  # type: ignore[arg-type]
    assert run.join(pd.DataFrame({"key": []})).empty


# --- Parquet -------------------------------------------------------------------------------------


def test_parquet_has_the_rows_of_the_run(queue: dq.QueuePool, tmp_path: Path) -> None:
    run = queue.map(count, range(1_500))

    path = run.to_parquet(tmp_path / "out", timeout=30)

    assert path == str(tmp_path / "out")
    assert ds.dataset(path).to_table().equals(run.table().to_arrow())
    assert pq.read_table(run.to_parquet(tmp_path / "one.parquet")).equals(run.table().to_arrow())
    other = queue.map(count, range(3))
    with pytest.raises(TargetTaken, match=f"rows of run '{run.name}'"):
        other.to_parquet(path, timeout=30)


def test_a_wrong_path_is_refused_before_the_run_is_waited_for(queue: dq.QueuePool, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = queue.map(lambda n: gate.wait(), range(2))
    for write in (run.to_parquet, run.publish):
        with pytest.raises(BadOption, match="not a path on this machine"):
            write("s3://bucket/out")
    gate.open()
    run.wait(timeout=30)


def test_what_is_published_says_where_it_comes_from(queue: dq.QueuePool, tmp_path: Path) -> None:
    run = queue.map(odd, range(10), retry=NONE)

    made = run.publish(tmp_path / "dataset", timeout=30)

    assert (made.path, made.rows, made.failures, made.in_rest) == (tmp_path / "dataset", 5, 5, 0)
    assert str(made) == f"{tmp_path / 'dataset'}: 5 rows, 5 failures"
    assert sorted(file.name for file in made.path.iterdir()) == ["failures.parquet", "manifest.json", "results.parquet"]
    assert made.nbytes == sum(file.stat().st_size for file in made.path.iterdir())
    rows = pq.read_table(made.path / "results.parquet")
    assert (rows["_ordinal"].to_pylist(), rows["n"].to_pylist()) == ([1, 3, 5, 7, 9],) * 2
    dead = pq.read_table(made.path / "failures.parquet").to_pylist()
    assert [row["_key"] for row in dead] == ["0", "2", "4", "6", "8"]
    assert {(row["error"], row["_code"]) for row in dead} == {("ValueError", run.versions[0].short)}
    assert [row["message"] for row in dead] == [f"{n} is even" for n in range(0, 10, 2)]
    said = json.loads((made.path / "manifest.json").read_text())
    assert said["counts"] == {"acked": 5, "dead": 5, "cancelled": 0, "lost": 0}
    assert (said["run"]["name"], said["run"]["id"]) == (run.name, run.id.hex())
    assert [(code["name"], code["short"]) for code in said["code"]] == [("odd", run.versions[0].short)]
    assert "is even" in said["code"][0]["source"]
    assert said["input"] == {"documents": 10, "digest": run.record()["digest"], "listing": None}
    assert said["results"]["columns"]["n"] == "int64"
    assert said["versions"]["pyarrow"] == pa.__version__
    assert said["versions"]["dqlab"] == dq.__version__


def test_a_run_that_was_retried_is_published_again_in_place(queue: dq.QueuePool, tmp_path: Path) -> None:
    run = queue.map(odd, range(10), retry=NONE)
    run.publish(tmp_path / "dataset", timeout=30)
    run.retry(fn=mended)

    with pytest.warns(DqlabWarning, match="5 results by v1, 5 results by v2"):
        made = run.publish(tmp_path / "dataset", timeout=30)

    assert (made.rows, made.failures) == (10, 0)
    said = json.loads((made.path / "manifest.json").read_text())
    assert [code["name"] for code in said["code"]] == ["odd", "mended"]
    assert pq.read_table(made.path / "results.parquet")["n"].to_pylist() == list(range(10))
    assert [file.name for file in tmp_path.iterdir()] == ["dataset"]


def test_a_run_that_changes_while_it_is_published_is_refused(
    queue: dq.QueuePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of before a retry with failures of after it: a document would be in neither."""
    run = queue.map(odd, range(4), retry=NONE)
    with pytest.warns(DqlabWarning, match="failed"):
        run.wait(timeout=30)
    before = run.failures

    def retried() -> Any:
        run.retry(fn=mended, limit=1)
        until(lambda: run.counts["acked"] == 3)
        return before()

    monkeypatch.setattr(run, "failures", retried)
    with pytest.raises(RunError, match="2 rows and 1 failure were read, and it now has 3 and 1"):
        run.publish(tmp_path / "dataset")

    assert list(tmp_path.iterdir()) == []


# --- what is shown -------------------------------------------------------------------------------


def test_a_table_shows_its_columns_and_first_rows(queue: dq.QueuePool) -> None:
    run = queue.map(count, range(30)).wait(timeout=30)
    table = run.table()

    text = text_of(table)

    assert [word in text for word in ("_key", "half", "double", "x3", "the first 10 of 30 rows")] == [True] * 5
    assert repr(table) == f"<RunTable of {run.name!r}>"


@pytest.mark.cluster
def test_import_and_a_run_load_no_library_of_tables() -> None:
    """Half a second, and 60 MB, in a notebook that wants a list."""
    script = "import sys, dqlab, dqlab.runs.run, dqlab.datasets, dqlab.datasets.plain; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {"pyarrow", "duckdb", "pandas", "polars"} & set(loaded) == set()
