"""Printable lines measured in terminal columns; `dqlab.texts` makes them printable."""

from __future__ import annotations

import unicodedata

from dqlab.texts import JOINERS

__all__ = ["columns", "cut"]


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
