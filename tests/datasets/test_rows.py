"""Each value comes back, in its column or in the rest of its row, whatever the function returned."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import io
import json
import math
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dqlab.datasets import rows as module
from dqlab.datasets.lineage import LINEAGE
from dqlab.datasets.plain import EXACT
from dqlab.datasets.rows import MOST_COLUMNS, SAMPLE, Shape
from tests.datasets.pages import batch_of, column, in_json, rows_of, same
from tests.kit.sampled import examples

pytestmark = pytest.mark.lowest

UTC = datetime.UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
WEST = datetime.timezone(datetime.timedelta(hours=-9))
NOON = datetime.datetime(2026, 7, 1, 12, 30, 1, 234567)  # noqa: DTZ001 - with and without a zone
HALF_PAST = datetime.datetime(2026, 7, 1, 12, 30)  # noqa: DTZ001
FIRST, LAST = datetime.datetime.min, datetime.datetime.max  # noqa: DTZ901


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Page:
    number: int
    words: list[str]


Point = namedtuple("Point", "x y")


class Moment(datetime.datetime):
    """As libraries of times have it."""


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -(2**63), 2**63 - 1], "int64"),
        ([1.5, None, math.inf, -0.0], "double"),
        ([1, 2.5, 2**53], "double"),
        ([True, None, False], "bool"),
        (["a", None, "", "ä♥😀", "a\0b"], "string"),
        ([b"", b"\xff\0", None], "binary"),
        ([datetime.date(1, 1, 1), None, datetime.date.max], "date32[day]"),
        ([datetime.time(23, 59, 59, 999999), None], "time64[us]"),
        ([datetime.timedelta(days=-3, microseconds=7), None], "duration[us]"),
        ([NOON, FIRST, LAST], "timestamp[us]"),
        ([NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=BERLIN)], "timestamp[us, tz=UTC]"),
        ([decimal.Decimal("1.50"), decimal.Decimal("-20000.1"), decimal.Decimal("1E+3")], "decimal128(7, 2)"),
        ([[1, 2], [], None, [None]], "list<item: int64>"),
        ([[1], [2.5]], "list<item: double>"),
        ([[[1]], [[], [2]]], "list<item: list<item: int64>>"),
        ([(1, 2), [3]], "list<item: int64>"),
        ([{"x": 1}, None, {"y": "a"}, {}], "struct<x: int64, y: string>"),
        ([{"x": {"y": [1]}}, {"x": {"y": [2.5], "z": None}}], "struct<x: struct<y: list<item: double>, z: null>>"),
        ([[{"x": 1}], [{"x": None}, {"x": 2}]], "list<item: struct<x: int64>>"),
        ([None, None], "null"),
    ],
)
def test_values_of_one_kind_are_a_column_of_its_type(values: list[Any], kind: str) -> None:
    found, came, rest = column(values)

    assert found == kind
    assert all(map(same, came, values)), came
    assert rest == [None] * len(values)


@pytest.mark.parametrize(
    ("values", "kind", "plain"),
    [
        ([np.int64(7), np.uint8(1), 3], "int64", [7, 1, 3]),
        ([np.float64(1.5), np.float32(0.1), 2], "double", [1.5, float(np.float32(0.1)), 2]),
        ([np.bool_(True), False], "bool", [True, False]),
        ([np.str_("a"), "b"], "string", ["a", "b"]),
        ([np.bytes_(b"a"), bytearray(b"b")], "binary", [b"a", b"b"]),
        ([np.datetime64("2026-07-01T12:30"), np.datetime64("NaT")], "timestamp[us]", [HALF_PAST, None]),
        ([np.timedelta64(5, "s")], "duration[us]", [datetime.timedelta(seconds=5)]),
        ([pd.Timestamp("2026-07-01T12:30"), pd.NaT], "timestamp[us]", [HALF_PAST, None]),
        ([pd.Timedelta("1s"), pd.NA], "duration[us]", [datetime.timedelta(seconds=1), None]),
        ([Moment(2026, 7, 1, tzinfo=UTC)], "timestamp[us, tz=UTC]", [datetime.datetime(2026, 7, 1, tzinfo=UTC)]),
        ([Colour.RED, "blue"], "string", ["red", "blue"]),
        ([Level.HIGH, 1], "int64", [3, 1]),
        ([Page(1, ["a"])], "struct<number: int64, words: list<item: string>>", [{"number": 1, "words": ["a"]}]),
        ([Point(1, 2)], "struct<x: int64, y: int64>", [{"x": 1, "y": 2}]),
        ([OrderedDict(x=1), Counter(x=2), defaultdict(int, x=3)], "struct<x: int64>", [{"x": 1}, {"x": 2}, {"x": 3}]),
        ([np.arange(3), np.array([], int)], "list<item: int64>", [[0, 1, 2], []]),
        ([np.array([0.5, math.nan], np.float32)], "list<item: float>", [[0.5, math.nan]]),
        ([np.array([0.1], np.float32), [0.1]], "list<item: double>", [[float(np.float32(0.1))], [0.1]]),
        ([np.ones((2, 2))], "list<item: list<item: double>>", [[[1.0, 1.0], [1.0, 1.0]]]),
        ([np.array([1.5], np.float16)], "list<item: double>", [[1.5]]),
        ([np.array(["a", None], object)], "list<item: string>", [["a", None]]),
        ([pd.Series([1, 2])], "list<item: int64>", [[1, 2]]),
        ([np.array(5)], "int64", [5]),
    ],
)  # fmt: skip
def test_values_of_libraries_and_classes_are_what_they_stand_for(
    values: list[Any], kind: str, plain: list[Any]
) -> None:
    found, came, rest = column(values)

    assert found == kind
    assert all(map(same, came, plain)), came
    assert rest == [None] * len(values)


@pytest.mark.parametrize(
    ("first", "other", "told"),
    [
        (1, "a", "a"),
        (1, True, True),
        ("a", b"a", {"base64": "YQ=="}),
        (b"a", "a", "a"),
        (1, 2**63, 2**63),
        (NOON, NOON.replace(tzinfo=UTC), "2026-07-01T12:30:01.234567+00:00"),
        (NOON.time(), NOON.time().replace(tzinfo=UTC), "12:30:01.234567+00:00"),
        (NOON.replace(tzinfo=UTC), LAST.replace(tzinfo=WEST), "9999-12-31T23:59:59.999999-09:00"),
        (datetime.timedelta(1), datetime.timedelta.max, "999999999 days, 23:59:59.999999"),
        (decimal.Decimal(1), decimal.Decimal("1E-40"), "1E-40"),
        (NOON, pd.Timestamp("2026-07-01T00:00:00.000000001"), "2026-07-01T00:00:00.000000001"),
        (datetime.timedelta(1), pd.Timedelta(1, "ns"), "0 days 00:00:00.000000001"),
        (datetime.timedelta(1), np.timedelta64(5, "M"), "5 months"),
        ([1], ["a"], ["a"]),
        ({"x": 1}, {"x": "a"}, {"x": "a"}),
        ({"x": 1}, {1: 2}, {"1": 2}),
        ({"x": 1}, {1: 2, "1": 3}, [[1, 2], ["1", 3]]),
        ("a", "\ud800", "\ud800"),
        ("a", math.nan, "NaN"),
        ("a", {3}, [3]),
        ("a", 1j, "1j"),
        ("a", uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("a", PurePosixPath("x/y"), "x/y"),
        ("a", np.array([1 + 2j]), ["(1+2j)"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_column_stands_in_the_rest_of_its_row(first: Any, other: Any, told: Any) -> None:
    """Arrow would drop a zone, make text of bytes, or refuse the whole page."""
    _, came, rest = column([first, other, None])

    assert same(came[0], first)
    assert came[1:] == [None, None]
    assert rest[0] is rest[2] is None
    assert json.loads(rest[1]) == {"a": told}


@pytest.mark.parametrize("large", [2**24 + 2, -(2**30), 2**200])
@pytest.mark.parametrize("widen", [True, False])
def test_a_large_whole_number_beside_small_floats_of_numpy_is_kept(large: int, *, widen: bool) -> None:
    """Arrow refuses it as a float of 32 bits, also where it is one: tables of the whole run raised that."""
    shape = Shape()
    first = list(shape.batches(rows_of([{"a": np.array([0.25], np.float32)}] * SAMPLE), widen=True))
    (later,) = shape.batches(rows_of([{"a": [large]}, {"a": [1]}], first=SAMPLE), widen=widen)

    assert str(first[0].schema.field("a").type) == "list<item: float>"
    assert later["a"].to_pylist() == [[large] if widen and large < EXACT else None, [1.0]]
    assert [text and json.loads(text) for text in later["_rest"].to_pylist()] == [
        None if widen and large < EXACT else {"a": [large]},
        None,
    ]


def circle() -> list[Any]:
    made: list[Any] = [1]
    made.append({"again": made})
    return made


@pytest.mark.parametrize("first", [1, [1], None])
@pytest.mark.parametrize(
    ("opaque", "kind"),
    [
        (circle(), "list"),
        ([{"x": object()}], "object"),
        ([10**5_000], "list"),
        (pd.DataFrame(), "DataFrame"),
        (pd.Series([1], ["label"]), "Series"),
        (np.zeros(2, "i4, f8"), "void"),
    ],
)
def test_a_value_that_no_plain_data_stands_for_is_counted_and_its_row_is_there(
    first: Any, opaque: Any, kind: str
) -> None:
    """Its text stood in the rest as if it were the value, at most 1,000 characters of it."""
    shape = Shape()
    (batch,) = shape.batches(rows_of([{"a": first, "b": 1}, {"a": opaque, "b": 2}, {"a": opaque}]), widen=True)

    assert batch["a"].to_pylist() == [first, None, None]
    assert batch["b"].to_pylist() == [1, 2, None]
    assert batch["_rest"].null_count == 3
    assert dict(shape.misfits) == {("a", kind): 2}
    assert shape.in_rest == 0


@pytest.mark.parametrize("deep", [100, 400, 5_000])
def test_a_value_of_any_depth_is_in_its_column_or_in_the_rest(deep: int) -> None:
    nested: Any = "here"
    for _ in range(deep):
        nested = [nested]

    _, came, rest = column([{"x": 1}, nested, {"x": 2}])

    assert came == [{"x": 1}, None, {"x": 2}]
    assert json.loads(rest[1]) == {"a": nested} if deep < 5_000 else rest[1] is None


@pytest.mark.parametrize("wrap", [lambda each: [each], lambda each: {"a": each}, lambda each: [{"a": each}]])
@pytest.mark.parametrize("deep", [16, 60])
def test_a_table_with_deep_values_is_written_as_parquet_that_can_be_read(wrap: Any, deep: int) -> None:
    """Parquet has a limit for readers alone: a part was written, and its documents were done."""
    nested: Any = 1
    for _ in range(deep):
        nested = wrap(nested)
    batch, file = batch_of([{"n": nested}]), io.BytesIO()

    pq.write_table(pa.Table.from_batches([batch]), file)

    (row,) = pq.read_table(file).to_pylist()
    assert (json.loads(row["_rest"])["n"] if deep > 16 else row["n"]) == nested


def test_rows_and_values_of_one_run_have_their_own_columns() -> None:
    """A row may have a column of that name, which is another one."""
    batch = batch_of([{"value": 1, "b": "x"}, 5, None, Page(3, ["w"]), Point(1, 2), "text"])

    assert batch.to_pylist() == [
        dict.fromkeys(batch.schema.names) | {"_key": 0, "_ordinal": 0, "value": 1, "b": "x"},
        dict.fromkeys(batch.schema.names) | {"_key": 1, "_ordinal": 1, "value_": 5},
        dict.fromkeys(batch.schema.names) | {"_key": 2, "_ordinal": 2},
        dict.fromkeys(batch.schema.names) | {"_key": 3, "_ordinal": 3, "number": 3, "words": ["w"]},
        dict.fromkeys(batch.schema.names) | {"_key": 4, "_ordinal": 4, "x": 1, "y": 2},
        dict.fromkeys(batch.schema.names) | {"_key": 5, "_ordinal": 5, "_rest": '{"value_":"text"}'},
    ]


def test_a_run_that_returns_nothing_has_an_empty_column() -> None:
    assert batch_of([None, None]).to_pydict() == {
        "_key": [0, 1],
        "_ordinal": [0, 1],
        "value": [None] * 2,
        "_rest": [None] * 2,
    }


@pytest.mark.parametrize("name", LINEAGE)
def test_a_column_of_the_user_with_the_name_of_lineage_gets_an_underscore(name: str) -> None:
    """A user's `_key` in place of ours would join rows with other documents."""
    batch = batch_of([{name: "mine", f"{name}_": "other"}], ["doc"])

    (row,) = batch.to_pylist()
    assert (row["_key"], row["_ordinal"]) == ("doc", 0)
    assert (row[f"{name}_"], row[f"{name}__"]) == ("mine", "other")


def test_names_of_columns_are_text_and_none_comes_twice() -> None:
    batch = batch_of([{1: "int", "1": "text", None: "none", (1, 2): "tuple", "": "empty", "A": 1, "a": 2, "\ud800": 3}])

    names = ["1", "1_", "None", "(1, 2)", "", "A", "a", "\\ud800"]
    assert batch.schema.names == ["_key", "_ordinal", *names, "_rest"]
    assert list(batch.to_pylist()[0].values())[2:-1] == ["int", "text", "none", "tuple", "empty", 1, 2, 3]


@pytest.mark.parametrize(
    ("keys", "kind", "came"),
    [
        (None, "int64", [0, 1]),
        (["a/b.txt", "ä"], "string", ["a/b.txt", "ä"]),
        ([7, -3], "int64", [7, -3]),
        (["7", 7], "string", ["7", "7"]),
        (["\udce9.txt", "b"], "string", ["\\xe9.txt", "b"]),
        ([2**70, 1], "string", [str(2**70), "1"]),
    ],
)
def test_keys_are_numbers_where_all_are_and_else_text(keys: Any, kind: str, came: list[Any]) -> None:
    batch = batch_of([{"n": 1}, {"n": 2}], keys)

    assert (str(batch.schema.field("_key").type), batch["_key"].to_pylist()) == (kind, came)


def test_a_key_that_is_no_text_as_it_is_stands_in_the_rest_exactly() -> None:
    batch = batch_of([{"n": 1}], ["\udce9.txt"])

    assert json.loads(batch["_rest"][0].as_py()) == {"_key": "\udce9.txt"}


def test_a_key_that_a_part_of_a_sink_has_in_its_rest_is_not_there_twice() -> None:
    rest = pa.array(['{"_key":"\\udce9.txt"}'])
    rows = module.Rows(range(1), ["\udce9.txt"], [], columns={"n": pa.array([1])}, rest=rest)

    (batch,) = Shape().batches(rows, widen=True)

    assert batch["_rest"].equals(rest)


# --- beyond the first values ---------------------------------------------------------------------


def test_types_widen_behind_the_first_values_and_columns_do_not_become_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE", 2)
    shape = Shape()
    early = list(shape.batches(rows_of([{"n": 1, "m": None}, {"n": 2}]), widen=True))
    late = list(shape.batches(rows_of([{"n": 2.5, "m": "x", "new": 1}, {"n": "no"}], first=2), widen=True))

    rows = pa.Table.from_batches([shape.recast(batch) for batch in [*early, *late]], shape.schema).to_pylist()
    assert [row["n"] for row in rows] == [1.0, 2.0, 2.5, None]
    assert [row["m"] for row in rows] == [None, None, "x", None]
    assert [row["_rest"] for row in rows] == [None, None, '{"new":1}', '{"n":"no"}']
    assert shape.in_rest == 2


def test_words_as_names_of_columns_end_in_the_rest() -> None:
    """A dict that counts the words of a text does not become a row of 100,000 columns."""
    batch = batch_of([{f"w{n}": n for n in range(MOST_COLUMNS + 5)}])

    assert len(batch.schema.names) == MOST_COLUMNS + 3
    assert json.loads(batch["_rest"][0].as_py()) == {f"w{n}": n for n in range(MOST_COLUMNS, MOST_COLUMNS + 5)}


def test_documents_without_a_result_have_the_reason_and_no_value() -> None:
    shape = Shape(reasoned=True)
    (batch,) = shape.batches(
        module.Rows(range(3), None, [{"n": 1}, KeyError("x"), None], [None, "KeyError: \ud800", None]), widen=True
    )

    assert batch.schema.names == ["_key", "_ordinal", "n", "_error", "_rest"]
    assert batch["n"].to_pylist() == [1, None, None]
    assert batch["_error"].to_pylist() == [None, "KeyError: \\ud800", None]
    assert batch["_rest"].to_pylist() == [None] * 3


def test_lineage_that_is_not_known_is_null() -> None:
    """A page of an older log comes behind one that has it; a column that is not there would be a zero elsewhere."""
    shape = Shape(lined=True)
    known = {"_code": ["abc123"], "_seconds": pa.array([0.5]), "_attempts": [2]}
    (first,) = shape.batches(module.Rows(range(1), None, [1], lineage=known), widen=True)
    (second,) = shape.batches(module.Rows(range(1, 2), None, [1]), widen=True)

    assert first.schema.equals(second.schema)
    assert [batch["_code"].to_pylist() for batch in (first, second)] == [["abc123"], [None]]
    assert [batch["_seconds"].to_pylist() for batch in (first, second)] == [[0.5], [None]]
    assert [batch["_attempts"].to_pylist() for batch in (first, second)] == [[2], [None]]
    assert [batch["_at"].to_pylist() for batch in (first, second)] == [[None], [None]]


# --- any mix of values ---------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "é\0"]),
    st.binary(max_size=3),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, BERLIN])),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(),
    st.sampled_from([np.int32(4), np.float64(0.5), np.bool_(False), np.arange(2), np.array([0.25], np.float32)]),
)
names = st.sampled_from(["a", "b", "", "A", "_key", "_rest", "value", "\ud801", 1, "1", None])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3), st.tuples(inner)),
    max_leaves=6,
)
results = st.one_of(values, st.dictionaries(names, values, max_size=4))


def _free(name: str, taken: Any) -> str:
    while name in LINEAGE or name in taken:
        name += "_"
    return name


def _named(name: Any) -> str:
    return {"\ud801": "\\ud801"}.get(name, str(name))


def _check(row: dict[str, Any], value: Any, called: dict[Any, str]) -> None:
    """Compare a row with what went in: each cell is in its column, or in the rest, or None."""
    rest = json.loads(row["_rest"]) if row["_rest"] is not None else {}
    cells = value if isinstance(value, dict) else {} if value is None else {"no row": value}
    seen = set()
    for name, cell in cells.items():
        where = called.get((type(name), name) if isinstance(value, dict) else "no row")
        if where is None:  # a column that came behind the first values
            where = _free("value" if not isinstance(value, dict) else _named(name), [*called.values(), *seen])
        seen.add(where)
        if where in rest:
            assert row.get(where) is None
            wanted = in_json(cell)
            assert rest.pop(where) == wanted
        else:
            assert same(row[where], cell), (row[where], cell)
    assert rest == {}
    for name, cell in row.items():
        assert name in {*LINEAGE, *seen} or cell is None or same(cell, dict(cells).get(name)), name


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(results, max_size=8), st.lists(results, max_size=5), st.booleans())
@example([], [{"1": None}, {1: [], "1": None}], False)
@example([[None, None]], [[1]], True)
@example([{"a": [[None, None], []]}], [{"a": [[1]]}], False)
@example([{"a": 1}, {"a": {}}], [{"a": [1]}], True)
@example([{"a": 2**60}], [{"a": 0.5}], True)
@example([{"a": [2**60]}], [{"a": [0.5]}], True)
@example([{"a": {"b": 1}}], [{"a": {"b": 0.5, "1": None}}], True)
def test_every_value_comes_back_in_its_row(first: list[Any], later: list[Any], widen: bool) -> None:
    """Whatever is in a row, and whatever came before it, it is there, under its own key and in its own place."""
    shape = Shape()
    batches = list(shape.batches(rows_of(first, [f"k{at}" for at in range(len(first))]), widen=True))
    shape.seen = SAMPLE
    keys = [f"k{at}" for at in range(len(first), len(first) + len(later))]
    batches += shape.batches(rows_of(later, keys, first=len(first)), widen=widen)
    rows = pa.Table.from_batches([shape.recast(batch) for batch in batches], shape.schema).to_pylist()

    called: dict[Any, str] = {}
    for name in dict.fromkeys(each for value in first if isinstance(value, dict) for each in value):
        called[type(name), name] = _free(_named(name), called.values())
    if any(value is not None and not isinstance(value, dict) for value in first):
        called["no row"] = _free("value", called.values())
    assert [row["_ordinal"] for row in rows] == list(range(len(first) + len(later)))
    assert [row["_key"] for row in rows] == [f"k{at}" for at in range(len(rows))]
    for row, value in zip(rows, [*first, *later], strict=True):
        _check(row, value, called)
    assert shape.in_rest == sum(row["_rest"] is not None for row in rows)
