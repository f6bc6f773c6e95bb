"""Which segments of a log are no longer needed."""

from __future__ import annotations

from dataclasses import dataclass

from dqlab.log.checkpoints import Checkpoint
from dqlab.log.manifest import Manifest, SegmentEntry
from dqlab.log.space import Needed

__all__ = ["Collected", "removable"]


@dataclass(frozen=True)
class Collected:
    """The number and bytes of the segments that a collection deleted."""

    segments: int
    nbytes: int


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
