from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from dqlab.log import Compaction, DiskFailed, DiskFull, Files, Log, LogOptions, NewRecord, Position, Record
from dqlab.log.manifest import Catalog, Manifest

SMALL = LogOptions(segment_bytes=2000, reserve_bytes=0)


class Quick(Files):
    """Counts the seconds that compaction would have waited."""

    paused = 0.0
    free = 1 << 40
    fail_rename = False

    def pause(self, seconds: float) -> None:
        self.paused += seconds

    def free_bytes(self, directory: Path) -> int:
        return self.free

    def rename(self, old: Path, new: Path) -> None:
        if self.fail_rename and new.suffix == ".seg":
            raise OSError(errno.EIO, "no rename")
        super().rename(old, new)


class Journal:
    """Knows which records are needed, by position; each of them wholly."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.bodies: dict[Position, bytes] = {}

    def put(self, n: int) -> None:
        for _ in range(n):
            body = random.Random(len(self.bodies)).randbytes(100)
            self.bodies[self.log.append(16, [body], needed=100)] = body
        self.log.commit()

    def settle(self, positions: Iterable[Position]) -> None:
        for position in list(positions):
            del self.bodies[position]
            self.log.free(position.segment, 100)

    def keep(self, record: Record) -> list[NewRecord]:
        if record.position not in self.bodies:
            return []
        return [NewRecord(22, [record.body], base=record.base, needed=100, key=record.position)]

    def switch(self, compaction: Compaction) -> None:
        for old, key, new in compaction.moved:
            assert old == key
            self.bodies[new] = self.bodies.pop(old)
            self.log.free(old.segment, 100)

    def check(self, log: Log) -> None:
        assert {position: log.read(position) for position in self.bodies} == self.bodies


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def mostly_settled(path: Path, files: Files) -> tuple[Log, Journal]:
    log = Log.open(path, options=SMALL, files=files)
    journal = Journal(log)
    journal.put(60)
    journal.settle(position for n, position in enumerate(list(journal.bodies)) if n % 5)
    log.checkpoint(log.mark(), b"before")
    return log, journal


def test_what_is_needed_moves_to_one_segment_and_the_others_go(path: Path) -> None:
    log, journal = mostly_settled(path, Quick())
    victims = log.victims()
    assert victims == [1, 2, 3, 4]
    compaction = log.compact(journal.keep)
    assert compaction.victims == tuple(victims)
    assert compaction.written_bytes < compaction.read_bytes / 3
    assert log.victims() == []
    journal.check(log)
    journal.switch(compaction)
    journal.check(log)
    for n in range(2):
        log.checkpoint(log.mark(), b"after %d" % n)
    assert {int(file.name[:10]) for file in path.glob("*.seg")} == {compaction.segment, 5}
    journal.check(log)
    log.close()
    with Log.open(path) as log:
        assert log.recovery.checkpoint == b"after 1"
        journal.check(log)


def test_a_crash_before_the_checkpoint_finds_the_old_positions(path: Path) -> None:
    log, journal = mostly_settled(path, Quick())
    before = dict(journal.bodies)
    journal.switch(log.compact(journal.keep))
    log.close(clean=False)
    with Log.open(path) as log:
        assert list(log.replay()) == []
        assert {position: log.read(position) for position in before} == before
        assert log.usage().needed == 100 * len(before)


def test_a_lost_checkpoint_after_compaction_gives_way_to_the_one_before(path: Path) -> None:
    log, journal = mostly_settled(path, Quick())
    before = dict(journal.bodies)
    journal.switch(log.compact(journal.keep))
    log.checkpoint(log.mark(), b"after")
    log.close(clean=False)
    newest = max(path.glob("ckpt-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with Log.open(path) as log:
        assert log.recovery.checkpoint == b"before"
        assert {position: log.read(position) for position in before} == before


def test_without_any_checkpoint_each_record_is_replayed_once(path: Path) -> None:
    log, journal = mostly_settled(path, Quick())
    journal.switch(log.compact(journal.keep))
    log.checkpoint(log.mark(), b"after")
    bodies = sorted(journal.bodies.values())
    for _ in range(2):
        log.close(clean=False)
        for file in path.glob("ckpt-*"):
            file.write_bytes(b"rot")
        log = Log.open(path, options=SMALL)
        found = [bytes(record.body) for record in log.replay()]
        assert len(set(found)) == len(found)
        assert set(bodies) <= set(found)
    log.close()


def test_messages_settled_while_it_runs_are_freed_where_they_went(path: Path) -> None:
    log, journal = mostly_settled(path, Quick())
    seen: list[Position] = []

    def keep(record: Record) -> list[NewRecord]:
        new = journal.keep(record)
        seen.extend(each.key for each in new)
        journal.put(1)  # live traffic goes on
        return new

    compaction = log.compact(keep)
    assert compaction.segment is not None
    journal.switch(compaction)
    journal.settle(moved.new for moved in compaction.moved)
    assert len(seen) == len(compaction.moved)
    for n in range(2):
        log.checkpoint(log.mark(), b"after %d" % n)
    assert f"{compaction.segment:010d}" not in {file.name[:10] for file in path.glob("*.seg")}
    journal.check(log)
    log.close()


def test_it_is_throttled_and_says_how_far_it_is(path: Path) -> None:
    files = Quick()
    with Log.open(path, files=files, options=LogOptions(copy_bytes_per_s=1 << 20, segment_bytes=1 << 20)) as log:
        for _ in range(40):
            log.append(16, [bytes(100_000)], needed=1)
        log.checkpoint(log.mark(), b"")
        steps: list[tuple[int, int]] = []
        compaction = log.compact(
            lambda record: [NewRecord(16, [record.body])], progress=lambda *step: steps.append(step), segments=[1, 2]
        )
        assert files.paused == pytest.approx(compaction.written_bytes / (1 << 20), rel=0.01)
        assert steps == sorted(steps)
        assert steps[-1] == (compaction.read_bytes, compaction.read_bytes)
        assert len(steps) > 5


def test_without_room_nothing_changes(path: Path) -> None:
    files = Quick()
    log, journal = mostly_settled(path, files)
    before = sorted(file.name for file in path.iterdir())
    files.free = 100
    with pytest.raises(DiskFull):
        log.compact(journal.keep)
    assert sorted(file.name for file in path.iterdir()) == before
    files.free = 1 << 40
    files.fail_rename = True
    with pytest.raises(DiskFailed, match=r"no rename\. Nothing that was confirmed has changed\. Check the disk"):
        log.compact(journal.keep)
    assert sorted(file.name for file in path.iterdir()) == before
    files.fail_rename = False
    journal.switch(log.compact(journal.keep))
    journal.check(log)
    log.close()


def test_nothing_kept_leaves_no_file(path: Path) -> None:
    log, _ = mostly_settled(path, Quick())
    before = sorted(file.name for file in path.iterdir())
    compaction = log.compact(lambda record: [])
    assert (compaction.segment, compaction.moved) == (None, [])
    assert sorted(file.name for file in path.iterdir()) == before
    log.close()


def test_a_collection_beside_a_compaction_spares_what_is_being_copied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deleted a segment that had just become unneeded, after it was chosen and before it was marked as in use."""
    log, journal = mostly_settled(path, Quick())
    log.checkpoint(log.mark(), b"again")
    chosen = log.victims(below=1.0)
    journal.settle(position for position in list(journal.bodies) if position.segment == chosen[0])
    manifests = vars(log._catalog)

    def look(catalog: Catalog) -> Manifest:
        found = manifests["manifest"]
        if pending.pop("collection", False):
            log.collect()
        return found

    pending = {"collection": True}
    monkeypatch.setattr(
        Catalog,
        "manifest",
        property(look, lambda catalog, manifest: manifests.update(manifest=manifest)),
        raising=False,
    )
    compaction = log.compact(journal.keep, segments=chosen)
    monkeypatch.undo()

    assert not pending
    assert compaction.victims == tuple(chosen)
    journal.switch(compaction)
    journal.check(log)
    log.close()
