"""Payloads of all messages that are still there, as JSON lines; of damaged frames, what can be made of their bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError, FrameCorrupt
from dqlab.frame import NO_ID, Frame
from dqlab.log.records import FIELDS, HEADER_BYTES, RecordType
from dqlab.log.segment import SEGMENT_BYTES, Gap
from dqlab.rules.batches import Batch
from dqlab.rules.states import State
from dqlab.store.contents import frame_at
from dqlab.store.places import position_of
from dqlab.store.repair import savable
from dqlab.store.stored import ReadShard, StillClock, places_in

__all__ = ["DAMAGED", "exported"]

DAMAGED = "damaged"
"""State of what stands in bytes whose checksum is wrong: the payload may not be what was put."""


def exported(directory: Path, clock: Clock | None = None) -> Iterator[str]:
    """Yield one JSON object a message: queue, shard, id, state, run, ordinal, payload (base64).

    `id`, `run` and `ordinal` are null where damaged bytes do not tell; the payload is then all of the bytes. What was
    settled is not among them, except in damaged bytes.

    Raises
    ------
    NotAQueue
        The directory is no store, queue or shard.
    LogError
        A log cannot be read at all.
    """
    still = StillClock(clock or SystemClock())
    for place in places_in(directory):
        for index, path in place.shards:
            if path.is_dir():
                head = {"queue": place.name, "shard": index}
                for row in _rows(savable(place, index, path, still)):
                    yield json.dumps(head | row)


def _rows(read: ReadShard) -> Iterator[dict[str, Any]]:
    for run, lane in read.ledger.shard.lanes.items():
        for batch in lane.batches:
            yield from _of_batch(read, run, batch)
    for file in read.log.quarantined():
        yield from _of_damaged(file.read_bytes())
    for corruption in read.records.corrupt:
        entry = next(e for e in read.log.manifest.segments if e.name == corruption.file)
        if entry.name not in read.log.missing and corruption.offset >= SEGMENT_BYTES:
            gap = Gap(corruption.offset, corruption.offset + corruption.nbytes, None)
            yield from _of_damaged(read.log.bytes_at(entry, gap))


def _of_batch(read: ReadShard, run: bytes, batch: Batch) -> Iterator[dict[str, Any]]:
    try:
        _, frame = frame_at(read, run, batch)
    except DqlabError:
        segment, offset, size = position_of(batch.place)
        entry = next((e for e in read.log.manifest.segments if e.seq == segment), None)
        if entry is not None and entry.name not in read.log.missing:
            yield from _of_damaged(read.log.bytes_at(entry, Gap(offset, offset + size, None)))
        return
    for i, value in enumerate(batch.states):
        state = State(value)
        if not state.final:
            yield _row(batch.first + i, state.name.lower(), run, batch.ordinal + i, bytes(frame.message(i)))


def _of_damaged(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield what a damaged record says, taken at its word."""
    try:
        _, type, _, _, _, length, base, *_ = FIELDS.unpack_from(data.ljust(HEADER_BYTES, b"\0"))
        if type != RecordType.PUT:
            raise FrameCorrupt(kind="frame", reason="no frame", size=len(data))
        frame = Frame.decode(data[HEADER_BYTES : HEADER_BYTES + length])
    except FrameCorrupt:
        yield _row(None, DAMAGED, None, None, data)
        return
    for i in range(frame.count):
        ordinal = base + i if frame.run == NO_ID else frame.ordinal + i
        yield _row(base + i, DAMAGED, frame.run, ordinal, bytes(frame.message(i)))


def _row(id: int | None, state: str, run: bytes | None, ordinal: int | None, payload: bytes) -> dict[str, Any]:
    text = b64encode(payload).decode()
    return {"id": id, "state": state, "run": None if run is None else run.hex(), "ordinal": ordinal, "payload": text}
