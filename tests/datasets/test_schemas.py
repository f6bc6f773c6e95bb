"""A return annotation is the schema: its classes become columns, values go to the table and come back equal."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import ipaddress
import json
import pathlib
import pickle
import typing
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.datasets.columns import declared_kind
from dqlab.datasets.plain import row_of
from dqlab.datasets.schemas import Typed, annotated, declared
from dqlab.datasets.sink_parts import Reader, SinkRows, open_parts, writer_of
from dqlab.datasets.sinks import claim
from dqlab.datasets.table import RunTable
from dqlab.errors import AnswerInvalid, BadOption
from tests.datasets.pages import Pages
from tests.kit.sampled import examples

pytestmark = pytest.mark.lowest

try:
    import pydantic
except ImportError:  # it is not required
    pydantic = None  # type: ignore[assignment]

UTC = datetime.UTC
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Line:
    text: str
    price: decimal.Decimal = decimal.Decimal(0)


@dataclasses.dataclass
class Invoice:
    number: int
    lines: list[Line]
    note: str | None = None


@dataclasses.dataclass
class LongLine(Line):
    more: str = ""


@attrs.define
class Point:
    x: float
    _y: float = 0.0
    length: float = attrs.field(init=False, default=1.0)


class Pair(NamedTuple):
    left: int
    right: Line


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Box(Generic[T]):
    items: list[T]


@dataclasses.dataclass
class Rare:
    """Its number fits no column, so all of it is JSON in the rest of its row."""

    number: int
    data: bytes
    at: datetime.datetime
    id: uuid.UUID


RARE = {"number": "int64", "data": "binary", "at": "timestamp[us]", "id": "string"}


@dataclasses.dataclass
class Unknown:
    number: int
    other: Undefined = None  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Strict:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("below 0")


NOON = datetime.datetime(2026, 7, 1, 12, 30, 1, 234567)  # noqa: DTZ001
LINE = {"text": "string", "price": "decimal(38,9)"}
KINDS: list[tuple[Any, Any, Any]] = [
    (bool, "bool", True),
    (int, "int64", -(2**63)),
    (float, "double", 0.5),
    (str, "string", "ä\0"),
    (bytes, "binary", b"\xff"),
    (datetime.date, "date32[day]", datetime.date(2026, 1, 2)),
    (datetime.datetime, "timestamp[us]", NOON),
    (datetime.datetime, "timestamp[us]", NOON.replace(tzinfo=UTC)),
    (datetime.time, "time64[us]", datetime.time(23, 59)),
    (datetime.timedelta, "duration[us]", datetime.timedelta(days=-3, microseconds=7)),
    (decimal.Decimal, "decimal(38,9)", decimal.Decimal("1.5")),
    (decimal.Decimal, "decimal(38,9)", decimal.Decimal("1e-20")),
    (uuid.UUID, "string", uuid.UUID(int=7)),
    (pathlib.PurePosixPath, "string", pathlib.PurePosixPath("a/b")),
    (Colour, "string", Colour.RED),
    (Level, "int64", Level.LOW),
    (Literal["a", "b"], "string", "b"),
    (Literal[1, "b"], None, 1),
    (str | None, "string", None),
    (typing.Optional[int], "int64", 3),  # noqa: UP045
    (int | float, "double", 2),
    (int | str, None, "x"),
    (Line | Point, None, Point(1.0)),
    (list[int], ["int64"], [1, 2]),
    (list[Colour], ["string"], [Colour.BLUE]),
    (set[int], ["int64"], {1, 2}),
    (tuple[float, ...], ["double"], (1.0, 2.0)),
    (tuple[int, str], None, (1, "a")),
    (Sequence[str], ["string"], ["a"]),
    (list, [None], [1]),
    (dict[str, int], None, {"a": 1}),
    (dict[str, Line], None, {"a": Line("x")}),
    (Line, LINE, Line("x", decimal.Decimal("2.50"))),
    (list[Line], [LINE], [Line("x"), Line("y")]),
    (list[Line] | None, [LINE], None),
    (Point, {"x": "double", "_y": "double", "length": "double"}, Point(1.0, 2.0)),
    (Pair, {"left": "int64", "right": LINE}, Pair(1, Line("x"))),
    (Movie, {"title": "string", "year": "int64"}, {"title": "a"}),
    (Node, {"name": "string", "children": [None]}, Node("a", [Node("b", [Node("c")])])),
    (Box[int], {"items": ["int64"]}, Box([1])),
    (Rare, RARE, Rare(2**63, b"\xff", NOON, uuid.UUID(int=7))),
    (Box[Line], {"items": [LINE]}, Box([Line("x")])),
    (Box, {"items": [None]}, Box([1])),
    (Unknown, {"number": "int64", "other": None}, Unknown(1)),
    (Any, None, 1.5),
    ("Line", LINE, Line("x")),
]
MODEL_ANSWERS: list[Any] = []
MODEL_INVALID: list[Any] = []
MODEL_ROWS: list[Any] = []
if pydantic is not None:

    class Priced(pydantic.BaseModel):
        price: decimal.Decimal = pydantic.Field(decimal.Decimal(0), max_digits=9, decimal_places=2)
        _seen: int = 0

    class Model(pydantic.BaseModel):
        number: int
        lines: list[Line] = []  # noqa: RUF012
        at: datetime.datetime | None = None
        of: list[Priced] = []  # noqa: RUF012
        next: Model | None = None

    class Aliased(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        of: str = pydantic.Field(alias="from")

    PRICED = {"price": "decimal(9,2)"}
    FIELDS = {"number": "int64", "lines": [LINE], "at": "timestamp[us]", "of": [PRICED], "next": None}
    KINDS += [
        (pydantic.AwareDatetime, None, NOON.replace(tzinfo=UTC)),
        (pydantic.HttpUrl, "string", pydantic.HttpUrl("https://example.org/a")),
        (Model, FIELDS, Model(number=1, lines=[Line("x")], at=NOON, of=[Priced(price="1.5")], next=Model(number=2))),
        (Aliased, {"of": "string"}, Aliased(**{"from": "a", "more": 1})),
    ]
    MODEL_ANSWERS += [
        (Model, '{"number": "1", "at": "2026-07-01T12:30:01.234567"}', Model(number=1, at=NOON)),
        (Model, {"number": 1, "lines": [Line("x")]}, Model(number=1, lines=[Line("x")])),
        (Aliased, {"from": "a", "more": 1}, Aliased(**{"from": "a", "more": 1})),
    ]
    MODEL_INVALID += [
        (Model, {"number": "many"}, "number", "valid integer"),
        (Model, {"number": 1, "of": [{"price": "1.555"}]}, "of.0.price", "2 decimal places"),
        (Model, '{"number": 1', "", "Invalid JSON"),
    ]
    MODEL_ROWS += [
        (Model(number=1), {"number": 1, "lines": [], "at": None, "of": [], "next": None}),
        (Aliased(**{"from": "a", "more": 1}), {"of": "a", "more": 1}),
        (Model, None),
    ]


def travelled(said: Any) -> Typed:
    """Return the class of fields as a consumer opens it."""
    typed = pickle.loads(cloudpickle.dumps(declared(said)))
    assert isinstance(typed, Typed)
    return typed


def through_a_sink(typed: Typed, values: Sequence[Any], folder: Path) -> tuple[list[Any], pa.Schema]:
    """Return the objects that come back from a part with some values, and the schema of the part."""
    n = len(values)
    known = ["v"] * n, ["c0de"] * n, [0.5] * n, [1] * n, ["consumer/q/0"] * n, [1.7e9] * n
    rows = [pickle.loads(pickle.dumps(typed.row(value))) for value in values]
    sink = dq.Parquet(folder / "out")
    claim(sink, "r", "ab" * 16)
    written = SinkRows([list(range(n)), [None] * n, rows, *known], [typed.fields])
    references = writer_of(sink, "r", "ab" * 16, "here").write("abababab-c0-1-000000", written)
    assert {type(each) for each in references} == {bytes}, references
    open_parts.clear()
    found = Reader(sink, "r", "ab" * 16).find(references, list(range(n)))  # type: ignore[arg-type]
    schema = pa.parquet.read_schema(folder / "out" / "abababab-c0-1-000000.parquet")
    return [typed.value(row) for row in found], schema


@pytest.mark.parametrize(("said", "column", "value"), KINDS, ids=[str(each[0])[-40:] for each in KINDS])
def test_an_annotation_says_its_column_and_a_value_comes_back(
    said: Any, column: Any, value: Any, tmp_path: Path
) -> None:
    holder: Any = dataclasses.make_dataclass("Holder", [("value", said), ("number", int)])
    holder.__module__ = __name__
    typed = travelled(holder)

    assert typed.fields == {"value": column, "number": "int64"}
    objects = [holder(value, 1), holder(value, 2)]
    assert [typed.value(typed.row(each)) for each in objects] == objects
    assert through_a_sink(typed, objects, tmp_path)[0] == objects


@pytest.mark.parametrize("kind", [Line, Point, Pair, Movie, Invoice, Node])
def test_a_table_without_rows_has_the_declared_types(kind: Any) -> None:
    pages = Pages([])
    pages.declared = [declared(kind).fields]

    schema = RunTable(pages).to_arrow().schema
    assert {name: schema.field(name).type for name in declared(kind).fields} == {
        name: declared_kind(column) for name, column in declared(kind).fields.items()
    }
    assert "value" not in schema.names


def test_a_part_whose_fields_are_all_none_has_the_declared_types(tmp_path: Path) -> None:
    found, schema = through_a_sink(declared(Invoice), [Invoice(1, [])], tmp_path)

    assert found == [Invoice(1, [])]
    assert schema.field("note").type == pa.string()
    assert schema.field("lines").type == pa.list_(pa.struct([("text", pa.string()), ("price", pa.decimal128(38, 9))]))


def test_columns_of_two_code_versions_are_widened() -> None:
    pages = Pages([{"a": 1, "b": "x"}, {"a": 1.5, "c": [1]}])
    pages.declared = [{"a": "int64", "b": "string"}, {"a": "double", "c": ["int64"], "d": "bool"}]

    table = RunTable(pages).to_arrow()
    assert [str(table.schema.field(name).type) for name in "abcd"] == ["double", "string", "list<item: int64>", "bool"]
    assert table.column("c").to_pylist() == [None, [1]]


# --- any class -----------------------------------------------------------------------------------

_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**20), max_value=10**20)
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False),
    str: st.text(),
    bytes: st.binary(max_size=9),
    datetime.date: st.dates(),
    datetime.datetime: st.datetimes(),
    decimal.Decimal: _DECIMALS,
    uuid.UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    Line: st.builds(Line, st.text(), _DECIMALS),
}


def _more(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.one_of(
        inner.map(lambda each: (list[each[0]], st.lists(each[1], max_size=3))),  # type: ignore[name-defined]
        inner.map(lambda each: (each[0] | None, st.none() | each[1])),
        inner.map(lambda each: (tuple[each[0], ...], st.lists(each[1], max_size=3).map(tuple))),  # type: ignore[name-defined]
        st.lists(inner, min_size=1, max_size=3).map(_class_of),
    )


def _class_of(parts: list[tuple[Any, Any]]) -> tuple[Any, st.SearchStrategy[Any]]:
    names = [f"f{at}" for at in range(len(parts))]
    kind: Any = dataclasses.make_dataclass("Made", list(zip(names, (each[0] for each in parts), strict=True)))
    return kind, st.builds(kind, **dict(zip(names, (each[1] for each in parts), strict=True)))


_ANNOTATIONS = st.recursive(st.sampled_from(list(_LEAVES.items())), _more, max_leaves=6)


@given(parts=st.lists(_ANNOTATIONS, min_size=1, max_size=4), data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_any_value_of_any_dataclass_comes_back_from_its_rows_and_its_files(parts: Any, data: Any) -> None:
    kind, values = _class_of(parts)
    typed = declared(kind)
    made = data.draw(st.lists(values, min_size=1, max_size=4))

    assert [typed.value(pickle.loads(pickle.dumps(typed.row(each)))) for each in made] == made
    with TemporaryDirectory() as folder:
        assert through_a_sink(typed, made, Path(folder))[0] == made


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "answer", "value"),
    [
        (
            Invoice,
            {"number": 1, "lines": [{"text": "x", "price": 1.5}]},
            Invoice(1, [Line("x", decimal.Decimal("1.5"))]),
        ),
        (Invoice, '{"number": 1, "lines": [{"text": "x", "price": "2"}]}', Invoice(1, [Line("x", decimal.Decimal(2))])),
        *MODEL_ANSWERS,
        (Point, b'{"x": 1, "_y": 2}', Point(1.0, 2.0)),
        (Movie, {"title": "a"}, {"title": "a"}),
        (Pair, {"left": 1, "right": {"text": "x"}}, Pair(1, Line("x"))),
        (Invoice | None, None, None),
        (Line, LongLine("x", more="y"), Line("x")),
    ],
)
def test_a_dict_or_json_text_becomes_an_object_of_the_class(said: Any, answer: Any, value: Any) -> None:
    typed = travelled(said)

    assert typed.value(typed.row(answer)) == value


@pytest.mark.parametrize(
    ("said", "answer", "field", "why"),
    [
        (Invoice, {"lines": []}, "number", "missing"),
        (Invoice, {"number": "1", "lines": []}, "number", "'1' is no int"),
        (Invoice, {"number": True, "lines": []}, "number", "True is no int"),
        (Invoice, {"number": 1, "lines": [{"text": "x", "price": "a lot"}]}, "lines.0.price", "'a lot' is no Decimal"),
        (Invoice, {"number": 1, "lines": "x"}, "lines", "is no list"),
        (Invoice, {"number": 1, "lines": [], "total": 3}, "total", "no such field"),
        (Invoice, "Sorry, I cannot help.", "", "no JSON"),
        (Invoice, '[{"number": 1}]', "", "is no Invoice or dict"),
        (Invoice, None, "", "None is no Invoice"),
        (Invoice, Line("x"), "", "is no Invoice"),
        *MODEL_INVALID,
        (Movie, {"title": "a", "year": "x"}, "year", "is no int"),
        (Box[Literal["a", "b"]], {"items": ["c"]}, "items.0", "one of 'a', 'b'"),
        (Box[Colour], {"items": ["green"]}, "items.0", "is no Colour"),
        (Strict, {"number": -1}, "", "Strict refused it .ValueError: below 0"),
    ],
)
def test_an_answer_that_does_not_fit_names_the_field_and_keeps_what_it_was(
    said: Any, answer: Any, field: str, why: str
) -> None:
    with pytest.raises(AnswerInvalid, match=why) as raised:
        travelled(said).row(answer)

    assert raised.value.field == field
    note = f"The answer was: {answer if isinstance(answer, str) else repr(answer)}"
    assert raised.value.__notes__ == [note]


def test_of_a_long_invalid_answer_the_beginning_is_kept() -> None:
    with pytest.raises(AnswerInvalid) as raised:
        declared(Invoice).row("x" * 1_000_000)

    (note,) = raised.value.__notes__
    assert 8_000 < len(note) < 8_100


def test_an_object_whose_fields_have_other_types_is_a_row_all_the_same() -> None:
    typed = declared(Invoice)
    sloppy = Invoice("seven", None, {"a": Line("x")})  # type: ignore[arg-type]

    assert typed.row(sloppy) == {"number": "seven", "lines": None, "note": {"a": Line("x")}}
    assert typed.value(typed.row(sloppy)) == sloppy


def test_a_row_that_the_class_no_longer_takes_stays_a_dict() -> None:
    assert declared(Pair).value({"left": 1}) == {"left": 1}


# --- functions -----------------------------------------------------------------------------------


class Asks:
    def __call__(self, doc: Any) -> Invoice: ...

    async def later(self, doc: Any) -> Invoice: ...


def ask(doc: Any) -> Invoice: ...
def quoted(doc: Undefined) -> Invoice | None: ...  # type: ignore[name-defined]  # noqa: F821
def text(doc: Any) -> str: ...
def table(doc: Any) -> dict[str, Any]: ...
def several(docs: Any) -> list[Invoice]: ...
def nowhere(doc: Any) -> Undefined: ...  # type: ignore[name-defined]  # noqa: F821
def yields(doc: Any) -> Iterator[Invoice]:
    yield Invoice(1, [])


async def yields_later(doc: Any) -> AsyncIterator[Invoice]:
    yield Invoice(1, [])


def iterates(doc: Any) -> Iterator[Invoice]: ...
def silent(doc): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("fn", "batch", "is_typed"),
    [
        (ask, False, True),
        (ask, True, True),
        (quoted, False, True),
        (Asks, False, True),
        (Asks(), False, True),
        (Asks().later, False, True),
        (functools.partial(functools.partial(ask), 1), False, True),
        (several, True, True),
        (several, False, False),
        (yields, False, True),
        (yields_later, False, True),
        (iterates, False, False),
        (text, False, False),
        (table, False, False),
        (nowhere, False, False),
        (silent, False, False),
        (len, False, False),
        (lambda doc: doc, False, False),
    ],
)
def test_only_an_annotation_that_names_a_class_of_fields_counts(fn: Any, batch: bool, is_typed: bool) -> None:
    typed = annotated(fn, batch=batch)

    assert (typed is not None) == is_typed
    if typed is not None:
        assert list(typed.fields) == ["number", "lines", "note"]


def test_a_class_of_the_function_that_defines_it_counts() -> None:
    @dataclasses.dataclass
    class Near:
        number: int

    def made(doc: Any) -> Near:
        return Near(doc)

    typed = annotated(made)
    assert typed is not None
    assert typed.fields == {"number": "int64"}


@pytest.mark.parametrize("wrong", [int, str, dict, list[Invoice], Invoice(1, []), "Invoice", dict[str, int], object])
def test_returns_of_another_kind_is_refused(wrong: Any) -> None:
    with pytest.raises(BadOption, match="is no Pydantic model, dataclass"):
        declared(wrong)


@pytest.mark.parametrize(
    ("value", "row"),
    [
        *MODEL_ROWS,
        (Point(1.0), {"x": 1.0, "_y": 0.0, "length": 1.0}),
        (Invoice(1, []), {"number": 1, "lines": [], "note": None}),
        (Point, None),
        (ipaddress.ip_address("1.1.1.1"), None),
    ],
)
def test_without_an_annotation_objects_of_fields_are_rows(value: Any, row: Any) -> None:
    assert row_of(value) == row
    if row is not None:
        found = RunTable(Pages([value, value])).to_arrow()
        assert json.loads(json.dumps({name: found.column(name)[0].as_py() for name in row})) == row
