"""A compaction yields to appends, and to nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.log import Files, Log, LogOptions, NewRecord, Record
from dqlab.log.compaction import GIVE_WAY, LONGEST_S, STRETCH_S, Pace
from dqlab.testing import FakeClock


class Timed(Files):
    """Rests take only the clock's time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.rests: list[float] = []

    def pause(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.clock.advance(seconds)


class Traffic:
    """A log to which others append."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.files = Timed(self.clock)
        self.appended = 0
        self.pace = Pace(self.files, self.clock, lambda: self.appended, bytes_per_s=1_000_000)

    def work(self, seconds: float, appends: int = 0) -> list[float]:
        """Work between two records; return the rests that followed."""
        self.files.rests.clear()
        self.clock.advance(seconds)
        self.appended += appends
        self.pace.worked()
        return list(self.files.rests)


def test_beside_traffic_it_works_only_a_part_of_the_time() -> None:
    log = Traffic()
    assert log.work(0.001, appends=1) == [pytest.approx(GIVE_WAY * 0.001)]
    assert log.work(0.0005, appends=5) == [pytest.approx(GIVE_WAY * 0.0005)]


def test_alone_it_does_not_rest() -> None:
    log = Traffic()
    assert log.work(0.001, appends=1) != [0.0]
    assert log.work(0.001) == [0.0]


def test_short_work_is_counted_together() -> None:
    log = Traffic()
    assert log.work(0.6 * STRETCH_S, appends=1) == []
    assert log.work(0.6 * STRETCH_S) == [pytest.approx(GIVE_WAY * 1.2 * STRETCH_S)]


def test_waiting_for_the_disk_does_not_count_as_work() -> None:
    assert Traffic().work(2.0, appends=1) == [LONGEST_S]


def test_a_rest_after_writing_counts_as_one() -> None:
    log = Traffic()
    log.clock.advance(0.5)
    log.appended += 1
    log.pace.wrote(250_000)
    assert log.files.rests == [0.25]
    assert log.work(0.6 * STRETCH_S) == []


def test_a_compaction_rests_while_others_append(tmp_path: Path) -> None:
    clock = FakeClock()
    files = Timed(clock)
    with Log.open(tmp_path / "log", files=files, clock=clock, options=LogOptions(segment_bytes=1 << 16)) as log:
        for _ in range(30):
            log.append(16, [bytes(10_000)], needed=1)
        log.checkpoint(log.mark(), b"")

        def keep(record: Record) -> list[NewRecord]:
            clock.advance(0.001)
            log.append(16, [b"beside"], needed=1)
            return []

        files.rests.clear()
        log.compact(keep, segments=[1, 2])
        assert [rest for rest in files.rests if rest > STRETCH_S] == [pytest.approx(GIVE_WAY * 0.001)] * 12
