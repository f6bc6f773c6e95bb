"""The parts that a view is built of, before `text` and `html` draw them.

A picture is a tuple of parts: pure functions build it (`layout`, `checkups`, `timelines`, and `tables` for a table
alone), and both renderers walk the same one. Texts of users are cut and escaped by the renderers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from dqlab.live.style import Ink, Span


class Column(NamedTuple):
    """One column."""

    title: str
    right: bool = False
    """For figures."""
    mono: bool = False
    """A fixed-width face, for code and documents."""
    whole: bool = False
    """Cut only after the words of other columns, because people type it."""
    spare: bool = False
    """Left out of text at the end of a row where there is no room for all."""


class Cell(NamedTuple):
    """The text of one cell, and its meaning."""

    text: str
    ink: Ink = Ink.PLAIN
    filled: float = 0.0
    """How far a bar is filled, 0 to 1."""


Field: TypeAlias = tuple[Column, Callable[[Any], str | Cell]]
"""A column, and what makes its cell of a thing."""


def cells_of(thing: Any, fields: Sequence[Field]) -> tuple[Cell, ...]:
    """Return the row of a thing."""
    return tuple(made if isinstance(made := make(thing), Cell) else Cell(made) for _, make in fields)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of finished strings."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] = ()
    """A last row."""
    notes: tuple[str, ...] = ()
    """Sentences below."""
    lines: tuple[str, ...] = ()
    """What can be typed next: they stand last, and are never cut."""

    @classmethod
    def of(cls, things: Iterable[Any], fields: Sequence[Field], **more: Any) -> Table:
        """Return a table with a row for each thing."""
        return cls(tuple(column for column, _ in fields), tuple(cells_of(each, fields) for each in things), **more)


NO_TABLE = Table((), ())


class Title(NamedTuple):
    """The head of a picture."""

    name: str
    state: str = ""
    about: str = ""
    """In a muted colour."""
    ink: Ink = Ink.STRONG
    """Of the state."""


class Line(NamedTuple):
    """One line of text."""

    spans: tuple[Span, ...] = ()


GAP = Line()
"""An empty line of text; HTML has margins."""


class Box(NamedTuple):
    """A sentence with a mark, which is broken where it is long, with advice and a command to copy."""

    text: str
    ink: Ink = Ink.WARN
    head: str = ""
    """What the sentence is about."""
    mark: str = "!"
    """Stands before the head."""
    advice: str = ""
    command: str = ""
    quiet: bool = False
    """It needs no attention."""


class Bar(NamedTuple):
    """One piece of the bar."""

    state: str
    """Name of the field in `Counts`."""
    fraction: float
    """The state's share, 0 to 1; 0 still shows."""


class Gauge(NamedTuple):
    """How much of something is settled, and in which state."""

    percent: str
    unit: str
    label: str
    """The same in words."""
    bars: tuple[Bar, ...]
    stale: bool
    """The numbers are old, and the bars grey."""


class Steps(NamedTuple):
    """Lines to type, which are never cut."""

    lines: tuple[str, ...]
    label: str = ""


class Code(NamedTuple):
    """Lines of code, or of a traceback, as they are."""

    text: str


class Series(NamedTuple):
    """Values at regular times, with None for unknown ones, and words about them."""

    name: str
    values: Sequence[float | None]
    words: str


class Chart(NamedTuple):
    """Series over one span of time."""

    series: tuple[Series, ...]
    start: str
    end: str
    marks: tuple[tuple[float, str], ...]
    """Places from 0 to 1, and what happened there."""


Part: TypeAlias = Title | Line | Box | Gauge | Steps | Code | Chart | Table


def line(text: str, ink: Ink = Ink.PLAIN) -> Line:
    """Return a line with one piece of text."""
    return Line((Span(text, ink),))
