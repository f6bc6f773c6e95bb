"""Collects the rows that a generator function yields for one document into one result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing, nullcontext
from types import GeneratorType
from typing import Any

from dqlab.cluster.transport.sealed import seal_value
from dqlab.datasets.yielded import Yielded
from dqlab.errors import ResultTooLarge

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


def is_yielded(result: object) -> bool:
    """Return whether a result is, or has, the rows that a function yields."""
    return type(result) is GeneratorType or type(result) is Yielded


def seal_yielded(result: Any, most: int, row: Callable[[Any], Any] | None = None) -> bytes:
    """Return as bytes a result that plain pickle refuses: the rows of a generator, each as `row` makes it."""
    if not is_yielded(result):
        return seal_value(result)
    made = _Collecting(most)
    with closing(result) if type(result) is GeneratorType else nullcontext():
        for each in result:
            made.add(each if row is None else row(each))
    return seal_value(made.rows)


async def collected(rows: AsyncGenerator[Any, Any], most: int) -> Yielded:
    """Return the rows of an asynchronous generator."""
    made = _Collecting(most)
    async with aclosing(rows):
        async for row in rows:
            made.add(row)
    return made.rows
