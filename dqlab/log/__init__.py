"""A durable log: it takes bytes and returns them, and confirmed ones survive. `Log` is its whole interface."""

from dqlab.log.checkpoints import LogMark
from dqlab.log.errors import (
    ChangedMeanwhile,
    DiskFailed,
    DiskFull,
    Fenced,
    LockUnsupported,
    LogClosed,
    LogError,
    LogFailed,
    LogGone,
    LogTooNew,
    ManifestCorrupt,
    NoDescriptors,
    NotALog,
    OwnerStillAlive,
    RecordCorrupt,
    RecordTooLarge,
    SegmentMissing,
)
from dqlab.log.files import Files, UnsyncedFiles
from dqlab.log.group_commit import GroupCommit
from dqlab.log.log import Collected, Log
from dqlab.log.options import LogOptions
from dqlab.log.records import COPIED, Position, Record, RecordType
from dqlab.log.recovery import Corruption, Recovery
from dqlab.log.space import Usage

__all__ = [
    "COPIED",
    "ChangedMeanwhile",
    "Collected",
    "Corruption",
    "DiskFailed",
    "DiskFull",
    "Fenced",
    "Files",
    "GroupCommit",
    "LockUnsupported",
    "Log",
    "LogClosed",
    "LogError",
    "LogFailed",
    "LogGone",
    "LogMark",
    "LogOptions",
    "LogTooNew",
    "ManifestCorrupt",
    "NoDescriptors",
    "NotALog",
    "OwnerStillAlive",
    "Position",
    "Record",
    "RecordCorrupt",
    "RecordTooLarge",
    "RecordType",
    "Recovery",
    "SegmentMissing",
    "UnsyncedFiles",
    "Usage",
]
