"""How views look: the look of message states, what a terminal can show, and how text is painted for it.

A colour never stands alone: every view puts the glyph or the word beside it. The live widget has its own colours for
light and dark in `extension/style/shared.css`; text and static HTML use these, which are readable on any background.
A line is a list of `Span`; `paint` cuts it to the terminal's width, colours it if there are colours, and spells it in
ASCII where Unicode cannot be shown.

"""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, TextIO

from dqlab.texts import JOINERS


class Ink(StrEnum):
    """The meaning of a text, with its ANSI parameter for a terminal's colours."""

    PLAIN = ""
    STRONG = "1"
    QUIET = "2"
    GOOD = "32"
    BAD = "31"
    WARN = "33"
    READY = "34"
    DELAYED = "35"
    GONE = "90"


class StateLook(Enum):
    """The look of a message's state, in the order in which bars stack states."""

    def __init__(self, field: str, word: str, glyph: str, mark: str, ink: Ink, static: str) -> None:
        # `field` is a name in `Counts`, `mark` the glyph's ASCII twin in bars, `static` a CSS colour for static HTML
        # with a contrast of at least 3:1 on white and on black.
        self.field, self.word, self.glyph, self.mark, self.ink, self.static = field, word, glyph, mark, ink, static

    ACKED = ("acked", "acked", "●", "#", Ink.GOOD, "#0A9F88")
    DEAD = ("dead", "dead", "✕", "x", Ink.BAD, "#E0533F")
    LOST = ("lost", "lost", "✕", "x", Ink.BAD, "#E0533F")
    LEASED = ("leased", "unacked", "◐", "*", Ink.WARN, "#9A6200")
    READY = ("ready", "ready", "○", ".", Ink.READY, "#2B66CC")
    DELAYED = ("delayed", "delayed", "◔", ".", Ink.DELAYED, "#A485C4")
    CANCELLED = ("cancelled", "cancelled", "⊘", "-", Ink.GONE, "#686B72")


STATES = {state.field: state for state in StateLook}
"""By name in `Counts`."""


def _width(character: str) -> int:
    if unicodedata.combining(character) or character in JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def columns(text: str) -> int:
    """Return how many terminal columns a printable line takes."""
    return sum(map(_width, text))


def cut(text: str, limit: int, *, ellipsis: str = "…") -> str:
    """Return text cut at the end to at most `limit` terminal columns."""
    if columns(text) <= limit:
        return text
    room, kept = limit - columns(ellipsis), []
    if room < 0:
        return ""
    for character in text:
        room -= _width(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ellipsis


WIDTH = 80
_ASCII = str.maketrans(
    {"\N{EN DASH}": "-", "·": "-", "…": "~", "●": "o", "✕": "x", "◐": "*", "○": ".", "◔": ".", "⊘": "-"}
)


@dataclass(frozen=True, slots=True)
class TextStyle:
    """What a stream can show."""

    unicode: bool = True
    """Blocks and glyphs instead of ASCII."""
    colour: bool = False
    """ANSI colours."""
    moves: bool = False
    """The cursor can go back up, so a screen can be redrawn in place."""
    width: int = WIDTH
    """Columns, at most 80."""
    spell: Callable[[str], str] = str
    """Rewrites the commands in a text as they are typed where it is printed."""

    @classmethod
    def detect(cls, stream: TextIO, environ: Mapping[str, str]) -> TextStyle:
        """Return what a stream can show, by its type and LANG, TERM and NO_COLOR."""
        terminal = stream.isatty()
        smart = terminal and environ.get("TERM", "") not in ("", "dumb")
        # Not LC_CTYPE: Python sets it itself.
        locale = environ.get("LC_ALL") or environ.get("LANG") or ""
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
        return cls(
            unicode=encoding.replace("-", "").startswith("utf") and locale not in ("C", "POSIX"),
            colour=smart and not environ.get("NO_COLOR"),
            moves=smart,
            width=max(20, min(WIDTH, shutil.get_terminal_size().columns)) if terminal else WIDTH,
            spell=_spell[-1],
        )


# Not a context variable: views are drawn by other threads too.
_spell: list[Callable[[str], str]] = [str]


@contextmanager
def spelled_by(spell: Callable[[str], str]) -> Iterator[None]:
    """Spell commands in this way in every style detected inside the block."""
    _spell.append(spell)
    try:
        yield
    finally:
        _spell.remove(spell)


PLAIN = TextStyle()
"""Unicode without colours, 80 columns: for text/plain in a notebook."""


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    ink: Ink = Ink.PLAIN


def paint(line: Iterable[Span], style: TextStyle) -> str:
    """Return one line as printed, without spaces at the end."""
    room, pieces = style.width, []
    spans = [span for span in line if span.text]
    while spans and not spans[-1].text.rstrip():
        spans.pop()
    for place, (text, ink) in enumerate(spans):
        # First: another spelling has another width, and ASCII another one again.
        text = style.spell(text)
        plain = text if style.unicode else text.translate(_ASCII).encode("ascii", "replace").decode()
        if place == len(spans) - 1:
            plain = plain.rstrip()
        plain = cut(plain, room, ellipsis="…" if style.unicode else "~")
        room -= columns(plain)
        pieces.append(f"\x1b[{ink}m{plain}\x1b[0m" if style.colour and ink is not Ink.PLAIN and plain else plain)
    return "".join(pieces)
