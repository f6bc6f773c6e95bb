"""Rows of a sink come back as values and as columns, whatever else is in their parts."""

from __future__ import annotations

import datetime
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.datasets.lineage import LINEAGE
from dqlab.datasets.rows import Rows
from dqlab.datasets.sink_parts import Reader, SinkRows, open_parts, writer_of
from dqlab.datasets.sinks import claim
from dqlab.datasets.table import RunTable
from dqlab.errors import DqlabWarning
from tests.datasets.pages import Pages, in_json, same
from tests.kit.sampled import examples

RUN, ID = "numbers", "ab" * 16


class SinkPages:
    """Rows of a sink in pages, as columns."""

    name, reasoned, lined, declared = RUN, False, False, ()

    def __init__(self, reader: Reader, references: list[bytes], *, page: int) -> None:
        self.reader, self.references, self.page = reader, references, page

    def count(self) -> int:
        return len(self.references)

    def now(self) -> SinkPages:
        return self

    def values(self) -> list[Any]:
        return self.reader.find(self.references, range(len(self.references)))

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        stop = len(self.references) if most is None else min(most, len(self.references))
        for at in range(0, stop, self.page):
            references = self.references[at : at + self.page]
            where = range(at, at + len(references))
            columns, rest = self.reader.columns(references, where)
            yield Rows(where, None, [], columns=columns, rest=rest)


def rows_of(values: dict[int, Any]) -> SinkRows:
    n = len(values)
    known = [""] * n, ["c"] * n, [0.5] * n, [1] * n, ["consumer"] * n, [1e9] * n
    return SinkRows([list(values), [None] * n, list(values.values()), *known])


def pages_of(folder: Path, values: list[Any], seed: int, page: int) -> SinkPages:
    """Write values into parts in any order; return their rows."""
    dice, sink = random.Random(seed), dq.Parquet(folder)
    claim(sink, RUN, ID)
    writer, order = writer_of(sink, RUN, ID, "here"), list(range(len(values)))
    dice.shuffle(order)
    references = [b""] * len(values)
    number = 0
    while order:
        mine = [order.pop() for _ in range(min(len(order), dice.randint(1, 9)))]
        written = writer.write(f"p{number}", rows_of({n: values[n] for n in mine}))
        for n, reference in zip(mine, written, strict=True):
            assert isinstance(reference, bytes), reference
            references[n] = reference
        number += 1
    open_parts.clear()
    return SinkPages(Reader(sink, RUN, ID), references, page=page)


def there(row: Any) -> Any:
    """Return a row without the names that it got from other rows of its part."""
    return {name: value for name, value in row.items() if value is not None} if isinstance(row, dict) else row


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
NESTED = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
)
NAMES = st.sampled_from(["a", "b", "value", "_key"])


MIXED: dict[str, list[Any]] = {
    "a name of lineage, and one with an underscore": [{"_key": "K"}] * 30 + [{"_key_": "KU"}] * 30,
    "both, in another order": [{"_key": "K", "_key_": "KU"}] * 30 + [{"_key_": "KU", "_key": "K"}] * 30,
    "a number and its text": [{1: "int"}] * 30 + [{"1": "str"}] * 30,
    "a text and that of a number": [{"1": "str", 2: 2}] * 30 + [{1: "int", "1": "more"}] * 30,
    "what lines of JSON call their own": [{"_bare": 1, "_names": 2}, {"_bare_": 3, "_names_": {"_bare_": "x"}}, 4] * 20,
    "a value that is no row, and a column of that name": [5] * 20 + [{"value": 1, "value_": 2}] * 20 + [6] * 20,
    "None and its text": [{None: 1}, {"None": 2}] * 30,
    "text that is not Unicode, and what it is shown as": [{"\ud800": 1}, {"\\ud800": 2}] * 30,
}


@pytest.mark.parametrize("name", MIXED)
def test_keys_that_are_named_alike_are_as_far_apart_as_without_a_sink(tmp_path: Path, name: str) -> None:
    """Names were chosen for each part, so columns of different parts had one name and other keys."""
    values = MIXED[name]
    pages = pages_of(tmp_path, values, 5, 20)

    assert list(map(there, pages.values())) == values
    tables = [RunTable(source).to_arrow() for source in (pages, Pages(values, page=7))]
    names = [sorted(name for name in table.column_names if name not in LINEAGE) for table in tables]
    assert all(table["_rest"].null_count == len(values) for table in tables)
    assert names[0] == names[1]
    columns = [sorted(map(repr, table.select(names[0]).to_pydict().values())) for table in tables]
    assert columns[0] == columns[1]  # which of them is named first depends on the order of a part's rows


def test_keys_of_types_that_json_does_not_have_are_texts_and_none_is_lost(tmp_path: Path) -> None:
    """A date is called as its text, whose column is another one where a row has both."""
    day = datetime.date(2024, 5, 1)
    (value,) = pages_of(tmp_path, [{day: 1, "2024-05-01": 2, 3: 4}], 0, 1).values()
    assert value == {"2024-05-01": 1, "2024-05-01_": 2, 3: 4}


def test_values_of_a_sink_that_are_null_in_a_stream_are_counted_in_a_warning(tmp_path: Path) -> None:
    """Where rows are columns of their parts, nothing was counted."""
    sink = dq.Parquet(tmp_path)
    claim(sink, RUN, ID)
    writer, references = writer_of(sink, RUN, ID, "here"), list[bytes]()
    for name, values in {"p0": range(1_000), "p1": [n + 0.5 for n in range(40)]}.items():
        written = writer.write(name, rows_of({n: {"v": value} for n, value in enumerate(values, len(references))}))
        references += [each for each in written if isinstance(each, bytes)]
    open_parts.clear()
    source = SinkPages(Reader(sink, RUN, ID), references, page=500)

    with pytest.warns(DqlabWarning, match=r"null there: 40 in v \(int64\)"):
        stream = RunTable(source).to_reader().read_all()
    assert stream["v"].null_count == 40


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
        fast = pages_of(Path(folder), values, seed, page)
        for row, value in zip(RunTable(fast).to_arrow().to_pylist(), values, strict=True):
            rest = json.loads(row["_rest"]) if row["_rest"] else {}
            for name, each in value.items():
                name = "_key_" if name == "_key" else name
                if each is not None:
                    found = row[name] if row.get(name) is not None else rest[name]
                    # What stood in the rest of its part is what JSON has of it.
                    assert same(found, each) or without_nothing(in_json(found)) == without_nothing(in_json(each))


@pytest.mark.filterwarnings("ignore:values of run")
def test_what_fitted_no_column_is_no_row_of_its_own(tmp_path: Path) -> None:
    """Bytes stand in the rest as a dict, and the table had a column of its name."""
    pages = pages_of(tmp_path, ["1", b"1", {"c": {"x": 1}}, {"c": b"abc"}], 0, 10)
    table = RunTable(pages).to_arrow()
    assert [name for name in table.column_names if not name.startswith("_")] == ["c", "value"]
    rest = {name: each for text in table["_rest"].to_pylist() if text for name, each in json.loads(text).items()}
    kept = {name: [each for each in table[name].to_pylist() if each is not None] for name in ("c", "value")}
    assert (kept["value"], rest.get("value")) in (([b"1"], "1"), (["1"], {"base64": "MQ=="}))
    assert (kept["c"], rest.get("c")) in (([b"abc"], {"x": 1}), ([{"x": 1}], {"base64": "YWJj"}))


def test_columns_of_a_part_have_a_dictionary_for_texts_alone(tmp_path: Path) -> None:
    """A dictionary of an embedding's numbers costs as much as the model, and makes the file larger."""
    dice = random.Random(0)
    values = [{"vector": np.array([dice.random() for _ in range(16)]), "word": "a"} for _ in range(300)]
    sink = dq.Parquet(tmp_path)
    claim(sink, RUN, ID)
    writer_of(sink, RUN, ID, "here").write("p", rows_of(dict(enumerate(values))))

    columns = pq.ParquetFile(tmp_path / "p.parquet").metadata.row_group(0).to_dict()["columns"]
    has = {column["path_in_schema"]: "RLE_DICTIONARY" in column["encodings"] for column in columns}
    assert (has["vector.list.element"], has["word"]) == (False, True)
    assert (has["_code"], has["_seconds"]) == (True, False)
