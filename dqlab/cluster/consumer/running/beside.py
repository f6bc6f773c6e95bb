"""Puts what messages have spent, and the answers that they keep, beside their outcomes in a settlement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgpack

from dqlab.frame import Outcome

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.chunk import Chunk
    from dqlab.cluster.consumer.running.outcomes import Columns

__all__ = ["kept_for_the_next", "spent_beside"]


def spent_beside(chunk: Chunk, done: Columns) -> Mapping[int, bytes]:
    """Return what messages that are settled have spent, by their places among them, and let go of it."""
    if not chunk.spent:
        return {}
    spent = {place: chunk.spent.pop(position, None) for place, position in enumerate(done.positions)}
    return {place: msgpack.packb(amounts) for place, amounts in spent.items() if amounts}


def kept_for_the_next(chunk: Chunk, done: Columns) -> Mapping[int, bytes]:
    """Return the answers of messages that have no result yet, by their places among those that are settled."""
    if not chunk.once:
        return {}
    kept = {place: chunk.once.pop(position, None) for place, position in enumerate(done.positions)}
    return {
        place: msgpack.packb(answers)
        for place, answers in kept.items()
        if answers and done.outcomes[place] is not Outcome.ACK
    }
