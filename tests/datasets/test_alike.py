"""Columns of rows that are pickled alike: what pickle returns, or nothing."""

from __future__ import annotations

import math
import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.datasets.alike import FEWEST, Alike, alike
from dqlab.runs.dataframes import EvenRows
from tests.kit.sampled import examples

WHOLE = st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 255, 256, 65535, 65536]))
TEXT = st.one_of(st.text(max_size=5), st.text(min_size=250, max_size=300), st.sampled_from(["", "\ud800", "ä€𝄞"]))
KINDS = {int: WHOLE, float: st.floats(), bool: st.booleans(), str: TEXT}
ANYTHING = st.one_of(*KINDS.values(), st.none(), st.binary(max_size=3), st.integers(2**63, 2**70), st.lists(st.none()))


def read(rows: list[Any], *, arrow: bool = False) -> Alike | None:
    sealed = [pickle.dumps(row, 5) for row in rows]
    parts = [sealed[: len(sealed) // 3], [], sealed[len(sealed) // 3 :]]
    return alike([b"".join(part) for part in parts], [list(map(len, part)) for part in parts], arrow=arrow)


def same(one: Any, other: Any) -> bool:
    """Equal, of one type, and NaN equals NaN."""
    return type(one) is type(other) and (one == other or (one != one and other != other))


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.booleans())
def test_rows_read_as_columns_are_those_that_pickle_returns(data: st.DataObject, arrow: bool) -> None:
    """A number in the row of its neighbour looks as right as in its own."""
    names = data.draw(st.lists(st.text(max_size=9), min_size=1, max_size=4, unique=True))
    kinds = [data.draw(st.sampled_from([*KINDS.values(), ANYTHING])) for _ in names]
    drawn = data.draw(st.lists(st.tuples(*kinds), min_size=1, max_size=12))
    dice = random.Random(data.draw(st.integers(0, 9)))
    rows = [dict(zip(names, dice.choice(drawn), strict=True)) for _ in range(FEWEST + dice.randrange(9))]

    found = read(rows, arrow=arrow)

    if found is not None:
        assert len(found) == len(rows)
        assert found[-1].keys() == rows[-1].keys()
        assert all(list(mine) == list(row) for mine, row in zip(found, rows, strict=True))
        assert all(same(mine[key], row[key]) for mine, row in zip(found, rows, strict=True) for key in row)
        part = [row["n"] for row in rows[3:9]] if "n" in names else None
        assert part is None or [row["n"] for row in found[3:9]] == pytest.approx(part, nan_ok=True)


@pytest.mark.parametrize(
    "row",
    [
        lambda n: {"n": n, "words": n % 50},
        lambda n: {"n": n * 7919 % 100_000, "x": n / 3, "even": n % 2 == 0},
        lambda n: {"n": -n * 2**40, "text": f"{n:>{n}}"},
        lambda n: {"alone": math.inf if n else -0.0},
        lambda n: {"": n, "ä": str(n)},
    ],
)
@pytest.mark.parametrize("arrow", [False, True])
def test_flat_rows_of_numbers_and_texts_are_read_as_columns(row: Any, arrow: bool) -> None:
    """Most results are such: were they not, all of it would be of no use."""
    rows = [row(n) for n in range(1000)]

    found = read(rows, arrow=arrow)

    assert found is not None
    assert list(found) == rows


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"n": 1},
        {"m": 1, "text": "a"},
        {"text": "a", "n": 1},
        {"n": 1.0, "text": "a"},
        {"n": True, "text": "a"},
        {"n": None, "text": "a"},
        {"n": 2**63, "text": "a"},
        {"n": 1, "text": b"a"},
        {"n": 1, "text": "\udcff"},
        {"n": 1, "text": "a", "more": 1},
        {"n": 1, "text": "x" * 70_000},
        {"n": 1, "text": "text"},
        [("n", 1), ("text", "a")],
        3,
        "text",
        None,
    ],
    ids=repr,
)
@pytest.mark.parametrize("at", [0, 40, 99])
@pytest.mark.parametrize("arrow", [False, True])
def test_one_row_that_is_not_like_the_others_leaves_all_to_pickle(odd: Any, at: int, arrow: bool) -> None:
    """Or comes as it is: it is never taken for one of the others."""
    rows: list[Any] = [{"n": n, "text": "a" * n} for n in range(100)]
    rows[at] = odd

    found = read(rows, arrow=arrow)

    assert found is None or list(found) == rows


@settings(max_examples=examples(300), deadline=None)
@given(at=st.integers(0, 60 * FEWEST), byte=st.integers(0, 255), cut=st.booleans(), arrow=st.booleans())
def test_bytes_that_are_damaged_are_no_other_rows(at: int, byte: int, cut: bool, arrow: bool) -> None:
    """A byte that is another one is in a value, or pickle has to say what it is."""
    sealed = [pickle.dumps({"n": 1000 + n, "f": n / 3, "text": f"{n:04}"}, 5) for n in range(FEWEST)]
    whole = bytearray(b"".join(sealed))
    place = at % len(whole)
    whole[place] = byte
    found = alike([memoryview(whole[: len(whole) - cut])], [list(map(len, sealed))], arrow=arrow)

    if found is not None:
        number = place // len(sealed[0])
        damaged = pickle.loads(whole[number * len(sealed[0]) : (number + 1) * len(sealed[0])])
        assert not cut
        assert same(list(found)[number]["f"], damaged["f"])
        assert {key: value for key, value in list(found)[number].items() if key != "f"} == {
            key: value for key, value in damaged.items() if key != "f"
        }


def test_columns_and_rows_are_even_with_each_other() -> None:
    """Pages with a few rows are read as rows, and stand among others."""
    rows = [{"n": n, "x": n / 2, "text": str(n), "b": n % 2 > 0} for n in range(500)]
    even = EvenRows()
    first, second = read(rows[:300]), rows[300:]
    assert isinstance(first, Alike)
    assert even.add(first[:100], first[100:])
    assert even.add(second)
    assert not even.add([{"n": 1.5, "x": 2.0, "text": "", "b": False}])
    for part in (range(100), range(100, 300), range(300, 500)):
        even.add_keys(None, part)

    assert even.frame().to_dict("records") == rows
    assert [row for _, row in even.pairs()] == rows
