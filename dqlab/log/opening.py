"""Opens a log, step by step: lock, epoch, recovery, a new segment, a new manifest, removal of leftovers.

Nothing is deleted before the new manifest is on disk: until then the old files are the log.
"""

from __future__ import annotations

import uuid as uuids
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dqlab.clock import Clock
from dqlab.log.checkpoints import Checkpoint
from dqlab.log.directory import EPOCH, MANIFEST, Directory, is_ours, segment_name, shown
from dqlab.log.errors import ManifestCorrupt, NotALog, SegmentMissing, tried_twice, typed
from dqlab.log.files import Files
from dqlab.log.manifest import Catalog, Manifest, SegmentEntry
from dqlab.log.options import LogOptions
from dqlab.log.ownership import Ownership
from dqlab.log.records import HEADER_BYTES, Header, RecordType, pack_header
from dqlab.log.recovery import FoundLog, LogReplay, Recovery, find, is_leftover, newest_manifest
from dqlab.log.segment import SEGMENT_BYTES, pack_segment_header
from dqlab.log.space import Needed
from dqlab.log.writer import OpenSegment


class Opened(NamedTuple):
    """The parts of a log that was just opened."""

    directory: Directory
    owner: Ownership
    catalog: Catalog
    needed: Needed
    checkpoints: list[Checkpoint]
    segment: OpenSegment
    replay: LogReplay
    recovery: Recovery


def open_log(path: Path, options: LogOptions, files: Files, clock: Clock, *, owner: str, takeover: bool) -> Opened:
    """Take ownership of a log and recover it, as `Log.open` promises."""
    directory = Directory(path, files)
    with typed(directory):
        _make(directory)
        # Before the lock, to refuse a later format while nothing is changed. Another process may be opening the log at
        # this moment, so a damaged manifest counts only when the owner of the lock reads it again.
        with suppress(ManifestCorrupt):
            newest_manifest(directory)
        ownership = Ownership(directory, owner=owner, takeover=takeover, unsafe_no_lock=options.unsafe_no_lock)
        try:
            found = _find(directory, ownership.epoch)
            if not found.clean:
                _sync(directory, found)
            return _begin(directory, ownership, found, clock)
        except BaseException:
            ownership.release()
            raise


def _make(directory: Directory) -> None:
    """Create the directory durably, or refuse one that holds only other files."""
    files, path = directory.files, directory.path
    if files.exists(path):
        names = directory.names()
        if names and not any(map(is_ours, names)):
            raise NotALog(directory=str(path), names=shown(names))
        return
    # Found before they are made, because each new name has to be synced in its parent: a power cut could take the log
    # away with the last folder above it.
    new = [parent for parent in (path, *path.parents) if not files.exists(parent)]
    files.make_directory(path)
    for made in new:
        files.sync_directory(made.parent)


def _find(directory: Directory, epoch: int) -> FoundLog:
    """Return what earlier sessions left, with the manifest of the new epoch, and write nothing."""
    manifest = newest_manifest(directory)
    if manifest is None:
        return FoundLog(Manifest(uuids.uuid4().hex, epoch), [], None, (), (), clean=True, torn_bytes=0)
    names = set(directory.names())
    for entry in manifest.segments:
        if entry.name not in names:
            raise SegmentMissing(directory=str(directory), file=entry.name)
    found = find(directory, manifest)
    kept = tuple(name for name in manifest.checkpoints if name not in found.damaged)
    return found._replace(manifest=replace(found.manifest, epoch=epoch, checkpoints=kept))


def _sync(directory: Directory, found: FoundLog) -> None:
    """Sync the segments of a session that was killed."""
    # It may have written records and not synced them. Replay takes them as durable, and new records build on them: a
    # power cut must not take them back afterwards.
    manifest, checkpoints = found.manifest, found.checkpoints
    start = manifest.place(checkpoints[-1].segment) if checkpoints else 0
    for entry in manifest.segments[start:]:
        with directory.opened(entry.name) as descriptor:
            directory.files.sync(descriptor)


def _begin(directory: Directory, owner: Ownership, found: FoundLog, clock: Clock) -> Opened:
    """Create the epoch's first segment and publish the manifest that lists it."""
    catalog = Catalog(directory, owner, found.manifest)
    segment = _first_segment(directory, owner, catalog, clock)
    try:
        # First the manifest: until it is on disk, the old files are the log, and none may be moved or removed.
        catalog.publish(found.manifest.having(SegmentEntry(segment.seq, owner.epoch)))
        leftovers = _remove_leftovers(directory, catalog.manifest)
    except BaseException:
        directory.files.close(segment.descriptor)
        raise
    newest = found.checkpoints[-1] if found.checkpoints else None
    recovery = Recovery(
        epoch=owner.epoch,
        clean=found.clean,
        checkpoint=found.body,
        checkpoint_lost=bool(found.damaged) and newest is None,
        torn_bytes=found.torn_bytes,
        corrupt=(),
        leftovers=leftovers,
        lock=owner.lock,
        filesystem=owner.filesystem,
    )
    return Opened(
        directory,
        owner,
        catalog,
        Needed(),
        found.checkpoints,
        segment,
        LogReplay(directory, found.manifest, newest),
        recovery,
    )


def _first_segment(directory: Directory, owner: Ownership, catalog: Catalog, clock: Clock) -> OpenSegment:
    seq, epoch = catalog.allocate(), owner.epoch
    header = pack_segment_header(catalog.uuid, seq, epoch, clock.wall())
    opening = pack_header(Header(RecordType.OPEN, 0, 0, 0, 0, 0, 0, epoch, 0), catalog.seed(seq))
    name = segment_name(seq, epoch)
    descriptor = tried_twice(directory, lambda: directory.create(name, [header, opening]))
    return OpenSegment(seq, descriptor, SEGMENT_BYTES + HEADER_BYTES)


# --- leftovers ------------------------------------------------------------------------------


def _remove_leftovers(directory: Directory, manifest: Manifest) -> tuple[str, ...]:
    """Remove files that the manifest does not list, and return the names of those from unfinished steps."""
    # In ascending order of names, so old epochs go lowest first: a fenced owner of epoch e, which looks for the file of
    # e + 1, then finds its own gone once that one is removed too. See `Ownership.check`.
    listed = {entry.name for entry in manifest.segments} | set(manifest.checkpoints)
    removed: list[str] = []
    for name in directory.names():
        match = EPOCH.fullmatch(name) or MANIFEST.fullmatch(name)
        if match is not None:
            if int(match[1]) < manifest.epoch:
                with suppress(OSError):
                    directory.files.unlink(directory / name)
        elif name not in listed and is_leftover(name, manifest.epoch):
            with suppress(OSError):
                directory.files.unlink(directory / name)
                removed.append(name)
    directory.files.sync_directory(directory.path)
    return tuple(removed)
