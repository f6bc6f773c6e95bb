"""Values of rows that Python cannot hold, such as a date after the year 9999 or a text that is not UTF-8.

Owns how such a value is found among many that are converted at once, and what replaces it, so that the others stay
readable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Never

from dqlab.errors import DqlabError, RecordInvalid, in_words


class Unreadable(NamedTuple):
    """Stands in the place of a value that cannot be read."""

    reason: str

    @property
    def in_words(self) -> str:
        """Text for an error that would otherwise name the value."""
        return f"a value that Python cannot hold ({self.reason})"


class Torn(NamedTuple):
    """The values of a frame's row with unreadable ones among them, which travels in place of the row's tuple."""

    values: tuple[Any, ...]
    """None in place of unreadable ones."""
    reasons: dict[int, str]
    """Why a value is unreadable, by position."""


class Partly(list[Any]):
    """Values of a frame, some unreadable: taking one of those raises `CannotRead`."""

    def __getitem__(self, at: Any) -> Any:
        """Return a value."""
        # A class of its own, so that lists without unreadable values stay plain lists, and cost no check.
        value = super().__getitem__(at)
        if type(value) is Unreadable:
            raise CannotRead(value.reason)
        return value


class CannotRead(Exception):
    """A value cannot be read, for the reason in its argument, which callers join with the row and the column."""


def are_unreadable(error: Exception) -> bool:
    """Return whether a failed conversion may be due to the values, rather than to their file, memory or packages."""
    return not isinstance(error, (DqlabError, OSError, MemoryError, ImportError, RecursionError))


def converted(convert: Callable[[int, int], list[Any]], start: int, stop: int) -> list[Any]:
    """Return the values from `start` up to `stop`, with `Unreadable` for each that cannot be converted."""
    try:
        return convert(start, stop)
    except Exception as error:
        if not are_unreadable(error):
            raise
        if stop - start == 1:
            return [Unreadable(in_words(error))]
    # Halve what fails: one bad value in a thousand costs twenty conversions more, instead of a thousand.
    middle = (start + stop) // 2
    return converted(convert, start, middle) + converted(convert, middle, stop)


def torn(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row as it travels, which is a `Torn` if some values are unreadable."""
    reasons = {at: each.reason for at, each in enumerate(values) if type(each) is Unreadable}
    return (
        Torn(tuple(None if at in reasons else each for at, each in enumerate(values)), reasons) if reasons else values
    )


def unreadable(key: Any, column: Any, where: str, reason: str) -> Never:
    """Raise `RecordInvalid`."""
    raise RecordInvalid(
        reason=f"document {key!r} has a value in column {column!r} that Python cannot hold: {reason}. It was not read, "
        f"and the document has no result; its other columns, and other rows of {where!r}, are not touched by this. "
        "Correct the value and map the rows again; or read other columns, doc['column'] or columns=[...].",
        key=key,
        column=column,
    )
