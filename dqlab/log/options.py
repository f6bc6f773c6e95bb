"""The options of a log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dqlab.errors import BadOption

SyncMode: TypeAlias = Literal["always", "interval", "os"]


@dataclass(frozen=True)
class LogOptions:
    """Options of a log, checked when they are made."""

    sync: SyncMode = "always"
    """What confirmed records survive. always = a power cut; interval = a power cut, but for the last `interval`
    seconds; os = only the death of this process."""
    interval: float = 0.05
    """Seconds between two syncs of the mode "interval"."""
    segment_bytes: int = 32 << 20
    """A segment of this size is sealed, and the next one begins."""
    reserve_bytes: int = 8 << 20
    """Bytes of the disk that new messages leave free, so that settlements and checkpoints still fit."""
    checkpoint_bytes: int = 64 << 20
    """Bytes of log after which `Log.checkpoint_due` is true."""
    compact_below: float = 0.5
    """A segment is worth compacting when the share of its bytes that is needed is smaller than this."""
    unsafe_no_lock: bool = False
    """Open the log even where the file system supports no locks."""

    def __post_init__(self) -> None:
        if self.sync not in ("always", "interval", "os"):
            raise BadOption(option="sync", value=self.sync, problem="one of 'always', 'interval', 'os'.")
        _check("interval", self.interval, 0.0, math.inf)
        _check("compact_below", self.compact_below, 0.0, 1.0)
        for option in ("segment_bytes", "checkpoint_bytes"):
            _check(option, getattr(self, option), 1, math.inf)
        _check("reserve_bytes", self.reserve_bytes, 0, math.inf)


def _check(option: str, value: Any, least: float, most: float) -> None:
    if not isinstance(value, int | float) or not least <= value <= most:
        raise BadOption(option=option, value=value, problem=f"a number from {least:g} to {most:g}.")
