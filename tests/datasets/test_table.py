"""A table reads when it is asked, a page at a time, and whatever reads Arrow reads it."""

from __future__ import annotations

import decimal
import json
import pickle
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dqlab.datasets import needs_pyarrow
from dqlab.datasets.rows import SAMPLE
from dqlab.datasets.table import QueryError, RunTable, query
from dqlab.errors import BadOption, ColumnNotFound, DqlabWarning, ExtraMissing, UsageError
from tests.datasets.pages import Pages

pytestmark = pytest.mark.lowest

MANY = 3_000
LARGE = 2**60 + 1


def table_of(values: Any, **how: Any) -> RunTable:
    return RunTable(Pages(values, **how))


def test_nothing_is_read_before_it_is_asked_for() -> None:
    pages = Pages([{"n": n} for n in range(MANY)])
    table = RunTable(pages)

    assert (repr(table), table.count(), pages.given) == ("<RunTable of 'numbers'>", MANY, 0)
    assert str(table.schema.field("n").type) == "int64"
    assert pages.given <= SAMPLE + pages.page


def test_head_has_the_first_rows_and_reads_no_more_than_define_the_columns() -> None:
    pages = Pages([{"n": n} for n in range(MANY)])
    table = RunTable(pages)
    assert table.columns == ["_key", "_ordinal", "n", "_rest"]
    pages.given = 0

    assert table.head(3)["n"].to_pylist() == [0, 1, 2]
    assert pages.given <= SAMPLE + pages.page
    assert table.head(0).num_rows == 0


@pytest.mark.parametrize("read", ["arrow", "pandas", "reader", "batches", "stream", "polars", "duckdb"])
def test_whatever_reads_arrow_has_every_row_once(read: str) -> None:
    table = table_of([{"n": n, "t": f"x{n}"} for n in range(MANY)])
    readers = {
        "arrow": lambda: table.to_arrow()["n"].to_pylist(),
        "pandas": lambda: table.to_pandas()["n"].tolist(),
        "reader": lambda: table.to_reader().read_all()["n"].to_pylist(),
        "batches": lambda: [n for batch in table.to_batches() for n in batch["n"].to_pylist()],
        "stream": lambda: pa.table(table)["n"].to_pylist(),
        "polars": lambda: pytest.importorskip("polars").DataFrame(table)["n"].to_list(),
        "duckdb": lambda rows=table: [n for (n,) in duckdb.sql("select n from rows").fetchall()],
    }

    assert readers[read]() == list(range(MANY))


def test_columns_are_chosen_and_stand_in_the_order_of_the_choice() -> None:
    table = table_of([{"n": n, "t": f"x{n}"} for n in range(MANY)], lineage={"_code": ["abc123"] * MANY})

    assert table.to_arrow(["t", "_code", "_key"]).schema.names == ["t", "_code", "_key"]
    assert table.to_reader(["t"]).read_all().to_pydict() == {"t": [f"x{n}" for n in range(MANY)]}
    assert list(table.to_pandas(columns=["_ordinal", "n"])) == ["_ordinal", "n"]


@pytest.mark.parametrize(
    "column",
    ["m", "_code", "_seconds", "_error"],
)
def test_a_column_that_is_not_there_is_refused_with_those_that_are(column: str) -> None:
    """An empty column would be taken for results."""
    with pytest.raises(ColumnNotFound, match=f"has no column '{column}'.* Nothing .* '_key', '_ordinal', 'n', '_rest'"):
        table_of([{"n": 1}]).to_arrow(["n", column])


LATE: list[Any] = [{"v": n, "w": n} for n in range(MANY)] + [{"v": "s", "w": 1}] * 500


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.to_arrow(),
        lambda table: table.to_arrow(["v"]),
        lambda table: table.to_pandas(),
        lambda table: table.to_reader().read_all(),
        lambda table: table.to_reader(["v"]).read_all(),
        lambda table: list(table.to_batches()),
        lambda table: pa.table(table),
        lambda rows: duckdb.sql("select count(v) from rows").fetchall(),
        lambda table: query(table, "select count(v) from results", ""),
        lambda table: query(table, "select * from results", ""),
    ],
)
def test_values_that_are_null_in_their_column_are_counted_in_a_warning(read: Any) -> None:
    """Of 2,000 rows `count(v)` was 1,500, in silence."""
    with pytest.warns(DqlabWarning, match=r"'numbers' that do not fit .* null there: 500 in v \(int64\)\. .* _rest"):
        read(table_of(LATE))


class Mine:
    """An object of a user's own, whose text says nothing."""


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.to_arrow(),
        lambda table: list(table.to_batches(["_rest", "model"])),
        lambda table: table.to_pandas(),
        lambda table: query(table, "select model from results", ""),
    ],
)
def test_an_object_that_no_table_can_show_is_named_with_its_column(read: Any) -> None:
    """The rest had the first 1,000 characters of its repr, as if that were the value."""
    table = table_of([{"n": n, "model": [Mine()] if n % 2 else None} for n in range(MANY)])

    with pytest.warns(DqlabWarning, match=rf"not in the table: {MANY // 2:,} in model \(Mine\)\. run\.results\(\) has"):
        read(table)
    assert table.to_arrow(["n", "_key"])["n"].to_pylist() == list(range(MANY))
    assert table.in_rest() == 0


@pytest.mark.parametrize("wide", [1_001, 3_000])
def test_a_row_wider_than_a_table_is_whole_in_it_and_a_warning_says_where(wide: int) -> None:
    """Half of its columns were in the rest without a word, each after a search of all names before it."""
    rows = [{f"word{n}": n for n in range(wide)}] * 3

    with pytest.warns(DqlabWarning, match=f"null there: {3 * (wide - 1_000):,} without a column"):
        (row, *_) = table_of(rows).to_arrow().to_pylist()
    assert {name: row[name] for name in row if name.startswith("word")} | json.loads(row["_rest"]) == rows[0]


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.to_arrow(["w"]),
        lambda table: list(table.to_batches(["w"])),
        lambda table: query(table, "select count(*), sum(w) from results", ""),
    ],
)
def test_columns_that_have_all_their_values_warn_of_nothing(read: Any) -> None:
    read(table_of(LATE))


def test_a_stream_that_is_not_read_to_its_end_warns_of_what_was_read() -> None:
    """Its first batches have nulls as well."""
    batches: Any = table_of([{"v": n} for n in range(SAMPLE)] + [{"v": "s"}] * MANY).to_batches()
    next(batch for batch in batches if batch["v"].null_count)

    with pytest.warns(DqlabWarning, match=r"null there: \d+ in v \(int64\)"):
        batches.close()


def test_a_table_widens_and_a_stream_keeps_its_schema() -> None:
    """Who reads a stream was given its schema before the first row; a table is there when all rows are."""
    values: list[Any] = [{"n": n} for n in range(SAMPLE)] + [{"n": 0.5}, {"n": 7, "new": 1}]
    table = table_of(values)

    with pytest.warns(DqlabWarning, match="1 in n"):
        stream = table.to_reader().read_all()
    assert str(stream.schema.field("n").type) == "int64"
    assert stream["n"].to_pylist()[-2:] == [None, 7]
    assert stream["_rest"].to_pylist()[-2:] == ['{"n":0.5}', '{"new":1}']
    with pytest.warns(DqlabWarning, match="null there: 1 without a column"):
        whole = table.to_arrow()
    assert str(whole.schema.field("n").type) == "double"
    assert whole["n"].to_pylist()[-2:] == [0.5, 7.0]
    assert whole["_rest"].to_pylist()[-2:] == [None, '{"new":1}']
    assert table.in_rest() == 1
    assert str(table.schema.field("n").type) == "double", "what was learnt is kept"


def test_a_table_of_few_rows_learns_columns_of_later_ones() -> None:
    """It was looked at when the run had ten results: the other columns come."""
    pages = Pages([{"n": 1}])
    table = RunTable(pages)
    assert table.columns == ["_key", "_ordinal", "n", "_rest"]

    pages.values.append({"n": 2, "m": "x"})

    assert table.to_arrow().to_pylist()[1] == {"_key": 1, "_ordinal": 1, "n": 2, "m": "x", "_rest": None}


def test_a_table_stays_where_it_was_made() -> None:
    with pytest.raises(TypeError, match=r"take along table\.to_arrow"):
        pickle.dumps(table_of([1]))


def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ExtraMissing, match=r"tables of results need pyarrow.*pip install 'dqlab\[tables\]'"):
        needs_pyarrow()

    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(ExtraMissing, match=r"need duckdb.*pip install 'dqlab\[lab,tables\]'"):
        query(table_of([1]), "select 1", "")


# --- SQL -----------------------------------------------------------------------------------------


def test_a_query_joins_results_and_source_by_key() -> None:
    results = table_of([{"n": n} for n in range(MANY)], keys=[f"d{n}" for n in range(MANY)])
    source = table_of([{"year": 2000 + n % 3} for n in range(MANY)], keys=[f"d{n}" for n in range(MANY)])

    found = query(
        results, "select year, avg(n) as mean from results join source using (key) group by year order by year", source
    )

    wanted = [sum(range(first, MANY, 3)) / (MANY / 3) for first in range(3)]
    assert found.to_dict("list") == {"year": [2000, 2001, 2002], "mean": wanted}


def test_a_query_that_joins_by_a_key_of_several_documents_warns() -> None:
    """Two documents of one key were four rows, in silence; their positions tell them apart."""
    results, source = (table_of([{name: 1}] * 3, keys=["same", "same", "other"]) for name in "nm")

    with pytest.warns(DqlabWarning, match=r"key 'same' belongs to more than one document.* using \(_ordinal\)"):
        assert len(query(results, "select n, m from results join source using (key)", source)) == 5
    assert len(query(results, "select n, m from results join source using (_ordinal)", source)) == 3
    assert query(results, "select count(*) as n from source", source).n.tolist() == [3]


@pytest.mark.parametrize(
    "first", [LARGE, -LARGE, [LARGE, None], {"s": LARGE}, {"s": [None, LARGE]}, [[None, LARGE], None]], ids=repr
)
def test_a_frame_rounds_no_whole_number_beside_nulls(first: Any) -> None:
    """Pandas has numbers with a point there, and made 2^60 of 2^60 + 1."""
    small = [1, None] if isinstance(first, list) else 1
    frame = table_of([{"n": first, "m": small}, {"n": None, "m": None}]).to_pandas()

    assert repr(frame["n"][0]).count(str(LARGE)) == 1
    assert frame["n"][1] is None
    assert list(frame) == ["_key", "_ordinal", "n", "m", "_rest"]
    assert isinstance(first, list) or frame["m"].dtype == "float64"


def test_a_query_rounds_no_decimal() -> None:
    """DuckDB makes floats of them: those of at most 15 digits come back as the same digits, others do not."""
    long, short = decimal.Decimal("12345678901234567.12345678"), decimal.Decimal("1.10")
    table = table_of([{"d": long, "e": short, "n": 1}, {"d": None, "e": None, "n": 2}])

    found = table.query("select d, e, sum(d) over () as s, n * 0.5 as half from results order by n")

    assert found.d.tolist() == [long, None]
    assert found.s.tolist() == [long, long]
    assert (found.e.dtype, found.e[0], found.half.tolist()) == ("float64", 1.1, [0.5, 1.0])


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("selct 1", "syntax error at or near"),
        ("select nn from results", "results (key, _key, _ordinal, n, _rest)"),
        ("select * from resluts", "resluts does not exist"),
    ],
)
def test_a_query_that_cannot_be_answered_names_what_there_is(sql: str, said: str) -> None:
    """It was an exception of DuckDB, of many lines, below frames of ours."""
    with pytest.raises(QueryError) as caught:
        table_of([{"n": 1}]).query(sql)

    assert said in str(caught.value)
    assert "results" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_query_is_a_text() -> None:
    with pytest.raises(BadOption, match="select"):
        table_of([1]).query(5)  # type: ignore[arg-type]


def test_a_key_of_the_user_is_the_key_of_a_query() -> None:
    table = table_of([{"key": "mine"}], keys=["doc"])

    assert table.query("select key, _key from results").to_dict("list") == {"key": ["mine"], "_key": ["doc"]}


def test_a_query_over_an_input_that_is_not_here_is_refused() -> None:
    with pytest.raises(UsageError, match="another process mapped them"):
        query(table_of([1]), "select * from source", "another process mapped them")


def test_columns_that_differ_in_case_alone_can_be_asked_for() -> None:
    found = table_of([{"N": 1, "n": 2}]).query("select * from results")

    assert [found.iloc[0][name] for name in found if name.lower().startswith("n")] == [1, 2]
