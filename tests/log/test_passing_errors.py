"""A disk that fails for a moment: nothing is lost for good, and the error fits what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.log.errors import DiskFailed, LogError, NoDescriptors
from dqlab.log.files import Directory, Files
from dqlab.log.log import Log
from dqlab.log.reader import _AHEAD
from dqlab.log.readonly import ReadOnlyLog
from dqlab.log.records import Position
from dqlab.log.recovery import newest_manifest
from dqlab.log.writer import LogOptions
from tests.kit.disks import ERRNOS, FlakyFiles, no

PASSING = pytest.mark.parametrize("number", ["EIO", "ESTALE", "EMFILE", "EACCES"])
OPTIONS = LogOptions(segment_bytes=4096, reserve_bytes=0)


@pytest.fixture
def path(in_memory: Path) -> Path:
    """A log whose first record is known to its two checkpoints alone."""
    path = in_memory / "log"
    with Log.open(path, options=OPTIONS) as log:
        for state in (b"older", b"newer"):
            log.append(16, [b"settled"])
            log.roll()
            log.checkpoint(log.mark(), state)
        log.append(17, [b"behind"])
    assert not (path / "0000000001-0000000001.seg").exists()
    return path


def state_of(path: Path, files: Files | None = None) -> tuple[bytes | None, list[bytes], bool]:
    """Open a log; return its checkpoint, the records behind, and whether a checkpoint was lost."""
    with Log.open(path, options=OPTIONS, files=files) as log:
        return log.recovery.checkpoint, [bytes(record.body) for record in log.replay()], log.recovery.checkpoint_lost


@PASSING
@pytest.mark.parametrize("which", [0, 1])
def test_one_checkpoint_that_can_be_read_is_enough_and_the_other_stays(path: Path, number: str, which: int) -> None:
    name = sorted(file.name for file in path.glob("ckpt-*"))[which]
    checkpoint, records, lost = state_of(path, FlakyFiles(name, number))
    assert (checkpoint, lost) == (b"newer" if which == 0 else b"older", False)
    assert records[-1] == b"behind"
    assert len(list(path.glob("ckpt-*"))) == 2
    assert state_of(path) == (b"newer", [b"behind"], False)


@pytest.mark.parametrize("which", [0, 1])
def test_a_new_checkpoint_replaces_the_one_that_could_not_be_read(path: Path, which: int) -> None:
    """Of the two that are kept, each has been read or written since the log was opened."""
    names = sorted(file.name for file in path.glob("ckpt-*"))
    with Log.open(path, options=OPTIONS, files=FlakyFiles(names[which])) as log:
        list(log.replay())
        log.needs({})
        log.checkpoint(log.mark(), b"newest")
    left = sorted(file.name for file in path.glob("ckpt-*"))
    assert names[which] not in left
    assert names[1 - which] in left
    assert len(left) == 2
    assert state_of(path) == (b"newest", [], False)
    (path / left[1]).write_bytes(b"rubbish")
    assert state_of(path)[0] == (b"newer" if which == 0 else b"older")


# --- records --------------------------------------------------------------------------------


def fill(path: Path) -> list[Position]:
    with Log.open(path) as log:
        positions = [log.append(16, [bytes([k]) * _AHEAD]) for k in range(2)]
        log.commit()
    return positions


class Stale(Files):
    """Every handle that was open when the server restarted is refused."""

    def __init__(self) -> None:
        self.opened: set[int] = set()
        self.stale: set[int] = set()

    def open(self, path: Path, *, write: bool = False) -> int:
        descriptor = super().open(path, write=write)
        self.opened.add(descriptor)
        self.stale.discard(descriptor)
        return descriptor

    def read(self, descriptor: int, n: int, offset: int) -> bytes:
        if descriptor in self.stale:
            raise no("ESTALE")
        return super().read(descriptor, n, offset)


def test_a_handle_that_is_stale_is_opened_again(in_memory: Path) -> None:
    positions, files = fill(in_memory / "log"), Stale()
    with Log.open(in_memory / "log", files=files) as log:
        assert log.read(positions[0]) == bytes(_AHEAD)
        files.stale = set(files.opened)
        with pytest.raises(DiskFailed):
            log.read(positions[1])
        assert log.read(positions[1]) == b"\1" * _AHEAD


# --- manifests, and logs that are only read ---------------------------------------------------


def test_a_manifest_that_vanishes_is_missing(path: Path) -> None:
    class Vanishing(Files):
        def open(self, path: Path, *, write: bool = False) -> int:
            if path.name.startswith("MANIFEST"):
                path.unlink()
            return super().open(path, write=write)

    with pytest.raises(LogError, match="is damaged"):
        newest_manifest(Directory(path, Vanishing()))


@pytest.mark.parametrize("number", ERRNOS)
def test_advice_for_a_log_that_does_not_open_fits_the_reason(in_memory: Path, number: str) -> None:
    class Refusing(Files):
        def create(self, path: Path) -> int:
            raise no(number, path)

    words = {"ENOSPC": "no room", "EDQUOT": "no room", "EMFILE": "ulimit -n"}.get(number, "Check the disk")
    with pytest.raises(LogError, match=words):
        Log.open(in_memory / "new", files=Refusing())


def test_a_checkpoint_that_the_disk_refuses_is_named_beside_damaged_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = min(file.name for file in path.glob("ckpt-*"))
    monkeypatch.setattr("dqlab.log.readonly._ReadingFiles", lambda: FlakyFiles(name))
    assert ReadOnlyLog(path).damaged == (name,)


def test_a_segment_whose_beginning_was_refused_late_is_replayed_once(in_memory: Path) -> None:
    """It is listed already when the look at the epoch is refused, and the commit that is repeated lists it again."""

    class Refusing(Files):
        left = 0

        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            self.left = 2 if new.name.startswith("MANIFEST") and self.left < 0 else self.left

        def exists(self, path: Path) -> bool:
            if self.left > 0:
                self.left -= 1
                raise no("EMFILE", path)
            return super().exists(path)

    files = Refusing()
    with Log.open(in_memory / "log", options=OPTIONS, files=files) as log:
        log.append(16, [bytes(3000)])
        log.append(16, [bytes(2000)])
        files.left = -1
        with pytest.raises(NoDescriptors):
            log.commit()
        log.commit()
    assert state_of(in_memory / "log") == (None, [bytes(3000), bytes(2000)], False)
