"""Rows of one numpy array as pickles, and back: their pickles differ in the data alone, so one of them is made.

What is made is what plain pickle makes, so whoever opens a row by itself need not know.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from dqlab.imports import loaded

_LEAST = 64
"""Bytes of data of a row below which it is pickled by itself."""


def _around(sealed: bytes, row: Any) -> tuple[bytes, bytes] | None:
    """Return what stands before and after the data of a row in its pickle, or None where that is not certain."""
    if row.dtype.hasobject or row.nbytes < _LEAST or not row.flags.c_contiguous:
        return None
    data = row.tobytes()
    at = sealed.find(data)
    # Pickle copies the data as they are, so one occurrence is them; of two, one may be something else.
    return None if at < 0 or at != sealed.rfind(data) else (sealed[:at], sealed[at + len(data) :])


def seal_rows(rows: Any, seal: Callable[[Any], bytes]) -> list[bytes] | None:
    """Return each row of a numpy array as `seal` would, or None if `rows` is nothing of that kind."""
    numpy = loaded("numpy")
    if numpy is None or type(rows) is not numpy.ndarray or rows.ndim < 2 or not len(rows):
        return None
    around = _around(seal(rows[0]), rows[0]) if rows.flags.c_contiguous and not rows.dtype.hasobject else None
    if around is None:
        return None
    before, after = around
    return [before + row.tobytes() + after for row in rows]


def open_alike(sealed: Sequence[bytes]) -> list[Any]:
    """Return the value of each pickle; those that are rows like the first one are opened at once."""
    loads, numpy = pickle.loads, loaded("numpy")
    first: Any = loads(sealed[0]) if sealed else None
    is_row = numpy is not None and type(first) is numpy.ndarray and first.ndim
    around = _around(sealed[0], first) if is_row else None
    if numpy is None or around is None:
        return [loads(each) for each in sealed]
    (before, after), size = around, len(sealed[0])
    if not all(len(each) == size and each.startswith(before) and each.endswith(after) for each in sealed):
        return [loads(each) for each in sealed]
    data = bytearray().join([memoryview(each)[len(before) : size - len(after)] for each in sealed])
    return list(numpy.frombuffer(data, first.dtype).reshape(len(sealed), *first.shape))
