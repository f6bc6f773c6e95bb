"""Takes checkpoints, and deletes the segments that are no longer needed."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from dqlab.log.checkpoints import Checkpoint, LogMark
from dqlab.log.directory import Directory, checkpoint_name
from dqlab.log.manifest import Catalog, Manifest, SegmentEntry
from dqlab.log.reader import Reader
from dqlab.log.space import Needed, Reserve
from dqlab.log.writer import Writer

__all__ = ["Collected", "SegmentCollector", "removable"]


@dataclass(frozen=True)
class Collected:
    """The number and bytes of the segments that a collection deleted."""

    segments: int
    nbytes: int


class SegmentCollector:
    """Takes checkpoints and deletes segments beside appends and commits, one at a time."""

    def __init__(
        self,
        directory: Directory,
        catalog: Catalog,
        writer: Writer,
        reader: Reader,
        needed: Needed,
        reserve: Reserve,
        checkpoints: list[Checkpoint],
    ) -> None:
        self._directory = directory
        self._catalog = catalog
        self._writer = writer
        self._reader = reader
        self._needed = needed
        self._reserve = reserve
        # Reentrant, because a checkpoint ends with a collection.
        self._lock = threading.RLock()
        self.checkpoints = checkpoints  # the two newest, newest last

    def checkpoint(self, mark: LogMark, body: bytes) -> None:
        """Make the journal's state at a mark durable, as `Log.checkpoint` promises."""
        with self._lock:
            # First the records up to the mark, then the checkpoint that replaces them: a power cut in between must not
            # leave a checkpoint which knows of records that never reached the disk.
            self._writer.commit(sync=True)
            catalog, directory = self._catalog, self._directory
            name = checkpoint_name(catalog.manifest.epoch, catalog.manifest.next_checkpoint())
            place = mark.segment, mark.offset
            data = Checkpoint.encode(catalog.manifest.uuid, *place, body)
            self._reserve.try_twice(lambda: directory.publish(name, [data]))
            with catalog.lock:
                # One that the disk refused to read goes before one that was read.
                unread = set(catalog.manifest.checkpoints) - {known.name for known in self.checkpoints}
                catalog.publish(catalog.manifest.having_checkpoint(name, unread))
            # Old checkpoints are unlinked only now that no manifest in force lists them.
            kept = catalog.manifest.checkpoints
            self.checkpoints.append(Checkpoint(name, *place, len(data)))
            replaced = {checkpoint.name for checkpoint in self.checkpoints if checkpoint.name not in kept}
            self.checkpoints[:] = [checkpoint for checkpoint in self.checkpoints if checkpoint.name in kept]
            for old in unread | replaced:
                with suppress(OSError):
                    directory.files.unlink(directory / old)
            self.collect()

    def collect(self) -> Collected:
        """Delete segments that are not needed, as `Log.collect` promises."""
        with self._lock:
            catalog, directory = self._catalog, self._directory
            doomed = self._removable()
            if doomed:
                # The settlements of their messages may only be in memory. If the files were deleted first, a power cut
                # would leave messages that are neither settled nor there.
                self._writer.commit(sync=True)
                with catalog.lock:  # asked again: a commit may have changed the manifest
                    doomed = [entry for entry in self._removable() if entry in doomed]
                    catalog.publish(catalog.manifest.without({entry.seq for entry in doomed}))
            # After the manifest without them is on disk: a listed segment that is missing stops every open.
            for entry in doomed:
                self._reader.retire(entry.seq)
                self._needed.forget(entry.seq)
                with suppress(OSError):  # the next open removes what this cannot
                    directory.files.unlink(directory / entry.name)
            if doomed:
                directory.files.sync_directory(directory.path)
            self._reserve.restore()
            return Collected(len(doomed), sum(entry.length or 0 for entry in doomed))

    def _removable(self) -> list[SegmentEntry]:
        return removable(self._catalog.manifest, self.checkpoints, self._needed)


def removable(manifest: Manifest, checkpoints: list[Checkpoint], needed: Needed) -> list[SegmentEntry]:
    """Return the segments that neither the journal nor a recovery from either checkpoint needs."""
    # Either checkpoint may turn out to be damaged, so a recovery from the older one must work too. Its replay reads the
    # segments from its own mark on, whether or not anything in them is needed: they hold the settlements of messages in
    # earlier segments. So a segment may go only if it lies before both marks.
    if len(checkpoints) < 2:
        return []
    end = min(manifest.place(checkpoint.segment) for checkpoint in checkpoints)
    # A checkpoint of an earlier version may know by their old positions records that were copied under other numbers.
    old = any(checkpoint.has_table for checkpoint in checkpoints)
    covered = {seq for entry in manifest.segments for seq in entry.covers} if old else set()
    return [entry for entry in manifest.segments[:end] if not needed[entry.seq] and entry.seq not in covered]
