"""A disk that is really full: a small file system of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dqlab.log.errors import DiskFull, LogFailed
from dqlab.log.log import Log
from dqlab.log.records import HEADER_BYTES
from dqlab.testing import FakeClock
from tests.log.crash.ledger import RESULTS, Ledger, payload
from tests.log.crash.workload import small_options

OPTIONS = small_options(segment_bytes=128 << 10, reserve_bytes=256 << 10)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    point = tmp_path / "small"
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(point)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here: a really full disk was NOT tested")
    if mounted.returncode:
        pytest.skip(f"needs root to mount a small file system: a really full disk was NOT tested ({mounted.stderr})")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def fill(ledger: Ledger, clock: FakeClock) -> int:
    """Put until the log says that there is no room; return how many records went in."""
    n = 0
    while True:
        clock.advance(2)
        ids = range(ledger.next_id, ledger.next_id + 50)
        if not ledger.log.room(HEADER_BYTES + sum(len(payload(id)) for id in ids)):
            return n
        ledger.put(len(ids))
        n += 1
        ledger.log.commit()
        assert n < 5000, "room() never said no"


def settle_all(ledger: Ledger) -> None:
    """Settle every message, one record for each few, as consumers do."""
    messages = sorted(id for id in ledger.live if id < RESULTS)
    for first in range(messages[0], messages[-1] + 1, 5):
        ledger.settle(first, 5, result=False)
        ledger.log.commit()


@pytest.mark.cluster
def test_on_a_full_disk_puts_are_refused_settles_go_on_and_space_comes_back(small_disk: Path, clock: FakeClock) -> None:
    """A queue that cannot be emptied because it is full is stuck for ever."""
    ledger = Ledger(Log.open(small_disk / "log", options=OPTIONS, clock=clock))
    before = fill(ledger, clock)
    assert before > 10

    settle_all(ledger)
    ledger.checkpoint()
    ledger.note()
    ledger.log.commit()
    ledger.checkpoint()
    ledger.log.collect()

    clock.advance(2)
    ledger.log.commit()
    assert not ledger.live
    assert ledger.log.room(4000), ledger.log.usage()
    assert fill(ledger, clock) > before // 2
    live = ledger.live
    ledger.log.close()
    again = Ledger(Log.open(small_disk / "log", options=OPTIONS, clock=clock))
    assert again.live == live
    again.log.close()


@pytest.mark.cluster
def test_a_disk_filled_by_another_program_loses_nothing_confirmed(small_disk: Path, clock: FakeClock) -> None:
    """Whatever the log does then, it says so with an error of its own, and opens again when there is room."""
    log = Log.open(small_disk / "log", options=OPTIONS, clock=clock)
    ledger = Ledger(log)
    confirmed: set[int] = set()
    for _ in range(5):
        confirmed |= set(ledger.put(20).added)
        log.commit()
    hog = small_disk / "hog"
    with suppress(OSError), hog.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

    refused = False
    for _ in range(400):
        added = ledger.put(50).added
        try:
            log.commit()
        except (DiskFull, LogFailed):
            refused = True
            break
        confirmed |= set(added)
    assert refused
    hog.unlink()
    log.commit()
    live = ledger.live
    log.close()

    again = Ledger(Log.open(small_disk / "log", options=OPTIONS, clock=clock))
    assert confirmed <= again.live
    assert again.live == live
    again.log.close()


@pytest.mark.cluster
def test_a_log_on_a_full_disk_says_so_and_opens_once_there_is_room(small_disk: Path, clock: FakeClock) -> None:
    ledger = Ledger(Log.open(small_disk / "log", options=OPTIONS, clock=clock))
    fill(ledger, clock)
    live = ledger.live
    ledger.log.close(clean=False)
    hog = small_disk / "hog"
    with suppress(OSError), hog.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

    with pytest.raises(DiskFull):
        Log.open(small_disk / "log", options=OPTIONS, clock=clock)
    hog.unlink()

    again = Ledger(Log.open(small_disk / "log", options=OPTIONS, clock=clock))
    assert again.live == live
    settle_all(again)
    again.log.close()
