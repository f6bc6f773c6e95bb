"""The log of one queue shard: bytes in, bytes out, and only what is durable is confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from dqlab.clock import Clock, SystemClock
from dqlab.errors import UsageError
from dqlab.log.errors import LogError, LogFailed
from dqlab.log.files import Buffer, Files
from dqlab.log.log_space import LogSpace, quarantined_sizes
from dqlab.log.opening import open_log
from dqlab.log.options import LogOptions
from dqlab.log.records import FIRST_OPAQUE, Position, Record, RecordType

__all__ = ["Log"]


class Log(LogSpace):
    """An append-only log in a directory of its own, open in one place at a time.

    Appends, `mark`, `free` and `cached` do no I/O. `commit`, `read`, `checkpoint`, `collect` and `compact` block;
    each may run in a thread of its own beside the others. Made by `open`.

    Attributes
    ----------
    directory : Path
        Where it is.
    options : LogOptions
        How it was opened.
    recovery : Recovery
        What opening found; its `corrupt` is complete once the replay is over.
    epoch : int
        Counts the times that the log was opened.
    uuid : str
        The log's, 32 hex digits.
    """

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        options: LogOptions | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        owner: str = "",
        takeover: bool = False,
    ) -> Self:
        """Take ownership of a log, made if there is none, and recover what the last session left.

        Parameters
        ----------
        directory : str or Path
            The log's own; made with mode 0700.
        options : LogOptions, optional
            See there.
        files, clock : optional
            What touches files and reads clocks; tests give their own.
        owner : str, default ""
            A word on who opens it, kept in the lock file.
        takeover : bool, default False
            If another process holds the lock for another second, go on without it on a local file system: its
            epoch ends, and it will confirm nothing more.

        Raises
        ------
        NotALog, LogTooNew, ManifestCorrupt, SegmentMissing
            It cannot be opened as it is; nothing was changed.
        OwnerStillAlive, LockUnsupported
            Somebody else may be writing to it.
        DiskFull
            No room for a new segment.
        LogError
            The disk failed.
        """
        options, clock = options or LogOptions(), clock or SystemClock()
        opened = open_log(Path(directory), options, files or Files(), clock, owner=owner, takeover=takeover)
        return cls(opened, options, clock)

    def replay(self) -> Iterator[Record]:
        """Yield the journal's records behind the checkpoint (all, when there is none), oldest first.

        Once, and before the first append. Damaged records are passed over; they are in `recovery.corrupt` when
        the iterator is exhausted. The journal calls `need` for what it keeps.
        """
        if self._replay_begun:
            raise UsageError(reason="a log is replayed once, right after it was opened. Open it again.")
        self._replay_begun = True
        with self._typed():
            yield from self._replay
        self._needed.keep_only(self._catalog.manifest.listed())
        self._kept_aside = quarantined_sizes(self._directory)
        corrupt = tuple(self._replay.corrupt)
        copies = tuple(corruption.quarantined for corruption in corrupt if corruption.quarantined)
        self.recovery = replace(
            self.recovery, corrupt=corrupt, quarantined=tuple(dict.fromkeys((*self.recovery.quarantined, *copies)))
        )

    # --- writing ---------------------------------------------------------------------------

    @property
    def refusal(self) -> LogError | None:
        """Why nothing can be appended or committed any more."""
        return self._writer.refusal

    def admit(self, nbytes: int = 0) -> None:
        """Raise what `append` would raise for a body of so many bytes; called before what the record tells is done.

        What is then appended as `admitted` is taken in any case. If the log fails in between, the record stays in
        memory with all others that are not confirmed, and is never durable.
        """
        self._writer.admit(nbytes)

    def append(
        self,
        type: int,
        parts: Sequence[Buffer],
        *,
        count: int = 0,
        base: int = 0,
        aux: int = 0,
        flags: int = 0,
        needed: int = 0,
        admitted: bool = False,
    ) -> Position:
        """Add a record to memory; a later `commit` makes it durable. Does no I/O.

        Parameters
        ----------
        type : int
            16 to 255; see `RecordType`.
        parts : sequence of bytes-like
            The body, at most 64 MiB together.
        count, base, aux, flags : int
            Kept in the header: 32, 64, 64 and 8 bits.
        needed : int, default 0
            Bytes of this record that the journal needs until it calls `free`.
        admitted : bool, default False
            `admit` was asked, and what the record tells is done.

        Returns
        -------
        Position
            Where the record is, for ever, whatever happens to the disk.

        Raises
        ------
        RecordTooLarge
            Nothing was added.
        LogFailed, LogClosed, Fenced
            The log takes nothing any more.
        """
        if type < FIRST_OPAQUE:
            raise ValueError(f"record type {type} is the log's own")
        if (type | flags) >> 8 or count >> 32 or (base | aux) >> 64:
            raise ValueError(f"out of range: type {type}, flags {flags}, count {count}, base {base} or aux {aux}")
        position = self._writer.append(type, parts, count, base, aux, flags, admitted=admitted)
        if needed:
            self._needed.add(position.segment, needed)
        return position

    @property
    def end(self) -> int:
        """Number of the last appended record, counted from 1 since the log was opened."""
        return self._writer.end

    @property
    def durable(self) -> int:
        """Number up to which records are confirmed: synced, or written in the modes "interval" and "os"."""
        return self._writer.durable

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet confirmed."""
        return self._writer.pending_bytes

    def commit(self) -> int:
        """Write what was appended, sync it as the mode says, and confirm it.

        Returns
        -------
        int
            Number of the last record that is confirmed; see `durable`.

        Raises
        ------
        DiskFull, NoDescriptors
            Nothing was confirmed; the records stay in memory, for another commit.
        Fenced, LogFailed, LogClosed
            Nothing was confirmed and nothing will be.
        """
        return self._commit(sync=False)

    def sync(self) -> None:
        """Commit, and sync whatever the mode. Raises as `commit` does."""
        self._commit(sync=True)

    def _commit(self, *, sync: bool) -> int:
        try:
            return self._writer.commit(sync=sync)
        finally:
            with suppress(OSError):
                self._look_at_disk()

    def give_up(self, error: Exception) -> LogError:
        """Take nothing any more, because of an error that should not have happened; return what calls raise now."""
        return self._writer.refuse(LogFailed(directory=str(self.directory), reason=f"{type(error).__name__}: {error}"))

    def note_synced(self) -> None:
        """Write a record that says: everything before it is durable.

        It lets the next open tell a torn tail from damage to the last records. Called when the log falls idle.
        """
        self._writer.note(RecordType.SYNCED)
        self._writer.commit(sync=False)

    # --- reading ---------------------------------------------------------------------------

    def read(self, position: Position) -> bytes:
        """Return a record's body, from memory or from the disk.

        Raises
        ------
        RecordCorrupt
            Its bytes are not what was written.
        """
        return self._reader.read(position)

    def cached(self, position: Position) -> bytes | None:
        """Return a record's body if that needs no I/O, else None."""
        return self._reader.cached(position)

    # --- the end ---------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Let the next owner in. Closing twice is fine.

        Parameters
        ----------
        clean : bool, default True
            Commit and sync first, and say so in the log; False drops what is not yet committed.

        Raises
        ------
        DiskFull, Fenced, LogFailed
            The log is closed; what was not confirmed is not durable.
        """
        try:
            if clean and self._writer.refusal is None:
                self.sync()
                self._writer.note(RecordType.CLOSE)
                self.sync()
        finally:
            self._writer.close()
            self._reader.close()
            self._owner.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
