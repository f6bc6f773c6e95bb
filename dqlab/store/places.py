"""A record's position as the one number that the rules carry."""

from __future__ import annotations

from dqlab.log import Position

__all__ = ["place_of", "position_of"]

_OFFSET_BITS = _SIZE_BITS = 27
"""A record's body is at most 64 MiB, and it begins within a segment's first 128 MiB."""


def place_of(position: Position) -> int:
    """Return the number."""
    segment, offset, size = position
    return (segment << _OFFSET_BITS | offset) << _SIZE_BITS | size


def position_of(place: int) -> Position:
    """Return the position."""
    rest, size = place >> _SIZE_BITS, place & ((1 << _SIZE_BITS) - 1)
    return Position(rest >> _OFFSET_BITS, rest & ((1 << _OFFSET_BITS) - 1), size)
