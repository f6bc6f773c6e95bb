"""Rows of frames in memory: what becomes of every value, which key and version a row has, what is refused."""

from __future__ import annotations

import datetime
import math
import pickle
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.documents.document import sealed_key
from dqlab.documents.labelled import sealed_label
from dqlab.errors import (
    BadOption,
    ColumnNotFound,
    DocumentError,
    RecordInvalid,
    WrongKind,
)
from tests.kit.hugging_face import Dataset
from tests.kit.sampled import examples

pytestmark = pytest.mark.lowest

ROOT = Path(__file__).parents[2]
_FIRST, _FAR = np.datetime64("1970-01-01T00:00:00"), np.datetime64("20000-01-01T00:00:00")
_DAWN = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - as it is stored
FRAME = pd.DataFrame({"id": ["a", "b", "c"], "n": [1, 2, 3]})
BERLIN = pd.Timestamp("2024-07-01 12:00:00.5", tz="Europe/Berlin")


def rows(frame: Any, **options: Any) -> list[dict[Any, Any]]:
    """Send the rows of a frame through a message each."""
    return [pickle.loads(pickle.dumps(each, 5)).row for each in dq.Documents.from_frame(frame, **options)]


def versions(frame: Any, **options: Any) -> list[str]:
    return [each.version for each in dq.Documents.from_frame(frame, **options)]


def test_a_row_travels_in_its_message_with_the_chosen_columns_alone() -> None:
    documents = list(dq.Documents.from_frame(FRAME, key="id", columns=["n"]))

    assert [(each.key, each.row, each["n"]) for each in documents] == [
        ("a", {"n": 1}, 1),
        ("b", {"n": 2}, 2),
        ("c", {"n": 3}, 3),
    ]
    with pytest.raises(ColumnNotFound, match="'id'"):
        documents[0]["id"]
    with pytest.raises(WrongKind, match=r"a row of a frame.*Nothing was read. Use doc.row"):
        documents[0].text()


@pytest.mark.parametrize(
    ("frame", "key", "keys"),
    [
        (FRAME, "id", ["a", "b", "c"]),
        (FRAME, "n", [1, 2, 3]),
        (FRAME, None, [0, 1, 2]),
        (FRAME[1:], None, [1, 2]),
        (FRAME.set_index("id"), None, ["a", "b", "c"]),
        (FRAME.set_index("id"), "n", [1, 2, 3]),
        (FRAME.set_index("id"), "id", ["a", "b", "c"]),
        (FRAME.set_index(pd.Index([7, 5, 6])), None, [7, 5, 6]),
        (FRAME.astype({"id": "category"}), "id", ["a", "b", "c"]),
        (FRAME.astype({"n": "Int64"}), "n", [1, 2, 3]),
        (pa.Table.from_pandas(FRAME), "id", ["a", "b", "c"]),
        (pa.Table.from_pandas(FRAME), None, [0, 1, 2]),
        (pa.RecordBatch.from_pandas(FRAME), "n", [1, 2, 3]),
    ],
)
def test_keys_are_those_of_a_column_or_of_the_index_or_positions(frame: Any, key: Any, keys: list[Any]) -> None:
    """Results join with the frame they came from."""
    found = [each.key for each in dq.Documents.from_frame(frame, key=key)]

    assert found == keys
    assert [type(each) for each in found] == [type(each) for each in keys]


COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "int": (pd.Series([1, 2], dtype="int32"), [1, 2]),
    "float": (pd.Series([1.5, np.nan]), [1.5, None]),
    "single": (pd.Series([0.5, np.nan], dtype="float32"), [0.5, None]),
    "whole": (pd.Series([1, None], dtype="Int64"), [1, None]),
    "nullable": (pd.Series([1.5, None], dtype="Float64"), [1.5, None]),
    "array of times": (
        pd.Series([np.array([_FIRST, "NaT"], "datetime64[ns]"), np.array([[1, 2]], "timedelta64[ns]")]),
        [[_DAWN, None], [[datetime.timedelta(0)] * 2]],
    ),
    "array of one": (pd.Series([np.array(1.5), np.ma.masked, np.array(_FIRST)], dtype=object), [1.5, None, _DAWN]),
    "bool": (pd.Series([True, False]), [True, False]),
    "boolean": (pd.Series([True, None], dtype="boolean"), [True, None]),
    "text": (pd.Series(["ä", None], dtype="string"), ["ä", None]),
    "object": (pd.Series(["", np.nan], dtype=object), ["", None]),
    "instant": (
        pd.Series(pd.to_datetime(["2024-01-01 00:00:00.123456789", None])),
        [datetime.datetime(2024, 1, 1, 0, 0, 0, 123456), None],  # noqa: DTZ001 - as it is stored
    ),
    "zoned": (pd.Series([BERLIN, pd.NaT]), [BERLIN.to_pydatetime(), None]),
    "span": (pd.Series(pd.to_timedelta(["1s", None])), [datetime.timedelta(seconds=1), None]),
    "category": (pd.Series(["x", None], dtype="category"), ["x", None]),
    "numbers": (pd.Series([1, None], dtype="category"), [1, None]),
    "days": (pd.Series([datetime.date(2024, 1, 1), None], dtype=object), [datetime.date(2024, 1, 1), None]),
    "decimal": (pd.Series([Decimal("1.10"), None], dtype=object), [Decimal("1.10"), None]),
    "list": (pd.Series([[1, np.nan, np.int64(2)], None], dtype=object), [[1, None, 2], None]),
    "array": (pd.Series([np.array([1.0, np.nan]), np.array([], dtype=int)], dtype=object), [[1.0, None], []]),
    "dict": (
        pd.Series([{"a": np.float32(0.5), "b": {"c": pd.NA}}, {}], dtype=object),
        [{"a": 0.5, "b": {"c": None}}, {}],
    ),
    "mixed": (pd.Series([np.int64(3), "3"], dtype=object), [3, "3"]),
    "moment": (
        pd.Series([np.datetime64("2024-01-01T00:00:00.5"), np.datetime64("NaT")], dtype=object),
        [datetime.datetime(2024, 1, 1, 0, 0, 0, 500000), None],  # noqa: DTZ001 - as it is stored
    ),
    "arrow": (pd.Series([1, None], dtype=pd.ArrowDtype(pa.int64())), [1, None]),
    "bytes": (pd.Series([b"\0", None], dtype=object), [b"\0", None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_values_of_pandas_become_plain_python_and_what_is_missing_becomes_none(name: str) -> None:
    """None, NaN, NaT and NA mean one thing in pandas, and nan is true and has no length."""
    series, expected = COLUMNS[name]
    found = [row["x"] for row in rows(pd.DataFrame({"x": series}))]

    assert found == expected
    assert [type(each) for each in found] == [type(each) for each in expected]


def test_a_frame_and_the_parquet_file_of_it_have_the_same_rows(tmp_path: Path) -> None:
    """A function that was tried on a frame runs over the files."""
    names = [
        "int",
        "float",
        "whole",
        "bool",
        "boolean",
        "text",
        "object",
        "instant",
        "zoned",
        "category",
        "days",
        "arrow",
    ]
    frame = pd.DataFrame({name: COLUMNS[name][0] for name in names})
    frame.to_parquet(tmp_path / "a.parquet")

    assert rows(frame) == [each.row for each in dq.Documents.from_parquet(tmp_path / "a.parquet")]


def test_arrow_keeps_null_and_nan_apart() -> None:
    found = [row["x"] for row in rows(pa.table({"x": [1.0, None, math.nan]}))]

    assert found[:2] == [1.0, None]
    assert math.isnan(found[2])


def test_rows_of_polars_are_those_polars_gives() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "id": ["a", "b"],
            "x": [1.0, None],
            "t": [datetime.datetime(2024, 1, 1), None],  # noqa: DTZ001 - as it is stored
            "l": [[1, 2], None],
            "d": [{"a": 1}, {"a": None}],
        }
    )

    assert rows(frame) == frame.rows(named=True)
    assert [each.key for each in dq.Documents.from_frame(frame, key="id")] == ["a", "b"]
    with pytest.raises(BadOption, match="Collect"):
        dq.Documents.from_frame(frame.lazy())


def test_frames_without_rows_have_no_documents() -> None:
    assert list(dq.Documents.from_frame(FRAME[:0])) == []
    assert list(dq.Documents.from_frame(FRAME[:0].set_index("id"))) == []
    assert rows(pd.DataFrame(index=[1, 2])) == [{}, {}]


# --- versions -------------------------------------------------------------------------------


def test_an_edited_frame_is_another_input_and_an_equal_one_the_same() -> None:
    """A run that is mapped again knows which rows it had."""
    frame = pd.DataFrame({"x": ["a", "b"], "t": [BERLIN, pd.NaT], "d": [{"k": Decimal(1)}, [1]]})
    before = versions(frame)
    other = pd.DataFrame({"x": ["".join(["a"]), "b"], "t": [BERLIN, pd.NaT], "d": [{"k": Decimal(1)}, [1]]})
    assert versions(other) == before == versions(frame[0:])

    other.loc[1, "x"] = "B"
    assert versions(other)[0] == before[0]
    assert versions(other)[1] != before[1]
    assert versions(frame.rename(columns={"x": "y"}))[0] != before[0]
    assert len(set(versions(pd.DataFrame({"x": [1, 1.0, True, "1", b"1", None]}, dtype=object)))) == 6


@pytest.mark.cluster
def test_versions_are_the_same_in_every_process() -> None:
    """The submission of a process that was killed goes on in another."""
    script = (
        "import datetime, decimal, pandas as pd, dqlab as dq;"
        "frame = pd.DataFrame({'x': [{'b', 'a', 'c'}, ('t', 1)], 't': [datetime.datetime(2024, 1, 1)] * 2,"
        " 'd': [decimal.Decimal('1.0'), {'k': [None]}]});"
        "print([each.version for each in dq.Documents.from_frame(frame)])"
    )
    said = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for _ in range(2)
    }

    assert len(said) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.dates() | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=examples(50))
@given(st.lists(VALUES, min_size=1, max_size=5), st.data())
def test_any_value_arrives_and_has_one_version(values: list[Any], data: st.DataObject) -> None:
    column = pd.Series(values, dtype=object)
    frame = pd.DataFrame({"x": column})

    assert [row["x"] for row in rows(frame)] == values
    assert versions(frame) == versions(pd.DataFrame({"x": pickle.loads(pickle.dumps(column))}))


# --- keys in messages -----------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "", "\0i7", "7", 7, -1, 0, 1 << 70])
def test_key_of_a_row_is_read_from_its_message_without_opening_it(key: Any) -> None:
    """A row whose process died before it was opened is named all the same."""
    (document,) = dq.Documents.from_frame(pd.DataFrame({"x": [BERLIN]}, index=pd.Index([key], dtype=object)))
    sealed = pickle.dumps(document, 5)

    assert document.key == key
    assert sealed_label(sealed) == key
    plain = pickle.dumps(dq.Documents.from_frame(pd.DataFrame({"x": ["a"], "k": [key]}, dtype=object), key="k")[0], 5)
    assert sealed_key(plain) == key


# --- refused --------------------------------------------------------------------------------


def test_a_row_above_the_limit_of_messages_fails_by_name_and_the_others_go_on() -> None:
    frame = pd.DataFrame({"id": ["small", "large"], "text": ["a", "a" * (2 << 20)]})
    small, large = dq.Documents.from_frame(frame, key="id")

    assert small["text"] == "a"
    assert len(pickle.dumps(large, 5)) < 300
    for asked in (lambda: large.row, lambda: large["text"]):
        with pytest.raises(DocumentError, match=r"row 'large' takes 2,097,\d+ bytes.*were not sent.*from_parquet"):
            asked()


@pytest.mark.parametrize(
    ("frame", "options", "error", "said"),
    [
        (FRAME, {"key": "idd"}, ColumnNotFound, "Did you mean 'id'"),
        (FRAME, {"columns": ["m"]}, ColumnNotFound, "Nothing was submitted"),
        (FRAME, {"columns": "n"}, BadOption, r"columns=\['n'\]"),
        (FRAME["n"], {}, BadOption, "a Series or other values: lab.map"),
        ([{"a": 1}], {}, BadOption, "a Series or other values: lab.map"),
        (pd.concat([FRAME, FRAME], axis=1), {}, DocumentError, "'id'"),
    ],
)
def test_what_cannot_be_listed_is_refused_at_once(
    frame: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        dq.Documents.from_frame(frame, **options)


@pytest.mark.parametrize(
    ("frame", "key", "error", "said"),
    [
        (pd.DataFrame({"id": ["a", None]}), "id", DocumentError, "row 1 .*'id' is null"),
        (pd.DataFrame({"id": [1.0, np.nan]}), "id", DocumentError, r"type float.*frame.reset_index\(\)"),
        (pd.DataFrame({"id": [True]}), "id", DocumentError, "type bool"),
        (FRAME.set_index(pd.to_datetime(["2024"] * 3)), None, DocumentError, "row 0 .*type datetime in 'index'"),
        (FRAME.set_index(["id", "n"]), None, DocumentError, r"type tuple in 'index'.*frame.reset_index\(\)"),
        (
            pd.DataFrame({"id": ["b", "a", "a", "b", "a"]}),
            "id",
            DocumentError,
            "'a' comes again in row 2",
        ),
        (pd.concat([FRAME, FRAME]), None, DocumentError, "0 comes again in row 3"),
    ],
)
def test_keys_that_name_no_row_are_refused(frame: Any, key: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        list(dq.Documents.from_frame(frame, key=key))


def test_a_frame_that_is_changed_after_it_was_mapped_keeps_its_rows() -> None:
    """The input is read while the run is submitted."""
    frame = FRAME.copy()
    documents = dq.Documents.from_frame(frame, key="id")
    frame["n"] = 0
    frame.loc[0, "n"] = 9

    assert [each["n"] for each in documents] == [1, 2, 3]


@pytest.mark.cluster
def test_frames_are_recognised_without_importing_their_libraries() -> None:
    script = (
        "import sys, dqlab as dq\n"
        "try: dq.Documents.from_frame([1])\n"
        "except dq.errors.BadOption: print(sorted({'pandas', 'polars', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout

    assert said == "[]\n"


# --- frames that are not in memory ------------------------------------------------------------


def test_partitions_of_dask_are_computed_one_at_a_time() -> None:
    """A frame that does not fit into memory is a frame all the same."""
    import dask.bag
    from dask import delayed

    made: list[int] = []

    def part(at: int) -> list[dict[str, Any]]:
        made.append(at)
        return [
            {"id": f"{at}-{row}", "n": row, "even": row} if row % 2 == 0 else {"id": f"{at}-{row}", "n": row}
            for row in range(3)
        ]

    bag = dask.bag.from_delayed([delayed(part)(at) for at in range(3)])
    documents = iter(dq.Documents.from_dask(bag, key="id"))
    with dask.config.set(scheduler="synchronous"):
        first = next(documents)
        assert (first.key, first.row, made) == ("0-0", {"id": "0-0", "n": 0, "even": 0}, [0])
        assert [each.key for each in documents] == [f"{at}-{row}" for at in range(3) for row in range(3)][1:]
        assert [each.key for each in dq.Documents.from_dask(bag)] == list(range(9))
        assert dq.Documents.from_dask(bag)[1]["even"] is None
        with pytest.raises(BadOption, match=r"not dicts.*bag.map"):
            list(dq.Documents.from_dask(dask.bag.from_sequence(["a"])))
    with pytest.raises(BadOption, match="from_frame"):
        dq.Documents.from_dask(FRAME)


class FramesOfDask:
    """As a Dask DataFrame, which takes another package: what `from_dask` uses of one."""

    __dask_graph__ = None

    def __init__(self, *frames: pd.DataFrame) -> None:
        self._frames = frames or (FRAME, FRAME.assign(id=["d", "e", "f"]))
        self.columns, self.index = self._frames[0].columns, self._frames[0].index

    def to_delayed(self) -> list[Any]:
        from dask import delayed

        return list(map(delayed, self._frames))


def numbered(*labels: Any, start: int = 0) -> pd.DataFrame:
    """A partition with these labels; without any, three rows with the default index from `start` on."""
    return pd.DataFrame({"n": range(len(labels) or 3)}, index=list(labels) or pd.RangeIndex(start, start + 3))


@pytest.mark.parametrize(
    ("partitions", "keys"),
    [
        ([numbered(), numbered()], [0, 1, 2, 3, 4, 5]),
        ([numbered(), numbered(start=3)], [0, 1, 2, 3, 4, 5]),
        ([numbered(), numbered(4, 5)], [0, 1, 2, 4, 5]),
        ([numbered(), numbered()[:0], numbered(5, 4)], [0, 1, 2, 5, 4]),
        ([numbered(4, 5), numbered()], [4, 5, 0, 1, 2]),
        ([numbered("a", "b"), numbered()], ["a", "b", 0, 1, 2]),
    ],
    ids=["default", "goes on", "later labels", "none between", "first labels", "texts first"],
)
def test_rows_of_partitions_are_numbered_through_or_have_the_labels_of_the_whole(
    partitions: list[pd.DataFrame], keys: list[Any]
) -> None:
    """After a filter some partitions have the default index, and others lack rows: labels and positions were mixed."""
    documents = dq.Documents.from_dask(FramesOfDask(*partitions))

    assert [each.key for each in documents] == [each.key for each in documents[0:]] == keys
    assert [each["n"] for each in documents] == [n for each in partitions for n in each["n"]]


@pytest.mark.parametrize(
    ("partitions", "before"),
    [
        ([numbered(), numbered(1, 5)], [0, 1, 2]),
        ([numbered(1, 5), numbered()], [1, 5, 0]),
        ([numbered(4, 5), numbered(), numbered()], [4, 5, 0, 1, 2]),
    ],
    ids=["label of a position", "position of a label", "default twice"],
)
def test_a_label_that_is_the_key_of_a_row_of_another_partition_is_refused(
    partitions: list[pd.DataFrame], before: list[int]
) -> None:
    documents = dq.Documents.from_dask(FramesOfDask(*partitions))
    for each in (documents, documents[0:]):
        rows = iter(each)
        assert [next(rows).key for _ in before] == before
        with pytest.raises(DocumentError, match=r"again in row .*key="):
            next(rows)


def test_a_dask_dataframe_takes_the_name_of_its_index_as_key() -> None:
    named = [numbered().rename_axis("id"), numbered(start=3).rename_axis("id")]
    documents = dq.Documents.from_dask(FramesOfDask(*named), key="id")

    assert [each.key for each in documents] == [0, 1, 2, 3, 4, 5]


def test_datasets_are_read_slice_by_slice_and_only_the_chosen_columns() -> None:
    dataset = Dataset({"text": [f"t{at}" for at in range(2_500)], "image": [object()] * 2_500})
    documents = dq.Documents.from_hf(dataset, columns=["text"])

    assert next(iter(documents)).row == {"text": "t0"}
    assert dataset.read == [(0, 1_000, ("text",))]
    assert [(each.key, each["text"]) for each in documents] == [(at, f"t{at}") for at in range(2_500)]
    assert [each.key for each in dq.Documents.from_hf(dataset, key="text", columns=["text"])[:2]] == ["t0", "t1"]
    for other in ({"train": dataset}, iter([{"text": "a"}])):
        with pytest.raises(BadOption, match=r"Choose a split: dataset\['train'\].*lab.map"):
            dq.Documents.from_hf(other)


def test_a_row_is_no_sequence_and_is_shown_briefly() -> None:
    """What has values by name would otherwise be asked for number 0, 1, 2, in a loop by mistake."""
    (row,) = dq.Documents.from_frame(pd.DataFrame({0: ["a"], 1: ["b" * 10_000]}))

    for mistake in (lambda: list(row), lambda: "a" in row, lambda: [*dq.Document("a", "", "/a")]):
        with pytest.raises(TypeError, match=r"iterable|container"):
            mistake()
    assert len(repr(row)) < 400


def _polars(seconds: list[int]) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame(
        {"n": [1, 2, 3], "when": polars.Series(seconds).cast(polars.Int64).cast(polars.Datetime("ms"))}
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: pd.DataFrame({"n": [1, 2, 3], "when": np.array([0, 253402300800, 5], "datetime64[s]")}),
        lambda: _polars([0, 253402300800_000, 5]),
        lambda: _polars([0, 2**62, 5]),
        lambda: pd.DataFrame({"n": [1, 2, 3], "when": pd.Series([_FIRST, _FAR, _FIRST], dtype=object)}),
    ],
    ids=["pandas", "polars", "polars panics", "numpy"],
)
def test_a_value_of_a_frame_that_python_cannot_hold_ends_the_listing_by_the_name_of_its_column(made: Any) -> None:
    said = r"column 'when', in rows 0 to 2.*(out of range|overflowed).*map the rows again"
    with pytest.raises(RecordInvalid, match=said):
        list(dq.Documents.from_frame(made(), key="n"))
    assert [row["n"] for row in dq.Documents.from_frame(made(), key="n", columns=["n"])] == [1, 2, 3]
