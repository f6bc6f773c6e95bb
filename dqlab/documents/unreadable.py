"""Values of rows that Python cannot hold, such as a date after the year 9999, or a text whose bytes are not UTF-8.

Owns how one of them is found among many that are converted at once, and what a row has in its place: the others stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Never

from dqlab.errors import DqlabError, ValueUnreadable, in_words

__all__ = ["Partly", "Torn", "Unreadable", "are_unreadable", "converted", "torn", "unreadable"]


class Unreadable(NamedTuple):
    """What stands where a value cannot."""

    reason: str

    @property
    def in_words(self) -> str:
        """What it is, where a value would be named."""
        return f"a value that Python cannot hold ({self.reason})"


class Torn(NamedTuple):
    """The values of a row of a frame, some unreadable; travels in place of a row's tuple.

    Attributes
    ----------
    values : tuple
        None for those.
    reasons : dict
        Why, by position.
    """

    values: tuple[Any, ...]
    reasons: dict[int, str]


class Partly(list[Any]):
    """Values, some unreadable; taking an unreadable one raises `CannotRead`. Other lists pay nothing for it."""

    def __getitem__(self, at: Any) -> Any:
        """Return a value."""
        value = super().__getitem__(at)
        if type(value) is Unreadable:
            raise CannotRead(value.reason)
        return value


class CannotRead(Exception):
    """A value cannot be read: (reason); caught where row and column have names."""


def are_unreadable(error: Exception) -> bool:
    """Return whether values may be why they could not be converted, rather than their file, memory or packages."""
    return not isinstance(error, (DqlabError, OSError, MemoryError, ImportError, RecursionError))


def converted(convert: Callable[[int, int], list[Any]], start: int, stop: int) -> list[Any]:
    """Return the values from one position up to another; `Unreadable` for each that cannot be converted.

    Halves what fails until single values are left: one in a thousand costs twenty more conversions.
    """
    try:
        return convert(start, stop)
    except Exception as error:
        if not are_unreadable(error):
            raise
        if stop - start == 1:
            return [Unreadable(in_words(error))]
    middle = (start + stop) // 2
    return converted(convert, start, middle) + converted(convert, middle, stop)


def torn(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row as it travels: as it is, or `Torn`."""
    reasons = {at: each.reason for at, each in enumerate(values) if type(each) is Unreadable}
    return (
        Torn(tuple(None if at in reasons else each for at, each in enumerate(values)), reasons) if reasons else values
    )


def unreadable(key: Any, column: Any, where: str, reason: str) -> Never:
    """Raise that the value of a row cannot be read."""
    raise ValueUnreadable(key=key, column=column, where=where, reason=reason)
