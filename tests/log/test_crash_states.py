"""A loss of power at any moment: every legal disk is built, opened and compared with what had been confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from dqlab.errors import DqlabError
from dqlab.log import Log, LogOptions
from tests.log.crash.exploration import Verdict, explore, first
from tests.log.crash.invariants import check_space, reopen
from tests.log.crash.ledger import Ledger
from tests.log.crash.recording import (
    FailingSync,
    NoDirectorySync,
    NoSync,
    RecordingFiles,
    RenameBeforeSync,
    read_tree,
)
from tests.log.crash.workload import SMALL, Workload, run_session, small_options

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STATES = "crash states"


def two_sessions(files: RecordingFiles, seed: int, options: LogOptions, *, steps: int) -> Ledger:
    """A mixed load, a clean reopening, more load; the log is left open at the end."""
    directory = files.root / "log"
    on_promise = files.mark
    load, ledger = run_session(directory, steps, seed, options=options, files=files, on_promise=on_promise)
    more, again = run_session(
        directory,
        steps // 2,
        seed + 1000,
        options=options,
        files=files,
        history=ledger.history,
        on_promise=on_promise,
        close=False,
    )
    again.log.close(clean=False)
    assert not load.wrong
    assert not more.wrong
    return again


def count(files: RecordingFiles, kind: str, suffix: str) -> int:
    """How many operations of a kind the log made on files of a kind."""
    return sum(
        operation.kind == kind and (operation.new or operation.path).endswith(suffix) for operation in files.operations
    )


def note(tally: Counter[str], verdict: Verdict) -> None:
    tally[STATES] += verdict.states + verdict.second
    tally["crash cases (a disk and a promise)"] += verdict.cases
    tally["crash states during recovery"] += verdict.second
    tally["lives after a crash"] += verdict.lives
    tally["violations"] += verdict.violations


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(4))
def test_no_crash_state_of_a_mixed_load_loses_what_was_confirmed(
    seed: int, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """Puts, settles, rolls, checkpoints, collection and compaction: whatever is confirmed after a sync is there."""
    files = RecordingFiles(disk)
    ledger = two_sessions(files, seed, SMALL, steps=70)

    verdict = explore(files, ledger.history, box, SMALL, seed=seed)

    note(tally, verdict)
    assert count(files, "unlink", ".seg"), "this load never collected a segment: it proves too little"
    assert verdict.states > 100
    assert not verdict.violations, first(verdict)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 109))
def test_no_crash_state_of_many_loads_loses_what_was_confirmed(
    seed: int, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """The same, longer and with segments of other sizes."""
    options = small_options(segment_bytes=(1024, 2048, 16384)[seed % 3])
    files = RecordingFiles(disk)
    ledger = two_sessions(files, seed, options, steps=110)

    verdict = explore(files, ledger.history, box, options, seed=seed, recovery_every=60)

    note(tally, verdict)
    assert not verdict.violations, first(verdict)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sync", ["interval", "os"])
def test_without_a_sync_per_commit_a_crash_loses_only_the_unsynced_end(
    sync: str, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """What a sync, a roll or a checkpoint made durable stays; the log opens whatever became of the rest."""
    options = small_options(sync=sync, interval=3600.0)
    files = RecordingFiles(disk)
    ledger = two_sessions(files, 7, options, steps=60)

    verdict = explore(files, ledger.history, box, options, every=2)

    note(tally, verdict)
    assert verdict.states > 100
    assert not verdict.violations, first(verdict)


@pytest.mark.parametrize("sync", ["always", "os"])
def test_a_segment_is_not_collected_before_the_settles_that_allow_it_are_durable(
    sync: str, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """A settle in memory is no reason to delete a message: after a crash the settle never was."""
    options = small_options(sync=sync)
    files = RecordingFiles(disk)
    load, ledger = run_session(disk / "log", 0, 0, options=options, files=files, on_promise=files.mark, close=False)
    for _ in range(6):
        ledger.put(20)
        load.note()
    load.checkpoint()
    load.note()
    load.checkpoint()
    ledger.settle(0, ledger.next_id, result=False)
    load.note()
    if sync == "os":
        load.commit()

    load.collect()

    ledger.log.close(clean=False)
    assert count(files, "unlink", ".seg")
    verdict = explore(files, ledger.history, box, options)
    note(tally, verdict)
    assert not verdict.violations, first(verdict)


@pytest.mark.parametrize("n", range(1, 22, 4))
def test_after_a_failed_sync_nothing_confirmed_depends_on_the_lost_pages(
    n: int, disk: Path, box: Path, tally: Counter[str]
) -> None:
    """The kernel drops the pages of a failed sync and says yes the next time: the log must not believe it."""
    files = FailingSync(disk)
    files.n = n
    ledger = _load_until_it_fails(files)

    verdict = explore(files, ledger.history, box, SMALL, seed=n, every=4) if ledger else Verdict()

    note(tally, verdict)
    assert not verdict.violations, first(verdict)


def _load_until_it_fails(files: FailingSync) -> Ledger | None:
    try:
        log = Log.open(files.root / "log", options=SMALL, files=files)
    except DqlabError:
        return None
    ledger = Ledger(log)
    load = Workload(ledger, Random(files.n), files.mark)
    with suppress(DqlabError):
        load.steps(50)
        load.commit()
    with suppress(DqlabError):
        log.close(clean=False)
    return ledger


@pytest.mark.parametrize("fault", [NoDirectorySync, NoSync, RenameBeforeSync])
def test_a_planted_fault_is_found(
    fault: Callable[[Path], RecordingFiles], disk: Path, box: Path, tally: Counter[str]
) -> None:
    """A simulator that finds nothing in a log that forgets to sync would prove nothing about one that does."""
    files = fault(disk)
    ledger = two_sessions(files, 3, SMALL, steps=30)

    verdict = explore(files, ledger.history, box, SMALL, every=4, again_every=10**9, recovery_every=10**9)

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
