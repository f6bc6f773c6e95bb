"""Numbers of messages: shard << 45 | sequence, below 2**53 so that every language reads them exactly."""

from __future__ import annotations

from dqlab.errors import BadOption

_SEQUENCE_BITS = 45
_EPOCH_STRIDE = 1 << 24  # ids that one epoch may give
_MAX_SHARDS = 256

ID_BITS = 53
ID_MASK = (1 << ID_BITS) - 1
END = 1 << ID_BITS
"""Above every id."""


def first_id(index: int, sequence: int) -> int:
    """Return the id of a shard's message number `sequence`, or raise BadOption when either is out of range."""
    if not 0 <= index < _MAX_SHARDS:
        raise BadOption(option="index", value=index, problem=f"a queue has shards 0 to {_MAX_SHARDS - 1}.")
    if not 0 <= sequence < 1 << _SEQUENCE_BITS:
        raise BadOption(option="first_sequence", value=sequence, problem=f"fits {_SEQUENCE_BITS} bits, from 0.")
    return index << _SEQUENCE_BITS | sequence


def shard_of(id: int) -> int:
    """Return the shard a message id belongs to."""
    return id >> _SEQUENCE_BITS


def next_sequence(highest: int | None) -> int:
    """Return where a new epoch's sequences start, given the highest known id or sequence of its shard, if any."""
    if highest is None:
        return 0
    sequence = highest & ((1 << _SEQUENCE_BITS) - 1)
    # Not the next number: puts that were confirmed and did not reach the disk took ids too, though fewer than a stride.
    # No id may be given twice, since clients hold them and late settlements name them.
    return (sequence // _EPOCH_STRIDE + 1) * _EPOCH_STRIDE
