"""A loss of power at any moment: every legal disk is built, opened and compared with what had been confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from dqlab.errors import DqlabError
from dqlab.log.writer import SyncMode
from tests.log.crash.exploration import Verdict, explore
from tests.log.crash.invariants import check_space, reopen
from tests.log.crash.recording import (
    FailingSync,
    NoDirectorySync,
    NoSync,
    RecordingFiles,
    RenameBeforeSync,
    UnlinkBeforeManifest,
    read_tree,
)
from tests.log.crash.scenarios import SCENARIOS, Life, RecordedFullDisk
from tests.log.crash.workload import SMALL, run_session, small_options

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROMISED = 20_000
"""How many different disks are opened at least, those of second crashes not counted."""
MODES: tuple[SyncMode, ...] = ("always", "interval", "os")


class Case(NamedTuple):
    """A scenario and how the log is opened for it."""

    scenario: str
    sync: SyncMode
    seed: int
    segment_bytes: int

    def __str__(self) -> str:
        return f"{self.scenario}-{self.sync}-{self.segment_bytes}-{self.seed}"


CASES = [
    Case(scenario, sync, 10 * at + mode, 2048)
    for at, scenario in enumerate(SCENARIOS)
    for mode, sync in enumerate(MODES)
    if (scenario, sync) != ("idle", "os")  # no sync, so nothing to say
] + [Case("mixed", "always", 100 + at, (4096, 16384)[at]) for at in range(2)]

_VERDICTS: dict[Case, Verdict] = {}


def verdict_on(case: Case, place: Path, tally: Counter[str]) -> Verdict:
    """Let a scenario happen and explore its crash states, once in a run of the tests."""
    if case not in _VERDICTS:
        for name in ("disk", "box"):
            (place / name).mkdir(parents=True)
        files = (RecordedFullDisk if case.scenario == "full_disk" else RecordingFiles)(place / "disk")
        options = small_options(sync=case.sync, segment_bytes=case.segment_bytes)
        life = Life(files, options, case.seed)
        SCENARIOS[case.scenario](life)
        assert not life.wrong
        _VERDICTS[case] = judge(life, place / "box", tally, seed=case.seed)
    return _VERDICTS[case]


def judge(life: Life, box: Path, tally: Counter[str], *, seed: int = 0, every: int = 1) -> Verdict:
    """Explore a life's crash states and count them."""
    if life.history is None:
        return Verdict()
    verdict = explore(life.files, life.history, box, life.options, seed=seed, every=every)
    tally["crash states"] += verdict.states
    tally["crash cases (a disk and a promise)"] += verdict.cases
    tally["crash states of a second crash"] += verdict.second
    tally["recoveries that were crashed"] += verdict.recoveries
    tally["lives after a crash"] += verdict.lives
    tally["opened on a real file system too"] += verdict.compared
    tally["violations"] += verdict.violations
    return verdict


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_crash_state_loses_what_was_confirmed(case: Case, in_memory: Path, tally: Counter[str]) -> None:
    """Whatever the log was doing when the power went, what it had confirmed after a sync is there."""
    verdict = verdict_on(case, in_memory, tally)

    assert verdict.states > 200
    assert not verdict.violations, str(verdict)


def test_twenty_thousand_crash_states_lose_nothing(in_memory: Path, tally: Counter[str]) -> None:
    """The number that is promised; each disk counts once, and only as the first crash of its scenario."""
    verdicts = [verdict_on(case, in_memory / str(case), tally) for case in CASES]

    assert sum(verdict.states for verdict in verdicts) >= PROMISED
    assert sum(verdict.violations for verdict in verdicts) == 0


@pytest.mark.parametrize("sync", MODES)
def test_a_segment_is_not_collected_before_the_settles_that_allow_it_are_durable(
    sync: SyncMode, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """A settle in memory is no reason to delete a message: after a crash the settle never was."""
    life = Life(RecordingFiles(disk), small_options(sync=sync), 0)
    load = life.begin()
    for _ in range(6):
        load.ledger.put(20)
        load.note()
    load.checkpoint()
    load.note()
    load.checkpoint()
    load.ledger.settle(0, load.ledger.next_id, result=False)
    load.note()
    if sync != "always":
        load.commit()

    load.collect()

    life.die(load)
    assert life.files.count("unlink", ".seg")
    verdict = judge(life, box, tally)
    assert not verdict.violations, str(verdict)


@pytest.mark.parametrize("sync", MODES)
@pytest.mark.parametrize("n", range(1, 22, 4))
def test_after_a_failed_sync_nothing_confirmed_depends_on_the_lost_pages(
    n: int, sync: SyncMode, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """The kernel drops the pages of a failed sync and says yes the next time: the log must not believe it."""
    files = FailingSync(disk)
    files.n = n
    life = Life(files, small_options(sync=sync, segment_bytes=2048), n)
    with suppress(DqlabError):
        load = life.begin()
        with suppress(DqlabError):
            load.steps(50)
            load.sync()
        with suppress(DqlabError):
            life.die(load)

    verdict = judge(life, box, tally, seed=n, every=4)

    assert not verdict.violations, str(verdict)


@pytest.mark.parametrize("what", ["sync", "checkpoint"])
def test_a_failed_sync_of_an_earlier_segment_is_not_tried_again(what: str, disk: Path, box: Path) -> None:
    """In the mode "os" several segments wait for a sync: what is said of the newest holds for each of them."""
    files = FailingSync(disk)
    life = Life(files, small_options(sync="os", segment_bytes=1024), 0)
    load = life.begin()
    for _ in range(6):
        load.ledger.put(8)
        load.tell()
        load.commit()
    files.n = 1
    with suppress(DqlabError):
        getattr(load, what)()
    with suppress(DqlabError):
        life.die(load)

    verdict = judge(life, box, Counter())

    assert not verdict.violations, str(verdict)


# --- what a killed session leaves -------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


class DyingAtSync(RecordingFiles):
    """Once it is `armed`, the next data sync never takes place."""

    armed = False

    def sync(self, descriptor: int) -> None:
        if self.armed:
            self.armed = False
            raise Killed
        super().sync(descriptor)


@pytest.mark.parametrize("sync", MODES)
@pytest.mark.parametrize("what", ["sync", "checkpoint"])
def test_a_sync_includes_what_a_killed_session_had_written(what: str, sync: SyncMode, disk: Path, box: Path) -> None:
    """The next session hands it out and builds on it: a sync or a checkpoint of all must not leave it to chance."""
    files = DyingAtSync(disk)
    life = Life(files, small_options(sync=sync, interval=3600.0), 0)
    load = life.begin()
    load.put()
    files.armed = sync == "always"
    with suppress(Killed):
        load.commit()
    life.die(load)
    load = life.begin()
    assert load.ledger.live
    load.put()

    getattr(load, what)()

    life.die(load)
    verdict = judge(life, box, Counter())
    assert not verdict.violations, str(verdict)


# --- tests of the tests -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "scenario"),
    [
        (NoDirectorySync, "mixed"),
        (NoSync, "mixed"),
        (RenameBeforeSync, "mixed"),
        (UnlinkBeforeManifest, "rolls"),
        (NoDirectorySync, "sessions"),
        (NoSync, "compaction"),
        (RenameBeforeSync, "compaction"),
    ],
)
def test_a_planted_fault_is_found(
    fault: Callable[[Path], RecordingFiles], scenario: str, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """A simulator that finds nothing in a log that forgets to sync would prove nothing about one that does."""
    life = Life(fault(disk), small_options(segment_bytes=2048), 3)
    SCENARIOS[scenario](life)
    assert life.history is not None

    seldom = {"again_every": 10**9, "recovery_every": 10**9, "life_every": 10**9}
    verdict = explore(life.files, life.history, box, life.options, every=4, **seldom)

    tally["crash states with planted faults"] += verdict.states
    assert verdict.violations


# --- space ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_space_comes_back(seed: int, disk: Path) -> None:
    """After compaction and collection a log is at most twice what lives in it, and almost nothing when nothing does."""
    load, ledger = run_session(disk / "log", 250, seed, close=False)
    for _ in range(8):
        load.compact()
        load.checkpoint()
    assert load.moved, "nothing was ever compacted: this proves too little"
    assert not check_space(disk / "log", ledger, SMALL)

    load.drain()
    for _ in range(3):
        load.note()
        load.checkpoint()

    assert not check_space(disk / "log", ledger, SMALL)
    assert len(list((disk / "log").glob("*.seg"))) <= 2
    ledger.log.close()


def test_opening_again_and_again_does_not_grow_a_log(disk: Path) -> None:
    """A session in which nothing happens leaves nothing behind."""
    _, ledger = run_session(disk / "log", 60, 1)
    before = read_tree(disk)
    live = ledger.live

    for clean in (True, False) * 6:
        outcome = reopen(disk / "log", SMALL, clean=clean)
        assert outcome.live == live
        assert not outcome.wrong

    after = read_tree(disk)
    assert len(after) <= len(before) + 2
    assert sum(len(data or b"") for data in after.values()) <= sum(len(data or b"") for data in before.values()) + 1024
