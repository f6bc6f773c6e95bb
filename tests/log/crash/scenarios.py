"""What a log goes through before it is crashed: one kind of event each, as often and as tightly as it comes.

A scenario says itself whether what it is about has happened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from dqlab.errors import DqlabError
from dqlab.log.errors import Fenced
from dqlab.log.log import Log
from dqlab.log.records import RecordType
from dqlab.log.writer import LogOptions
from dqlab.testing import FakeClock
from tests.log.crash.faults import FullDisk
from tests.log.crash.ledger import RESULTS, History, Ledger
from tests.log.crash.recording import RecordingFiles
from tests.log.crash.workload import Workload

__all__ = ["SCENARIOS", "Life", "RecordedFullDisk", "mixed"]

NO_UPKEEP = frozenset({"checkpoint", "collect", "compact"})
GHOST = 1 << 40
"""The id and serial of what a process writes that has lost its log: no later process may ever see it."""


class RecordedFullDisk(RecordingFiles, FullDisk):
    """A disk of limited size, recorded."""

    def __init__(self, root: Path) -> None:
        FullDisk.__init__(self, 1 << 30)
        RecordingFiles.__init__(self, root)


class HastyClock(FakeClock):
    """A hundredth of a second passes with each look."""

    def monotonic(self) -> float:
        self.advance(0.01)
        return super().monotonic()


class Life:
    """One log through all its sessions, with one history.

    Parameters
    ----------
    files : RecordingFiles
        The log lies in its directory ``log``.
    options : LogOptions
    seed : int
    """

    def __init__(self, files: RecordingFiles, options: LogOptions, seed: int) -> None:
        self.files, self.options = files, options
        self.random = Random(seed)
        self.clock = HastyClock() if options.sync == "interval" else FakeClock()
        self.history: History | None = None
        self._synced: int | None = None
        self._loads: list[Workload] = []

    def begin(self, *, takeover: bool = False) -> Workload:
        """Open the log."""
        place = self.files.root / "log"
        log = Log.open(place, options=self.options, files=self.files, clock=self.clock, takeover=takeover)
        ledger = Ledger(log, self.history)
        self.history = ledger.history
        self._loads.append(Workload(ledger, self.random, self.files.mark, synced=self._synced))
        return self._loads[-1]

    def close(self, load: Workload) -> None:
        """Close the log as one should."""
        load.log.close()
        load.closed()
        self._synced = load.promise.synced

    def die(self, load: Workload) -> None:
        """Close the log as the death of its process does."""
        load.log.close(clean=False)
        self._synced = load.promise.synced

    @property
    def wrong(self) -> list[str]:
        """What was read wrong in any session."""
        return [sentence for load in self._loads for sentence in load.wrong]


def mixed(life: Life, steps: int = 70) -> None:
    """A bit of everything, a clean reopening, more of it."""
    load = life.begin()
    load.steps(steps)
    load.commit()
    life.close(load)
    load = life.begin()
    load.steps(steps // 2)
    load.commit()
    life.die(load)


# --- one session ------------------------------------------------------------------------------


def rolls(life: Life) -> None:
    """First in, first out: segments are sealed, checkpoints taken, two of them let the oldest segments go."""
    load = life.begin()
    for turn in range(9):
        for _ in range(3):
            load.put()
        load.commit()
        load.ledger.settle(max(0, load.ledger.next_id - 30), 24, result=turn % 3 == 0)
        load.tell()
        load.commit()
        if turn % 2:
            load.roll()
        load.put()
        load.checkpoint()
        load.collect()
    life.die(load)
    assert life.files.count("unlink", ".seg") >= 3
    assert life.files.count("unlink", "-0000000003") >= 1, "no third checkpoint replaced the first"


def compaction(life: Life) -> None:
    """Copies of copies: what is copied once is thinned out and copied again, while life goes on."""
    load = life.begin()
    for _ in range(3):
        for _ in range(6):
            load.ledger.put(10)
        load.tell()
        load.commit()
        _thin_out(load, keep_each=5)
        load.checkpoint()
        load.checkpoint()
        load.compact()
    life.die(load)
    assert load.moved > 10
    assert life.files.count("unlink", ".seg") >= 3


def _thin_out(load: Workload, *, keep_each: int) -> None:
    alive = sorted(id for id in load.ledger.live if id < RESULTS)
    for at, id in enumerate(alive):
        if at % keep_each:
            load.ledger.settle(id, 1, result=False)
    load.tell()
    load.commit()


def full_disk(life: Life) -> None:
    """Nothing more fits, records wait in memory, and go on when there is room."""
    assert isinstance(life.files, RecordedFullDisk)
    load = life.begin()
    for _ in range(3):
        load.steps(12, without=NO_UPKEEP)
        load.checkpoint()
        life.files.room = 300
        with suppress(DqlabError):
            for _ in range(20):
                load.put()
                load.commit()
        with suppress(DqlabError):
            load.settle()
            load.checkpoint()
        life.files.room = 1 << 20
        load.commit()
        load.checkpoint()
        load.collect()
    life.die(load)


def idle(life: Life) -> None:
    """Bursts with pauses between them; after each burst the log reports that all is synced."""
    load = life.begin()
    for _ in range(12):
        load.steps(5, without=NO_UPKEEP)
        load.commit()
        load.idle()
    life.die(load)


# --- several ----------------------------------------------------------------------------------


def sessions(life: Life) -> None:
    """Opened and closed again and again, each time an epoch, with more or less in between."""
    for turn in range(7):
        load = life.begin()
        load.steps((0, 3, 12)[turn % 3], also={"idle": 4, "roll": 2})
        life.close(load)
    assert life.files.count("create", "EPOCH-0000000007")


def deaths(life: Life) -> None:
    """Each session ends by the death of its process, with something appended that was never committed."""
    for turn in range(7):
        load = life.begin()
        load.steps((2, 8, 14)[turn % 3], also={"roll": 2})
        load.commit()
        load.log.append(RecordType.PUT, [b"never committed"], count=1, base=GHOST, aux=GHOST)
        life.die(load)
    assert life.files.count("create", "EPOCH-0000000007")


def takeovers(life: Life) -> None:
    """The owner only slept: when it wakes up it writes, but the log is another's, and no process reads that."""
    old = life.begin()
    for _ in range(4):
        old.steps(10)
        old.sync()
        new = life.begin(takeover=True)
        new.steps(4)
        life.clock.advance(60.0)
        old.log.append(RecordType.PUT, [b"too late"], count=1, base=GHOST, aux=GHOST)
        _is_fenced(old.log.commit)
        new.steps(4)
        _is_fenced(old.ledger.checkpoint)
        _is_fenced(old.log.collect)
        old.log.close(clean=False)
        old = new
    old.commit()
    life.die(old)


def _is_fenced(call: Callable[[], object]) -> None:
    try:
        call()
    except Fenced:
        return
    raise AssertionError("it may still write")


SCENARIOS: dict[str, Callable[[Life], None]] = {
    scenario.__name__: scenario for scenario in (mixed, rolls, compaction, full_disk, idle, sessions, deaths, takeovers)
}
