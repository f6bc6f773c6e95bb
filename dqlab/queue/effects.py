"""What the rules ask of the shell around them, left in `Shard.effects` until it looks."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["Effect", "Freed", "Revoked"]


class Freed(NamedTuple):
    """The frame whose first message has this id is needed no more."""

    first: int


class Revoked(NamedTuple):
    """These ids of a lease were cancelled; its consumer should skip them."""

    consumer: str
    lease_id: int
    ranges: tuple[tuple[int, int], ...]


Effect: TypeAlias = Freed | Revoked
