"""Exports the payloads of all unsettled messages as JSON lines, and from damaged frames all that can still be read."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.errors import FrameCorrupt
from dqlab.frame import NO_ID, Frame
from dqlab.log import RecordCorrupt
from dqlab.log.records import FIELDS, HEADER_BYTES, RecordType
from dqlab.log.segment import SEGMENT_BYTES
from dqlab.rules.batches import Batch
from dqlab.rules.states import State
from dqlab.store.bodies import position_of
from dqlab.store.offline import OfflineShard, StillClock, may_be_there, places_in

__all__ = ["DAMAGED", "exported"]

DAMAGED = "damaged"
"""State of messages from bytes with a wrong checksum: the payload may differ from what was put."""


def exported(directory: Path, clock: Clock | None = None) -> Iterator[str]:
    """Yield one JSON object for each message, with its queue, shard, id, state, run, ordinal and payload (base64)."""
    # Settled messages are left out, except in damaged bytes. Where these do not hold `id`, `run` and `ordinal`, they
    # are null, and the payload is all of the bytes.
    still = StillClock(clock or SystemClock())
    for place in places_in(directory):
        for index, path in place.shards:
            if may_be_there(path):
                head = {"queue": place.name, "shard": index}
                for row in _rows(OfflineShard.rescue(place, index, path, still)):
                    yield json.dumps(head | row)


def _rows(read: OfflineShard) -> Iterator[dict[str, Any]]:
    for run, lane in read.ledger.shard.lanes.items():
        for batch in lane.batches:
            yield from _of_batch(read, run, batch)
    for file in read.log.quarantined():
        yield from _of_damaged(read.log.whole(file))
    for found in read.corrupt:
        if found.offset >= SEGMENT_BYTES:
            yield from _of_damaged(read.log.read(found.file, found.offset, found.nbytes))


def _of_batch(read: OfflineShard, run: bytes, batch: Batch) -> Iterator[dict[str, Any]]:
    try:
        _, frame = read.frame(run, batch)
    except (RecordCorrupt, FrameCorrupt):
        segment, offset, size = position_of(batch.place)
        entry = next((e for e in read.log.manifest.segments if e.seq == segment), None)
        if entry is not None:
            yield from _of_damaged(read.log.read(entry.name, offset, size))
        return
    for i, value in enumerate(batch.states):
        state = State(value)
        if not state.final:
            yield _row(batch.first + i, state.name.lower(), run, batch.ordinal + i, bytes(frame.message(i)))


def _of_damaged(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the messages of a damaged record, as far as its bytes still make sense."""
    if not data:  # its segment is missing
        return
    try:
        _, type, _, _, _, length, base, *_ = FIELDS.unpack_from(data.ljust(HEADER_BYTES, b"\0"))
        if type != RecordType.PUT:
            raise FrameCorrupt(kind="frame", reason="no frame", size=len(data))
        frame = Frame.decode(data[HEADER_BYTES : HEADER_BYTES + length])
    except FrameCorrupt:
        yield _row(None, DAMAGED, None, None, data)
        return
    for i in range(frame.count):
        # As `Lane.row` does: lane 0 has no input, so a message's position is its id.
        ordinal = base + i if frame.run == NO_ID else frame.ordinal + i
        yield _row(base + i, DAMAGED, frame.run, ordinal, bytes(frame.message(i)))


def _row(id: int | None, state: str, run: bytes | None, ordinal: int | None, payload: bytes) -> dict[str, Any]:
    text = b64encode(payload).decode()
    return {"id": id, "state": state, "run": None if run is None else run.hex(), "ordinal": ordinal, "payload": text}
