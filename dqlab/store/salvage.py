"""Recreates a manifest from the files of a log, when the one in force cannot be read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from dqlab.log import Files, LogError
from dqlab.log.checkpoints import Checkpoint, read_checkpoint
from dqlab.log.directory import CHECKPOINT, EPOCH, MANIFEST, SEGMENT, Directory
from dqlab.log.errors import typed
from dqlab.log.manifest import Manifest, SegmentEntry
from dqlab.log.records import RecordType
from dqlab.log.segment import SEGMENT_BYTES
from dqlab.store.bodies import unpack_plain

__all__ = ["Unsalvageable", "salvaged_manifest"]

_UUID_AT = 52
_UUID_BYTES = 8


class Unsalvageable(LogError):
    """Too little is left to find the order in which the files were written."""

    text = (
        "the manifest of {directory} cannot be read, and {reason}. Nothing was touched. Put the manifest back from a "
        "copy; someone who knows the format can still recover messages from quarantine and intact segments."
    )


class _Content(NamedTuple):
    """The records of a segment."""

    end: int
    """Where they end."""
    latest: int
    """Their latest time, nanoseconds."""
    highest: int
    """The highest first id of a frame; -1 without frames."""


def salvaged_manifest(path: Path) -> Manifest:
    """Return a manifest for a log's files, or raise `Unsalvageable` when their order cannot be found."""
    directory = Directory(path, Files())
    with typed(directory):
        return _salvaged(directory)


def _salvaged(directory: Directory) -> Manifest:
    entries, prefix = _segments(directory)
    names = [name for name in directory.names() if CHECKPOINT.fullmatch(name)]
    found = _whole(directory, names[-1], prefix, entries) if names else None
    if names and found is None:  # an older one does not know what was compacted since
        raise Unsalvageable(directory=str(directory), reason=f"its newest checkpoint, {names[-1]}, is damaged")
    uuid = (prefix + bytes(16 - _UUID_BYTES)).hex() if found is None else found[0]
    manifest = Manifest(uuid, 0)
    contents = {seq: _content(directory, manifest, entry) for seq, entry in entries.items()}
    epochs = directory.numbered(EPOCH) + directory.numbered(MANIFEST) + [e.epoch for e in entries.values()]
    sealed = [SegmentEntry(seq, entry.epoch, length=contents[seq].end) for seq, entry in sorted(entries.items())]
    if found is not None:
        _, newest, body = found
        state = unpack_plain(body)
        at, next_id = int(state["at"] * 1e9), state["next_id"]
        # Replay begins in the segment that the newest checkpoint names. Segments with higher numbers follow it, except
        # compacted ones, which hold nothing newer than the checkpoint. If the clock was set back, later settlements may
        # be taken for older ones: their messages are delivered again. Records that a failing disk moved to another
        # segment cannot be found, and count as lost.
        behind = [e for e in sealed if e.seq > newest.segment and not _is_older(contents[e.seq], at, next_id)]
        start = [e for e in sealed if e.seq == newest.segment]
        sealed = [*(e for e in sealed if e not in behind and e not in start), *start, *behind]
    next_seq = max(entries, default=0) + 1
    return Manifest(uuid, max(epochs, default=0), next_seq, tuple(sealed), tuple(names[-1:]))


def _segments(directory: Directory) -> tuple[dict[int, SegmentEntry], bytes]:
    """Return the segments by number (of two with one number, the later) and the uuid prefix that most of them have."""
    marks: Counter[bytes] = Counter()
    entries: dict[int, SegmentEntry] = {}
    for name in directory.names():
        if match := SEGMENT.fullmatch(name):
            marks[directory.read(name)[_UUID_AT : _UUID_AT + _UUID_BYTES]] += 1
            entries[int(match[1])] = SegmentEntry(int(match[1]), int(match[2]))
    if not marks:
        raise Unsalvageable(directory=str(directory), reason="no segment is there")
    return entries, marks.most_common(1)[0][0]


def _whole(
    directory: Directory, name: str, prefix: bytes, entries: dict[int, SegmentEntry]
) -> tuple[str, Checkpoint, bytes] | None:
    """Return a checkpoint's uuid, itself and its body, or None when it is damaged or belongs to another log."""
    uuid = directory.read(name)[12:28].hex()
    found = read_checkpoint(directory, name, uuid) if len(uuid) == 32 else None
    if found is None or not uuid.startswith(prefix.hex()) or found[0].segment not in entries:
        return None
    return uuid, *found


def _content(directory: Directory, manifest: Manifest, entry: SegmentEntry) -> _Content:
    with directory.opened(entry.name) as descriptor:
        size = directory.files.size(descriptor)
        scan = manifest.scan(directory.files, descriptor, entry, start=SEGMENT_BYTES, limit=size)
        latest, highest = 0, -1
        for record in scan:
            latest = max(latest, record.aux)
            highest = max(highest, record.base if record.type == RecordType.PUT else -1)
        return _Content(scan.end, latest, highest)


def _is_older(content: _Content, at: int, next_id: int) -> bool:
    """Return whether a checkpoint knows a segment's records, by their ids, or by time without frames."""
    return content.highest < next_id if content.highest >= 0 else 0 < content.latest < at
