"""Tables of a run with a sink are made of its parts' columns: they are those that the values themselves would give."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.datasets.rows import Rows
from dqlab.datasets.sink_parts import PartError, Reader, SinkRow, open_parts, writer_of
from dqlab.datasets.sinks import claim
from dqlab.datasets.table import RunTable
from tests.datasets.pages import in_json, same
from tests.sampled import examples

RUN, ID = "numbers", "ab" * 16


class SinkPages:
    """Rows of a sink in pages, as columns or as values."""

    name, reasoned, lined = RUN, False, True

    def __init__(self, reader: Reader, references: list[bytes], *, page: int, columns: bool) -> None:
        self.reader, self.references, self.page, self.columns = reader, references, page, columns
        self.fast = 0

    def code(self) -> None:
        return None

    def count(self) -> int:
        return len(self.references)

    def now(self) -> SinkPages:
        return self

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        stop = len(self.references) if most is None else min(most, len(self.references))
        for at in range(0, stop, self.page):
            references = self.references[at : at + self.page]
            where = range(at, at + len(references)), None
            if self.columns and (columns := self.reader.columns(references)) is not None:
                self.fast += 1
                yield Rows(*where, [], columns=columns)
                continue
            found = [row for row in self.reader.find(references, marked=True) if not isinstance(row, PartError)]
            lineage = {name: [known[name] for _, known in found] for name in ROW_LINEAGE}
            yield Rows(*where, [value for value, _ in found], lineage=lineage)


def pages_of(folder: Path, values: list[Any], seed: int, page: int) -> tuple[SinkPages, SinkPages]:
    """Write values into parts in any order; return their rows in both ways."""
    dice, sink = random.Random(seed), dq.Parquet(folder)
    claim(sink, RUN, ID)
    writer, order = writer_of(sink, RUN, ID, "here"), list(range(len(values)))
    dice.shuffle(order)
    references = [b""] * len(values)
    number = 0
    while order:
        mine = [order.pop() for _ in range(min(len(order), dice.randint(1, 9)))]
        rows = [SinkRow(n, None, values[n], "", "c", 0.5, 1, "consumer", 1e9) for n in mine]
        for n, reference in zip(mine, writer.write(f"p{number}", rows), strict=True):
            assert isinstance(reference, bytes), reference
            references[n] = reference
        number += 1
    open_parts.forget()
    reader = Reader(sink, RUN, ID)
    return (
        SinkPages(reader, references, page=page, columns=True),
        SinkPages(reader, references, page=page, columns=False),
    )


LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3)
NUMBERS = st.lists(st.integers(0, 9), min_size=1, max_size=3)
NESTED = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
)
NAMES = st.sampled_from(["a", "b", "value", "_key"])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:values of run")
@settings(max_examples=examples(150))
@given(
    values=st.lists(st.dictionaries(NAMES, LEAVES | NUMBERS, max_size=3) | LEAVES | NUMBERS, max_size=40),
    seed=st.integers(0, 2**16),
    page=st.integers(1, 30),
)
@example(values=[{"value": 1}, 2, {"value": "x"}, None], seed=0, page=2)
@example(values=[{"a": 1}, {"a": 0.5}, {"a": 2**60}], seed=1, page=1)
@example(values=[{"a": "12"}, {"a": 5}, {"a": "7"}], seed=1, page=3)
@example(values=[{}, {}, {}, {"value": None}, {"value": [1]}, {"a": None, "b": None, "value": False}], seed=0, page=1)
def test_columns_of_parts_give_the_table_that_their_values_give(values: list[Any], seed: int, page: int) -> None:
    """The fast way must not be another way: no value in another column, of another type, or lost."""
    with tempfile.TemporaryDirectory() as folder:
        fast, slow = pages_of(Path(folder), values, seed, page)
        one, other = RunTable(fast).to_arrow(), RunTable(slow).to_arrow()

        assert one.schema == other.schema
        assert list(map(repr, one.to_pylist())) == list(map(repr, other.to_pylist()))


def without_nothing(value: Any) -> Any:
    """Return JSON without the names that have null: within a row, those that are missing have it too."""
    if isinstance(value, dict):
        return {name: without_nothing(each) for name, each in value.items() if each is not None}
    return list(map(without_nothing, value)) if isinstance(value, list) else value


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:values of run")
@settings(max_examples=examples(100))
@given(
    values=st.lists(st.dictionaries(NAMES, NESTED, max_size=3), max_size=30),
    seed=st.integers(0, 2**16),
    page=st.integers(1, 30),
)
def test_each_value_is_in_its_column_or_in_the_rest(values: list[Any], seed: int, page: int) -> None:
    """An empty list has no type of its own, so it depends on its part which one the column gets; no value is lost."""
    with tempfile.TemporaryDirectory() as folder:
        fast, _ = pages_of(Path(folder), values, seed, page)
        for row, value in zip(RunTable(fast).to_arrow().to_pylist(), values, strict=True):
            rest = json.loads(row["_rest"]) if row["_rest"] else {}
            for name, each in value.items():
                name = "_key_" if name == "_key" else name
                if each is not None:
                    found = row[name] if row.get(name) is not None else rest[name]
                    # What stood in the rest of its part is what JSON has of it.
                    assert same(found, each) or without_nothing(in_json(found)) == without_nothing(in_json(each))


def test_pages_without_a_rest_are_never_objects(tmp_path: Path) -> None:
    """A million rows as Python objects take the memory that a sink was chosen to spare."""
    values = [{"n": n, "text": f"{n}" * 3, "half": n / 2} for n in range(200)]
    fast, _ = pages_of(tmp_path, values, 5, 50)

    table = RunTable(fast)
    assert table.to_arrow()["n"].to_pylist() == list(range(200))
    assert table.head(3)["half"].to_pylist() == [0.0, 0.5, 1.0]
    assert [batch.num_rows for batch in table.to_batches()] == [50] * 4
    assert fast.fast >= 8


@pytest.mark.long
@pytest.mark.parametrize("columns", [True, False])
def test_columns_that_come_late_stand_in_the_rest(tmp_path: Path, columns: bool) -> None:
    """As for any other run: the first thousand values decide."""
    values: list[Any] = [{"a": n} for n in range(1_000)] + [{"a": n, "late": str(n)} for n in range(1_000, 1_050)]
    table = RunTable(pages_of(tmp_path, values, 9, 100)[0 if columns else 1])

    arrow = table.to_arrow()

    assert "late" not in arrow.schema.names
    assert arrow["_rest"].to_pylist()[1_000:] == [f'{{"late":"{n}"}}' for n in range(1_000, 1_050)]
    assert arrow["_rest"].null_count == 1_000


@pytest.mark.filterwarnings("ignore:values of run")
def test_what_fitted_no_column_is_no_row_of_its_own(tmp_path: Path) -> None:
    """Bytes stand in the rest as a dict, and the table had a column of its name."""
    pages, _ = pages_of(tmp_path, ["1", b"1", {"c": {"x": 1}}, {"c": b"abc"}], 0, 10)
    table = RunTable(pages).to_arrow()
    assert [name for name in table.column_names if not name.startswith("_")] == ["c", "value"]
    rest = {name: each for text in table["_rest"].to_pylist() if text for name, each in json.loads(text).items()}
    kept = {name: [each for each in table[name].to_pylist() if each is not None] for name in ("c", "value")}
    assert (kept["value"], rest.get("value")) in (([b"1"], "1"), (["1"], {"base64": "MQ=="}))
    assert (kept["c"], rest.get("c")) in (([b"abc"], {"x": 1}), ([{"x": 1}], {"base64": "YWJj"}))
