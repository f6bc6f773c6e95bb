"""The return annotation of a function is the schema of its results: columns, checks, and objects back."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.cluster.transport.orders import Code
from dqlab.cluster.transport.sealed import opened_plan
from dqlab.cluster.transport.wire import unpack
from dqlab.datasets.lineage import Lineage
from dqlab.errors import BadOption
from dqlab.runs.code.sealing import code_record, sealed_function
from dqlab.runs.code.versions import code_version
from dqlab.runs.reading.results import OpenedStretch
from dqlab.runs.reading.typed import TypedCodes
from tests.kit.cells import of_a_cell

pytestmark = pytest.mark.lowest


class Kind(enum.Enum):
    BILL = "bill"
    NOTE = "note"


@dataclasses.dataclass
class Line:
    text: str
    price: float


@dataclasses.dataclass
class Invoice:
    number: int
    day: datetime.date
    kind: Kind
    lines: list[Line]
    note: str | None = None


@dataclasses.dataclass
class Later:
    number: int
    pages: float = 0.5


DAY = datetime.date(2026, 7, 1)
LINES = pa.list_(pa.struct([("text", pa.string()), ("price", pa.float64())]))
TYPES = {"number": pa.int64(), "day": pa.date32(), "kind": pa.string(), "lines": LINES, "note": pa.string()}


def invoice(number: int) -> Invoice:
    return Invoice(number, DAY, Kind.NOTE, [Line("a", number / 2)])


@of_a_cell
def ask(number: int) -> Invoice:
    if number == 3:
        return "Sorry, " + "I cannot. " * 5_000  # type: ignore[return-value]
    if number == 4:
        return {"number": 4, "day": "2026-07-01", "kind": "note", "lines": [{"text": "a", "price": 2}]}  # type: ignore[return-value]
    return invoice(number)


@of_a_cell
async def ask_later(number: int) -> Invoice:
    return ask(number)


@of_a_cell
def later(number: int) -> Later:
    return Later(number)


@of_a_cell
def text(number: int) -> str:
    return str(number)


def types_of(schema: pa.Schema, names: Any = TYPES) -> dict[str, pa.DataType]:
    return {name: schema.field(name).type for name in names}


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["thread", "process", "coroutine", "sink"])
def test_results_are_objects_and_columns_and_an_invalid_answer_is_dead_at_once(
    queue: dq.QueuePool, kind: str, tmp_path: Path
) -> None:
    run = queue.map(
        ask_later if kind == "coroutine" else ask,
        range(6),
        retry=dq.Retry(3),
        executor="process" if kind == "process" else "thread",
        sink=tmp_path / "out" if kind == "sink" else None,
    )

    with pytest.warns(dq.errors.DqlabWarning, match="1 of 6"):
        run.wait(timeout=60)
    results, objects = run.results(errors="skip"), [invoice(number) for number in (0, 1, 2, 4, 5)]
    assert list(results) == objects
    assert results[0] == objects[0]
    assert results[1:3] == objects[1:3]
    assert dict(results.items()) == dict(zip((0, 1, 2, 4, 5), objects, strict=True))
    assert sorted(run.as_completed(timeout=30), key=lambda pair: pair[0])[3] == (4, objects[3])
    assert types_of(run.table().to_arrow().schema) == TYPES
    assert results.to_frame()["kind"].tolist() == ["note"] * 5
    (letter,) = run.failures()
    assert (letter.key, letter.deliveries) == (3, 1)
    assert letter.error.endswith("AnswerInvalid")
    assert "no JSON" in letter.message
    assert "The answer was: Sorry, I cannot. I cannot." in letter.traceback
    assert 8_000 < len(letter.traceback) < 10_000


@pytest.mark.cluster
def test_a_second_version_with_another_field_widens_the_columns_and_keeps_both(
    queue: dq.QueuePool, tmp_path: Path
) -> None:
    run = queue.map(ask, range(6), sink=tmp_path / "out")
    with pytest.warns(dq.errors.DqlabWarning, match="1 of 6"):
        run.wait(timeout=60)

    assert run.retry(fn=later) == 1
    assert list(run.results(timeout=60)) == [*map(invoice, (0, 1, 2)), Later(3), invoice(4), invoice(5)]
    table = run.table().to_arrow()
    assert types_of(table.schema, [*TYPES, "pages"]) == {**TYPES, "pages": pa.float64()}
    assert table.column("pages").to_pylist() == [None, None, None, 0.5, None, None]
    for part in (tmp_path / "out").glob("*.parquet"):
        schema = pq.read_schema(part)
        names = TYPES if "kind" in schema.names else ["number", "pages"]
        assert types_of(schema, names) == {name: {**TYPES, "pages": pa.float64()}[name] for name in names}


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:run .* has no documents")
def test_a_run_without_documents_has_the_declared_columns(queue: dq.QueuePool) -> None:
    run = queue.map(ask, [])

    assert types_of(run.wait(timeout=30).table().to_arrow().schema) == TYPES
    frame = run.results().to_frame()
    assert list(frame.dtypes.items()) == [("number", "int64"), *((name, object) for name in list(TYPES)[1:])]
    assert list(run.results().to_frame(columns=["number", "_code"]).columns) == ["number", "_code"]


@of_a_cell
def several(numbers: list[int]) -> list[Later]:
    return [{"number": "x"} if number == 2 else Later(number) for number in numbers]  # type: ignore[misc]


@pytest.mark.cluster
@pytest.mark.parametrize("fn", [several, lambda numbers: [{"number": n if n != 2 else "x"} for n in numbers]])
def test_of_a_batch_each_result_has_the_class_and_an_invalid_one_costs_itself(queue: dq.QueuePool, fn: Any) -> None:
    run = queue.map(fn, range(5), batch=3, returns=None if fn is several else list[Later])

    with pytest.warns(dq.errors.DqlabWarning, match="1 of 5"):
        run.wait(timeout=60)
    assert list(run.results(errors="skip")) == [Later(0), Later(1), Later(3), Later(4)]
    assert run.retry(fn=several) == 1


@of_a_cell
def pages(number: int) -> Iterator[Later]:
    for page in range(number):
        yield {"number": "x"} if page == 2 else Later(page)  # type: ignore[misc]


@pytest.mark.cluster
@pytest.mark.parametrize("sink", [False, True])
def test_what_a_generator_yields_has_the_class_that_it_is_annotated_to_yield(
    queue: dq.QueuePool, sink: bool, tmp_path: Path
) -> None:
    run = queue.map(pages, range(4), sink=tmp_path / "out" if sink else None)

    with pytest.warns(dq.errors.DqlabWarning, match="1 of 4"):
        run.wait(timeout=60)
    assert list(run.results(errors="skip")) == [[], [Later(0)], [Later(0), Later(1)]]
    table = run.table().to_arrow()
    assert types_of(table.schema, ["number", "pages"]) == {"number": pa.int64(), "pages": pa.float64()}
    assert table.column("number").to_pylist() == [0, 0, 1]
    assert "field 'number': 'x' is no int" in next(iter(run.failures())).message


@pytest.mark.cluster
def test_a_lambda_says_what_it_returns_by_a_keyword(queue: dq.QueuePool) -> None:
    run = queue.map(lambda number: {"number": number}, range(2), returns=Later)

    assert list(run.results(timeout=30)) == [Later(0), Later(1)]
    with pytest.raises(BadOption, match="is no Pydantic model, dataclass"):
        queue.map(text, range(2), returns=str)


def test_new_code_keeps_the_class_unless_it_names_its_own() -> None:
    hash, blob, version = sealed_function(ask)
    newest = Code(hash, blob, code_record(version, hash, planned=True))
    for fn, name in ((text, "Invoice"), (later, "Later")):
        hash, blob, version = sealed_function(fn, newest=newest)
        plan, record = opened_plan(blob), code_record(version, hash)
        assert plan is not None
        assert plan.returns.kind.__name__ == name
        assert unpack(blob)[0]["plan"]["columns"] == record["returns"]["columns"] == plan.returns.fields


def stretch_of(values: list[Any], code: str) -> OpenedStretch:
    return OpenedStretch(0, values, lineage=Lineage(None, 0, len(values), code))


def codes_of(fn: Any) -> tuple[TypedCodes, str, Any]:
    hash, _, version = sealed_function(fn)
    record = code_record(version, hash)
    return TypedCodes().note([record]), version.short, record


def test_a_class_that_is_not_here_leaves_dicts() -> None:
    typed, code, record = codes_of(later)
    rows = stretch_of([{"number": 1, "pages": 0.5}], code)
    assert typed.objects(rows).values == [Later(1)]

    record["returns"]["sealed"] = b""
    assert TypedCodes().note([record]).objects(rows).values == rows.values
    assert TypedCodes().note([record]).columns == [{"number": "int64", "pages": "double"}]


def test_a_class_of_the_notebook_is_the_one_that_its_cell_made_last(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    cell = "import dataclasses\n@dataclasses.dataclass\nclass Row:\n    n: int\ndef made(n) -> Row: ...\n"
    exec(cell, vars(notebook))
    _, code, record = codes_of(notebook.made)
    rows, earlier = stretch_of([{"n": 1}], code), notebook.Row

    exec(cell, vars(notebook))
    (found,) = TypedCodes().note([record]).objects(rows).values
    assert type(found) is notebook.Row is not earlier
    exec(cell.replace("n: int", "n: int\n    m: int = 0"), vars(notebook))
    (found,) = TypedCodes().note([record]).objects(rows).values
    assert type(found) is earlier


@pytest.mark.parametrize("changed", ["0.5", "Field(1.5, gt=0)", "Field(default_factory=float)"])
def test_the_version_of_a_function_has_the_fields_of_its_pydantic_model(
    monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """What Pydantic adds to a class cannot be compared, and the fields are not in the class any more."""
    pytest.importorskip("pydantic")
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    lines = (
        "from pydantic import BaseModel, Field",
        "class Row(BaseModel):",
        " n: float = 1.5",
        "def made(n) -> Row: ...",
    )
    cell = "\n".join(lines)
    made = []
    for text in (cell, cell, cell.replace("= 1.5", f"= {changed}")):
        exec(text, vars(notebook))
        made.append(code_version(notebook.made))

    assert {version.uncertain for version in made} == {()}
    assert made[0].hash == made[1].hash != made[2].hash
