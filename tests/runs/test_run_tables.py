"""Columns of tables as documents: results keep the rows they belong to."""

from __future__ import annotations

import datetime
import os
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dqlab as dq
from dqlab.documents import Labelled, sealed_label
from dqlab.errors import BadOption
from dqlab.runs.reading.dataframes import FrameRows, frame_of, index_of
from dqlab.runs.reading.results import OpenedStretch, frame_of_pages, frame_of_pairs
from tests.kit.cells import of_a_cell

pytestmark = pytest.mark.lowest

FRAME = pd.DataFrame({"text": [f"{'x' * n}" for n in range(20)], "n": range(20)})


@of_a_cell
def measure(text: str) -> dict[str, int]:
    if text == "x" * 7:
        raise ValueError("seven")
    return {"length": len(text)}


@of_a_cell
async def measure_async(text: str) -> dict[str, int]:
    return measure(text)


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_results_of_a_filtered_column_join_the_rows_they_came_from(queue: dq.QueuePool, kind: str) -> None:
    """Keys 0, 1, 2 instead of the index: a join looks right and is wrong."""
    rows = FRAME[FRAME["n"] % 3 != 0]
    function = measure_async if kind == "coroutine" else measure
    run = queue.map(function, rows["text"], retry=dq.Retry(0), executor="process" if kind == "process" else "thread")
    run.wait(timeout=30)

    joined = rows.join(run.results(errors="skip").to_frame())
    assert joined["length"].drop(7).tolist() == joined["n"].drop(7).tolist()
    assert joined["length"].isna().tolist() == [n == 7 for n in joined["n"]]
    (letter,) = run.failures()
    assert letter.key == 7
    whole = rows.join(run.results(errors="return").to_frame())
    assert whole["error"].notna().tolist() == [n == 7 for n in whole["n"]]
    assert run.retry(fn=len, where="key == '7'") == 1
    assert dict(run.results(timeout=30).items())[7] == 7
    assert sorted(key for key, _ in run.as_completed(timeout=30)) == rows.index.tolist()


def test_labels_of_text_and_of_numbers_are_keys_of_their_own_type(queue: dq.QueuePool) -> None:
    """ "7" and 7 are two rows."""
    column = pd.Series(range(5), index=["7", 7, np.int64(-3), "", "\0i5"])

    assert list(queue.map(abs, column).results(timeout=30).items()) == [("7", 0), (7, 1), (-3, 2), ("", 3), ("\0i5", 4)]


@of_a_cell
def crash(text: str) -> int:
    return os._exit(3) if text == "b" else len(text)


@pytest.mark.parametrize("labels", [[2, 0, 1], ["x", "", "\ud800"], [30, 2**70, -1]])
def test_a_row_without_a_result_keeps_its_label(queue: dq.QueuePool, labels: list[str | int]) -> None:
    """Its position may be the label of another row, and its failure would then stand there."""
    column = pd.Series(["a", "b", "c"], index=pd.Index(labels, dtype=object))
    run = queue.map(crash, column, retry=dq.Retry(0), executor="process").wait(timeout=30)

    assert [letter.key for letter in run.failures()] == labels[1:2]
    assert list(run.results(errors="return").keys()) == labels


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


@pytest.mark.parametrize("label", ["", "a", "\ud800", "x" * 70_000, 0, -1, 255, 70_000, 2**70])
def test_a_label_is_read_without_opening_its_value(label: str | int) -> None:
    """A value that takes its process along must not do so where its failure is read."""
    assert sealed_label(pickle.dumps(Labelled(label, Trap()), 5)) == label


@pytest.mark.parametrize("value", [Trap(), "a", 7, None, (1, 2), ["a", "b", None, 5], dq.Document("a", "", "a")])
def test_what_has_no_label_is_not_given_one(value: object) -> None:
    assert sealed_label(pickle.dumps(value, 5)) is None
    assert sealed_label(b"no pickle") is None


names = st.one_of(st.sampled_from(["a", "b", "key", "", "\ud800"]), st.integers(0, 3), st.integers(-(2**70), 2**70))
values = st.one_of(st.integers(-9, 9), st.text(max_size=2), st.sampled_from(["\ud801", (1, 2)]), st.lists(st.none()))


@pytest.mark.long
@given(st.lists(st.tuples(names, st.dictionaries(names, values, max_size=4)), max_size=5))
@example([("a", {"a": 1, "b": 2}), ("b", {"a": 3, "b": 4})])
@example([(0, {0: 1, 1: 2}), (1, {0: 3, 1: 4})])
@example([("a", {}), ("b", {})])
@example([("a", {"\ud800": 1, "b": 2})])
def test_a_table_has_every_row_and_column_whatever_they_are_called(rows: list[tuple[Any, dict[Any, Any]]]) -> None:
    """A matrix of names by names had no rows at all, and one of numbers by numbers had columns as its index."""
    keys, dicts = [key for key, _ in rows], [row for _, row in rows]
    expected = list(dict.fromkeys(name for row in dicts for name in row))

    frame = frame_of(dicts, index_of(keys))

    assert (frame.index.tolist(), frame.index.names, frame.columns.tolist()) == (keys, ["key"], expected)
    for at, row in enumerate(dicts):
        for column, name in enumerate(expected):
            found = frame.iat[at, column]
            assert found == row[name] if name in row else pd.isna(found)


LARGE = 2**60 + 1


@pytest.mark.parametrize(
    "rows",
    [
        [{"n": LARGE}, {"n": 0.5}],
        [{"n": LARGE}, {"n": None}],
        [{"n": LARGE}, {}],
        [{"n": LARGE, "\ud800": 1}, {"n": 0.5}],
        [{"n": np.int64(LARGE)}, {"n": 0.5}],
        [{"n": 2**64 + 1}, {"n": 0.5}],
        [{("n", "m"): LARGE}, {("n", "m"): 0.5}],
    ],
)
def test_a_table_rounds_no_whole_number(rows: list[dict[Any, Any]]) -> None:
    """A warning sends here for every value."""
    (first, *_), frame = rows[0].values(), frame_of(rows, index_of([0, 1]))

    assert int(frame.iat[0, 0]) == int(first)
    assert frame.dtypes.iloc[0] == "object"
    assert pd.isna(frame.iat[1, 0]) or frame.iat[1, 0] == 0.5


@of_a_cell
def similar(name: str) -> dict[str, int]:
    return {other: len({*name} & {*other}) for other in ("ann", "bob", "error")}


@of_a_cell
def hopeless(name: str) -> int:
    raise ValueError(name)


def test_tables_of_results_and_of_failures_may_have_keys_that_are_columns_too(queue: dq.QueuePool) -> None:
    """Each name compared with each is the first table that comes to mind."""
    words = ["ann", "bob", "error"]
    matrix = queue.map(similar, pd.Series(words, index=words)).results(timeout=30).to_frame()
    numbers = queue.map(lambda i: {j: i * j for j in range(4)}, range(2)).results(timeout=30).to_frame()
    fields = ["message", "error", "traceback"]
    failures = queue.map(hopeless, pd.Series(fields, index=fields), retry=dq.Retry(0)).wait(timeout=30).failures()

    assert matrix.to_dict("index") == {word: similar(word) for word in words}
    assert numbers.to_dict("index") == {i: {j: i * j for j in range(4)} for i in range(2)}
    table = failures.to_frame()
    assert table.index.tolist() == [letter.key for letter in failures]
    assert dict(table["message"]) == {word: word for word in fields}


@of_a_cell
def own_errors(x: int) -> dict[str, str]:
    return {"error": "mine", "dqlab_error": "mine too"} if x else {}[x]


def test_the_reason_of_a_failure_never_replaces_a_column_of_the_results(queue: dq.QueuePool) -> None:
    """A function may well call its columns so, and they were gone in silence."""
    frame = queue.map(own_errors, range(3), retry=dq.Retry(0)).results(timeout=30, errors="return").to_frame()

    assert frame["error"].tolist()[1:] == ["mine"] * 2
    assert frame["dqlab_error"].tolist()[1:] == ["mine too"] * 2
    assert frame.iloc[:, -1].notna().tolist() == [True, False, False]


@pytest.mark.parametrize(
    "labels",
    [
        pd.date_range("2026-01-01", periods=2),
        pd.MultiIndex.from_tuples([(1, 2), (1, 3)]),
        [1.5, 2.5],
        [True, False],
        [datetime.date(2026, 1, 1), None],
    ],
    ids=["times", "tuples", "fractions", "truths", "dates"],
)
def test_labels_that_cannot_be_keys_are_refused_with_the_ways_out(queue: dq.QueuePool, labels: object) -> None:
    with pytest.raises(BadOption, match=r"index of element 0.*reset_index.*set_axis"):
        queue.map(abs, pd.Series([1, 2], index=labels))

    assert sum(queue.counts().values()) == 0


# --- frames of results -------------------------------------------------------------------------

even_names = st.lists(st.sampled_from(["n", "t", "key", "", "a b", "ä"]), min_size=1, max_size=3, unique=True)
plain_values = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    bool: st.booleans(),
    str: st.text(max_size=3),
}


@st.composite
def even_pages(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Draw pages of rows of one kind, with or without a row of another kind somewhere."""
    columns = {name: draw(st.sampled_from(list(plain_values))) for name in draw(even_names)}
    row = st.fixed_dictionaries({name: plain_values[kind] for name, kind in columns.items()})
    pages = draw(st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=4))
    other = draw(
        st.sampled_from([None, {}, {"n": None}, {"new": 1}, {"n": 2**64}, {"t": "\ud800"}, {"n": [1]}, 5, "x"])
    )
    if other is not None:
        page = draw(st.sampled_from(pages))
        page.insert(draw(st.integers(0, len(page))), other)
    return pages


@pytest.mark.long
@given(even_pages(), st.booleans())
@example([[{"n": 1}], [{"n": 1.5}]], False)
@example([[{"n": 1, "t": "a"}], [{"t": "b", "n": 2}]], True)
@example([[{"n": True}], [{"n": 1}]], True)
def test_rows_that_are_held_as_columns_make_the_same_frame(pages: list[list[Any]], keyed: bool) -> None:
    """The way that needs a tenth of the memory must not change a type, a name or a value."""
    stretches, at = [], 0
    for page in pages:
        keys = [f"k{at + n}" for n in range(len(page))] if keyed else None
        stretches.append([OpenedStretch(at, page, keys)])
        at += len(page)

    frame = frame_of_pages(stretches, at, None)

    plain = frame_of_pairs([pair for page in stretches for pair in page[0].items()], at, None)
    pd.testing.assert_frame_equal(frame, plain)


def test_even_rows_are_not_held_as_objects() -> None:
    """A million small rows took 390 MB."""
    rows = FrameRows(None)
    for at in range(0, 100_000, 1_000):
        rows.add([{"n": n, "half": n / 2} for n in range(at, at + 1_000)], None, range(at, at + 1_000))

    frame = rows.frame()

    assert frame["half"].sum() == sum(n / 2 for n in range(100_000))
    assert sum(part.nbytes for column in rows._columns.values() for part in column) == 1_600_000
