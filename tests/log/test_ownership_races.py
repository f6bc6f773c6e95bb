"""One owner at a time: two processes, two threads, a fork, a process that was only paused."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dqlab.log.errors import CannotOpen, Fenced, OwnerStillAlive
from dqlab.log.log import Log
from tests.log.crash.faults import CountingFiles, NoLocks
from tests.log.crash.ledger import Ledger
from tests.log.crash.stranger import Stranger
from tests.log.crash.workload import SMALL, small_options


def owned(directory: Path, **options: Any) -> Ledger:
    """Open a log and replay it."""
    return Ledger(Log.open(directory, options=small_options(**options)))


def test_a_second_process_is_refused_and_told_who_the_owner_is(stranger: Stranger, in_memory: Path) -> None:
    """Two writers of one file would each overwrite what the other confirmed."""
    assert "error" not in stranger.ask("open", directory=str(in_memory / "log"), options={})

    with pytest.raises(OwnerStillAlive) as refused:
        Log.open(in_memory / "log", options=SMALL)

    assert refused.value.pid == stranger.process.pid
    assert refused.value.host == socket.gethostname()
    stranger.ask("put", count=3)
    assert "error" not in stranger.ask("close")
    assert owned(in_memory / "log").live == {0, 1, 2}


def test_a_second_opening_in_the_same_process_is_refused(in_memory: Path) -> None:
    """Two shards of one worker must not share a directory, under whatever path."""
    ledger = owned(in_memory / "log")
    (in_memory / "alias").symlink_to(in_memory / "log")

    for path in (in_memory / "log", in_memory / "alias", in_memory / "." / "log" / ".." / "log"):
        with pytest.raises(OwnerStillAlive):
            Log.open(path, options=SMALL)

    ledger.put(1)
    ledger.log.commit()
    ledger.log.close()
    owned(in_memory / "log").log.close()


def test_of_many_threads_that_open_one_log_one_gets_it(in_memory: Path) -> None:
    """Every time, and when it is closed another process may."""
    gate = threading.Barrier(8)

    def attempt(_: int) -> Log | None:
        gate.wait()
        try:
            return Log.open(in_memory / "log", options=SMALL)
        except OwnerStillAlive:
            return None

    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            winners = [log for log in threads.map(attempt, range(8)) if log is not None]
            assert len(winners) == 1
            winners[0].close()


def test_a_failed_opening_leaves_the_log_free(in_memory: Path) -> None:
    """The registry and the lock are given back on every way out."""
    ledger = owned(in_memory / "log")
    ledger.put(1)
    ledger.log.commit()
    ledger.log.close()
    [manifest] = (in_memory / "log").glob("MANIFEST-*")
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-20])
    for _ in range(2):
        with pytest.raises(Exception, match="damaged"):
            Log.open(in_memory / "log", options=SMALL)
    manifest.write_bytes(whole)

    assert owned(in_memory / "log").live == {0}


def test_a_forked_child_does_not_keep_a_closed_log(stranger: Stranger, in_memory: Path) -> None:
    """A lock belongs to the open file, which a fork shares: the closed log can be had all the same."""
    stranger.ask("open", directory=str(in_memory / "log"), options={})
    stranger.ask("put", count=2)
    child = stranger.ask("fork_idle")["pid"]
    try:
        stranger.ask("close")

        log = Log.open(in_memory / "log", options=SMALL, takeover=True)

        assert Ledger(log).live == {0, 1}
        log.close()
    finally:
        os.kill(child, signal.SIGKILL)
        stranger.ask("reap", pid=child)


def test_a_log_without_locks_is_refused_unless_told_otherwise(in_memory: Path) -> None:
    """On such a file system nothing else keeps a second writer out."""
    with pytest.raises(CannotOpen):
        Log.open(in_memory / "log", options=SMALL, files=NoLocks())

    log = Log.open(in_memory / "log", options=small_options(unsafe_no_lock=True), files=NoLocks())

    assert log.lock == "unsupported"
    log.close()


# --- takeover -------------------------------------------------------------------------------


def test_a_paused_owner_is_fenced_when_it_wakes(stranger: Stranger, in_memory: Path) -> None:
    """Presumed dead and only stopped: what it confirmed before is kept, what it writes afterwards never counts."""
    stranger.ask("open", directory=str(in_memory / "log"), options={})
    confirmed = stranger.ask("put", count=5)["confirmed"]
    stranger.stop()
    try:
        log = Log.open(in_memory / "log", options=SMALL, takeover=True)
        ledger = Ledger(log)
        assert ledger.live == set(confirmed)
        assert log.lock == "bypassed"
        ledger.put(2)
        log.commit()
    finally:
        stranger.send("put", count=7)
        stranger.go_on()

    answer = stranger.answer()

    assert answer.get("error") == "Fenced", answer
    for method in ("commit", "sync", "collect", "checkpoint"):
        assert stranger.ask("call", method=method).get("error") == "Fenced", method
    stranger.ask("close", clean=False)
    ledger.put(1)
    log.commit()
    live = ledger.live
    log.close()
    assert owned(in_memory / "log").live == live


def test_without_takeover_a_paused_owner_keeps_its_log(stranger: Stranger, in_memory: Path) -> None:
    """A refusal changes nothing for the owner."""
    stranger.ask("open", directory=str(in_memory / "log"), options={})
    stranger.stop()
    try:
        with pytest.raises(OwnerStillAlive):
            Log.open(in_memory / "log", options=SMALL)
    finally:
        stranger.go_on()

    assert stranger.ask("put", count=1)["confirmed"] == [0]
    stranger.ask("close")


def _put_one(ledger: Ledger) -> None:
    ledger.put(1)
    ledger.log.commit()


def zombie(stranger: Stranger, directory: Path, at: int, act: str) -> tuple[bool, bool]:
    """Let another process take a log over in the middle of its owner's `at`-th call of the operating system.

    Returns whether the moment came, and whether the owner was fenced.
    """
    seen: dict[str, Any] = {}

    def before(n: int, call: str, arguments: tuple[Any, ...]) -> None:
        if seen.get("from") is not None and n == seen["from"] + at:
            seen["theirs"] = stranger.ask(
                "open", directory=str(directory), options={"unsafe_no_lock": True}, takeover=True, locks=False
            )

    files = CountingFiles(before)
    files.lock = lambda descriptor: "unsupported"  # type: ignore[method-assign]
    ledger = Ledger(Log.open(directory, options=small_options(unsafe_no_lock=True), files=files))
    first = set(ledger.put(3).added)
    ledger.log.commit()
    ledger.settle(0, 1, result=False)
    for _ in range(40):
        first |= set(ledger.put(3).added)
    first.discard(0)
    ledger.log.commit()
    second = set(ledger.put(4).added)
    seen["from"] = len(files.calls)
    fenced = False
    try:
        if act == "checkpoint":
            ledger.checkpoint()
        elif act == "compact":
            ledger.compact()
        ledger.log.commit()
        confirmed = first | second
    except Fenced:
        fenced = True
        confirmed = first
    if "theirs" not in seen:
        ledger.log.close(clean=False)
        return False, fenced
    try:
        with pytest.raises(Fenced):
            _put_one(ledger)
        theirs = seen["theirs"]
        assert "error" not in theirs, theirs
        assert confirmed <= set(theirs["live"]), f"confirmed and not with the new owner: call {at} of {act}"
        assert set(theirs["live"]) <= first | second
        more = stranger.ask("put", count=2)
        assert "error" not in more, more
    finally:
        ledger.log.close(clean=False)
        stranger.ask("close")
    again = owned(directory)
    assert set(theirs["live"]) | set(more["confirmed"]) == again.live, f"call {at} of {act}"
    again.log.close()
    return True, fenced


@pytest.mark.parametrize("act", ["commit", "checkpoint", "compact"])
def test_taken_over_at_any_call_an_owner_confirms_nothing_the_next_one_lacks(
    act: str, stranger: Stranger, in_memory: Path, tally: Counter[str]
) -> None:
    """Without any lock, by the epoch alone: at each call of a commit, a checkpoint, a compaction."""
    at = 0
    fenced = 0
    came = True
    while came:
        came, was_fenced = zombie(stranger, in_memory / f"{act}-{at}", at, act)
        fenced += was_fenced
        at += 1

    tally["takeovers in the middle of a call"] += at - 1
    assert fenced, "no takeover ever came in time: this proves nothing"
