"""What a log does beside appending and reading: books of what is needed, checkpoints, deleting, compacting, quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from dqlab.clock import Clock
from dqlab.errors import UsageError
from dqlab.log.checkpoints import Mark
from dqlab.log.compaction import Compaction, Compactor, Progress
from dqlab.log.directory import QUARANTINE, Directory
from dqlab.log.errors import DiskFull, Fenced, LogError
from dqlab.log.opening import Opened
from dqlab.log.options import LogOptions
from dqlab.log.reader import Reader
from dqlab.log.records import HEADER_BYTES, NewRecord, Record
from dqlab.log.space import FreeSpace, Usage
from dqlab.log.upkeep import Collected, Upkeep
from dqlab.log.writer import Writer

__all__ = ["LogSpace", "quarantined_sizes"]


class LogSpace:
    """The part of `Log` that looks after its files."""

    def __init__(self, opened: Opened, options: LogOptions, clock: Clock) -> None:
        self.options = options
        self.recovery = opened.recovery
        self.epoch = opened.owner.epoch
        self.uuid = opened.catalog.manifest.uuid
        self.directory = opened.directory.path
        self._directory = opened.directory
        self._owner = opened.owner
        self._catalog = opened.catalog
        self._reserve = opened.reserve
        self._needed = opened.needed
        self._replay = opened.replay
        self._replay_begun = False
        parts = (opened.directory, opened.catalog)
        self._writer = Writer(*parts, opened.owner, opened.reserve, opened.segment, options, clock)
        self._reader = Reader(*parts, self._writer.tail)
        self._upkeep = Upkeep(
            *parts, self._writer, self._reader, opened.needed, opened.reserve, list(opened.checkpoints)
        )
        self._compactor = Compactor(*parts, self._writer, self._upkeep, opened.needed, opened.reserve, options, clock)
        self._free_space = FreeSpace(opened.directory, clock)
        self._kept_aside: list[int] = []
        with suppress(OSError):  # the next commit looks again
            self._look_at_disk()
        self._marked_bytes = 0

    # --- what is needed --------------------------------------------------------------------

    def need(self, segment: int, nbytes: int) -> None:
        """Count bytes of a segment as needed; for records that come from `replay`."""
        self._needed.add(segment, nbytes)

    def free(self, segment: int, nbytes: int) -> None:
        """Count bytes of a segment as needed no more.

        Raises
        ------
        ValueError
            More than were needed.
        """
        self._needed.take(segment, nbytes)

    def needed(self, segment: int) -> int:
        """Return how many bytes of a segment are needed."""
        return self._needed[segment]

    def mark(self) -> Mark:
        """Return this instant, for a checkpoint; taken together with the journal's state.

        Raises
        ------
        UsageError
            The replay is not over, so there is no such state.
        """
        self._check_replayed()
        self._writer.check()
        with self._writer.memory:
            segment, offset = self._writer.place()
            self._marked_bytes = self._writer.appended_bytes
            return Mark(segment, offset, self._needed.table(), self._writer.end)

    @property
    def checkpoint_due(self) -> bool:
        """True when `checkpoint_bytes` were appended since the last mark."""
        return self._writer.appended_bytes - self._marked_bytes >= self.options.checkpoint_bytes

    def checkpoint(self, mark: Mark, body: bytes) -> None:
        """Make the journal's state at a mark durable, then `collect`.

        Parameters
        ----------
        mark : Mark
            From `mark`.
        body : bytes
            The state; comes back as `recovery.checkpoint`.

        Raises
        ------
        DiskFull, Fenced, LogFailed, LogClosed
            The earlier checkpoint stays in force.
        """
        with self._typed():
            self._upkeep.checkpoint(mark, body)

    def collect(self) -> Collected:
        """Delete sealed segments that need 0 bytes and lie before both kept checkpoints.

        Nothing is deleted before there are two. Whoever is reading such a segment may finish.
        """
        self._check_replayed()
        with self._typed():
            return self._upkeep.collect()

    def roll(self) -> None:
        """Seal the open segment, so that it can be collected or compacted; raises as `commit` does."""
        self._check_replayed()
        self._writer.roll()
        self._writer.commit(sync=True)

    def victims(self, below: float | None = None) -> list[int]:
        """Return the sealed segments before the newest checkpoint of which something is needed, and not much.

        Parameters
        ----------
        below : float, optional
            Share of a segment's bytes; by default the option `compact_below`.
        """
        return self._compactor.victims(self.options.compact_below if below is None else below)

    def compact(
        self,
        keep: Callable[[Record], Iterable[NewRecord]],
        *,
        progress: Progress | None = None,
        segments: Sequence[int] | None = None,
    ) -> Compaction:
        """Copy what the journal keeps of some segments into a new one, in the place of the first of them.

        For each of the `moved` records the journal goes over to the new position and frees the old bytes; then it
        takes a checkpoint. The old segments go with the second checkpoint, as the first may have to be done without.

        Parameters
        ----------
        keep : callable
            Called with each record; returns what is to be kept of it.
        progress : callable, optional
            Called with bytes done and bytes in all.
        segments : sequence of int, optional
            By default as many `victims` as fill one segment.

        Raises
        ------
        DiskFull, Fenced, LogFailed, LogClosed, LogError
            Nothing changed.
        """
        self._check_replayed()
        with self._typed():
            return self._compactor.compact(keep, progress, segments)

    # --- space -----------------------------------------------------------------------------

    def room(self, nbytes: int) -> bool:
        """Return whether so many bytes can be taken in: quota, disk and reserve. If not, refuse with `disk_full`.

        Does no I/O: each commit looks at the disk, at most once a second or a MiB.
        """
        return self._reserve.present and self._free() >= nbytes + HEADER_BYTES

    def disk_full(self, nbytes: int) -> DiskFull:
        """Return the error for bytes that were refused because there is no `room`."""
        return DiskFull(directory=str(self.directory), needed=nbytes, free=max(0, self._free()))

    def _free(self) -> int:
        free = self._free_space.left(self._writer.appended_bytes) - self._writer.pending_bytes
        return free if self.options.max_bytes is None else min(free, self.options.max_bytes - self.usage().total)

    def _look_at_disk(self) -> None:
        """See what there is beside the log's own files; blocks."""
        if self._free_space.look(self._writer.appended_bytes):
            self._kept_aside = quarantined_sizes(self._directory)
            self._reserve.restore()

    def usage(self) -> Usage:
        """Return what the directory holds, by kind."""
        manifest, checkpoints, kept_aside = self._catalog.manifest, list(self._upkeep.checkpoints), self._kept_aside
        with self._writer.memory:
            segments = self._writer.open_bytes + sum(entry.length or 0 for entry in manifest.segments)
        return Usage(
            segments=segments,
            needed=sum(self._needed.table().values()),
            checkpoints=sum(checkpoint.size for checkpoint in checkpoints),
            quarantine=sum(kept_aside),
            reserve=self._reserve.nbytes,
            files=len(manifest.segments) + len(checkpoints) + len(kept_aside) + 3 + bool(self._reserve.nbytes),
        )

    def figures(self) -> dict[str, Any]:
        """Return what views show of the files, bytes and seconds.

        Returns
        -------
        dict
            ``total``, ``live`` and ``garbage`` bytes; ``free`` bytes of the disk or the quota; bytes ``written`` since
            the log was opened; the 99th percentile of the last syncs, ``sync_p99``, None without any; and the share of
            garbage at which it compacts itself, ``compact_above``.
        """
        usage, syncs = self.usage(), sorted(self._writer.sync_seconds)
        return {
            "total": usage.total,
            "live": usage.needed,
            "garbage": max(0, usage.segments - usage.needed),
            "free": max(0, self._free()),
            "written": self._writer.appended_bytes,
            "sync_p99": syncs[len(syncs) * 99 // 100] if syncs else None,
            "compact_above": 1 - self.options.compact_below,
        }

    def garbage(self) -> float:
        """Return the share of the sealed segments' bytes that nobody needs, 0 to 1."""
        sealed = [entry for entry in self._catalog.manifest.segments if entry.length is not None]
        total = sum(entry.length or 0 for entry in sealed)
        needed = sum(self._needed[entry.seq] for entry in sealed)
        return max(0.0, 1 - needed / total) if total else 0.0

    def _check_replayed(self) -> None:
        if not self._replay.done:
            raise UsageError(reason="replay the log first: until then nobody knows what is needed of it.")

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Raise only errors of ours, and remember those after which nothing may be written."""
        self._writer.check()
        try:
            yield
        except Fenced as error:
            raise self._writer.refuse(error) from None
        except OSError as error:
            raise LogError(directory=str(self.directory), reason=f"{type(error).__name__}: {error}") from error


def quarantined_sizes(directory: Directory) -> list[int]:
    """Return the sizes of quarantined files."""
    sizes = []
    with suppress(OSError):
        for name in directory.files.names(directory / QUARANTINE):
            descriptor = directory.files.open(directory / QUARANTINE / name)
            sizes.append(directory.files.size(descriptor))
            directory.files.close(descriptor)
    return sizes
