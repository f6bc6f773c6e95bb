"""Puts what messages have spent, and the answers that they keep, beside their outcomes in a settlement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgpack

from dqlab.frame import Outcome

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.chunk import Chunk
    from dqlab.cluster.consumer.running.outcomes import Columns


class Beside:
    """What messages have spent, and the answers that they keep, until both ride beside their outcomes."""

    spent: dict[int, dict[str, float]]
    """By position and unit."""
    once: dict[int, dict[bytes, bytes]]
    """By position and call."""

    def place_of(self, index: int, given: Sequence[Any]) -> int | None:
        """Return the position of the message that a call with these arguments is for, or None if nothing says it."""
        return index

    def pay(self, index: int, amounts: Mapping[str, float]) -> None:
        """Note what a message has spent."""
        so_far = self.spent.setdefault(index, {})
        for unit, amount in amounts.items():
            so_far[unit] = so_far.get(unit, 0.0) + amount

    def keep(self, index: int, answers: Mapping[bytes, bytes]) -> None:
        """Keep answers for a message until it has a result."""
        self.once.setdefault(index, {}).update(answers)


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
