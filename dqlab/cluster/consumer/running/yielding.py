"""Collects the rows that a generator function yields for one document into one result."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from types import GeneratorType
from typing import Any

from dqlab.cluster.transport.sealed import seal_value
from dqlab.datasets.yielded import Yielded
from dqlab.errors import ResultTooLarge

__all__ = ["collected", "seal_yielded"]

_LOOK = 64
"""Rows after which their bytes are measured for the first time, then at each doubling: most documents have fewer."""


class _Collecting:
    """Rows so far; too many of them raise `ResultTooLarge` before they fill the memory, as of a loop without end."""

    def __init__(self, most: int) -> None:
        self.rows, self._most = Yielded(), most
        self._measured = self._nbytes = 0

    def add(self, row: Any) -> None:
        rows = self.rows
        rows.append(row)
        if len(rows) >= _LOOK and len(rows) >= 2 * self._measured:
            self._nbytes += len(seal_value(rows[self._measured :]))
            self._measured = len(rows)
            if self._nbytes > self._most:
                raise ResultTooLarge(size=self._nbytes, limit=self._most)


def seal_yielded(result: object, most: int) -> bytes:
    """Return a result that plain pickle refuses as bytes: of a generator the rows that it yields."""
    if type(result) is not GeneratorType:
        return seal_value(result)
    made = _Collecting(most)
    with closing(result):
        for row in result:
            made.add(row)
    return seal_value(made.rows)


async def collected(rows: AsyncGenerator[Any, Any], most: int) -> Yielded:
    """Return the rows of an asynchronous generator."""
    made = _Collecting(most)
    async with aclosing(rows):
        async for row in rows:
            made.add(row)
    return made.rows
