"""Opens the crash states of a recorded session and judges what is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dqlab.errors import DqlabError
from dqlab.log.files import Files
from dqlab.log.log import Log
from dqlab.log.writer import LogOptions
from dqlab.testing import FakeClock
from tests.log.crash.invariants import Outcome, Promise, check, check_same, reopen
from tests.log.crash.ledger import History, Ledger
from tests.log.crash.memory import MemoryFiles, RecordedMemory
from tests.log.crash.recording import RecordingFiles, read_tree
from tests.log.crash.simulator import Contents, CrashState, Image, Key, crash_states, materialise
from tests.log.crash.workload import Workload

__all__ = ["Verdict", "explore"]

SHOWN = 10
STEPS_OF_A_LIFE = 12


@dataclass
class Verdict:
    """How many states were looked at, and what was wrong.

    Attributes
    ----------
    cases : int
        Pairs of a disk and a promise.
    states : int
        Different disks that were opened.
    recoveries, lives : int
        How many of them were crashed again while they were being recovered, or went on being written to.
    second : int
        Different disks of those second crashes, opened too and not counted above.
    compared : int
        How many of all were opened on a real file system as well.
    violations : int
        Cases in which a promise was broken.
    shown : list of str
        The first of them.
    """

    cases: int = 0
    states: int = 0
    recoveries: int = 0
    lives: int = 0
    second: int = 0
    compared: int = 0
    violations: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, state: object, wrong: list[str]) -> None:
        """Note what was wrong with a state."""
        if wrong:
            self.violations += 1
            if len(self.shown) < SHOWN:
                self.shown.append(f"{state}: {'; '.join(wrong)[:600]}")

    def __str__(self) -> str:
        """The first violations, for the message of a failing test."""
        return f"{self.violations} of {self.cases} cases:\n" + "\n".join(self.shown)


class Explorer:
    """Opens disks, each different one once, and keeps what it found."""

    def __init__(self, box: Path, options: LogOptions, *, compare_every: int) -> None:
        self.contents = Contents()
        self.verdict = Verdict()
        self.first: dict[Key, Outcome] = {}
        self.second: dict[Key, Outcome] = {}
        self._box = box
        self._options = options
        self._compare_every = compare_every

    def open(self, files: Files) -> Outcome:
        """Open a log, always at the same instant: so equal disks come to equal ends."""
        return reopen(self._box / "log", self._options, files=files, clock=FakeClock())

    def look(self, state: CrashState, known: dict[Key, Outcome]) -> tuple[Outcome, MemoryFiles | None]:
        """What a disk holds; and the disk as it was left, when this was the first look at it."""
        outcome = self.first.get(state.key) or self.second.get(state.key)
        if outcome is not None:
            return outcome, None
        files = MemoryFiles(self._box, state.image)
        outcome = known[state.key] = self.open(files)
        if (len(self.first) + len(self.second)) % self._compare_every == 1:
            self.verdict.compared += 1
            self.verdict.add(f"{state}, in memory and not", self._compare(state.image, outcome, files))
        return outcome, files

    def _compare(self, image: Image, outcome: Outcome, files: MemoryFiles) -> list[str]:
        """What a real file system would have made of a disk: the same, but for the name of a log that is new."""
        materialise(image, self._box)
        real = self.open(Files())
        found, left = read_tree(self._box), files.tree()
        if not any("MANIFEST" in path for path in image):
            found, left = dict.fromkeys(found), dict.fromkeys(left)
        wrong = [f"file {path} differs" for path in sorted(found.keys() | left.keys()) if _differ(found, left, path)]
        if (real.live, real.replayed, real.wrong) != (outcome.live, outcome.replayed, outcome.wrong):
            wrong.append(f"holds {real}, not {outcome}")
        return wrong

    # --- and then ---------------------------------------------------------------------------

    def crash_again(self, state: CrashState, history: History, seed: int) -> None:
        """Crash at every point of the recovery from a crash."""
        files = RecordedMemory(self._box, state.image)
        files.mark(state.mark)
        self.open(files)
        self.verdict.recoveries += 1
        promise: Promise = state.mark
        for again in crash_states(files, self.contents, seed=seed, subsets=1, mixtures=1):
            outcome, _ = self.look(again, self.second)
            sure = check(outcome, history, promise.synced, promise.issued)
            self.verdict.add(f"{state}, and then in recovery {again}", sure)

    def live_on(self, state: CrashState, seed: int) -> None:
        """Go on after a crash, then close, die or lose power: nothing of the new session may be lost."""
        files, rng = RecordedMemory(self._box, state.image), Random(seed)
        log = Log.open(self._box / "log", options=self._options, files=files, clock=FakeClock())
        ledger = Ledger(log)
        load = Workload(ledger, rng, files.mark)
        wrong = load.wrong
        clean = rng.random() < 0.5
        try:
            load.steps(STEPS_OF_A_LIFE)
            if clean:
                load.commit()
        except DqlabError as error:
            wrong.append(f"cannot go on: {type(error).__name__}: {error}")
        promise = load.promise
        log.close(clean=clean)
        self.verdict.lives += 1
        found = check(self.open(files), ledger.history, promise.written, promise.issued)
        self.verdict.add(f"{state}, and a second life", wrong + found)
        for again in crash_states(files, self.contents, seed=seed, subsets=1, mixtures=1, every=2):
            outcome, _ = self.look(again, self.second)
            found = check(outcome, ledger.history, _sure(again), again.mark.issued)
            self.verdict.add(f"{state}, and in a second life {again}", found)


def _differ(found: Image, left: Image, path: str) -> bool:
    return (path in found) != (path in left) or found[path] != left[path]


def _sure(state: CrashState) -> int:
    promise: Promise = state.mark
    return promise.written if state.whole else promise.synced


def explore(
    recorded: RecordingFiles,
    history: History,
    box: Path,
    options: LogOptions,
    *,
    seed: int = 0,
    again_every: int = 25,
    recovery_every: int = 300,
    life_every: int = 300,
    compare_every: int = 25,
    every: int = 1,
) -> Verdict:
    """Open every crash state of a session and compare it with what had been promised.

    Parameters
    ----------
    recorded : RecordingFiles
        Of the session, with a `Promise` as mark; the log lies in its directory ``log``.
    history : History
        Of the session.
    box : Path
        An empty directory on a fast file system.
    options : LogOptions
        To open with.
    seed : int
        Of all choices.
    again_every, recovery_every, life_every, compare_every : int
        Each so many-th state is opened twice, is crashed again while it is being recovered, goes on being
        written to and is crashed then, is opened on a real file system too.
    every : int
        Take each so many-th prefix only.
    """
    explorer = Explorer(box, options, compare_every=compare_every)
    verdict = explorer.verdict
    for state in crash_states(recorded, explorer.contents, seed=seed, every=every):
        verdict.cases += 1
        outcome, files = explorer.look(state, explorer.first)
        n = len(explorer.first)
        if files is not None and outcome.refused is None:
            if n % again_every == 0:
                verdict.add(f"{state}, opened again", check_same(outcome, explorer.open(files)))
            if n % recovery_every == 0:
                explorer.crash_again(state, history, seed + n)
            if n % life_every == life_every // 2:
                explorer.live_on(state, seed + n)
        verdict.add(state, check(outcome, history, _sure(state), state.mark.issued))
    verdict.states, verdict.second = len(explorer.first), len(explorer.second)
    return verdict
