"""Puts what messages have spent beside their outcomes in a settlement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.chunk import Chunk

__all__ = ["spent_beside"]


def spent_beside(chunk: Chunk, positions: Sequence[int]) -> Mapping[int, bytes]:
    """Return what messages that are settled have spent, by their places among them, and let go of it."""
    if not chunk.spent:
        return {}
    spent = {place: chunk.spent.pop(position, None) for place, position in enumerate(positions)}
    return {place: msgpack.packb(amounts) for place, amounts in spent.items() if amounts}
