"""The errors of a log, and the one that each error of the system becomes.

::

    LogError
    ├── CannotOpen · ManifestCorrupt                              nothing was changed
    ├── LogGone                                                   it was there, and is not any more
    ├── OwnerStillAlive                                           another process may be writing to it
    ├── Fenced · LogFailed · LogClosed                            this process must not write any more
    └── DiskFull · DiskFailed · NoDescriptors · ChangedMeanwhile
        · RecordCorrupt · RecordTooLarge                          one call failed, and changed nothing confirmed

`typed` and `refusal` turn what the system refuses into them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar, TypeVar

from dqlab.errors import DqlabError
from dqlab.log.files import Directory, shown

T = TypeVar("T")


class LogError(DqlabError):
    """Something about the files of a durable queue."""

    text = "the log in {directory} failed: {reason}"
    passing: ClassVar[bool] = True
    """It may pass by itself: the cause is a disk, a server or a lock, not the content of the files."""


# --- it cannot be opened --------------------------------------------------------------------


class CannotOpen(LogError):
    """The files are whole, and not those of a log or queue that this version can open here."""

    passing = False
    text = "{reason}. Nothing was changed. {hint}"


class ManifestCorrupt(LogError):
    """The list of the log's files cannot be read."""

    passing = False
    text = (
        "{file} is damaged: {reason}. Nothing was deleted, the messages are still in the segments. "
        "Put it back from a copy, or write what is there with `dqlab store export`."
    )


class LogGone(LogError):
    """An open queue's log is not in its directory any more."""

    passing = False
    text = (
        "the log in {directory} is gone: it was deleted or moved while its queue was open, or its disk is not "
        "mounted. Nothing was created in its place. Put the log back, or mount the disk; then lab.queue(NAME) opens "
        "it. Where there is no log, lab.queue(NAME) creates an empty queue."
    )


# --- another process may be writing to it -----------------------------------------------------


class OwnerStillAlive(LogError):
    """Another process, or another log object in this one, has the log open."""

    text = (
        "{directory} is open in process {pid} on {host}. Nothing was touched. Close the lab that has it open: "
        "lab.close(), in its notebook %dq close, or Ctrl-C where `dqlab up` runs."
    )


# --- this process must not write any more -----------------------------------------------------


class Fenced(LogError):
    """Another process took the log over, and whatever this one still writes is ignored."""

    text = (
        "{directory} was taken over by another process (this one held epoch {epoch}). Confirmed messages are safe with "
        "the new owner; all others were not confirmed. Ask the new owner; this log object cannot be used any more."
    )


class LogFailed(LogError):
    """The disk refused what had to be written or synced, and another try cannot help, or has failed too."""

    text = (
        "the log in {directory} failed: {reason}. Everything confirmed is on disk, nothing else was confirmed. "
        "Check the disk. A queue in a cluster reopens its log at least once a minute, and continues when the disk "
        "works. A log that was opened without a cluster has to be opened again."
    )


class LogClosed(LogError):
    """The log was closed."""

    text = "the log in {directory} was closed. Open it again."


# --- one call failed --------------------------------------------------------------------------


class DiskFull(LogError):
    """The disk or the quota is full, and records stay in memory, unconfirmed."""

    text = (
        "no room in {directory}: {needed:,} bytes needed, {free:,} free. Nothing was confirmed and nothing is lost. "
        "Delete files, or let consumers go on: settled messages free space."
    )


class DiskFailed(LogError):
    """The system refused to read or change a file of the log."""

    text = (
        "the disk of the log in {directory} failed: {reason}. Nothing that was confirmed has changed. Check the disk, "
        "its mount and the permissions of that directory, then try again."
    )


class NoDescriptors(LogError):
    """The process or the machine has run out of files or memory, and records stay in memory, unconfirmed."""

    text = (
        "no file can be opened in {directory}: {reason}. Nothing was confirmed and nothing is lost. If too many files "
        "are open, close some or raise the limit (ulimit -n); if memory is short, free some. A queue that is open "
        "tries again every second; start anything else again."
    )


class ChangedMeanwhile(LogError):
    """A process changes the files faster than they can be read."""

    text = (
        "the files in {directory} changed while they were read. Nothing was touched. "
        "Run this again, or close the queue first."
    )


class RecordCorrupt(LogError):
    """A record's bytes have changed since they were written."""

    text = (
        "the record at byte {offset:,} of {file} ({size:,} bytes) cannot be read: {reason}. "
        "The others can. Run `dqlab store check` to see what is lost."
    )


class RecordTooLarge(LogError):
    """One record is larger than the format allows."""

    text = "a record of {size:,} bytes is above the limit of {limit:,}. It was not written. Send smaller batches."


def too_new(file: object, theirs: object, ours: object) -> CannotOpen:
    """Return the error for a file that a later version wrote."""
    reason = f"{file} has format {theirs}, this version of dqlab reads up to {ours}"
    return CannotOpen(reason=reason, hint="Install a newer dqlab to open it.")


def not_a_log(directory: object, names: Sequence[str]) -> CannotOpen:
    """Return the error for a directory that has only other files, with their names."""
    reason = f"{directory} is not a log: it holds {shown(names) or 'nothing'}, and no file of a log"
    return CannotOpen(reason=reason, hint="Give an empty or a new directory.")


def missing_segment(directory: object, file: str) -> CannotOpen:
    """Return the error for a segment that the manifest lists and the directory does not have."""
    reason = f"{file} is listed in the manifest of {directory}, but missing"
    hint = "Put it back, or write what is in the other files with `dqlab store export`."
    return CannotOpen(reason=reason, hint=hint)


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def refusal(error: OSError, directory: Directory) -> LogError:
    """Return `DiskFull`, `NoDescriptors` or `DiskFailed` for what the system refused."""
    if error.errno in NO_SPACE:
        return disk_full(directory, 0)
    if error.errno in NO_DESCRIPTORS:
        return NoDescriptors(directory=str(directory), reason=str(error))
    return DiskFailed(directory=str(directory), reason=f"{type(error).__name__}: {error}")


def disk_full(directory: Directory, needed: int) -> DiskFull:
    """Return the error for a full disk, with the free bytes if they can be read."""
    free = 0
    with suppress(OSError):
        free = directory.files.free_bytes(directory.path)
    return DiskFull(directory=str(directory), needed=needed, free=free)


def tried_twice(directory: Directory, step: Callable[[], T]) -> T:
    """Return the result of a step, repeated once if it fails, or raise `DiskFull` or an OSError."""
    # Most errors of a file server are gone at the second try. A step must be repeatable from its start.
    with suppress(OSError):
        return step()
    try:
        return step()
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(directory, 0) from error
        raise


@contextmanager
def typed(directory: Directory) -> Iterator[None]:
    """Turn an OSError of the block into the `refusal`."""
    try:
        yield
    except OSError as error:
        raise refusal(error, directory) from error
