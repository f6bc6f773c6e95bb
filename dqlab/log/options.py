"""The options of a log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dqlab.errors import BadOption

__all__ = ["LogOptions", "SyncMode"]

SyncMode: TypeAlias = Literal["always", "interval", "os"]


@dataclass(frozen=True)
class LogOptions:
    """Options of a log.

    Parameters
    ----------
    sync : {"always", "interval", "os"}, default "always"
        What confirmed records survive: a power cut; a power cut after `interval` seconds; only the death of this
        process.
    interval : float, default 0.05
        Seconds between two syncs of the mode "interval".
    segment_bytes : int, default 32 MiB
        Size at which a segment is sealed and the next one begun.
    reserve_bytes : int, default 8 MiB
        Size of a file that is deleted on a full disk, so that settlements and checkpoints still fit.
    checkpoint_bytes : int, default 64 MiB
        Bytes of log after which `Log.checkpoint_due` is true.
    max_bytes : int or None, default None
        Quota for all files together; None = the whole disk.
    compact_below : float, default 0.5
        Segments whose needed share is smaller are worth compacting.
    copy_bytes_per_s : int, default 50 MiB
        Limit of a compaction's writing.
    unsafe_no_lock : bool, default False
        Open although the file system supports no locks.

    Raises
    ------
    BadOption
        A value out of range.
    """

    sync: SyncMode = "always"
    interval: float = 0.05
    segment_bytes: int = 32 << 20
    reserve_bytes: int = 8 << 20
    checkpoint_bytes: int = 64 << 20
    max_bytes: int | None = None
    compact_below: float = 0.5
    copy_bytes_per_s: int = 50 << 20
    unsafe_no_lock: bool = False

    def __post_init__(self) -> None:
        if self.sync not in ("always", "interval", "os"):
            raise BadOption(option="sync", value=self.sync, problem="one of 'always', 'interval', 'os'.")
        _check("interval", self.interval, 0.0, math.inf)
        _check("compact_below", self.compact_below, 0.0, 1.0)
        for option in ("segment_bytes", "checkpoint_bytes", "copy_bytes_per_s"):
            _check(option, getattr(self, option), 1, math.inf)
        _check("reserve_bytes", self.reserve_bytes, 0, math.inf)
        if self.max_bytes is not None:
            _check("max_bytes", self.max_bytes, 1, math.inf)


def _check(option: str, value: Any, least: float, most: float) -> None:
    if not isinstance(value, int | float) or not least <= value <= most:
        raise BadOption(option=option, value=value, problem=f"a number from {least:g} to {most:g}.")
