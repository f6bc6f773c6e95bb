"""An hour's work in small: what a shard takes up at the end is what it took up at the beginning."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import NamedTuple

import pytest

from dqlab.frame import NO_ID, Outcome
from dqlab.store.compaction import MOSTLY, compaction, run_through
from dqlab.store.snapshot import freeze
from tests.store.test_functions import Desk, function, run_of

ROUNDS = 5
RUNS = 20
"""Runs of a round: all but a few are dropped, some are retried with new code first."""
KEPT = 3


class Taken(NamedTuple):
    """What there is after a round; all but the first two in bytes."""

    functions: int
    descriptors: int
    checkpoint: int
    disk: int


class Hour:
    """Runs that are made, retried and dropped, single calls, and functions that are edited."""

    def __init__(self, directory: Path) -> None:
        self.desk = Desk(directory)
        self.made = 0
        self.kept: list[bytes] = []

    def play(self) -> None:
        """One round."""
        for _ in range(RUNS):
            self.made += 1
            run = run_of(self.made)
            self.desk.start(run, self.made)
            self.desk.put(run, self.made, n=3)
            self.desk.seal(run)
            if self.made % 3 == 0:
                self.desk.work(Outcome.FAIL)
                self._retry(run)
            self.desk.work()
            self.kept.append(run)
            self._call()
            if len(self.kept) > KEPT:
                done = self.kept.pop(0)
                self.desk.order("drop", done, {})
                del self.desk.sequences[done]
        self.desk.durable.journal.log.commit()
        self.desk.ledger.news.clear()  # as the shell does that reports them
        run_through(compaction(self.desk.durable, below=MOSTLY))

    def _retry(self, run: bytes) -> None:
        newer = 1_000_000 + self.made
        code = {"name": "f", "hash": str(newer), "short": "", "source": "", "cell": None, "blob": function(newer)}
        ids = list(self.desk.ledger.shard.lanes[run].dead)
        meta = {"ids": ids, "ordinals": [], "function": function(newer), "blob": bytes(10_000), "code": code}
        self.desk.order("retry", run, meta)

    def _call(self) -> None:
        """Make a single call with a function of its own, and read its result."""
        first = self.desk.ledger.shard.next_id
        self.desk.put(NO_ID, 2_000_000 + self.made, n=1)
        self.desk.work()
        self.desk.order("forget", NO_ID, {"ids": [[first, first + 1]], "coming": True})

    def taken(self) -> Taken:
        self.desk.durable.checkpoint()()
        gc.collect()
        files = [path.stat().st_size for path in self.desk.directory.rglob("*") if path.is_file()]
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return Taken(len(self.desk.kept()), descriptors, len(freeze(self.desk.ledger)()), sum(files))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors can be listed on Linux only")
def test_an_hour_of_runs_calls_and_edits_leaves_nothing_behind(tmp_path: Path) -> None:
    """Functions, descriptors, disk and checkpoints are flat, although each call and run has its own function."""
    hour = Hour(tmp_path / "log")
    taken = []
    for _ in range(ROUNDS):
        hour.play()
        taken.append(hour.taken())
    first, last = taken[1], taken[-1]  # in the first round caches fill

    assert last.functions == first.functions
    assert last.descriptors <= first.descriptors
    # Ids of single calls between those of runs are remembered as one stretch each.
    assert last.checkpoint <= first.checkpoint + 32 * RUNS * ROUNDS
    assert last.disk <= 1.2 * first.disk
    assert len(hour.desk.ledger.books) == KEPT + 1
    hour.desk.reopen(checkpoint=True)
    assert len(hour.desk.kept()) <= first.functions
    hour.desk.durable.journal.log.close()
