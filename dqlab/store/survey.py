"""The state of a store's queues from their files alone: who has them open, which format, what is damaged or missing.

Reads lists of files and the last segment's end, not the messages: that is what `inspect` and `fsck` do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dqlab.errors import DqlabError
from dqlab.log.directory import RESERVE
from dqlab.log.holder import Holder, look_at_lock
from dqlab.log.readonly import ReadOnlyLog
from dqlab.store.directories import NotAQueue
from dqlab.store.inspection import steadily
from dqlab.store.stored import StoredPlace, places_in

__all__ = ["SurveyedShard", "survey"]


@dataclass(frozen=True, slots=True)
class SurveyedShard:
    """One shard's files.

    Attributes
    ----------
    error : str
        Why it, or its queue, cannot be opened; "" when it can.
    holder : Holder or None
        Who opened it last.
    clean : bool
        The last session closed it.
    missing, damaged : tuple of str
        Segments that are not there; checkpoints that cannot be read.
    quarantined : int
        Files that were put aside because they were damaged.
    reserve : bool
        The space kept aside for a full disk is there.
    """

    queue: str
    index: int
    directory: str
    error: str = ""
    format: str = ""
    epoch: int = 0
    clean: bool = True
    holder: Holder | None = None
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    quarantined: int = 0
    reserve: bool = True

    @property
    def open(self) -> bool:
        """Some process of this machine has it open."""
        return self.holder is not None and self.holder.held is True

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def survey(store: Path) -> tuple[SurveyedShard, ...]:
    """Return the shards of all queues below a directory, none when there is no queue; blocks."""
    try:
        places = places_in(store)
    except NotAQueue as error:
        if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, FileNotFoundError):
            return ()
        folders = _folders(store)
        if not folders:
            return (SurveyedShard(store.name, 0, str(store), error=str(error)),)
        return tuple(shard for folder in folders for shard in survey(folder))  # one of them cannot be read
    return tuple(shard for place in places for shard in _queue(place))


def _folders(store: Path) -> list[Path]:
    try:
        return sorted(below for below in store.iterdir() if below.is_dir())
    except OSError:
        return []


def _queue(place: StoredPlace) -> list[SurveyedShard]:
    if place.problem is not None:
        return [SurveyedShard(place.name, 0, str(place.path), error=str(place.problem))]
    return [_shard(place.name, index, path) for index, path in place.shards]


def _shard(queue: str, index: int, path: Path) -> SurveyedShard:
    def look(log: ReadOnlyLog) -> SurveyedShard:
        return SurveyedShard(
            queue,
            index,
            str(path),
            format=log.format,
            epoch=log.manifest.epoch,
            clean=log.clean,
            holder=look_at_lock(path),
            missing=log.missing,
            damaged=log.damaged,
            quarantined=len(log.quarantined()),
            reserve=(path / RESERVE).exists(),
        )

    if not path.is_dir():
        return SurveyedShard(queue, index, str(path))  # its queue is new: a shard's directory comes with its first open
    try:
        return steadily(look, path)
    except DqlabError as error:
        return SurveyedShard(queue, index, str(path), error=str(error))
