"""The manifest in force: one change at a time, durable before it counts."""

from __future__ import annotations

import threading

from dqlab.log.directory import Directory, manifest_name
from dqlab.log.manifest import Manifest, SegmentEntry, resolve
from dqlab.log.ownership import Ownership
from dqlab.log.records import seed_of
from dqlab.log.space import Reserve

__all__ = ["Catalog"]


class Catalog:
    """Which segments there are, and where a record of a segment that failed went.

    Attributes
    ----------
    lock : RLock
        Held while the manifest changes, from reading it to publishing.
    manifest : Manifest
        As it is on disk.
    uuid : bytes
        The log's.
    """

    def __init__(self, directory: Directory, owner: Ownership, reserve: Reserve, manifest: Manifest) -> None:
        self._directory = directory
        self._owner = owner
        self._reserve = reserve
        self._seqs = manifest.next_seq
        self._seqs_lock = threading.Lock()
        self.lock = threading.RLock()
        self.manifest = manifest
        self.uuid = bytes.fromhex(manifest.uuid)
        self._continued = manifest.continued()

    def allocate(self) -> int:
        """Return a number that no segment ever had."""
        with self._seqs_lock:
            seq = self._seqs
            self._seqs += 1
            return seq

    def seed(self, seq: int) -> int:
        """Return what the checksums of a segment's record headers start from."""
        return seed_of(self.uuid, seq)

    def publish(self, manifest: Manifest) -> None:
        """Put a manifest in force.

        Raises
        ------
        Fenced
            Somebody took over.
        OSError, DiskFull
            It could not be written; the old one is in force.
        """
        self._owner.check()
        name = manifest_name(self._owner.epoch)
        data = manifest.encode()
        self._reserve.twice(lambda: self._directory.publish(name, [data]))
        self.manifest = manifest
        self._owner.check()

    def continue_in(self, segment: int, offset: int, successor: int) -> None:
        """Let what was to be in a segment from an offset on be in another one from its start."""
        self._continued[segment] = (offset, successor)

    def continues(self, seq: int) -> tuple[int, ...]:
        """Return (segment, offset) that a segment continues, or nothing."""
        return next(((old, offset) for old, (offset, new) in self._continued.items() if new == seq), ())

    def resolve(self, segment: int, offset: int) -> tuple[int, int]:
        """Return where a record is that was to be in that place."""
        return resolve(self._continued, segment, offset)

    def entry(self, segment: int) -> SegmentEntry | None:
        """Return a listed segment."""
        return self.manifest.listed().get(segment)
