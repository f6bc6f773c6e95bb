"""An hour's work in small: what a queue takes up at the end is what it took up at the beginning."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dqlab.cluster.statistics.collector import Collector
from dqlab.frame import NO_ID, Outcome
from dqlab.log import reader
from dqlab.rules import lane
from dqlab.store.checkpoint import freeze
from dqlab.store.durable_shard import MOSTLY, compaction, run_through
from dqlab.testing import FakeClock
from tests.cluster.reports import lane_report, shard_report
from tests.kit.descriptors import LISTED, count_files
from tests.kit.memory import allocated_in
from tests.store.test_functions import Desk, function, run_of

ROUNDS = 6
WARM = 3
"""Rounds in which caches and bounded memories fill."""
SHARDS = 2
RUNS = 20
"""Runs of a round: all but a few are dropped, some are retried with new code first."""
KEPT = 3
SLACK = 30_000
"""Bytes by which memory may differ: a thousandth of what the rounds put through it, less than 1 kB for each run."""


class Taken(NamedTuple):
    """What there is after a round; all but the first two in bytes."""

    functions: int
    descriptors: int
    memory: int
    checkpoint: int
    disk: int


class Hour:
    """Runs over two shards that are made, retried and dropped, single calls, and functions that are edited."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.desks = [Desk(directory / str(index), index) for index in range(SHARDS)]
        self.clock = FakeClock()
        self.collector = Collector(clock=self.clock)
        self.reports = [0] * SHARDS
        self.made = 0
        self.kept: list[bytes] = []

    def play(self) -> None:
        """One round."""
        for _ in range(RUNS):
            self.made += 1
            run = run_of(self.made)
            for desk in self.desks:
                self._run(desk, run)
                self._call(desk)
            self.kept.append(run)
            dropped = self.kept.pop(0) if len(self.kept) > KEPT else None
            for desk in self.desks:
                if dropped is not None:
                    desk.order("drop", dropped, {})
                    del desk.sequences[dropped]
                self._report(desk, run, dropped)
        for desk in self.desks:
            desk.durable.journal.log.commit()
            desk.ledger.news.clear()  # as the shell does that reports them
            run_through(compaction(desk.durable, below=MOSTLY))

    def _run(self, desk: Desk, run: bytes) -> None:
        desk.start(run, self.made)
        desk.put(run, self.made, n=3)
        desk.seal(run)
        if self.made % 3 == 0:
            desk.work(Outcome.FAIL)
            self._retry(desk, run)
        desk.work()

    def _retry(self, desk: Desk, run: bytes) -> None:
        newer = 1_000_000 + self.made
        code = {"name": "f", "hash": str(newer), "short": "", "source": "", "cell": None, "blob": function(newer)}
        ids = list(desk.ledger.shard.lanes[run].dead)
        meta = {"ids": ids, "ordinals": [], "function": function(newer), "blob": bytes(10_000), "code": code}
        desk.order("retry", run, meta)

    def _call(self, desk: Desk) -> None:
        """Make a single call with a function of its own, and read its result."""
        first = desk.ledger.shard.next_id
        desk.put(NO_ID, 2_000_000 + self.made, n=1)
        desk.work()
        desk.order("forget", NO_ID, {"ids": [[first, first + 1]], "coming": True})

    def _report(self, desk: Desk, run: bytes, dropped: bytes | None) -> None:
        """Let the scheduler know, and a view look."""
        self.clock.advance(1.0)
        self.reports[desk.index] += 1
        counts = list(desk.ledger.shard.lanes[run].counts)
        ended = lane_report("r", run=run.hex(), counts=counts, started=float(self.made), ended=float(self.made))
        gone = [] if dropped is None else [dropped.hex()]
        number = self.reports[desk.index]
        report = shard_report("q", ended, shard=desk.index, number=number, whole=number == 1, dropped=gone)
        self.collector.take(report)
        self.collector.snapshot()

    def taken(self, memory: Callable[[], int]) -> Taken:
        for desk in self.desks:
            desk.durable.checkpoint()()
        checkpoint = sum(len(freeze(desk.ledger)()) for desk in self.desks)
        gc.collect()
        disk = sum(path.stat().st_size for desk in self.desks for path in desk.directory.rglob("*") if path.is_file())
        descriptors = count_files(self.directory)
        return Taken(sum(len(desk.kept()) for desk in self.desks), descriptors, memory(), checkpoint, disk)


@pytest.fixture
def memory() -> Iterator[Callable[[], int]]:
    with allocated_in(__file__, calls=16) as held:
        yield held


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not LISTED.is_dir(), reason="descriptors can be listed on Linux only")
def test_an_hour_of_runs_calls_and_edits_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Callable[[], int]
) -> None:
    """Memory, functions, descriptors, disk and checkpoints are flat, though each call and run has its own function."""
    # What has a bound reaches it within the first rounds.
    monkeypatch.setattr(lane, "MAX_SETTLED", RUNS)
    monkeypatch.setattr(reader, "_CACHED_BYTES", 100_000)
    hour = Hour(tmp_path / "log")
    taken = []
    for _ in range(ROUNDS):
        hour.play()
        taken.append(hour.taken(memory))
    first, last = taken[WARM - 1], taken[-1]

    assert last.functions == first.functions
    assert last.descriptors <= first.descriptors
    assert last.memory <= first.memory + SLACK
    assert last.checkpoint <= first.checkpoint + 100, "numbers that have become longer"
    assert last.disk <= 1.1 * first.disk
    assert (
        sum(len(queue.runs) for queue in hour.collector.known.queues.values())
        == hour.collector.snapshot().runs_total
        == KEPT
    )
    for desk in hour.desks:
        assert len(desk.ledger.books) == KEPT + 1
        assert len(desk.ledger.packed) <= KEPT + 1
        desk.reopen(checkpoint=True)
        desk.durable.journal.log.close()
    assert sum(len(desk.ledger.books) for desk in hour.desks) == SHARDS * (KEPT + 1)
