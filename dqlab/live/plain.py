"""Strings from users, made fit for one line.

Names, keys and messages come from documents and exceptions: they may hold line breaks, terminal
escapes, text that runs backwards, half a surrogate pair, or a megabyte. Owns making them harmless
and short. Knows nothing of HTML: escaping is the business of the view that writes HTML.
"""

from __future__ import annotations

import unicodedata

__all__ = ["block", "columns", "cut", "one_line"]

_GONE = "\N{REPLACEMENT CHARACTER}"
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # letters of some scripts, and families of emoji


def one_line(text: object, limit: int = 120) -> str:
    """Return text as one printable line of at most `limit` characters.

    White space becomes single spaces; control, bidirectional and unpaired surrogate characters
    become the replacement character. A cut ends with an ellipsis.
    """
    raw = str(text)[: 4 * limit + 16]  # what is behind the cut is not even looked at
    line = "".join(
        character if character.isprintable() or character in _JOINERS else _GONE for character in " ".join(raw.split())
    )
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _width(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
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


def block(text: object, limit: int = 20_000) -> str:
    """Return text of several lines, each printable, of at most `limit` characters; tabs become four spaces."""
    lines = str(text)[:limit].expandtabs(4).splitlines()
    kept = [
        "".join(each if each.isprintable() or each in _JOINERS else _GONE for each in line.rstrip()) for line in lines
    ]
    return "\n".join(kept) + ("\n…" if len(str(text)) > limit else "")
