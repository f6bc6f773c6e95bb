"""What the rules ask of the shell around them, left in `Shard.effects` until it looks."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Revoked"]


class Revoked(NamedTuple):
    """These ids of a lease were cancelled; its consumer should skip them."""

    consumer: str
    lease_id: int
    ranges: tuple[tuple[int, int], ...]
