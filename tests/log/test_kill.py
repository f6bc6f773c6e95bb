"""kill -9 of a process that writes, recovers or compacts: what it had said is confirmed is there."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.log.crash.invariants import check, check_same, reopen
from tests.log.crash.stranger import Stranger, read_written
from tests.log.crash.workload import small_options

CONFIRMATIONS = 60
"""How often a child has confirmed something, at most, when its last moments begin."""
LAST_MOMENTS = 0.1
"""How long they are at most, seconds."""


def kill_rounds(
    stranger: Stranger, directory: Path, seed: int, n: int, *, sync: str = "always", threads: bool = False
) -> int:
    """Let a child write, kill it at a random moment, open what it left; again on the same log.

    Returns the number of records that the children had confirmed.
    """
    rng = Random(seed)
    live: set[int] = set()
    total = 0
    options = {"sync": sync}
    for turn in range(n):
        lines = directory / f"lines-{turn}"
        arguments = {"directory": str(directory / "log"), "lines": str(lines), "options": options}
        seed_of_child, confirmations = rng.randrange(1 << 30), rng.choice((0, rng.randrange(1, CONFIRMATIONS)))
        pid = stranger.ask("fork", seed=seed_of_child, threads=threads, confirmations=confirmations, **arguments)["pid"]
        threading.Event().wait(rng.uniform(0, LAST_MOMENTS))
        os.kill(pid, signal.SIGKILL)
        assert stranger.ask("reap", pid=pid)["signal"] == signal.SIGKILL, _error(lines)
        history, confirmed = read_written(lines, live) if lines.exists() else (None, 0)
        outcome = reopen(directory / "log", small_options(**options))
        if history is not None:
            wrong = check(outcome, history, confirmed, history.issued)
            assert not wrong, f"round {turn} of seed {seed}: {wrong}"
            total += max(0, confirmed - history.first)
        live = outcome.live
    return total


def die_at(stranger: Stranger, directory: Path, seed: int, *, die: str, at: int, live: set[int]) -> bool:
    """Let a child die at one call of its recovery or compaction, and look; False when it never got that far."""
    lines = directory / f"lines-{die}-{at}"
    arguments = {"directory": str(directory / "log"), "lines": str(lines), "options": {}}
    pid = stranger.ask("fork", seed=seed, die=die, at=at, **arguments)["pid"]
    assert stranger.ask("reap", pid=pid)["signal"] == signal.SIGKILL, _error(lines)
    history, confirmed = read_written(lines, live) if lines.exists() else (None, 0)
    outcome = reopen(directory / "log", small_options(), clean=True)
    again = reopen(directory / "log", small_options())
    wrong = check_same(outcome, again)
    if history is None:
        wrong += [] if outcome.live == live else [f"killed in recovery, and then {outcome.live ^ live} differ"]
    else:
        wrong += check(outcome, history, confirmed, history.issued)
    assert not wrong, f"killed at call {at} of {die}: {wrong}"
    live.clear()
    live.update(outcome.live)
    return history is None


def _error(lines: Path) -> str:
    path = Path(f"{lines}.error")
    return path.read_text() if path.exists() else "the child ended by itself"


@pytest.mark.cluster
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_has_lost_nothing_it_had_confirmed(
    seed: int, stranger: Stranger, disk: Path, tally: Counter[str]
) -> None:
    """Five deaths in a row of the owner of one log, at any moment."""
    confirmed = kill_rounds(stranger, disk, seed, 5, sync=("always", "os")[seed % 2])

    tally["kill -9 rounds"] += 5
    assert confirmed


@pytest.mark.parametrize("sync", ["always", "os"])
def test_a_killed_writer_of_several_threads_has_lost_nothing_it_had_confirmed(
    sync: str, stranger: Stranger, disk: Path, tally: Counter[str]
) -> None:
    """Appends, commits, checkpoints and compactions at the same time, as in a queue."""
    confirmed = kill_rounds(stranger, disk, 21, 5, sync=sync, threads=True)

    tally["kill -9 rounds"] += 5
    assert confirmed


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_writer_killed_very_often_has_lost_nothing_it_had_confirmed(
    seed: int, stranger: Stranger, disk: Path, tally: Counter[str]
) -> None:
    """Two hundred deaths."""
    sync = ("always", "interval", "os")[seed % 3]
    confirmed = kill_rounds(stranger, disk, seed, 20, sync=sync, threads=seed % 2 == 0)

    tally["kill -9 rounds"] += 20
    assert confirmed > 100


def test_a_process_killed_during_recovery_leaves_a_log_that_recovers(
    stranger: Stranger, disk: Path, tally: Counter[str]
) -> None:
    """At each call of a recovery in turn, until one gets through."""
    kill_rounds(stranger, disk, 11, 1)
    live = reopen(disk / "log", small_options()).live

    at = 0
    while at < 20:
        assert die_at(stranger, disk, 11, die="recovery", at=at, live=live), "recovery makes fewer calls than that"
        at += 1

    tally["kill -9 rounds in recovery"] += at


@pytest.mark.parametrize("at", [0, 3, 6, 10, 15, 20, 25, 30, 40, 50])
def test_a_process_killed_during_compaction_leaves_one_whole_set_of_files(
    at: int, stranger: Stranger, disk: Path, tally: Counter[str]
) -> None:
    """The originals count, or their copies, or both are there."""
    die_at(stranger, disk, at, die="compaction", at=at, live=set())

    tally["kill -9 rounds in compaction"] += 1
