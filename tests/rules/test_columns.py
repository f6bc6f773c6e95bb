"""Columns of integers against plain lists."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.rules.batches import Column

ascending = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=40, unique=True).map(sorted)
stepped = st.builds(
    lambda first, step, n, rest: [first + step * at for at in range(n)] + [first + step * n + more for more in rest],
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 10),
    st.integers(1, 30),
    st.lists(st.integers(0, 1 << 20), max_size=10),
)


def appended(values: list[int]) -> Column:
    column = Column("Q")
    for value in values:
        column.append(value)
    return column


def at_once(values: list[int]) -> Column:
    return Column.of("Q", array("Q", values))


@pytest.mark.parametrize("make", [appended, at_once])
@given(values=stepped)
def test_a_column_holds_what_was_put_into_it(make: Callable[[list[int]], Column], values: list[int]) -> None:
    column = make(values)
    assert list(column) == values
    assert [column[at] for at in range(len(column))] == values


@pytest.mark.parametrize("make", [appended, at_once])
@given(values=ascending, wanted=st.integers(0, 1 << 40))
def test_rank_is_the_place_of_the_last_number_that_is_not_above(
    make: Callable[[list[int]], Column], values: list[int], wanted: int
) -> None:
    column = make(values)
    for value in (wanted, values[0], values[-1], values[len(values) // 2]):
        assert column.rank(value) == bisect_right(values, value) - 1


@given(values=stepped, more=st.integers(0, 1 << 20), at=st.integers(0, 100))
def test_what_is_shared_stays_as_it_was(values: list[int], more: int, at: int) -> None:
    column = appended(values)
    shared = column.shared()
    column.append(max(values) + more)
    column.replace({at % len(values): more})
    assert list(shared) == values
    expected = [*values, max(values) + more]
    expected[at % len(values)] = more
    assert list(column) == expected


@given(values=stepped, shift=st.integers(-(1 << 50), 1 << 50))
def test_a_shift_is_added_to_all(values: list[int], shift: int) -> None:
    assert list(Column.of("Q", array("Q", values), shift)) == [value + shift for value in values]


@given(values=stepped, n=st.integers(0, 40), again=stepped)
def test_cut_and_filled_again(values: list[int], n: int, again: list[int]) -> None:
    column = appended(values)
    column.cut(n := min(n, len(values)))
    kept = values[:n]
    for value in again:
        try:
            column.append(value)
        except OverflowError:
            break
        kept.append(value)
    assert list(column) == kept


def test_what_is_too_far_from_the_first_is_refused_and_changes_nothing() -> None:
    column = Column("I")
    for value in (100, 105, 110):
        column.append(value)
    for value in (99, 101 + (1 << 32)):
        with pytest.raises(OverflowError):
            column.append(value)
        assert list(column) == [100, 105, 110]
    column.append(99 + (1 << 32))
    assert column[3] == 99 + (1 << 32)


def test_numbers_beyond_64_bits_can_be_put_in_place_of_others() -> None:
    column = appended([1 << 70, (1 << 70) + 1, (1 << 70) + 7])
    column.replace({1: 5})
    assert list(column) == [1 << 70, 5, (1 << 70) + 7]
