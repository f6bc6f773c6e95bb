"""Rows that a generator function has yielded for one document: one result, and several rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dqlab.datasets.plain import row_of

PART = "_part"
"""The column with a row's number among those of its document; a user's of that name gets one more underscore."""
_THEIRS, _VALUE = f"{PART}_", "value"


# Results in logs of queues refer to it by this name: it stays in this module.
class Yielded(list[Any]):
    """The rows of one document, in order; a list, unless a table or a sink spreads them."""

    __slots__ = ()

    @property
    def bare(self) -> bool:
        """Whether none of them is a row of columns."""
        return all(row_of(each) is None for each in self)


def exploded(values: Sequence[Any]) -> tuple[list[Any], list[int]] | None:
    """Return values with the rows of each document in its place, and how many it has; None if nothing was yielded."""
    if Yielded not in set(map(type, values)):
        return None
    rows, counts = list[Any](), list[int]()
    for value in values:
        several = [_row_with(part, each) for part, each in enumerate(value)] if type(value) is Yielded else [value]
        rows += several
        counts.append(len(several))
    return rows, counts


def spread(values: Iterable[Any], counts: Iterable[int]) -> Iterator[Any]:
    """Yield each value as often as the number beside it says."""
    for value, count in zip(values, counts, strict=True):
        yield from [value] * count


def _row_with(part: int, value: Any) -> dict[Any, Any]:
    row = row_of(value)
    if row is None:
        return {PART: part, _VALUE: value}
    return {PART: part, **{_THEIRS if name == PART else name: each for name, each in row.items()}}


def row_without(row: dict[Any, Any], *, bare: bool) -> Any:
    """Return a row that was read, without its number, or its value where no row of its document has columns."""
    if bare:
        return row.get(_VALUE)
    return {PART if name == _THEIRS else name: value for name, value in row.items() if name != PART}
