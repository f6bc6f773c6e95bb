"""Rows of one array are sealed and opened together, as if each were alone."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from dqlab.cluster.transport.sealed import open_alike, seal_rows, seal_value

NUMBERS = np.arange(4 * 24.0).reshape(4, 24)


def told(values: list[Any]) -> list[Any]:
    return [(type(each), getattr(each, "dtype", None), getattr(each, "shape", None), repr(each)) for each in values]


@pytest.mark.parametrize(
    ("rows", "is_made"),
    [
        pytest.param(NUMBERS, True, id="numbers"),
        pytest.param(NUMBERS.astype("f4"), True, id="small numbers"),
        pytest.param(NUMBERS.astype(">i8"), True, id="the other byte order"),
        pytest.param(NUMBERS.reshape(4, 4, 6), True, id="tables"),
        pytest.param(np.zeros((3, 100), np.int8), False, id="data that may be elsewhere too"),
        pytest.param(NUMBERS.astype("datetime64[us]"), True, id="times"),
        pytest.param(NUMBERS[:, :2].copy(), False, id="rows of few bytes"),
        pytest.param(NUMBERS.T, False, id="columns"),
        pytest.param(np.asfortranarray(np.zeros((3, 4, 8))), False, id="in the order of Fortran"),
        pytest.param(NUMBERS.astype(object), False, id="objects"),
        pytest.param(NUMBERS[0], False, id="one row"),
        pytest.param(NUMBERS[:0], False, id="none"),
        pytest.param(NUMBERS.tolist(), False, id="lists"),
        pytest.param(np.ma.masked_array(NUMBERS, NUMBERS > 3), False, id="with a mask"),
    ],
)
def test_rows_of_an_array_are_sealed_as_each_alone_is(rows: Any, is_made: bool) -> None:
    alone = [seal_value(row) for row in rows]
    assert seal_rows(rows, seal_value) == (alone if is_made else None)
    assert told(open_alike(alone)) == told([pickle.loads(each) for each in alone])


def test_values_that_differ_are_opened_one_by_one() -> None:
    values = [NUMBERS[0], NUMBERS[1], NUMBERS[:, 0], "text", NUMBERS[2].astype("f4"), None]
    assert told(open_alike([seal_value(each) for each in values])) == told(values)


def test_opened_rows_can_be_changed_as_others_can() -> None:
    rows = open_alike([seal_value(row) for row in NUMBERS])
    rows[1][0] = -1
    assert rows[0].tolist() == NUMBERS[0].tolist()
    assert rows[1][0] == -1
