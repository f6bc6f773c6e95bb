"""Rows of Parquet files: what is listed, what is read, and what is refused."""

from __future__ import annotations

import datetime
import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

import dqlab as dq
from dqlab.documents import Document, parquet
from dqlab.errors import (
    BadOption,
    ColumnNotFound,
    DocumentChanged,
    DocumentError,
    ExtraMissing,
    FileUnreadable,
    InputNotFound,
    RecordInvalid,
    WrongKind,
)
from tests.kit.descriptors import count_files

pytestmark = pytest.mark.lowest


def written(path: Path, columns: dict[str, Any] | pa.Table, group: int = 3) -> Path:
    """Write a file with small row groups."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, row_group_size=group)
    return path


def papers(path: Path, n: int = 10, first: int = 0, group: int = 3) -> Path:
    numbers = range(first, first + n)
    return written(path, {"id": [f"p{i}" for i in numbers], "text": ["w " * i for i in numbers], "n": numbers}, group)


@pytest.fixture(autouse=True)
def _nothing_open() -> Iterator[None]:
    yield
    parquet._TABLES.clear()
    parquet._GROUPS.clear()


def test_every_row_is_a_document_and_every_value_is_that_of_pandas(tmp_path: Path) -> None:
    """Compared with an independent reader, row by row and column by column, in any order."""
    for name, first in (("a", 0), ("b", 10)):
        papers(tmp_path / f"{name}.parquet", first=first)
    documents = list(dq.Documents.from_parquet(tmp_path / "*.parquet", key="id"))
    frame = pd.concat([pd.read_parquet(path) for path in sorted(tmp_path.glob("*.parquet"))])

    assert [document.key for document in documents] == frame["id"].tolist()
    assert [document.row for document in documents] == frame.to_dict("records")
    assert [documents[at]["n"] for at in (19, 0, 7, 7, 3)] == [19, 0, 7, 7, 3]


def test_without_a_key_rows_are_called_by_file_and_position(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    papers(tmp_path / "in/a.parquet", n=4)

    assert [each.key for each in dq.Documents.from_parquet(f"{tmp_path}/**/*.parquet")] == [
        f"in/a.parquet:{at}" for at in range(4)
    ]
    assert dq.Documents.from_parquet(tmp_path / "in/a.parquet")[2].key == "a.parquet:2"
    several = [tmp_path / "in/a.parquet"]
    assert dq.Documents.from_parquet(several)[2].key == f"{tmp_path}/in/a.parquet:2"


def test_reference_is_small_and_survives_pickling(tmp_path: Path) -> None:
    """A million of them are in the queue, and in the log."""
    folder = tmp_path / "projects/archive/2024"
    folder.mkdir(parents=True)
    papers(folder / "part-00000-of-00128.parquet")
    for key in (None, "id", "n"):
        for document in dq.Documents.from_parquet(f"{folder}/*.parquet", key=key, columns=["text", "n"]):
            sealed = pickle.dumps(document, 5)
            assert len(sealed) <= 300
            assert pickle.loads(sealed) == document


def test_whole_numbers_are_keys_and_differ_from_texts_that_look_alike(tmp_path: Path) -> None:
    """A column of whole numbers joins with results only if these have numbers, too."""
    written(tmp_path / "n.parquet", {"id": [7, -1, (1 << 63) - 1]})
    written(tmp_path / "t.parquet", {"id": ["7", "-1", ""]})

    assert [each.key for each in dq.Documents.from_parquet(tmp_path / "n.parquet", key="id")] == [7, -1, (1 << 63) - 1]
    assert [each.key for each in dq.Documents.from_parquet(tmp_path / "t.parquet", key="id")] == ["7", "-1", ""]


@pytest.mark.parametrize("options", [{"key": "idd"}, {"columns": ["txet"]}, {"key": "id", "columns": ["n", "Text"]}])
def test_a_wrong_name_is_found_before_anything_is_listed(tmp_path: Path, options: dict[str, Any]) -> None:
    papers(tmp_path / "a.parquet")

    with pytest.raises(KeyError, match=r"Did you mean '(id|text)'\? Nothing was submitted. Columns: 'id', 'text', 'n'"):
        dq.Documents.from_parquet(tmp_path / "a.parquet", **options)


def test_a_later_file_without_the_column_is_named(tmp_path: Path) -> None:
    papers(tmp_path / "a.parquet")
    written(tmp_path / "b.parquet", {"ID": ["x"]})
    documents = iter(dq.Documents.from_parquet(tmp_path / "*.parquet", key="id"))

    assert [next(documents).key for _ in range(10)][-1] == "p9"
    with pytest.raises(ColumnNotFound, match=r"b\.parquet' has no column 'id'. Did you mean 'ID'|b\.parquet'.*'ID'"):
        next(documents)


def in_folders(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        written(folder / path, {"n": [path]})


@pytest.mark.parametrize(
    "values",
    [
        *(["2024"], ["01", "2"], ["1", "x"], ["2147483648", "1"], ["-2147483648", "2147483647"], ["-5", "007"]),
        *(["+5"], [" 5"], ["1", "__HIVE_DEFAULT_PARTITION__"], ["x", "__HIVE_DEFAULT_PARTITION__"], ["", "1"]),
        *(["a%20b"], ["a+b"], ["1.5"], ["%31"], ["1_0"], ["٣"], ["%ZZ"], ["%E2%99%A5"], ["a%2Fb"], ["a=b"], ["null"]),
    ],
    ids=repr,
)
def test_folders_of_partitions_are_columns_as_pyarrow_reads_them(tmp_path: Path, values: list[str]) -> None:
    """``df.to_parquet(partition_cols=...)`` moves columns into the names of folders, and rows had lost them."""
    in_folders(tmp_path, *(f"a%20b=1/y={value}/f.parquet" for value in values), "a%20b=2/f.parquet", "f.parquet")
    expected = dataset.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    listing = dq.Documents.from_parquet(tmp_path / "**")
    documents = pickle.loads(pickle.dumps(list(listing)))

    assert [each.row for each in documents] == expected
    assert [{name: each[name] for name in each.row} for each in listing[:]] == expected
    assert [list(each.row) for each in documents] == [list(row) for row in expected]
    assert [each.row for each in dq.Documents.from_parquet(tmp_path / "**" / "*.parquet", columns=["y"])] == [
        {"y": row["y"]} for row in expected
    ]


def test_a_folder_that_came_after_the_types_were_found_has_its_text(tmp_path: Path) -> None:
    in_folders(tmp_path, "y=1/f.parquet")
    listing = dq.Documents.from_parquet(tmp_path / "**")
    in_folders(tmp_path, "y=later/f.parquet", "z=2/f.parquet")

    assert [each["y"] for each in listing] == [1, "later", None]


def test_names_that_begin_with_an_underscore_or_a_dot_are_no_data(tmp_path: Path) -> None:
    """`_metadata` listed all rows twice, and `_SUCCESS`, which Spark writes, ended the listing."""
    names = (
        "_metadata",
        "_common_metadata",
        "y=1/_part.parquet",
        "y=1/.part.parquet",
        "_old/f.parquet",
        "_y=1/f.parquet",
    )
    in_folders(tmp_path, *names, "y=1/f.parquet")
    (tmp_path / "_SUCCESS").touch()

    assert [each.row for each in dq.Documents.from_parquet(tmp_path / "**")] == [{"n": "y=1/f.parquet", "y": 1}]
    assert [each["n"] for each in dq.Documents.from_parquet(tmp_path / "_*metadata")] == [
        "_common_metadata",
        "_metadata",
    ]
    assert [each["n"] for each in dq.Documents.from_parquet([tmp_path / "_metadata"])] == ["_metadata"]


def test_a_column_that_a_file_lacks_is_null_there(tmp_path: Path) -> None:
    """Columns come and go over the years: a listing ended at the first file without one."""
    tables = [pa.table({"id": ["a"], "old": [1]}), pa.table({"id": ["b"], "new": [2]}), pa.table({"id": ["c"]})]
    for at, table in enumerate(tables):
        written(tmp_path / f"{at}.parquet", table)
    expected = pa.concat_tables(tables, promote_options="default").to_pylist()

    for names in (["id", "old", "new"], ["new"], ["old", "new"]):
        found = dq.Documents.from_parquet(tmp_path / "*.parquet", key="id", columns=names)
        assert [each.row for each in found] == [{name: row[name] for name in names} for row in expected]
    for each, row in zip(dq.Documents.from_parquet(tmp_path / "*.parquet"), expected, strict=True):
        assert each["old"] == row["old"], "the first file has it"
        with pytest.raises(ColumnNotFound, match=r"no column 'nwe'.*Columns: 'id', "):
            each["nwe"]
    with pytest.raises(ColumnNotFound, match=r"0.parquet' has no column 'nwe'"):
        dq.Documents.from_parquet(tmp_path / "*.parquet", columns=["new", "nwe"])


def test_a_reference_from_an_older_log_has_no_added_columns(tmp_path: Path) -> None:
    """It is also written as before, so that a submission continues in its store."""
    papers(tmp_path / "a.parquet")
    document = dq.Documents.from_parquet(tmp_path / "a.parquet", key="id", columns=["n"])[4]
    revive, state = document.__reduce__()

    assert state[3:] == (1, 1, 4)
    assert revive(*state) == document
    assert revive(*state).row == {"n": 4}


N = 8
ROWS: dict[str, Any] = {
    "id": [f"p{at}" for at in range(N)],
    "n": list(range(N)),
    "x": [float("nan"), None, -0.0, 1.5, 2.5, 3.5, None, 4.5],
    "when": [datetime.date(2024, 1, 1 + at) for at in range(N)],
    "tags": [["a"] * (at % 3) if at % 4 else None for at in range(N)],
    "meta": [{"deep": {"at": at, "none": None}} for at in range(N)],
    "text": pa.array(["same", "other"] * (N // 2)).dictionary_encode(),
}
CONTENT: dict[str, Callable[[pa.Table], pa.Table]] = {
    "rows in another order": lambda table: table.take(list(range(N))[::-1]),
    "columns in another order": lambda table: table.select(table.schema.names[::-1]),
    "a shorter type": lambda table: table.set_column(1, "n", table["n"].cast(pa.int16())),
    "texts instead of a dictionary": lambda table: table.set_column(6, "text", table["text"].cast(pa.string())),
    "a column of nulls": lambda table: table.append_column("new", pa.nulls(N)),
}
CHANGED: dict[str, tuple[int, Any]] = {
    "n": (3, 4), "x": (0, None), "when": (3, None), "tags": (1, ["a", None]), "text": (3, "same"),
    "meta": (3, {"deep": {"at": 3, "none": 0}}), "new": (3, 1.0)}  # fmt: skip


def versions_in(path: Path, table: pa.Table, group: int = 3, **options: Any) -> dict[Any, str]:
    options = {"key": "id", "version": "*"} | options
    return {each.key: each.version for each in dq.Documents.from_parquet(written(path, table, group), **options)}


@pytest.mark.parametrize("edit", CONTENT.values(), ids=CONTENT)
def test_the_version_of_a_row_is_what_a_function_can_read_of_it(
    tmp_path: Path, edit: Callable[[pa.Table], pa.Table]
) -> None:
    table = pa.table(ROWS)
    assert versions_in(tmp_path / "a.parquet", edit(table), 2) == versions_in(tmp_path / "b.parquet", table)


@pytest.mark.parametrize("column", CHANGED)
def test_a_row_has_another_version_when_any_of_its_values_changes(tmp_path: Path, column: str) -> None:
    (at, value), table = CHANGED[column], pa.table(ROWS)
    values = table[column].to_pylist() if column in ROWS else [None] * N
    values[at] = value
    edited = pa.table({name: table[name] for name in ROWS} | {column: values})
    for version in ("*", column):
        if column == "new" and version == "new":
            continue
        before = versions_in(tmp_path / "a.parquet", table, version=version)
        after = versions_in(tmp_path / "a.parquet", edited, version=version)
        assert {key for key in before if before[key] != after[key]} == {f"p{at}"}
    other = "id" if column != "id" else "n"
    assert versions_in(tmp_path / "a.parquet", table, version=[other]) == versions_in(
        tmp_path / "a.parquet", edited, version=[other]
    )


def test_a_row_with_a_version_of_its_own_is_read_only_from_the_file_that_was_listed(tmp_path: Path) -> None:
    documents = list(dq.Documents.from_parquet(written(tmp_path / "a.parquet", pa.table(ROWS)), key="id", version="n"))
    assert pickle.loads(pickle.dumps(documents)) == documents
    assert [document["n"] for document in documents] == list(range(N))
    written(tmp_path / "a.parquet", pa.table(ROWS).slice(1))
    parquet._let_go()
    with pytest.raises(DocumentChanged):
        documents[0].row  # noqa: B018


@pytest.mark.parametrize("options", [{"version": "n"}, {"key": "id", "version": []}, {"key": "id", "version": 7}])
def test_versions_of_rows_come_from_columns_of_rows_with_keys(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="version"):
        dq.Documents.from_parquet(written(tmp_path / "a.parquet", pa.table(ROWS)), **options)
    with pytest.raises(ColumnNotFound, match="'m'"):
        dq.Documents.from_parquet(tmp_path / "a.parquet", key="id", version=["n", "m"])


@pytest.mark.parametrize("columns", ["text", [], 7, ["n", "n"]])
def test_columns_are_a_list_of_different_names(tmp_path: Path, columns: Any) -> None:
    papers(tmp_path / "a.parquet")

    with pytest.raises(BadOption, match="Nothing was listed"):
        dq.Documents.from_parquet(tmp_path / "a.parquet", columns=columns)


def test_a_column_that_is_there_twice_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], names=["id", "x", "x"])
    written(tmp_path / "a.parquet", table)

    with pytest.raises(DocumentError, match=r"more than one column 'x'.*Nothing was submitted. Rename"):
        dq.Documents.from_parquet(tmp_path / "a.parquet", key="id")
    assert dq.Documents.from_parquet(tmp_path / "a.parquet", columns=["id"])[0].row == {"id": "a"}


KINDS: dict[str, tuple[pa.Array, list[Any]]] = {
    "ints": (pa.array([1, None, 3]), [1, None, 3]),
    "whole": (pa.array([1, 2, 3], pa.uint64()), [1, 2, 3]),
    "floats": (pa.array([1.5, None, float("inf")]), [1.5, None, float("inf")]),
    "bools": (pa.array([True, None, False]), [True, None, False]),
    "texts": (pa.array(["ä", None, ""]), ["ä", None, ""]),
    "large": (pa.array(["ä", None, ""], pa.large_string()), ["ä", None, ""]),
    "bytes": (pa.array([b"\0", None, b""]), [b"\0", None, b""]),
    "nothing": (pa.nulls(3), [None, None, None]),
    "days": (pa.array([datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]),) * 2,
    "instants": (
        pa.array([1_700_000_000_123_456_789, None, -1], pa.timestamp("ns")),
        [
            datetime.datetime(2023, 11, 14, 22, 13, 20, 123456),  # noqa: DTZ001 - as it is stored
            None,
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - as it is stored
        ],
    ),
    "spans": (pa.array([1_000, None, 2_500], pa.duration("ns")),) * 2,
    "decimals": (pa.array([Decimal("1.10"), None, Decimal("-2.00")]), [Decimal("1.10"), None, Decimal("-2.00")]),
    "lists": (pa.array([[1, None], None, []]), [[1, None], None, []]),
    "dicts": (pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),) * 2,
    "categories": (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    "inner": (pa.array([[1_000], None, []], pa.list_(pa.timestamp("ns"))),) * 2,
    "pairs": (pa.array([[1_000, 2_000], None, [0, None]], pa.list_(pa.timestamp("ns"), 2)),) * 2,
    "chosen": (
        pa.ListArray.from_arrays([0, 1, 1, 2], pa.array([1_000, 0], pa.timestamp("ns")).dictionary_encode()),
        [[datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], [], [datetime.datetime(1970, 1, 1)]],  # noqa: DTZ001 - as it is stored
    ),
}


def is_read_back(path: Path, array: pa.Array) -> bool:
    """Return whether this pyarrow writes and reads an array; 15 does not for lists of one length, or of categories."""
    try:
        pq.write_table(pa.table({"one": array}), path)
        pq.read_table(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def test_values_become_plain_python_with_none_for_null(tmp_path: Path) -> None:
    """Every Arrow type that files have in practice; times to the microsecond, and no object of pandas among them."""
    kinds = {name: kind for name, kind in KINDS.items() if is_read_back(tmp_path / "one.parquet", kind[0])}
    assert len(kinds) >= len(KINDS) - 2
    written(tmp_path / "a.parquet", {name: array for name, (array, _) in kinds.items()}, group=2)
    rows = [each.row for each in dq.Documents.from_parquet(tmp_path / "a.parquet")]

    expected = {name: want if isinstance(want, list) else None for name, (_, want) in kinds.items()}
    expected["days"] = KINDS["days"][0].to_pylist()
    expected["spans"] = [datetime.timedelta(microseconds=1), None, datetime.timedelta(microseconds=2)]
    expected["dicts"] = KINDS["dicts"][0].to_pylist()
    expected["inner"] = [[datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], None, []]  # noqa: DTZ001 - as it is stored
    first, second = (datetime.datetime(1970, 1, 1, 0, 0, 0, at) for at in (1, 2))  # noqa: DTZ001 - as it is stored
    expected["pairs"] = [[first, second], None, [first.replace(microsecond=0), None]]
    for name, want in ((name, expected[name]) for name in kinds):
        found = [row[name] for row in rows]
        assert found == want, name
        assert repr(found) == repr(want), name


@pytest.mark.parametrize("group", [1, 7, 100])
def test_files_without_rows_and_groups_of_any_size_are_read(tmp_path: Path, group: int) -> None:
    papers(tmp_path / "a.parquet", n=0)
    papers(tmp_path / "b.parquet", n=20, group=group)
    documents = dq.Documents.from_parquet(tmp_path / "*.parquet", key="id")

    assert [each["n"] for each in documents] == list(range(20))
    assert list(dq.Documents.from_parquet(tmp_path / "a.parquet")) == []


# --- refused --------------------------------------------------------------------------------


def test_keys_that_repeat_are_named_with_their_place_across_files(tmp_path: Path) -> None:
    papers(tmp_path / "a.parquet")
    papers(tmp_path / "b.parquet", n=30, first=5)
    papers(tmp_path / "c.parquet", n=30, first=5)
    documents = dq.Documents.from_parquet(tmp_path / "*.parquet", key="id")
    listed = []

    with pytest.raises(DocumentError, match=r"'p5' comes again in b.parquet:0\.") as raised:
        listed.extend(document.key for document in documents)
    assert listed == [f"p{at}" for at in range(10)]
    assert raised.value.keys == ["p5"]
    with pytest.raises(DocumentError):
        list(documents[0:])


def test_a_null_among_the_keys_is_named_by_its_row(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", {"id": ["a", "b", "c", "d", None], "no": pa.nulls(5)})
    documents = dq.Documents.from_parquet(tmp_path / "a.parquet", key="id")
    for listed in (documents, documents[0:]):
        with pytest.raises(DocumentError, match=r"row 4 of '.*a.parquet' has no key: its 'id' is null.*leave out key="):
            list(listed)
    with pytest.raises(DocumentError, match="row 0"):
        list(dq.Documents.from_parquet(tmp_path / "a.parquet", key="no"))


@pytest.mark.parametrize("array", [pa.array([1.0]), pa.array([True]), pa.array([[1]]), pa.array([b"a"])])
def test_values_that_cannot_be_keys_are_refused(tmp_path: Path, array: pa.Array) -> None:
    written(tmp_path / "a.parquet", {"id": array})

    with pytest.raises(DocumentError, match=r"row 0 .*keys of documents are texts or whole numbers.*Name a column"):
        list(dq.Documents.from_parquet(tmp_path / "a.parquet", key="id"))


@pytest.mark.parametrize("contents", [b"", b"id,text\n1,a\n", b"PAR1" + bytes(100)])
def test_what_is_not_a_whole_parquet_file_is_refused_by_name(tmp_path: Path, contents: bytes) -> None:
    """An empty file, one of another format, and one that is being written and has no footer yet."""
    (tmp_path / "a.parquet").write_bytes(contents)

    with pytest.raises(FileUnreadable, match=r"a.parquet' cannot be read as Parquet: .*no footer yet: wait"):
        dq.Documents.from_parquet(tmp_path / "a.parquet")
    papers(tmp_path / "0.parquet", n=1)
    documents = iter(dq.Documents.from_parquet(tmp_path / "*"))
    assert next(documents).key == "0.parquet:0"
    with pytest.raises(FileUnreadable, match=r"a.parquet"):
        next(documents)


@pytest.mark.parametrize("pattern", ["no/*.parquet", "*.parquet", "no.parquet", "memory://nowhere/*.parquet"])
def test_a_pattern_that_matches_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """There is nothing to read columns from, and a run of no documents is mostly a wrong path."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InputNotFound, match=r"no file matches .*Nothing was listed. Check the path"):
        dq.Documents.from_parquet(pattern)
    with pytest.raises(InputNotFound):
        dq.Documents.from_parquet([])


@pytest.mark.parametrize("given", [7, None, b"a.parquet", [7], pd.DataFrame({"a": [1]})])
def test_what_is_no_path_is_refused(given: Any) -> None:
    with pytest.raises((BadOption, InputNotFound), match="Nothing was listed"):
        dq.Documents.from_parquet(given)


def test_a_folder_is_refused_with_the_pattern_for_it(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"that is a folder. Use '.*/\*\*'"):
        dq.Documents.from_parquet(tmp_path)


def test_a_missing_pyarrow_says_which_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    papers(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)

    with pytest.raises(ExtraMissing, match=r"Parquet files need pyarrow.*pip install 'dqlab\[tables\]'"):
        dq.Documents.from_parquet(tmp_path / "a.parquet")
    with pytest.raises(ImportError):
        dq.Documents.from_parquet(tmp_path / "a.parquet")


def test_rows_have_no_text_and_files_have_no_rows(tmp_path: Path) -> None:
    path = papers(tmp_path / "a.parquet")
    row, file = dq.Documents.from_parquet(path)[0], Document("a", "", str(path))

    for asked in (row.text, row.bytes, row.open, lambda: list(row.pages())):
        with pytest.raises(WrongKind, match=r"is a row of a Parquet file.*Nothing was read. Use doc.row or doc"):
            asked()
    with pytest.raises(WrongKind, match=r"document 'a' is a file.*doc.row is not available.*doc.text\(\)"):
        _ = file.row
    with pytest.raises(WrongKind, match=r"doc\['x'\]"):
        file["x"]


def test_a_file_that_changes_after_it_was_listed_fails_its_documents(tmp_path: Path) -> None:
    """Row 5 of another file is another document."""
    path = papers(tmp_path / "a.parquet")
    documents = list(dq.Documents.from_parquet(path, key="id"))
    assert documents[5]["n"] == 5
    papers(path, n=10, first=100)
    parquet._TABLES.clear()
    parquet._GROUPS.clear()

    with pytest.raises(
        DocumentChanged,
        match=r"document 'p8' has changed since it was listed.*None of it.*It is a row: map the rows again",
    ):
        documents[8]["n"]
    path.write_bytes(b"other")
    with pytest.raises(DocumentChanged):
        documents[8]["n"]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        documents[8]["n"]
    fresh = papers(path, n=10, first=100)
    assert dq.Documents.from_parquet(fresh, key="id")[8]["n"] == 108


def test_the_row_that_finds_a_changed_file_is_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the row for which the file was opened: that one has its result."""
    monkeypatch.setattr(parquet, "BATCH_ROWS", 4)
    path = papers(tmp_path / "a.parquet", n=10, group=10)
    documents = list(dq.Documents.from_parquet(path, key="id"))
    assert documents[0]["n"] == 0
    os.utime(path, ns=(1, 1))

    assert documents[3]["n"] == 3
    for asked in (lambda: documents[7]["n"], lambda: documents[7].row):
        with pytest.raises(DocumentChanged, match="document 'p7' has changed"):
            asked()


def test_a_file_that_changes_while_it_is_listed_ends_the_listing(tmp_path: Path) -> None:
    path = papers(tmp_path / "a.parquet", n=6_000, group=3_000)
    documents = iter(dq.Documents.from_parquet(path, key="id"))
    next(documents)
    papers(path, n=6_000, first=5, group=3_000)

    with pytest.raises((DocumentChanged, FileUnreadable), match=r"a.parquet"):
        list(documents)


# --- cost -----------------------------------------------------------------------------------


def test_neighbours_cost_one_decode_however_many_slots_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = papers(tmp_path / "a.parquet", n=2_000, group=1_000)
    documents = list(dq.Documents.from_parquet(path, key="id", columns=["n", "text"]))
    decoded = []
    real = parquet.ParquetTable.batches

    def counted(self: Any, group: int, names: Any, rows: Any = None) -> Any:
        decoded.append((group, tuple(names)))
        return real(self, group, names, rows)

    monkeypatch.setattr(parquet.ParquetTable, "batches", counted)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda at=at: found.extend(each["n"] for each in documents[at::4])) for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == list(range(2_000))
    assert sorted(decoded) == [(0, ("text", "n")), (1, ("text", "n"))]


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = papers(tmp_path / "a.parquet", n=100, group=50)
    documents = list(dq.Documents.from_parquet(path))
    decoded = []
    real = parquet.ParquetTable.batches

    def counted(self: Any, group: int, names: Any, rows: Any = None) -> Any:
        decoded.append((group, tuple(names)))
        return real(self, group, names, rows)

    monkeypatch.setattr(parquet.ParquetTable, "batches", counted)
    assert [each["n"] for each in documents] == list(range(100))
    assert decoded == [(0, ("n",)), (1, ("n",))]
    decoded.clear()
    assert [(each["id"], each["n"]) for each in documents] == [(f"p{at}", at) for at in range(100)]
    assert len(decoded) <= 4, "after the first row of a group it is known which columns are used"


def test_a_large_row_group_is_decoded_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group of a million rows of text does not fit into a worker; ascending reads never start over."""
    monkeypatch.setattr(parquet, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(parquet, "GROUP_BYTES", 60_000)
    texts = [f"{at:05}" * 40 for at in range(5_000)]
    path = written(tmp_path / "a.parquet", {"text": texts}, group=5_000)
    documents = list(dq.Documents.from_parquet(path))

    assert [each["text"] for each in documents] == texts
    (batches,) = [slot.value for slot in parquet._GROUPS._open.values()]
    assert batches._forward.starts == 1
    assert sum(piece.size for piece in batches._forward._pieces) <= 60_000 + 30_000
    far = [document for pair in zip(documents[:500], documents[4_000:4_500], strict=True) for document in pair]
    assert [each["text"] for each in far] == [
        t for pair in zip(texts[:500], texts[4_000:4_500], strict=True) for t in pair
    ]
    assert batches._forward.starts <= 3, "two slots at two places do not start each other over"


def test_the_first_document_comes_after_one_footer_and_some_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of files: the first message leaves at once."""
    for at in range(5):
        papers(tmp_path / f"{at}.parquet", n=10, first=10 * at)
    documents = dq.Documents.from_parquet(tmp_path / "*.parquet", key="id")
    opened = []
    real = parquet.ParquetTable.__init__
    monkeypatch.setattr(
        parquet.ParquetTable, "__init__", lambda self, where: (opened.append(where), real(self, where))[1]
    )

    next(iter(documents))
    assert len(opened) == 1


def test_files_are_closed_when_they_are_listed_and_when_others_are_read(tmp_path: Path) -> None:
    """A folder has more files than a process may have open."""
    paths = [papers(tmp_path / f"{at:03}.parquet", n=2, first=2 * at) for at in range(60)]
    gc.disable()
    try:
        documents = list(dq.Documents.from_parquet(paths, key="id"))
        assert count_files(tmp_path) == 0
        assert [each["n"] for each in documents] == list(range(120))
        assert count_files(tmp_path) <= 20
    finally:
        gc.enable()


# --- values that Python cannot hold ----------------------------------------------------------


AFTER_9999 = 253402300800
"""Seconds from 1970 to the year 10000."""


def broken_text(values: list[bytes]) -> pa.Array:
    """Make texts of any bytes, as other programs write them: pyarrow does not check them."""
    array = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(values), array.buffers()[1], array.buffers()[2])


POISONED = {
    "timestamp": (pa.array([0, AFTER_9999 * 10**6, 5], pa.timestamp("us")), "out of range"),
    "seconds": (pa.array([0, AFTER_9999, 5], pa.timestamp("s")), "out of range"),
    "date": (pa.array([0, 3_000_000, 5], pa.int32()).cast(pa.date32()), "out of range"),
    "duration": (pa.array([0, 2**62, 5], pa.int64()).cast(pa.duration("s")), "Overflow"),
    "text": (broken_text([b"a", b"\xff\xfe", b"c"]), "utf-8.*0xff"),
    "category": (broken_text([b"a", b"\xff\xfe", b"c"]).dictionary_encode(), "utf-8.*0xff"),
    "list": (pa.array([[0], [1, AFTER_9999 * 10**6], []], pa.list_(pa.timestamp("us"))), "out of range"),
    "struct": (
        pa.StructArray.from_arrays([broken_text([b"a", b"\xff\xfe", b"c"])], names=["inner"]),
        "utf-8.*0xff",
    ),
}
"""Three values by kind, the second of which Python cannot hold, and why."""


@pytest.mark.parametrize("kind", POISONED)
def test_a_value_that_python_cannot_hold_fails_its_row_alone_and_by_name(tmp_path: Path, kind: str) -> None:
    array, said = POISONED[kind]
    table = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3], "v": array})
    documents = list(dq.Documents.from_parquet(written(tmp_path / "a.parquet", table), key="id"))

    assert [each.key for each in documents] == ["a", "b", "c"]
    for whole in (documents[0], documents[2]):
        assert set(whole.row) == {"id", "n", "v"}
        assert whole["v"] == whole.row["v"]
    assert [each["n"] for each in documents] == [1, 2, 3]
    for asked in (lambda: documents[1]["v"], lambda: documents[1].row):
        with pytest.raises(RecordInvalid, match=rf"document 'b'.*column 'v'.*{said}.*other rows of") as caught:
            asked()
        assert (caught.value.key, caught.value.column) == ("b", "v")


def test_a_key_that_python_cannot_hold_ends_the_listing(tmp_path: Path) -> None:
    table = pa.table({"id": broken_text([b"a", b"\xff\xfe", b"c"])})

    with pytest.raises(DocumentError, match=r"column 'id' of .*a.parquet' has a value .*utf-8"):
        list(dq.Documents.from_parquet(written(tmp_path / "a.parquet", table), key="id"))
    with pytest.raises(RecordInvalid, match=r"column 'id', in rows 0 to 2.*utf-8"):
        list(dq.Documents.from_frame(table, key="id"))
