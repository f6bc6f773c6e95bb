"""Opening a log, step by step: lock, epoch, recovery, a new segment, a new manifest, tidying."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dqlab.clock import Clock
from dqlab.log.catalog import Catalog
from dqlab.log.checkpoints import Checkpoint
from dqlab.log.directory import Directory, is_ours, segment_name
from dqlab.log.errors import LogError, ManifestCorrupt, NotALog
from dqlab.log.files import Files
from dqlab.log.manifest import SegmentEntry
from dqlab.log.options import LogOptions
from dqlab.log.ownership import Ownership
from dqlab.log.records import HEADER_BYTES, Header, RecordType, pack_header
from dqlab.log.recovery import Found, Recovery, Replay, find, move_damaged, newest_manifest, remove_leftovers
from dqlab.log.segment import SEGMENT_BYTES, pack_segment_header
from dqlab.log.space import Needed, Reserve
from dqlab.log.writer import OpenSegment

__all__ = ["Opened", "open_log"]


class Opened(NamedTuple):
    """The parts of a log that was just opened."""

    directory: Directory
    owner: Ownership
    reserve: Reserve
    catalog: Catalog
    needed: Needed
    checkpoints: list[Checkpoint]
    segment: OpenSegment
    replay: Replay
    recovery: Recovery


def open_log(path: Path, options: LogOptions, files: Files, clock: Clock, *, owner: str, takeover: bool) -> Opened:
    """Take ownership of a log and recover it; see `Log.open`."""
    started = clock.monotonic()
    directory = Directory(path, files)
    try:
        _make(directory)
        with suppress(ManifestCorrupt):  # another process may be opening it; the one with the lock looks again
            newest_manifest(directory)  # a later format is refused before anything is changed
        ownership = Ownership(directory, owner=owner, takeover=takeover, unsafe_no_lock=options.unsafe_no_lock)
        try:
            found = find(directory, ownership.epoch)
            if not found.clean:
                _sync(directory, found)
            return _begin(directory, ownership, found, options, clock, started)
        except BaseException:
            ownership.release()
            raise
    except OSError as error:
        raise LogError(directory=str(path), reason=f"{type(error).__name__}: {error}") from error


def _make(directory: Directory) -> None:
    """Make the directory durably; refuse one with files that are not a log's."""
    files, path = directory.files, directory.path
    if files.exists(path):
        names = directory.names()
        if names and not any(map(is_ours, names)):
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise NotALog(directory=str(path), names=shown)
        return
    new = [parent for parent in (path, *path.parents) if not files.exists(parent)]
    files.make_directory(path)
    for made in new:
        files.sync_directory(made.parent)


def _sync(directory: Directory, found: Found) -> None:
    """Sync what a session that was killed had only written: it is read from now on, and built upon."""
    manifest, checkpoints = found.manifest, found.checkpoints
    start = manifest.place(checkpoints[-1].segment) if checkpoints else 0
    for entry in manifest.segments[start:]:
        descriptor = directory.files.open(directory / entry.name)
        try:
            directory.files.sync(descriptor)
        finally:
            directory.files.close(descriptor)


def _begin(
    directory: Directory, owner: Ownership, found: Found, options: LogOptions, clock: Clock, started: float
) -> Opened:
    """Begin the epoch's first segment, and put the manifest in force that lists it."""
    reserve = Reserve(directory, options.reserve_bytes)
    catalog = Catalog(directory, owner, reserve, found.manifest)
    segment = _first_segment(directory, owner, reserve, catalog, clock)
    try:
        catalog.publish(found.manifest.having(SegmentEntry(segment.seq, owner.epoch)))
        moved = move_damaged(directory, found.damaged)
        leftovers = remove_leftovers(directory, catalog.manifest)
    except BaseException:
        directory.files.close(segment.descriptor)
        raise
    reserve.restore()
    newest = found.checkpoints[-1] if found.checkpoints else None
    recovery = Recovery(
        epoch=owner.epoch,
        clean=found.clean,
        checkpoint=found.body,
        checkpoint_lost=bool(found.damaged) and newest is None,
        torn_bytes=found.torn_bytes,
        corrupt=(),
        quarantined=moved,
        leftovers=leftovers,
        lock=owner.lock,
        filesystem=owner.filesystem,
        seconds=clock.monotonic() - started,
    )
    return Opened(
        directory,
        owner,
        reserve,
        catalog,
        Needed(newest.needed if newest is not None else {}),
        found.checkpoints,
        segment,
        Replay(directory, found.manifest, newest),
        recovery,
    )


def _first_segment(
    directory: Directory, owner: Ownership, reserve: Reserve, catalog: Catalog, clock: Clock
) -> OpenSegment:
    seq, epoch = catalog.allocate(), owner.epoch
    header = pack_segment_header(catalog.uuid, seq, epoch, clock.wall())
    opening = pack_header(Header(RecordType.OPEN, 0, 0, 0, 0, 0, 0, epoch, 0), catalog.seed(seq))
    name = segment_name(seq, epoch)
    descriptor = reserve.twice(lambda: directory.create(name, [header, opening]))
    return OpenSegment(seq, descriptor, SEGMENT_BYTES + HEADER_BYTES)
